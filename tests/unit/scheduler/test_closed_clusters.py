"""What decisions make of clusters where nothing may grow: stale, not seen, cordoned, not ready."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from federation.model.cluster import Cluster
from federation.model.estimate import Bound, Estimates, Source
from federation.model.placement import (
    AffinityGroup,
    Binding,
    ClusterAffinity,
    Placement,
    ReplicaScheduling,
    SchedulingType,
)
from federation.model.workload import ObjectReference, ReplicaRequirements, TargetCluster
from federation.scheduler.cycle import schedule
from federation.scheduler.decision import Decision, Outcome
from federation.scheduler.fleet import Column, Fleet

DYNAMIC = ReplicaScheduling(type=SchedulingType.DIVIDED, dynamic=True)


@pytest.mark.parametrize(
    ("scheduling", "expected"),
    [
        (ReplicaScheduling(type=SchedulingType.DUPLICATED), {"a": 2, "b": 5}),
        (ReplicaScheduling(type=SchedulingType.DIVIDED), {"a": 2, "b": 3}),
        (DYNAMIC, {"a": 2, "b": 3}),
    ],
)
@pytest.mark.parametrize(
    "fleet",
    [
        Fleet.of([Cluster(name="a"), Cluster(name="b")]).without(Column.of(["is stale", ""])),
        Fleet.of([Cluster(name="a", cordoned=True), Cluster(name="b")]),
        Fleet.of([Cluster(name="a", ready=False), Cluster(name="b")]),
    ],
)
def test_what_runs_where_nothing_may_grow_stays_and_does_not_grow(
    scheduling: ReplicaScheduling, expected: dict[str, int], fleet: Fleet
) -> None:
    binding = Binding(
        name="web",
        resource=ObjectReference(api_version="apps/v1", kind="Deployment", name="web"),
        replicas=5,
        requirements=ReplicaRequirements(request={"cpu": 1}),
        placement=Placement(replica_scheduling=scheduling),
        clusters=(TargetCluster(name="a", replicas=2), TargetCluster(name="b", replicas=2)),
    )
    available = Estimates(
        replicas_c=np.array([9, 9]),
        source_c=np.full(2, Source.POOLS, np.int8),
        bound_c=np.full(2, Bound.LOWER, np.int8),
        reasons={},
    )
    decision = schedule(binding, fleet, available, now=0.0)
    assert shares(decision) == expected


def shares(decision: Decision) -> dict[str, int]:
    return {each.name: each.replicas for each in decision.clusters}


def duplicated(lost: dict[str, str], **fields: Any) -> Decision:
    """Five replicas in each of a, b and c, of which a and b have two."""
    binding = Binding(
        name="web",
        replicas=5,
        requirements=ReplicaRequirements(request={"cpu": 1}),
        clusters=(TargetCluster(name="a", replicas=2), TargetCluster(name="b", replicas=2)),
        **fields,
    )
    fleet = Fleet.of(Cluster(name=name) for name in "abc").without(
        Column.of([lost.get(name, "") for name in "abc"])
    )
    available = Estimates(
        replicas_c=np.array([9, 9, 9]),
        source_c=np.full(3, Source.POOLS, np.int8),
        bound_c=np.full(3, Bound.LOWER, np.int8),
        reasons={},
    )
    return schedule(binding, fleet, available, now=0.0)


def test_what_is_duplicated_and_missing_in_lost_clusters_is_told() -> None:
    decision = duplicated({"a": "is stale", "b": "cannot be seen"})
    assert decision.outcome is Outcome.PARTIAL
    assert shares(decision) == {"a": 2, "b": 2, "c": 5}
    assert decision.remainder == 6
    assert decision.reason == (
        "6 replicas are missing in clusters where nothing may grow now; "
        "a is stale, b cannot be seen"
    )
    assert duplicated({}).outcome is Outcome.SCHEDULED


def test_what_is_duplicated_and_too_little_is_no_placement() -> None:
    too_little = duplicated(
        {"a": "is stale", "b": "is stale"},
        min_available=10,
        placement=Placement(affinity=ClusterAffinity(exclude=("c",))),
    )
    assert (too_little.outcome, too_little.clusters) == (Outcome.UNSCHEDULABLE, ())
    assert too_little.remainder == 5


def test_what_is_duplicated_leaves_no_group_for_a_cluster_that_is_lost() -> None:
    groups = (
        AffinityGroup(name="near", affinity=ClusterAffinity(cluster_names=("a", "b"))),
        AffinityGroup(name="far", affinity=ClusterAffinity(cluster_names=("c",))),
    )
    decision = duplicated({"a": "is stale"}, placement=Placement(affinity_groups=groups))
    assert (decision.outcome, decision.trace.affinity_group) == (Outcome.PARTIAL, "near")
    assert shares(decision) == {"a": 2, "b": 5}
