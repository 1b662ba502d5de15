"""Permit plugins: objections to a finished division as a whole.

Must not change shares: a permit plugin agrees, or objects with a reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from federation.model.arrays import IntArray
from federation.model.errors import InvalidRequest
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import Amount, Reason
from federation.scheduler.state import CycleState

# "" permits. A plugin of another package returns its objection as text.
PermitPlugin = Callable[[CycleState, IntArray], Reason | str]


@dataclass(frozen=True, slots=True, kw_only=True)
class GangArgs:
    """``min_available_percent``: the part of a workload that must be placed, all clusters
    together.
    """

    min_available_percent: int = 100

    def __post_init__(self) -> None:
        if not 1 <= self.min_available_percent <= 100:
            rule = f"must be from 1 to 100, not {self.min_available_percent}"
            raise InvalidRequest.of("minAvailablePercent", rule)


_WHOLE_GANG = GangArgs()


def gang(state: CycleState, replicas_c: IntArray, args: GangArgs = _WHOLE_GANG) -> Reason | str:
    """Object to a partial placement that places too small a part of the workload."""
    placed = int(replicas_c.sum())
    replicas = state.binding.replicas
    if placed * 100 >= replicas * args.min_available_percent:
        return ""
    amounts = Amount(placed), Amount(replicas), Amount(args.min_available_percent)
    return Reason.of(ReasonCode.GANG_PERCENT_UNMET, *amounts)


PERMITS: Mapping[str, PermitPlugin] = {"Gang": gang}
