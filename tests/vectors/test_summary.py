"""Karmada's general estimate from a cluster's summary."""

from __future__ import annotations

from typing import Any

from federation.capacity.fleet_reports import FleetCapacity
from federation.capacity.summary_estimates import estimate_replicas
from federation.model.estimate import EstimateOptions, Source
from federation.model.workload import ReplicaRequirements
from tests.vectors.loading import amounts, cluster_of, for_each, is_plain_estimate, read_lines

LINES = [line for line in read_lines("summary") if is_plain_estimate(line)]


@for_each(LINES)
def test_summary(line: dict[str, Any]) -> None:
    estimates = estimate_replicas(
        FleetCapacity.of([cluster_of(line)]),
        ReplicaRequirements(request=amounts(line["request"])),
        EstimateOptions(highest=Source.SUMMARY),
    )
    assert estimates.replicas_c.tolist() == [line["out"]]
    assert estimates.source_c.tolist() == [Source.SUMMARY]


def test_a_whole_fleet_answers_as_each_cluster_alone() -> None:
    capacity = FleetCapacity.of(cluster_of(line) for line in LINES)
    for position, line in enumerate(LINES):
        estimates = estimate_replicas(
            capacity,
            ReplicaRequirements(request=amounts(line["request"])),
            EstimateOptions(highest=Source.SUMMARY),
        )
        assert estimates.replicas_c[position] == line["out"]
