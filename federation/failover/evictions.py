"""The end of a graceful eviction: over, taken back, or not yet.

Must not end anything: it says what is due.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import NamedTuple

from federation.failover.moves import PLANNED_MOVE, PODS_PENDING, PREEMPTED, PROMISE_ENDED
from federation.model.placement import Binding, EvictionTask, OnClusterReturn, SchedulingType
from federation.model.workload import TargetCluster


class Ending(StrEnum):
    """How an eviction ends."""

    REPLACED = "its replacement runs"
    DEADLINE = "its time is over"
    CLUSTER_GONE = "its cluster is gone"
    TAKEN_BACK = "its cluster is back"
    LEFT = "its pods are gone"


class Progress(NamedTuple):
    """How far an eviction is.

    ``outstanding`` replicas are not on a node yet. ``started`` pods are on nodes in addition to
    those from before the eviction. ``staying`` pods are still seen in the cluster that they leave.
    """

    outstanding: int
    started: int
    staying: int = 0


def ending_of(
    task: EvictionTask,
    binding: Binding,
    progress: Progress,
    now: float,
    *,
    is_known: bool,
    is_silent: bool,
    is_back: bool,
    max_seconds: float,
    is_ordered: bool = False,
) -> Ending | None:
    """Return how the eviction ends now, None while it goes on.

    A share leaves once its replacement runs. Time ends it only if people want it gone, or nothing
    of it runs. ``is_known``: the cluster exists; ``is_silent``: its agent is not heard;
    ``is_back``: it is, and the binding may stay there; ``is_ordered``: people's taints keep the
    binding from staying.
    """
    if not is_known:
        return Ending.CLUSTER_GONE
    if task.reason == PLANNED_MOVE:
        # Its cluster is well: the share stays for as long as it takes, unless the plan gives up.
        return None if progress.outstanding else Ending.REPLACED
    is_over = now >= (task.created_at or 0.0) + max_seconds
    if task.reason == PROMISE_ENDED:
        # Its cluster is well, too, but keeps nothing for it.
        if not progress.outstanding:
            return Ending.REPLACED
        return Ending.DEADLINE if is_over else None
    if task.reason == PODS_PENDING:
        # Nothing ran there: it keeps the binding away for a while.
        return Ending.DEADLINE if is_over else None
    if task.reason == PREEMPTED:
        # Nothing replaces it: it waits, or has its place elsewhere.
        return Ending.LEFT if not progress.staying else Ending.DEADLINE if is_over else None
    is_missed = not has_replacement(binding, task)
    may_return = is_back and (is_missed or _prefers_original(binding, task, progress.started))
    if may_return and taken_back(binding, task) is not binding:
        return Ending.TAKEN_BACK
    if is_missed and (is_silent or not is_ordered):
        return None
    if not progress.outstanding:
        return Ending.REPLACED
    return Ending.DEADLINE if is_over and is_ordered else None


def _prefers_original(binding: Binding, task: EvictionTask, started: int) -> bool:
    """Whether to keep the old share, if ``started`` pods of the new one run."""
    if binding.on_cluster_return is OnClusterReturn.KEEP_ORIGINAL:
        return True
    if binding.on_cluster_return is OnClusterReturn.BEST:
        return 2 * started < max(1, task.replicas)
    return not started


def has_replacement(binding: Binding, task: EvictionTask) -> bool:
    """Whether other clusters get the share that left.

    A Duplicated binding is in them anyway: its share is missed until the cluster is back, unless
    another cluster was chosen in its place.
    """
    if binding.placement.replica_scheduling.type is SchedulingType.DIVIDED:
        return True
    names = {target.name for target in task.clusters_before}
    return any(target.name not in names for target in binding.clusters)


def taken_back(binding: Binding, task: EvictionTask) -> Binding:
    """Return the binding with the evicted share back in place of its replacement.

    The very same object if nothing replaces it any more.
    """
    original = {target.name: target.replicas for target in task.clusters_before}
    now = {target.name: target.replicas for target in binding.clusters}
    share = task.replicas
    if binding.placement.replica_scheduling.type is SchedulingType.DIVIDED:
        share = 0
        for name in sorted(now):
            surplus = min(now[name] - original.get(name, 0), task.replicas - share)
            if surplus > 0:
                now[name] -= surplus
                share += surplus
        if task.replicas and not share:
            return binding
    now[task.from_cluster] = now.get(task.from_cluster, 0) + share
    return replace(
        binding,
        clusters=tuple(
            TargetCluster(name=name, replicas=replicas)
            for name, replicas in sorted(now.items())
            if replicas or name in original
        ),
        eviction_tasks=tuple(other for other in binding.eviction_tasks if other != task),
    )
