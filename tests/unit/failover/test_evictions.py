"""How evictions end, and where a binding is once one is taken back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from federation.failover.evictions import Ending, Progress, ending_of, taken_back
from federation.failover.moves import PODS_PENDING, PROMISE_ENDED, eviction_tasks
from federation.model.placement import (
    Binding,
    EvictionTask,
    OnClusterReturn,
    Placement,
    ReplicaScheduling,
    SchedulingType,
)
from federation.model.workload import TargetCluster

DIVIDED = Placement(replica_scheduling=ReplicaScheduling(type=SchedulingType.DIVIDED))


def targets(**replicas: int) -> tuple[TargetCluster, ...]:
    return tuple(TargetCluster(name=name, replicas=count) for name, count in replicas.items())


def moved(binding: Binding, taints: str, **now: int) -> Binding:
    """After a decision that left the clusters named by the letters of ``taints``."""
    evicting = dict.fromkeys(taints, "lost:NoExecute")
    tasks = eviction_tasks(binding, evicting, targets(**now), 100.0)
    return replace(binding, clusters=targets(**now), eviction_tasks=tasks)


WEB = Binding(name="web", replicas=9, placement=DIVIDED, clusters=targets(a=4, b=2, c=3))
MOVED = moved(WEB, "a", b=3, c=3, d=3)
TASK = MOVED.eviction_tasks[0]


def test_what_is_left_becomes_a_task_and_what_stays_does_not() -> None:
    assert (TASK.from_cluster, TASK.replicas, TASK.created_at) == ("a", 4, 100.0)
    assert TASK.clusters_before == WEB.clusters
    assert TASK.is_ours
    again = moved(MOVED, "c", b=5, d=4)
    assert [task.from_cluster for task in again.eviction_tasks] == ["a", "c"]
    assert eviction_tasks(WEB, {"x": "gone"}, WEB.clusters, 1.0) == ()


BACK = {"is_silent": False, "is_back": True}
KEEP, BEST = OnClusterReturn.KEEP_ORIGINAL, OnClusterReturn.BEST


def ended(
    binding: Binding, task: EvictionTask, progress: Progress, seconds: float, **flags: bool
) -> Ending | None:
    """How it ends so many seconds after it began, of 600 that it may last."""
    arguments = {"is_known": True, "is_silent": True, "is_back": False, **flags}
    return ending_of(task, binding, progress, 100.0 + seconds, **arguments, max_seconds=600.0)


@pytest.mark.parametrize(
    ("progress", "seconds", "flags", "ending"),
    [
        (Progress(4, 0), 599.0, {}, None),
        (Progress(0, 4), 1.0, {}, Ending.REPLACED),
        # Time alone ends nothing: what is left may run.
        (Progress(4, 0), 600.0, {}, None),
        (Progress(1, 3), 10_000.0, {"is_silent": False}, None),
        (Progress(4, 0), 599.0, {"is_ordered": True}, None),
        (Progress(4, 0), 600.0, {"is_ordered": True}, Ending.DEADLINE),
        (Progress(4, 0), 1.0, {"is_known": False}, Ending.CLUSTER_GONE),
        (Progress(4, 0), 1.0, BACK, Ending.TAKEN_BACK),
        (Progress(3, 1), 1.0, BACK, None),
    ],
)
def test_endings(
    progress: Progress, seconds: float, flags: dict[str, bool], ending: Ending | None
) -> None:
    assert ended(MOVED, TASK, progress, seconds, **flags) is ending


@pytest.mark.parametrize(
    ("policy", "started", "is_original"),
    [
        *[(KEEP, started, True) for started in (1, 4)],
        # The better one is the one of which more was started.
        *[(BEST, started, started < 2) for started in (0, 1, 2, 4)],
    ],
)
def test_which_one_is_kept_once_its_cluster_is_back(
    policy: OnClusterReturn, started: int, *, is_original: bool
) -> None:
    binding = replace(MOVED, on_cluster_return=policy)
    ending = ended(binding, TASK, Progress(4 - started, started), 1.0, **BACK)
    assert (ending is Ending.TAKEN_BACK) is is_original


def test_what_ran_nowhere_keeps_its_binding_away_until_its_time_is_over() -> None:
    task = replace(TASK, reason=PODS_PENDING)
    assert ended(MOVED, task, Progress(0, 4), 599.0, **BACK) is None
    assert ended(MOVED, task, Progress(0, 4), 600.0, **BACK) is Ending.DEADLINE


def test_a_share_whose_promise_ended_stays_until_others_run_or_its_time_is_over() -> None:
    task = replace(TASK, reason=PROMISE_ENDED)
    assert ended(MOVED, task, Progress(3, 0), 599.0, **BACK) is None
    assert ended(MOVED, task, Progress(0, 0), 1.0, **BACK) is Ending.REPLACED
    assert ended(MOVED, task, Progress(3, 0), 600.0, **BACK) is Ending.DEADLINE


EVERYWHERE = replace(WEB, placement=Placement(), clusters=targets(a=9, b=9))


@pytest.mark.parametrize(
    ("clusters", "progress", "cluster", "ending"),
    [
        ({"b": 9}, Progress(0, 0), {"is_silent": True}, None),
        ({"b": 9}, Progress(0, 0), {"is_back": True}, Ending.TAKEN_BACK),
        ({"b": 12}, Progress(0, 3), {"is_back": True}, Ending.TAKEN_BACK),
        # It is heard again, and its taint is not gone yet.
        ({"b": 9}, Progress(0, 0), {}, None),
        ({"b": 9}, Progress(0, 0), {"is_ordered": True}, Ending.REPLACED),
        ({"b": 9, "d": 9}, Progress(0, 9), {"is_silent": True}, Ending.REPLACED),
    ],
)
def test_what_is_duplicated_is_missed_until_its_cluster_is_back(
    clusters: dict[str, int], progress: Progress, cluster: dict[str, bool], ending: Ending | None
) -> None:
    moved_once = moved(EVERYWHERE, "a", **clusters)
    flags = {"is_silent": False, **cluster}
    assert ended(moved_once, moved_once.eviction_tasks[0], progress, 10_000.0, **flags) is ending


def test_taking_back_gives_the_share_back_and_no_other() -> None:
    assert taken_back(MOVED, TASK) == replace(WEB, eviction_tasks=())
    both = moved(WEB, "ab", c=3, d=6)
    first, second = both.eviction_tasks
    back = taken_back(both, first)
    assert back.clusters == targets(a=4, c=3, d=2)
    assert back.eviction_tasks == (second,)
    assert taken_back(back, second).clusters == WEB.clusters


def test_what_was_scaled_down_meanwhile_comes_back_as_far_as_it_is_there() -> None:
    fewer = replace(MOVED, replicas=7, clusters=targets(b=2, c=3, d=2))
    assert taken_back(fewer, TASK).clusters == targets(a=2, b=2, c=3)
    none = replace(MOVED, replicas=5, clusters=targets(b=2, c=3))
    assert taken_back(none, TASK) is none


def test_a_duplicated_workload_is_back_beside_the_others() -> None:
    moved_once = moved(EVERYWHERE, "a", b=9)
    assert taken_back(moved_once, moved_once.eviction_tasks[0]).clusters == EVERYWHERE.clusters
