"""Warnings of spread constraints that a division leaves without as many groups as they want."""

from __future__ import annotations

import numpy as np
import pytest

from federation.model.cluster import Cluster
from federation.model.estimate import Bound, Estimates, Source
from federation.model.placement import (
    Binding,
    DivisionPreference,
    ObjectReference,
    Placement,
    ReplicaScheduling,
    SchedulingType,
    SpreadConstraint,
    SpreadField,
)
from federation.model.workload import ReplicaRequirements
from federation.scheduler.cycle import schedule
from federation.scheduler.decision import Decision
from federation.scheduler.fleet import Fleet

AGGREGATED = ReplicaScheduling(
    type=SchedulingType.DIVIDED, preference=DivisionPreference.AGGREGATED
)
FILL_FIRST = ReplicaScheduling(
    type=SchedulingType.DIVIDED, preference=DivisionPreference.FILL_FIRST
)
DYNAMIC = ReplicaScheduling(type=SchedulingType.DIVIDED, dynamic=True)
DUPLICATED = ReplicaScheduling(type=SchedulingType.DUPLICATED)
TWO_CLUSTERS = SpreadConstraint(by=SpreadField.CLUSTER, min_groups=2)
FLEET = Fleet.of(
    [
        Cluster(name=name, region=region, zones=(f"{region}-1", f"{region}-2"), provider="p")
        for name, region in (("a", "eu"), ("b", "eu"), ("c", "us"))
    ]
)


def decided(
    replicas: int, how: ReplicaScheduling, *constraints: SpreadConstraint, each: int = 100
) -> Decision:
    binding = Binding(
        namespace="shop",
        name="web",
        resource=ObjectReference(api_version="apps/v1", kind="Deployment", name="web"),
        replicas=replicas,
        requirements=ReplicaRequirements(request={"cpu": 1000}),
        placement=Placement(replica_scheduling=how, spread_constraints=constraints),
    )
    estimates = Estimates(
        replicas_c=np.full(3, each, np.int64),
        source_c=np.full(3, Source.POOLS, np.int8),
        bound_c=np.full(3, Bound.NONE, np.int8),
        reasons={},
    )
    return schedule(binding, FLEET, estimates, now=5)


@pytest.mark.parametrize(("how", "name"), [(AGGREGATED, "Aggregated"), (FILL_FIRST, "FillFirst")])
def test_replicas_in_fewer_clusters_than_wanted_are_warned_of(
    how: ReplicaScheduling, name: str
) -> None:
    """The constraint chooses two clusters, as with Karmada, and one of them has room for all."""
    decision = decided(4, how, TWO_CLUSTERS)
    assert len(decision.clusters) == 1
    (warning,) = decision.trace.warnings
    assert warning == (
        "spec.placement.spreadConstraints[0] (cluster 2) bounds only which clusters are chosen: "
        f"{name} divides all replicas over 1 cluster"
    )


def test_the_constraint_that_is_not_met_is_named() -> None:
    regions = SpreadConstraint(by=SpreadField.REGION, min_groups=2, max_groups=2)
    clusters = SpreadConstraint(by=SpreadField.CLUSTER, min_groups=2, max_groups=3)
    decision = decided(4, AGGREGATED, regions, clusters)
    assert [each.split(" bounds")[0] for each in decision.trace.warnings] == [
        "spec.placement.spreadConstraints[0] (region 2 to 2)",
        "spec.placement.spreadConstraints[1] (cluster 2 to 3)",
    ]


@pytest.mark.parametrize(
    ("replicas", "how", "each"),
    [
        # Both clusters are needed.
        (4, AGGREGATED, 3),
        (4, DYNAMIC, 100),
        (4, DUPLICATED, 100),
        # One replica cannot be in two clusters.
        (1, AGGREGATED, 100),
        # They have no room at all.
        (4, AGGREGATED, 0),
    ],
)
def test_nothing_is_warned_of_where_it_is_met_or_cannot_be(
    replicas: int, how: ReplicaScheduling, each: int
) -> None:
    assert decided(replicas, how, TWO_CLUSTERS, each=each).trace.warnings == ()
