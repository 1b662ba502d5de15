"""Clusters where a replica surely fits come before those where grade counts leave it open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

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
from federation.model.estimate import EstimateOptions, Estimates, ignoring_claims
from federation.model.grades import DEFAULT_MODEL, model_hash
from federation.model.placement import (
    AffinityGroup,
    Binding,
    ClusterAffinity,
    ReplicaScheduling,
    SpreadConstraint,
    SpreadField,
    TieBreak,
)
from federation.model.reasons import SET_ASIDE
from federation.model.reservations import Outstanding
from federation.model.workload import ReplicaRequirements
from federation.scheduler.cycle import schedule
from federation.scheduler.decision import Decision
from federation.scheduler.decision_inputs import DecisionInputs
from federation.scheduler.fleet import Fleet
from federation.scheduler.plugins.profile import DEFAULT_PROFILE
from federation.scheduler.replay import replay
from federation.scheduler.state import NO_CONTEXT, BindingContext
from tests.unit.scheduler import states
from tests.unit.scheduler.states import AGGREGATED, DYNAMIC, FILL_FIRST, shares

GIB = 1 << 30
AMPLE = {"cpu": 10**9, "memory": 10**15, "pods": 10_000}
TWELVE = ReplicaRequirements(request={"cpu": 12_000, "memory": 12 * GIB})
# Grade 4 has from 8 cores, grade 5 from 16: of ten nodes in a nobody knows whether one has 12.
NODES = {"a": {4: 10}, "b": {5: 2}}


def fleet_of(nodes: Mapping[str, Mapping[int, int]]) -> tuple[Fleet, FleetCapacity]:
    states = [
        ClusterState(
            cluster=Cluster(name=name),
            report=CapacityReport(
                epoch=1,
                sequence=1,
                snapshot_time=0.0,
                summary=ResourceSummary(allocatable=AMPLE),
                nodes=NodeSummary(),
                grade_counts=counts,
                model_hash=model_hash(DEFAULT_MODEL) if counts else "",
            ),
        )
        for name, counts in nodes.items()
    ]
    return Fleet.of(each.cluster for each in states), FleetCapacity.of(states)


def web(replicas: int, prior: Mapping[str, int] | None = None, **placement: Any) -> Binding:
    return replace(states.web(replicas, prior=prior, **placement), requirements=TWELVE)


def estimates_of(
    nodes: Mapping[str, Mapping[int, int]], promised: Mapping[int, int] | None = None
) -> Estimates:
    """What totals and grade counts leave beside so many replicas promised, by position."""
    outstanding = {
        position: [Outstanding(binding="other", requirements=TWELVE, in_cells=n, in_summary=n)]
        for position, n in (promised or {}).items()
    }
    _, capacity = fleet_of(nodes)
    return Deductions.of(capacity, outstanding).estimates(TWELVE, EstimateOptions())


def decide(
    binding: Binding,
    nodes: Mapping[str, Mapping[int, int]] = NODES,
    promised: Mapping[int, int] | None = None,
) -> Decision:
    return schedule(binding, fleet_of(nodes)[0], estimates_of(nodes, promised), now=5.0)


@pytest.mark.parametrize("scheduling", [DYNAMIC, AGGREGATED, FILL_FIRST])
def test_what_surely_fits_comes_first(scheduling: ReplicaScheduling) -> None:
    for replicas in (1, 2):
        decision = decide(web(replicas, replica_scheduling=scheduling))
        assert shares(decision) == {"b": replicas}
        assert decision.trace.inputs.estimate_reasons == {0: SET_ASIDE}
        # What is known of the cluster stays in the record.
        assert decision.trace.inputs.available_c.tolist() == [10, 2]


def test_where_not_all_surely_fits_everything_counts_that_may() -> None:
    three, everything = decide(web(3)), decide(web(12))
    assert "a" in shares(three)
    assert shares(everything) == {"a": 10, "b": 2}
    assert not three.trace.inputs.estimate_reasons
    # Both may hold more than they surely do: neither has what the other lacks.
    both = {"a": {4: 10}, "b": {4: 50, 5: 1}}
    assert shares(decide(web(1), both)) == {"b": 1}
    assert set(shares(decide(web(20), both))) == {"a", "b"}


def test_what_is_promised_is_no_longer_sure() -> None:
    assert shares(decide(web(1), promised={1: 1})) == {"b": 1}
    assert shares(decide(web(2), promised={1: 1})) != {"b": 2}
    assert shares(decide(web(1), promised={1: 2})) == {"a": 1}


def test_totals_are_sure_of_nothing() -> None:
    nodes = {"a": {4: 10}, "b": {}}
    sure_c = estimates_of(nodes).sure_c
    assert sure_c is not None
    assert sure_c.tolist() == [0, 0]
    assert 0 not in decide(web(1), nodes).trace.inputs.estimate_reasons


@pytest.mark.parametrize(
    "placement",
    [
        {"tie_break": TieBreak.KARMADA},
        {"replica_scheduling": ReplicaScheduling()},
        {"spread_constraints": (SpreadConstraint(by=SpreadField.CLUSTER, min_groups=2),)},
        {
            "affinity_groups": (
                AffinityGroup(name="first", affinity=ClusterAffinity(cluster_names=("a",))),
                AffinityGroup(name="second", affinity=ClusterAffinity(cluster_names=("b",))),
            )
        },
        {
            "affinity_groups": (
                AffinityGroup(
                    name="first",
                    affinity=ClusterAffinity(cluster_names=("a",)),
                    overflow=(ClusterAffinity(cluster_names=("b",)),),
                ),
            )
        },
    ],
    ids=["like Karmada", "Duplicated", "two clusters", "groups", "overflow"],
)
def test_what_a_placement_says_comes_first(placement: dict[str, Any]) -> None:
    binding = web(2, **placement)
    unreckoned = replace(estimates_of(NODES), sure_c=None)
    plain = schedule(binding, fleet_of(NODES)[0], unreckoned, now=5.0)
    assert "a" in shares(plain)
    decision = decide(binding)
    assert shares(decision) == shares(plain)
    assert not decision.trace.inputs.estimate_reasons


@pytest.mark.parametrize(("replicas", "is_settled"), [(2, True), (2, False), (1, False)])
def test_where_nothing_is_added_nothing_is_set_aside(replicas: int, is_settled: bool) -> None:
    decision = schedule(
        web(replicas, {"b": 2}),
        fleet_of(NODES)[0],
        estimates_of(NODES),
        now=5.0,
        surroundings=BindingContext(is_settled=is_settled),
    )
    assert shares(decision) == {"b": replicas}
    assert not decision.trace.inputs.estimate_reasons


def test_where_it_is_already_and_where_nodes_are_chosen_unseen() -> None:
    # A cluster where it is already is not set aside.
    assert shares(decide(web(4, {"a": 3}, replica_scheduling=AGGREGATED))) == {"a": 4}
    one = SpreadConstraint(by=SpreadField.CLUSTER, min_groups=1, max_groups=1)
    assert shares(decide(web(2, spread_constraints=(one,)))) == {"b": 2}
    unseen = ignoring_claims(estimates_of(NODES))
    assert "a" in shares(schedule(web(2), fleet_of(NODES)[0], unseen, now=5.0))


@pytest.mark.parametrize("replicas", [1, 2, 3, 12, 13])
def test_it_replays_equal(replicas: int) -> None:
    binding = web(replicas)
    inputs = DecisionInputs(
        binding=binding, fleet=fleet_of(NODES)[0], profile=DEFAULT_PROFILE, surroundings=NO_CONTEXT
    )
    stored = inputs.schedule(estimates_of(NODES), 5.0)
    again = replay(inputs, stored, {})
    assert again.difference is None
    assert again.stored_sha256 == again.replayed_sha256
