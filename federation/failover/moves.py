"""Which bindings have to leave clusters, from when on, and in which order.

Must not decide where they go: scheduling does, with a promise there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf

from federation.model.cluster import UNREACHABLE_KEY, Cluster
from federation.model.placement import (
    EVICTION_PRODUCER,
    Binding,
    EvictionTask,
    PurgeMode,
    groups_of,
)
from federation.model.tolerations import Tolerations
from federation.model.workload import TargetCluster
from federation.scheduler.triggers import no_execute_taints

TAINT_UNTOLERATED = "TaintUntolerated"
PLANNED_MOVE = "PlannedMove"
PREEMPTED = "Preempted"
# What the message of such a task begins with, before the key of the binding that caused it.
PREEMPTED_BY = "preempted by "
PODS_PENDING = "PodsPending"
PROMISE_ENDED = "PromiseEnded"
# A share that leaves for these reasons need not stay until another one runs.
_AT_ONCE = (PREEMPTED, PODS_PENDING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A binding that has to leave clusters, the first of them from ``due_at`` on (Unix seconds)."""

    binding: Binding
    due_at: float

    @property
    def urgency(self) -> tuple[int, float, str]:
        """Sort key: by priority, then the longest past its toleration."""
        return -self.binding.priority, self.due_at, self.binding.key

    def replicas(self, clusters: Mapping[str, Cluster], now: float) -> int:
        """Count its replicas in clusters where it may not stay now."""
        return sum(
            target.replicas
            for target in self.binding.clusters
            if target.name in clusters and leaves_at(self.binding, clusters[target.name]) <= now
        )


def moves_of(bindings: Iterable[Binding], clusters: Mapping[str, Cluster]) -> list[Move]:
    """Return the moves of bindings that may not stay for ever, the most urgent first."""
    moves = []
    for binding in bindings:
        due_at = min(
            (
                leaves_at(binding, clusters[target.name])
                for target in binding.clusters
                if target.name in clusters
            ),
            default=inf,
        )
        if due_at < inf and not binding.suspended:
            moves.append(Move(binding=binding, due_at=due_at))
    return sorted(moves, key=lambda move: move.urgency)


def moved_together(moves: Iterable[Move]) -> list[tuple[Move, ...]]:
    """Put moves of one workload affinity group together, in the order of their first moves."""
    groups: dict[tuple[str, str, str], list[Move]] = {}
    for move in moves:
        binding = move.binding
        group, _ = groups_of(binding)
        name = "" if group else binding.name
        groups.setdefault((binding.namespace, group, name), []).append(move)
    return [tuple(group) for group in groups.values()]


def leaves_at(binding: Binding, cluster: Cluster) -> float:
    """Return when the binding has to leave, in Unix seconds; infinity: it may stay."""
    covering = Tolerations(binding.placement.tolerations)
    times = [inf]
    for taint in no_execute_taints(binding, cluster):
        seconds = covering.seconds(taint)
        if seconds is None:
            times.append(0.0 if taint.time_added is None else taint.time_added)
        elif taint.time_added is not None:
            times.append(taint.time_added + seconds)
    return min(times)


def is_ordered_away(binding: Binding, cluster: Cluster, now: float) -> bool:
    """Whether people want the binding to leave, by a taint of theirs that it does not tolerate."""
    theirs = tuple(taint for taint in cluster.taints if taint.key != UNREACHABLE_KEY)
    return leaves_at(binding, replace(cluster, taints=theirs)) <= now


def eviction_tasks(
    binding: Binding, taints: Mapping[str, str], placed: Iterable[TargetCluster], now: float
) -> tuple[EvictionTask, ...]:
    """Return the tasks of a binding after a decision that moved it because of ``taints``.

    A share that leaves stays in place until its replacement runs.
    """
    why = {name: f"the cluster has the untolerated taint {taint}" for name, taint in taints.items()}
    return with_evictions(binding, TAINT_UNTOLERATED, why, placed, now)


def with_evictions(
    binding: Binding,
    reason: str,
    why: Mapping[str, str],
    placed: Iterable[TargetCluster],
    now: float,
) -> tuple[EvictionTask, ...]:
    """Return the tasks of a binding after a decision that placed it; ``why`` it leaves, by name."""
    stays = {target.name for target in placed}
    leaving = [
        target for target in binding.clusters if target.name in why and target.name not in stays
    ]
    if not leaving:
        return binding.eviction_tasks
    names = {target.name for target in leaving}
    open_tasks = [task for task in binding.eviction_tasks if task.from_cluster not in names]
    tasks = [
        EvictionTask(
            from_cluster=target.name,
            replicas=target.replicas,
            reason=reason,
            message=why[target.name],
            producer=EVICTION_PRODUCER,
            created_at=now,
            purge_mode=PurgeMode.DIRECTLY if reason in _AT_ONCE else None,
            clusters_before=binding.clusters,
        )
        for target in leaving
    ]
    return (*open_tasks, *tasks)
