"""The arrays of a fleet: how they are kept when clusters change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pytest

from federation.capacity.fleet_reports import MAX_ADDED, FleetCapacity
from federation.model.cluster import (
    CapacityReport,
    Cluster,
    ClusterState,
    NodeSummary,
    ResourceSummary,
)
from federation.model.grades import DEFAULT_MODEL, ResourceModel, model_hash
from federation.model.resources import MAX_AMOUNT

SHORT_MODEL = ResourceModel(grades=DEFAULT_MODEL.grades[:2])


def state(
    name: str,
    allocatable: Mapping[str, int],
    counts: Mapping[int, int] | None = None,
    model: ResourceModel = DEFAULT_MODEL,
) -> ClusterState:
    report = CapacityReport(
        epoch=1,
        sequence=1,
        snapshot_time=0.0,
        summary=ResourceSummary(
            allocatable=allocatable, allocated={"cpu": 1}, allocating={"cpu": 2, "memory": 3}
        ),
        nodes=NodeSummary(),
        grade_counts=counts or {},
        model_hash=model_hash(model),
    )
    return ClusterState(cluster=Cluster(name=name, model=model), report=report)


FLEET = (
    state("a", {"cpu": 10, "memory": 20, "pods": 30}, {0: 1, 8: 2}),
    state("b", {"cpu": 11, "pods": 31}),
    ClusterState(cluster=Cluster(name="c")),
)
CHANGES = [
    state("b", {"memory": 7, "pods": 1}, {1: 5}),
    state("b", {"cpu": 11, "pods": 31, "nvidia.com/gpu": 4}, {1: 5}),
    state("b", {"cpu": 11, "pods": 31}, {1: 5}, SHORT_MODEL),
    ClusterState(cluster=Cluster(name="b")),
]


def assert_equal(ours: FleetCapacity, expected: FleetCapacity) -> None:
    assert ours.states == expected.states
    assert ours.rows.keys() >= expected.rows.keys()
    for name in expected.rows:
        np.testing.assert_array_equal(ours.free(name), expected.free(name))
    for array in ("reported_c", "model_c", "count_cg"):
        np.testing.assert_array_equal(getattr(ours, array), getattr(expected, array))
    assert ours.ungraded == expected.ungraded


def test_free_is_what_neither_runs_nor_waits() -> None:
    capacity = FleetCapacity.of(FLEET)
    assert capacity.free("cpu") is not None
    assert capacity.free_rc[capacity.rows["cpu"]].tolist() == [7, 8, 0]
    assert capacity.free_rc[capacity.rows["memory"]].tolist() == [17, 0, 0]
    assert capacity.free_pods_c.tolist() == [30, 31, 0]
    assert capacity.free("nvidia.com/gpu") is None


def test_grade_counts_have_a_column_each() -> None:
    capacity = FleetCapacity.of(FLEET)
    assert capacity.count_cg[0].tolist() == [1, 0, 0, 0, 0, 0, 0, 0, 2]
    assert capacity.model_c.tolist() == [0, -1, -1]


def test_equal_models_are_one() -> None:
    copy = ResourceModel(grades=tuple(DEFAULT_MODEL.grades))
    states = [*FLEET, state("d", {"pods": 1}, {0: 1}, copy), state("e", {}, {0: 1}, SHORT_MODEL)]
    capacity = FleetCapacity.of(states)
    assert len(capacity.models) == 2
    assert capacity.model_c.tolist() == [0, -1, -1, 0, 1]


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_cluster_is_as_if_built_anew(change: ClusterState) -> None:
    before = FleetCapacity.of(FLEET)
    after = before.with_clusters({1: change})
    assert_equal(after, FleetCapacity.of([FLEET[0], change, FLEET[2]]))
    assert_equal(before, FleetCapacity.of(FLEET))


def test_several_clusters_change_at_once() -> None:
    after = FleetCapacity.of(FLEET).with_clusters({2: FLEET[0], 0: FLEET[2]})
    assert_equal(after, FleetCapacity.of([FLEET[2], FLEET[1], FLEET[0]]))


def test_nobody_can_write_into_it() -> None:
    capacity = FleetCapacity.of(FLEET).with_clusters({1: CHANGES[0]})
    for array in (capacity.free_rc, capacity.count_cg, capacity.model_c, capacity.reported_c):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


def test_an_empty_fleet_is_a_fleet() -> None:
    assert len(FleetCapacity.of([])) == 0


def test_free_amounts_stay_within_int64() -> None:
    summary = ResourceSummary(
        allocatable={"cpu": 1, "pods": 1},
        allocated={"cpu": MAX_AMOUNT},
        allocating={"cpu": MAX_AMOUNT},
    )
    report = CapacityReport(
        epoch=1, sequence=1, snapshot_time=0.0, summary=summary, nodes=NodeSummary()
    )
    capacity = FleetCapacity.of([ClusterState(cluster=Cluster(name="a"), report=report)])
    assert capacity.free_rc[capacity.rows["cpu"]].tolist() == [-MAX_AMOUNT]


def test_resources_and_models_of_its_own_do_not_read_the_others_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, states = FleetCapacity.of(FLEET), list(FLEET)
    anew: list[int] = []
    of = FleetCapacity.of

    def counted(states: Iterable[ClusterState], **how: bool) -> FleetCapacity:
        anew.append(1)
        return of(states, **how)

    with monkeypatch.context() as patched:
        patched.setattr(FleetCapacity, "of", counted)
        for number in range(MAX_ADDED + 10):
            model = SHORT_MODEL if number % 2 else DEFAULT_MODEL
            states[1] = state("b", {f"example.com/r{number}": number, "pods": 3}, {1: 5}, model)
            ours = ours.with_clusters({1: states[1]})
            assert_equal(ours, of(states))
            assert len(ours.rows) <= MAX_ADDED + 4
    assert len(anew) == 1
