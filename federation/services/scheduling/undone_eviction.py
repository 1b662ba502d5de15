"""An eviction that is taken back: what is decided of its binding, and what must come of that.

Plain values and functions. Must not choose what is taken back: failover and plans do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from federation.failover.evictions import taken_back
from federation.model.errors import PreconditionFailed
from federation.model.estimate import Estimates
from federation.model.placement import Binding, EvictionTask
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import ClusterName, Reason
from federation.model.workload import TargetCluster
from federation.scheduler.decision import Decision


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UndoneEviction:
    """The binding has the share of a task again in place of its replacement, or stays as it is."""

    task: EvictionTask

    @property
    def why(self) -> Mapping[str, str]:
        """It leaves no cluster."""
        return {}

    @property
    def triggers(self) -> tuple[Reason, ...]:
        cluster = ClusterName(self.task.from_cluster)
        return (Reason.of(ReasonCode.EVICTION_UNDONE, cluster),)

    def candidate(self, binding: Binding) -> Binding:
        """The binding as it is to be decided. Raises PreconditionFailed once the task is over."""
        if self.task not in binding.eviction_tasks:
            text = f"its eviction from {self.task.from_cluster} is over"
            raise PreconditionFailed(text, reason="NOT_FEASIBLE")
        return taken_back(binding, self.task)

    def whole(self, binding: Binding) -> Binding:
        """What the cycle decides."""
        return binding

    def within(self, available: Estimates, positions: Mapping[str, int]) -> Estimates:  # noqa: ARG002 - others look at positions
        """What of that the binding may use."""
        return available

    def check(self, binding: Binding, decision: Decision) -> None:
        """Raises PreconditionFailed where the share that runs would not stay, unless the placement
        leaves its cluster out by now: people want it gone.
        """
        name = self.task.from_cluster
        wanted = {each.name: each.replicas for each in binding.clusters}.get(name)
        after = {each.name: each.replicas for each in decision.clusters}.get(name, -1)
        if wanted is not None and after < wanted and not _is_left_out(name, decision):
            text = f"it would not have its share in {name} again"
            raise PreconditionFailed(text, reason="NOT_FEASIBLE")

    def evictions(
        self,
        before: Binding,
        placed: Iterable[TargetCluster],  # noqa: ARG002 - others look at these
        now: float,  # noqa: ARG002 - no task is made
    ) -> tuple[EvictionTask, ...]:
        """The tasks of the binding once it is placed there."""
        return tuple(task for task in before.eviction_tasks if task != self.task)


def _is_left_out(name: str, decision: Decision) -> bool:
    """Whether the placement does not allow the cluster, in any affinity group."""
    trace = decision.trace
    if name not in trace.clusters:
        return False
    number = int(trace.filtering.refusal_c[trace.clusters.index(name)])
    return number >= 0 and trace.filtering.refusals[number].filter == "ClusterAffinity"
