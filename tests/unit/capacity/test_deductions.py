"""What is outstanding, deducted from totals and from grade counts, each under its own rule."""

from __future__ import annotations

import pytest

from federation.capacity.deductions import Deductions
from federation.capacity.fleet_reports import FleetCapacity
from federation.model.cluster import (
    CapacityReport,
    Cluster,
    ClusterState,
    NodeSummary,
    ResourceSummary,
)
from federation.model.estimate import EstimateOptions, ModelRule, Source
from federation.model.grades import DEFAULT_MODEL, model_hash
from federation.model.reservations import Outstanding
from federation.model.workload import ReplicaRequirements

GIB = 1 << 30
WANTED = ReplicaRequirements(request={"cpu": 2000, "memory": 4 * GIB})
HELD = ReplicaRequirements(request={"cpu": 3000, "memory": 4 * GIB})


def fleet(grade_counts: dict[int, int]) -> FleetCapacity:
    """Two equal clusters with room for 50 times WANTED by their totals."""
    report = CapacityReport(
        epoch=1,
        sequence=1,
        snapshot_time=0.0,
        summary=ResourceSummary(
            allocatable={"cpu": 100_000, "memory": 400 * GIB, "pods": 100},
        ),
        nodes=NodeSummary(),
        grade_counts=grade_counts,
        model_hash=model_hash(DEFAULT_MODEL) if grade_counts else "",
    )
    names = ("member1", "member2")
    return FleetCapacity.of(
        ClusterState(cluster=Cluster(name=name), report=report) for name in names
    )


def left(
    capacity: FleetCapacity, in_cells: int, in_summary: int, options: EstimateOptions
) -> list[int]:
    held = Outstanding(binding="web", requirements=HELD, in_cells=in_cells, in_summary=in_summary)
    estimates = Deductions.of(capacity, {1: [held]}).estimates(WANTED, options)
    replicas: list[int] = estimates.replicas_c.tolist()
    return replicas


def test_totals_lose_what_no_report_counts_as_waiting() -> None:
    options = EstimateOptions(highest=Source.SUMMARY)
    assert left(fleet({}), in_cells=9, in_summary=4, options=options) == [50, 44]
    assert left(fleet({}), in_cells=9, in_summary=0, options=options) == [50, 50]
    assert left(fleet({}), in_cells=90, in_summary=90, options=options) == [50, 0]


# Ten nodes with 8 to 16 cores and 32 to 64 GiB: four times WANTED, twice HELD each.
@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        # Each of HELD stands in the way of two at most.
        (ModelRule.DOCUMENTED, 40 - 2 * 5),
        (ModelRule.BOUNDARY, 40 - 2 * 5),
        # Two nodes hold two and have room for one more each, a third holds one and takes two.
        (ModelRule.SIMULATED, 40 - 3 - 3 - 2),
    ],
)
def test_grade_counts_lose_what_is_on_no_node(rule: ModelRule, expected: int) -> None:
    options = EstimateOptions(model_rule=rule)
    capacity = fleet({4: 10})
    assert left(capacity, in_cells=5, in_summary=0, options=options) == [40, expected]
    assert left(capacity, in_cells=0, in_summary=0, options=options) == [40, 40]


def test_the_totals_still_cap_what_grade_counts_say() -> None:
    capacity = fleet({4: 1000})
    assert left(capacity, in_cells=90, in_summary=90, options=EstimateOptions()) == [100, 10]


def test_nothing_outstanding_deducts_nothing() -> None:
    estimates = Deductions.of(fleet({4: 10}), {}).estimates(WANTED, EstimateOptions())
    assert estimates.replicas_c.tolist() == [40, 40]


def test_more_than_there_is_leaves_nothing_but_what_is_too_small_for_it() -> None:
    left_by_rule = {
        rule: left(fleet({4: 10}), 50, 0, EstimateOptions(model_rule=rule))[1] for rule in ModelRule
    }
    assert left_by_rule == {
        ModelRule.DOCUMENTED: 0,
        ModelRule.BOUNDARY: 0,
        ModelRule.SIMULATED: 10,
    }
