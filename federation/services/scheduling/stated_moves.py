"""Moves whose outcome somebody has stated: which clusters a binding leaves, and where it may go.

Plain values and functions. Must not choose the moves: plans and failover do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from federation.failover.evictions import taken_back
from federation.failover.moves import PLANNED_MOVE, PODS_PENDING, with_evictions
from federation.model.arrays import IntArray
from federation.model.errors import PreconditionFailed
from federation.model.estimate import Estimates
from federation.model.placement import Binding, EvictionTask
from federation.model.readable import plural
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import ClusterName, Reason, stored_reason
from federation.model.workload import TargetCluster
from federation.scheduler.decision import Decision, Outcome
from federation.scheduler.triggers import leaving


class StatedMove(Protocol):
    """A move with a stated outcome. If a method raises PreconditionFailed, nothing moves."""

    @property
    def why(self) -> Mapping[str, str]:
        """The reason for each cluster that the binding leaves, by name."""
        ...

    @property
    def triggers(self) -> tuple[Reason, ...]: ...

    def candidate(self, binding: Binding) -> Binding:
        """Return the binding as it is to be decided."""
        ...

    def whole(self, binding: Binding) -> Binding:
        """Return the binding that the scheduling cycle decides."""
        ...

    def within(self, available: Estimates, positions: Mapping[str, int]) -> Estimates:
        """Return the part of the available replicas that the binding may use."""
        ...

    def check(self, binding: Binding, decision: Decision) -> None: ...

    def evictions(
        self, former: Binding, placed: Iterable[TargetCluster], now: float
    ) -> tuple[EvictionTask, ...]:
        """Return the eviction tasks of the binding once it is placed in these clusters."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlannedMove:
    """A move of a plan: the binding leaves the clusters of ``why``.

    It goes from ``before`` to ``after``, which is None while the plan is being made. Until then
    ``most_c`` limits the units that it may get in each cluster (None: no limit). With
    ``leaves_group`` it goes to an affinity group that it prefers to that one.
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
        """Return the binding as it is to be decided.

        Raises PreconditionFailed if it is no longer where the plan found it.
        """
        if self.after is None:
            return binding
        if set(binding.clusters) != set(self.before):
            text = f"it is at {_shares(binding.clusters)} now, not at {_shares(self.before)}"
            raise PreconditionFailed(text, reason="NOT_FEASIBLE")
        return replace(binding, clusters=self.after)

    def whole(self, binding: Binding) -> Binding:
        """Return the binding to decide: all replicas move, or none. Raises PreconditionFailed."""
        placement = replace(binding.placement, partial=False)
        if self.leaves_group:
            groups = [group.name for group in placement.affinity_groups]
            if self.leaves_group not in groups[1:]:
                text = "its affinity groups were changed since it was placed"
                raise PreconditionFailed(text, reason="NOT_FEASIBLE")
            preferred = placement.affinity_groups[: groups.index(self.leaves_group)]
            placement = replace(placement, affinity_groups=preferred)
        return replace(leaving(binding, self.why), placement=placement)

    def within(self, available: Estimates, positions: Mapping[str, int]) -> Estimates:  # noqa: ARG002 - the limits are by position
        """Return the part of the available replicas that the binding may use."""
        if self.most_c is None:
            return available
        return replace(available, replicas_c=np.minimum(available.replicas_c, self.most_c))

    def check(self, binding: Binding, decision: Decision) -> None:
        """Raise PreconditionFailed if the decision differs from the plan.

        It also raises if the binding would leave a cluster in a way that no plan may state.
        """
        if self.after is not None:
            if set(decision.clusters) != set(self.after):
                text = f"it would go to {_shares(decision.clusters)} now"
                raise PreconditionFailed(text, reason="NOT_FEASIBLE")
            return
        if decision.outcome is not Outcome.SCHEDULED:
            raise PreconditionFailed(str(decision.reason), reason="NOT_FEASIBLE")
        after = _replicas_by_cluster(decision.clusters)
        for target in binding.clusters:
            if not self.leaves_group and target.name in self.why and target.name in after:
                text = f"it would stay in {target.name}"
                raise PreconditionFailed(text, reason="NOT_FEASIBLE")
            # There is no graceful way to keep a part of it running.
            if after.get(target.name, target.replicas) < target.replicas:
                text = f"it would stay in {target.name}, with fewer replicas"
                raise PreconditionFailed(text, reason="NOT_FEASIBLE")

    def evictions(
        self, former: Binding, placed: Iterable[TargetCluster], now: float
    ) -> tuple[EvictionTask, ...]:
        """Return the eviction tasks of the binding once it is placed in these clusters."""
        return with_evictions(former, PLANNED_MOVE, self.why, placed, now)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PendingPodsMove:
    """A move of replicas whose pods find no node: ``lost`` by cluster, each with its reason.

    The binding gets as many replicas elsewhere, or stays as it is.
    """

    lost: Mapping[str, int]
    why: Mapping[str, str]

    @property
    def triggers(self) -> tuple[Reason, ...]:
        return tuple(map(stored_reason, self.why.values()))

    def candidate(self, binding: Binding) -> Binding:
        """Return the binding. Raises PreconditionFailed if a cluster has fewer replicas by now."""
        replicas = _replicas_by_cluster(binding.clusters)
        for name, count in self.lost.items():
            if replicas.get(name, 0) < count:
                text = f"it has {plural(replicas.get(name, 0), 'replica')} in {name} by now"
                raise PreconditionFailed(text, reason="NOT_FEASIBLE")
        return binding

    def whole(self, binding: Binding) -> Binding:
        """Return the binding with the replicas that run. It may grow elsewhere."""
        return replace(binding, clusters=self._remaining(binding))

    def within(self, available: Estimates, positions: Mapping[str, int]) -> Estimates:
        """Return the available replicas without those in the clusters that lose some."""
        replicas_c = available.replicas_c.copy()
        for name in self.lost:
            if name in positions:
                replicas_c[positions[name]] = 0
        return replace(available, replicas_c=replicas_c)

    def check(self, binding: Binding, decision: Decision) -> None:
        """Raise PreconditionFailed if other clusters cannot take all of the lost replicas."""
        after = _replicas_by_cluster(decision.clusters)
        remaining = _replicas_by_cluster(self._remaining(binding))
        if any(after.get(name, 0) > remaining.get(name, 0) for name in self.lost):
            text = "it would be divided as before"
            raise PreconditionFailed(text, reason="NOT_FEASIBLE")
        all_stay = all(after.get(name, 0) >= count for name, count in remaining.items())
        if not all_stay or sum(after.values()) < sum(item.replicas for item in binding.clusters):
            raise PreconditionFailed("nothing else has room for it", reason="NOT_FEASIBLE")

    def evictions(
        self, former: Binding, placed: Iterable[TargetCluster], now: float
    ) -> tuple[EvictionTask, ...]:
        """Return the tasks that keep the binding from going back while they stand."""
        return with_evictions(former, PODS_PENDING, self.why, placed, now)

    def _remaining(self, binding: Binding) -> tuple[TargetCluster, ...]:
        """Return the shares of the binding without the lost replicas."""
        shares = (
            replace(item, replicas=item.replicas - self.lost.get(item.name, 0))
            for item in binding.clusters
        )
        return tuple(item for item in shares if item.replicas > 0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UndoneEviction:
    """A move back: the share of an eviction task again replaces its replacement.

    If that cannot be, the binding stays as it is.
    """

    task: EvictionTask

    @property
    def why(self) -> Mapping[str, str]:
        """An empty mapping: the binding leaves no cluster."""
        return {}

    @property
    def triggers(self) -> tuple[Reason, ...]:
        cluster = ClusterName(self.task.from_cluster)
        return (Reason.of(ReasonCode.EVICTION_UNDONE, cluster),)

    def candidate(self, binding: Binding) -> Binding:
        """Return the binding as it is to be decided. Raises PreconditionFailed after the task."""
        if self.task not in binding.eviction_tasks:
            text = f"its eviction from {self.task.from_cluster} is over"
            raise PreconditionFailed(text, reason="NOT_FEASIBLE")
        return taken_back(binding, self.task)

    def whole(self, binding: Binding) -> Binding:
        """Return the binding itself."""
        return binding

    def within(self, available: Estimates, positions: Mapping[str, int]) -> Estimates:  # noqa: ARG002 - no limit
        """Return all of the available replicas."""
        return available

    def check(self, binding: Binding, decision: Decision) -> None:
        """Raise PreconditionFailed if the running share would not stay.

        A placement that excludes the cluster by now is no fault: people want the share gone.
        """
        name = self.task.from_cluster
        share = _replicas_by_cluster(binding.clusters).get(name)
        after = _replicas_by_cluster(decision.clusters).get(name, -1)
        if share is not None and after < share and not _is_excluded(name, decision):
            text = f"it would not have its share in {name} again"
            raise PreconditionFailed(text, reason="NOT_FEASIBLE")

    def evictions(
        self,
        former: Binding,
        placed: Iterable[TargetCluster],  # noqa: ARG002 - the task goes wherever the binding is
        now: float,  # noqa: ARG002 - no task is created
    ) -> tuple[EvictionTask, ...]:
        """Return the eviction tasks of the binding without the undone one."""
        return tuple(task for task in former.eviction_tasks if task != self.task)


def _is_excluded(name: str, decision: Decision) -> bool:
    """Tell whether the placement excludes the cluster in all affinity groups."""
    trace = decision.trace
    if name not in trace.clusters:
        return False
    number = int(trace.filtering.refusal_c[trace.clusters.index(name)])
    return number >= 0 and trace.filtering.refusals[number].filter == "ClusterAffinity"


def _replicas_by_cluster(clusters: Iterable[TargetCluster]) -> dict[str, int]:
    return {item.name: item.replicas for item in clusters}


def _shares(clusters: Iterable[TargetCluster]) -> str:
    return ", ".join(f"{item.name}={item.replicas}" for item in clusters) or "no cluster"
