"""A move that is being planned, or was: what is decided of it, and what must come of that.

Plain values and functions. Must not choose what moves: plans do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from federation.failover.moves import PLANNED_MOVE, with_evictions
from federation.model.arrays import IntArray
from federation.model.errors import PreconditionFailed
from federation.model.estimate import Estimates
from federation.model.placement import Binding, EvictionTask
from federation.model.reasons import Reason, stored_reason
from federation.model.workload import TargetCluster
from federation.scheduler.decision import Decision, Outcome
from federation.scheduler.triggers import leaving


class StatedMove(Protocol):
    """A move of which somebody has said what leaves where. Each method may raise
    PreconditionFailed: then nothing moves.
    """

    @property
    def why(self) -> Mapping[str, str]:
        """By the names of the clusters that it leaves."""
        ...

    @property
    def triggers(self) -> tuple[Reason, ...]: ...

    def candidate(self, binding: Binding) -> Binding:
        """The binding as it is to be decided."""
        ...

    def whole(self, binding: Binding) -> Binding:
        """What the cycle decides."""
        ...

    def within(self, available: Estimates, positions: Mapping[str, int]) -> Estimates:
        """What of that the binding may use."""
        ...

    def check(self, binding: Binding, decision: Decision) -> None: ...

    def evictions(
        self, before: Binding, placed: Iterable[TargetCluster], now: float
    ) -> tuple[EvictionTask, ...]:
        """The binding's tasks once it is placed there."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlannedMove:
    """The binding leaves clusters; ``why``, by their names.

    It goes from ``before`` to ``after``, which is None as long as that is still to be found out;
    then ``most_c`` are the most units that it may get in each cluster, None: any. Where it
    ``leaves_group`` it goes to an affinity group that it prefers.
    """

    why: Mapping[str, str]
    before: tuple[TargetCluster, ...] = ()
    after: tuple[TargetCluster, ...] | None = None
    most_c: IntArray | None = None
    leaves_group: str = ""

    @property
    def triggers(self) -> tuple[Reason, ...]:
        # Plans are stored with their reasons as text.
        return tuple(map(stored_reason, dict.fromkeys(self.why.values())))

    def candidate(self, binding: Binding) -> Binding:
        """The binding as it is to be decided. Raises PreconditionFailed where it is not any more
        where the plan saw it.
        """
        if self.after is None:
            return binding
        if set(binding.clusters) != set(self.before):
            text = f"it is at {_shares(binding.clusters)} now, not at {_shares(self.before)}"
            raise PreconditionFailed(text, reason="NOT_FEASIBLE")
        return replace(binding, clusters=self.after)

    def whole(self, binding: Binding) -> Binding:
        """What the cycle decides: all replicas move, or none. Raises PreconditionFailed."""
        placement = replace(binding.placement, partial=False)
        if self.leaves_group:
            groups = [group.name for group in placement.affinity_groups]
            if self.leaves_group not in groups[1:]:
                text = "its affinity groups were changed since it was placed"
                raise PreconditionFailed(text, reason="NOT_FEASIBLE")
            preferred = placement.affinity_groups[: groups.index(self.leaves_group)]
            placement = replace(placement, affinity_groups=preferred)
        return replace(leaving(binding, self.why), placement=placement)

    def within(self, available: Estimates, positions: Mapping[str, int]) -> Estimates:  # noqa: ARG002 - it knows positions
        """What of that the binding may use."""
        if self.most_c is None:
            return available
        return replace(available, replicas_c=np.minimum(available.replicas_c, self.most_c))

    def check(self, binding: Binding, decision: Decision) -> None:
        """Raises PreconditionFailed where it would not go where the plan says, or not leave as a
        plan may say it.
        """
        if self.after is not None:
            if set(decision.clusters) != set(self.after):
                text = f"it would go to {_shares(decision.clusters)} now"
                raise PreconditionFailed(text, reason="NOT_FEASIBLE")
            return
        if decision.outcome is not Outcome.SCHEDULED:
            raise PreconditionFailed(str(decision.reason), reason="NOT_FEASIBLE")
        after = {each.name: each.replicas for each in decision.clusters}
        for target in binding.clusters:
            if not self.leaves_group and target.name in self.why and target.name in after:
                text = f"it would stay in {target.name}"
                raise PreconditionFailed(text, reason="NOT_FEASIBLE")
            # There is no graceful way to keep a part of it running.
            if after.get(target.name, target.replicas) < target.replicas:
                text = f"it would stay in {target.name}, with fewer replicas"
                raise PreconditionFailed(text, reason="NOT_FEASIBLE")

    def evictions(
        self, before: Binding, placed: Iterable[TargetCluster], now: float
    ) -> tuple[EvictionTask, ...]:
        """The binding's tasks once it is placed there."""
        return with_evictions(before, PLANNED_MOVE, self.why, placed, now)


def _shares(clusters: Iterable[TargetCluster]) -> str:
    return ", ".join(f"{each.name}={each.replicas}" for each in clusters) or "no cluster"
