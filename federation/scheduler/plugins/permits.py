"""Permit plugins: whether a finished division may be, as a whole.

Must not change shares: it is yes, or no with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from federation.model.arrays import IntArray
from federation.model.errors import InvalidRequest
from federation.scheduler.state import CycleState

PermitPlugin = Callable[[CycleState, IntArray], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class GangArgs:
    """``min_available_percent``: how much of a workload must be placed, all clusters together."""

    min_available_percent: int = 100

    def __post_init__(self) -> None:
        if not 1 <= self.min_available_percent <= 100:
            rule = f"must be from 1 to 100, not {self.min_available_percent}"
            raise InvalidRequest.of("minAvailablePercent", rule)


_WHOLE_GANG = GangArgs()


def gang(state: CycleState, replicas_c: IntArray, args: GangArgs = _WHOLE_GANG) -> str:
    """A partial placement only where enough of the workload runs to be worth anything."""
    placed = int(replicas_c.sum())
    wanted = state.binding.replicas
    if placed * 100 >= wanted * args.min_available_percent:
        return ""
    return f"{placed} of {wanted} replicas are less than {args.min_available_percent} percent"


PERMITS: Mapping[str, PermitPlugin] = {"Gang": gang}
