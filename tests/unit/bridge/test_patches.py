"""What is written to a binding: as karmada-scheduler writes it, and nothing without news."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge.patches import (
    NO_CLUSTER_FIT,
    SCHEDULED_TEXT,
    SUCCESS,
    UNSCHEDULABLE,
    BindingVerdict,
    closing_patch,
    events_of,
    main_patch,
    status_patch,
)
from lab.karmadas import PLACEMENT, binding
from tests.unit.bridge.bindings import read, stored

NOW, BEFORE = "2026-03-01T12:00:00Z", "2026-03-01T11:00:00Z"
APPLIED = json.dumps(PLACEMENT)
TWO = [{"name": "m1", "replicas": 3}, {"name": "m2", "replicas": 1}]
FULLY = {"type": "FullyApplied", "status": "True", "reason": "FullyAppliedSuccess"}


def scheduled(**targets: int) -> BindingVerdict:
    return BindingVerdict(reason=SUCCESS, message=SCHEDULED_TEXT, targets=targets)


def test_the_applied_placement_is_written_with_the_clusters() -> None:
    patch = main_patch(stored(), scheduled(m1=3, m2=1))
    assert patch is not None
    applied = patch["metadata"]["annotations"]["policy.karmada.io/applied-placement"]
    assert json.loads(applied) == PLACEMENT
    assert patch["spec"] == {"clusters": TWO}


def test_what_is_right_already_is_not_written_again() -> None:
    assert main_patch(stored(clusters=TWO, applied=APPLIED), scheduled(m2=1, m1=3)) is None
    known = {
        "schedulerObservedGeneration": 1,
        "lastScheduledTime": BEFORE,
        "conditions": [
            {"type": "Scheduled", "status": "True", "reason": SUCCESS, "message": SCHEDULED_TEXT}
        ],
    }
    assert status_patch(stored(status=known), scheduled(m1=3, m2=1), NOW) is None
    assert closing_patch(stored(status=known)) is None


def test_patches_name_the_version_that_was_read() -> None:
    """Whoever changed clusters or conditions meanwhile must not be undone."""
    verdict = scheduled(m1=4)
    for patch in (
        main_patch(stored(), verdict),
        status_patch(stored(), verdict, NOW),
        closing_patch(stored()),
    ):
        assert patch is not None
        assert patch["metadata"]["resourceVersion"] == "7"


def test_success_closes_the_generation_that_the_main_patch_made() -> None:
    patched = binding("web")
    patched["metadata"]["generation"] = 2
    patch = status_patch(read(patched), scheduled(m1=4), NOW)
    assert patch is not None
    assert patch["status"]["schedulerObservedGeneration"] == 2
    assert patch["status"]["lastScheduledTime"] == NOW


@pytest.mark.parametrize("reason", [UNSCHEDULABLE, NO_CLUSTER_FIT])
def test_failure_leaves_generation_time_and_clusters(reason: str) -> None:
    """A reschedule that was asked for stays due."""
    verdict = BindingVerdict(reason=reason, message="0/3 clusters are available")
    held = stored(clusters=TWO, status={"lastScheduledTime": BEFORE})
    assert main_patch(held, verdict) is None
    patch = status_patch(held, verdict, NOW)
    assert patch is not None
    assert patch["status"].keys() == {"conditions"}
    (condition,) = patch["status"]["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", reason)


def test_an_emptied_placement_is_null() -> None:
    verdict = BindingVerdict(reason=NO_CLUSTER_FIT, message="none", targets={})
    patch = main_patch(stored(clusters=TWO, applied=APPLIED), verdict)
    assert patch is not None
    assert patch["spec"] == {"clusters": None}


def test_other_conditions_stay_and_the_time_moves_with_the_status_only() -> None:
    failed = {
        "type": "Scheduled",
        "status": "False",
        "reason": UNSCHEDULABLE,
        "message": "too little",
        "lastTransitionTime": BEFORE,
    }
    held = stored(status={"conditions": [FULLY, failed]})
    patch = status_patch(held, BindingVerdict(reason=UNSCHEDULABLE, message="less still"), NOW)
    assert patch is not None
    fully, condition = patch["status"]["conditions"]
    assert (fully, condition["lastTransitionTime"]) == (FULLY, BEFORE)
    patch = status_patch(held, scheduled(m1=4), NOW)
    assert patch is not None
    assert patch["status"]["conditions"][1]["lastTransitionTime"] == NOW


@pytest.mark.parametrize(
    ("spec", "targets", "clusters"),
    [
        ({}, {"m1": 4, "m2": 0}, [{"name": "m1", "replicas": 4}]),
        ({"replicas": 0, "replicaRequirements": None}, {"m1": 0}, [{"name": "m1"}]),
        (
            {"replicas": 0, "components": [{"name": "a", "replicas": 2}]},
            {"m1": 1},
            [{"name": "m1"}],
        ),
    ],
    ids=["workload", "no workload", "components"],
)
def test_replicas_are_written_for_what_has_some_to_divide(
    spec: dict[str, Any], targets: dict[str, int], clusters: list[dict[str, Any]]
) -> None:
    patch = main_patch(stored(**spec), scheduled(**targets))
    assert patch is not None
    assert patch["spec"]["clusters"] == clusters


OURS = {"fromCluster": "m1", "producer": "fedsched", "reason": "TaintUntolerated", "replicas": 3}
THEIRS = {"fromCluster": "m1", "producer": "TaintManager", "reason": "TaintUntolerated"}


@pytest.mark.parametrize(
    ("tasks", "targets", "evictions", "written"),
    [
        (None, {"m2": 4}, (OURS,), [OURS]),
        ([THEIRS], {"m2": 4}, (OURS,), "as they are"),
        (None, {"m1": 2, "m2": 2}, (OURS,), "as they are"),
        ([OURS], {"m1": 4}, (), None),
        ([THEIRS], {"m1": 4}, (), "as they are"),
        (None, {"m2": 4}, (THEIRS,), "as they are"),
    ],
    ids=["left", "left by others", "not left", "back", "another's", "not ours"],
)
def test_a_cluster_that_is_left_gets_a_task_and_one_that_has_it_back_loses_it(
    tasks: Any, targets: dict[str, int], evictions: Any, written: Any
) -> None:
    verdict = BindingVerdict(
        reason=SUCCESS, message=SCHEDULED_TEXT, targets=targets, evictions=evictions
    )
    held = stored(clusters=TWO, applied=APPLIED, gracefulEvictionTasks=tasks)
    patch = main_patch(held, verdict)
    assert patch is not None
    assert patch["spec"].get("gracefulEvictionTasks", "as they are") == written
    # Without another placement nothing is written, whoever ended a task.
    at_rest = stored(
        clusters=[{"name": name, "replicas": count} for name, count in targets.items()],
        applied=APPLIED,
    )
    assert main_patch(at_rest, verdict) is None


def test_events_are_at_the_binding_and_at_what_it_binds() -> None:
    at_binding, at_workload = events_of(
        stored(), scheduled(m2=1, m1=3), scheduler="fedsched", now=NOW
    )
    assert at_binding["involvedObject"]["kind"] == "ResourceBinding"
    assert at_workload["involvedObject"]["uid"] == "uid-of-web"
    for event in (at_binding, at_workload):
        assert event["reason"] == "ScheduleBindingSucceed"
        assert event["message"] == f"{SCHEDULED_TEXT} Result: {{m1:3, m2:1}}"
        assert event["source"] == {"component": "fedsched"}
    cluster_scoped = read(binding("web", kind="ClusterResourceBinding"))
    event, _ = events_of(
        cluster_scoped, BindingVerdict(reason=UNSCHEDULABLE, message="no"), scheduler="x", now=NOW
    )
    assert event["metadata"]["namespace"] == "default"
    assert (event["type"], event["message"]) == ("Warning", "no")
