"""Permit plugins: whether a finished division may be, as a whole.

Must not change shares: it is yes, or no with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from federation.model.arrays import IntArray
from federation.model.errors import InvalidRequest
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import Amount, Reason
from federation.scheduler.state import CycleState

# "" permits. A plug-in that does not come with the scheduler answers its objection as text.
PermitPlugin = Callable[[CycleState, IntArray], Reason | str]


@dataclass(frozen=True, slots=True, kw_only=True)
class GangArgs:
    """``min_available_percent``: how much of a workload must be placed, all clusters together."""

    min_available_percent: int = 100

    def __post_init__(self) -> None:
        if not 1 <= self.min_available_percent <= 100:
            rule = f"must be from 1 to 100, not {self.min_available_percent}"
            raise InvalidRequest.of("minAvailablePercent", rule)


_WHOLE_GANG = GangArgs()


def gang(state: CycleState, replicas_c: IntArray, args: GangArgs = _WHOLE_GANG) -> Reason | str:
    """A partial placement only where enough of the workload runs to be worth anything."""
    placed = int(replicas_c.sum())
    wanted = state.binding.replicas
    if placed * 100 >= wanted * args.min_available_percent:
        return ""
    amounts = Amount(placed), Amount(wanted), Amount(args.min_available_percent)
    return Reason.of(ReasonCode.GANG_PERCENT_UNMET, *amounts)


PERMITS: Mapping[str, PermitPlugin] = {"Gang": gang}
