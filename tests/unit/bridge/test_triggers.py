"""When karmada-scheduler would decide again: its decision tree, row by row."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge.triggers import is_placement_new, trigger_of
from lab.karmadas import DYNAMIC, EVERYWHERE, PLACEMENT
from tests.unit.bridge.bindings import stored

TWO = [{"name": "m1", "replicas": 3}, {"name": "m2", "replicas": 1}]
TERMS: dict[str, Any] = {
    "clusterAffinities": [
        {"affinityName": "near", "clusterNames": ["m1"]},
        {"affinityName": "far", "clusterNames": ["m2"]},
    ],
    "replicaScheduling": DYNAMIC,
}


def changed_term(name: str) -> str:
    terms = [
        {**each, "clusterNames": ["m9"]} if each["affinityName"] == name else each
        for each in TERMS["clusterAffinities"]
    ]
    return json.dumps({**TERMS, "clusterAffinities": terms})


def test_at_rest_nothing_speaks_for_deciding() -> None:
    assert trigger_of(stored(clusters=TWO, applied=json.dumps(PLACEMENT)), set()) == ""


@pytest.mark.parametrize(
    ("applied", "is_changed"),
    [
        (None, True),
        ("{not JSON", False),
        (json.dumps({**PLACEMENT, "clusterTolerations": [], "spreadConstraints": None}), False),
        (json.dumps({**PLACEMENT, "clusterAffinity": {"clusterNames": ["m1"]}}), True),
        (json.dumps({}), True),
    ],
    ids=["missing", "unreadable", "the same in meaning", "affinity", "strategy"],
)
def test_placement_is_compared_with_the_applied_one_by_meaning(
    applied: str | None, is_changed: bool
) -> None:
    assert bool(trigger_of(stored(clusters=TWO, applied=applied), set())) is is_changed


@pytest.mark.parametrize(
    ("observing", "changed", "is_changed"),
    [("near", "near", True), ("near", "far", False), ("", "far", True)],
)
def test_another_affinity_term_than_the_one_in_use_may_change(
    observing: str, changed: str, is_changed: bool
) -> None:
    binding = stored(
        clusters=TWO,
        placement=TERMS,
        applied=changed_term(changed),
        status={"schedulerObservingAffinityName": observing},
    )
    assert bool(trigger_of(binding, set())) is is_changed


@pytest.mark.parametrize(("replicas", "is_changed"), [(4, False), (3, True), (5, True)], ids=str)
def test_what_somebody_took_off_a_cluster_is_placed_again(replicas: int, is_changed: bool) -> None:
    binding = stored(replicas=replicas, clusters=TWO, applied=json.dumps(PLACEMENT))
    assert bool(trigger_of(binding, set())) is is_changed


@pytest.mark.parametrize(
    ("triggered", "last", "is_changed"),
    [
        ("2026-03-01T12:00:01Z", "2026-03-01T12:00:00Z", True),
        ("2026-03-01T12:00:00Z", "2026-03-01T12:00:00Z", False),
        ("2026-03-01T12:00:00Z", "", False),
    ],
    ids=["later", "in the same second", "never scheduled"],
)
def test_a_reschedule_is_due_strictly_after_the_last_one(
    triggered: str, last: str, is_changed: bool
) -> None:
    status = {"lastScheduledTime": last} if last else {}
    binding = stored(
        clusters=TWO, applied=json.dumps(PLACEMENT), rescheduleTriggeredAt=triggered, status=status
    )
    assert bool(trigger_of(binding, set())) is is_changed


def test_what_goes_everywhere_and_what_is_no_workload_is_decided_each_time() -> None:
    everywhere = [{"name": "m1", "replicas": 4}]
    applied = json.dumps(EVERYWHERE)
    assert trigger_of(stored(placement=EVERYWHERE, clusters=everywhere, applied=applied), set())
    names = [{"name": "m1"}]
    plain = stored(replicas=0, replicaRequirements=None, clusters=names, applied=json.dumps({}))
    assert trigger_of(plain, set())


def test_a_cluster_that_is_deleted_is_left() -> None:
    binding = stored(clusters=TWO, applied=json.dumps(PLACEMENT))
    assert trigger_of(binding, {"m2"})
    assert not trigger_of(binding, {"m3"})


def test_the_limits_of_a_running_job_are_no_change_of_its_placement() -> None:
    limits = [{"targetCluster": {"clusterNames": ["m1"]}, "min": 3, "max": 3}]
    strategy = {**DYNAMIC, "clusterLimits": limits}
    limited = {**PLACEMENT, "replicaScheduling": strategy}
    applied = json.dumps({**PLACEMENT, "replicaScheduling": DYNAMIC})
    assert not is_placement_new(stored(clusters=TWO, placement=limited, applied=applied))
    assert is_placement_new(stored(clusters=TWO, placement=limited, applied="{}"))
