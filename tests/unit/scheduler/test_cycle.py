"""Whole cycles by hand-made cases: groups, tiers, outcomes, reasons and the trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from federation.model.cluster import Cluster, Taint, TaintEffect
from federation.model.estimate import Bound, Estimates, Source
from federation.model.placement import (
    AffinityGroup,
    Binding,
    ClusterAffinity,
    ClusterLimit,
    DivisionPreference,
    Placement,
    ReplicaScheduling,
    SchedulingType,
    SpreadConstraint,
    SpreadField,
    StaticWeight,
    TieBreak,
)
from federation.model.workload import (
    Component,
    NodeClaim,
    ObjectReference,
    ReplicaRequirements,
    TargetCluster,
)
from federation.scheduler.cycle import schedule
from federation.scheduler.decision import Decision, Outcome
from federation.scheduler.fleet import Fleet
from federation.scheduler.plugins.filters import FILTERS
from federation.scheduler.plugins.profile import DEFAULT_PROFILE, Filter, Profile, Score
from federation.scheduler.plugins.scores import SCORES
from federation.scheduler.state import ALONE, Surroundings

DYNAMIC = ReplicaScheduling(type=SchedulingType.DIVIDED, dynamic=True)
TAINT = Taint(key="gpu", value="yes", effect=TaintEffect.NO_SCHEDULE)
ABC = tuple(Cluster(name=name, region="xyx"["abc".index(name)]) for name in "abc")


def decide(
    binding: Binding,
    available: dict[str, int | None],
    *,
    clusters: Sequence[Cluster] = ABC,
    profile: Profile = DEFAULT_PROFILE,
    surroundings: Surroundings = ALONE,
    reasons: dict[int, str] | None = None,
) -> Decision:
    """One decision; None is a cluster that nothing could estimate."""
    fleet = Fleet.of(clusters)
    given = [available.get(name) for name in fleet.names]
    estimates = Estimates(
        replicas_c=np.array([replicas or 0 for replicas in given], dtype=np.int64),
        source_c=np.array(
            [Source.NONE if replicas is None else Source.POOLS for replicas in given], dtype=np.int8
        ),
        bound_c=np.full(len(given), Bound.LOWER, dtype=np.int8),
        reasons=reasons or {},
    )
    return schedule(binding, fleet, estimates, now=5.0, profile=profile, surroundings=surroundings)


def web(replicas: int, *, prior: dict[str, int] | None = None, **placement: Any) -> Binding:
    return Binding(
        name="web",
        replicas=replicas,
        clusters=tuple(
            TargetCluster(name=name, replicas=count) for name, count in (prior or {}).items()
        ),
        placement=Placement(**{"replica_scheduling": DYNAMIC, **placement}),
    )


def shares(decision: Decision) -> dict[str, int]:
    return {target.name: target.replicas for target in decision.clusters}


def test_scheduled() -> None:
    decision = decide(web(12), {"a": 10, "b": 20, "c": 5})
    assert decision.outcome is Outcome.SCHEDULED
    assert shares(decision) == {"a": 3, "b": 7, "c": 2}
    assert decision.remainder == 0
    assert decision.reason == ""


def test_a_partial_placement_has_at_least_what_is_asked_for_over_all_clusters() -> None:
    wanted = replace(web(9, partial=True), min_available=6)
    enough = decide(wanted, {"a": 3, "b": 2, "c": 1})
    assert (enough.outcome, shares(enough), enough.remainder) == (
        Outcome.PARTIAL,
        {"a": 3, "b": 2, "c": 1},
        3,
    )
    few = decide(wanted, {"a": 3, "b": 2})
    assert (few.outcome, few.clusters, few.remainder) == (Outcome.UNSCHEDULABLE, (), 9)
    assert "5 replicas are available, 9 wanted, and at least 6 together" in few.reason
    # What runs counts, and stays where it is.
    grown = decide(
        replace(wanted, clusters=web(9, prior={"a": 5}).clusters), {"a": 0, "b": 1, "c": 0}
    )
    assert (grown.outcome, shares(grown)) == (Outcome.PARTIAL, {"a": 5, "b": 1})
    assert [each.trace.min_available for each in (enough, few)] == [6, 6]
    assert decide(web(9, partial=True), {"a": 1}).outcome is Outcome.PARTIAL


def test_of_several_groups_the_first_that_has_enough_is_taken() -> None:
    groups = tuple(
        AffinityGroup(name=name, affinity=ClusterAffinity(cluster_names=(name,))) for name in "abc"
    )
    wanted = replace(web(9, partial=True, affinity_groups=groups), min_available=4)
    assert shares(decide(wanted, {"a": 3, "b": 5, "c": 4})) == {"b": 5}


def test_a_node_selector_that_was_not_heeded_is_told() -> None:
    claim = NodeClaim(node_selector={"disk": "ssd"})
    wanted = replace(web(1), requirements=ReplicaRequirements(node_claim=claim))
    assert decide(wanted, {"a": 1, "b": None}).trace.warnings == ()
    fleet = Fleet.of(ABC)
    blind = Estimates(
        replicas_c=np.array([3, 3, 0]),
        source_c=np.array([Source.MODELS, Source.SUMMARY, Source.NONE], dtype=np.int8),
        bound_c=np.zeros(3, dtype=np.int8),
        reasons={},
    )
    (warning,) = schedule(wanted, fleet, blind, now=5.0).trace.warnings
    assert "ignored in 2 clusters, whose reports tell" in warning
    # A cluster that the affinity refuses takes no part.
    first = replace(wanted, placement=replace(wanted.placement, affinity=named("a")))
    (warning,) = schedule(first, fleet, blind, now=5.0).trace.warnings
    assert "ignored in 1 cluster, whose report tells" in warning
    last = replace(wanted, placement=replace(wanted.placement, affinity=named("c")))
    assert schedule(last, fleet, blind, now=5.0).trace.warnings == ()


def named(*names: str) -> ClusterAffinity:
    return ClusterAffinity(cluster_names=names)


@pytest.mark.parametrize(
    "placement",
    [
        {"affinity": named("a", "east")},
        {"affinity": ClusterAffinity(exclude=("east", "b"))},
        {
            "affinity_groups": (
                AffinityGroup(name="first", affinity=named("a")),
                AffinityGroup(name="second", affinity=named("east")),
            )
        },
        {"replica_scheduling": replace(DYNAMIC, limits=(ClusterLimit(target=named("east")),))},
        {
            "replica_scheduling": ReplicaScheduling(
                type=SchedulingType.DIVIDED,
                static_weights=(
                    StaticWeight(target=named("a"), weight=1),
                    StaticWeight(target=named("east"), weight=1),
                ),
            )
        },
    ],
)
def test_names_that_no_cluster_has_are_warned_of(placement: dict[str, Any]) -> None:
    decision = decide(web(2, **placement), {"a": 5, "b": 5, "c": 5})
    assert decision.outcome is Outcome.SCHEDULED
    assert decision.trace.warnings == ("no cluster is named east",)


def test_a_name_that_is_the_reason_is_not_warned_of_too() -> None:
    decision = decide(web(2, affinity=named("east")), {"a": 5, "b": 5, "c": 5})
    assert decision.outcome is Outcome.NO_FIT
    assert "no cluster is named east" in decision.reason
    assert decision.trace.warnings == ()


def test_unschedulable_names_numbers() -> None:
    decision = decide(web(36), {"a": 10, "b": 20, "c": 5})
    assert decision.outcome is Outcome.UNSCHEDULABLE
    assert decision.clusters == ()
    assert decision.remainder == 36
    assert decision.reason == "35 replicas are available, 36 wanted"


def test_partial_places_what_fits() -> None:
    decision = decide(web(36, partial=True), {"a": 10, "b": 20, "c": 5})
    assert decision.outcome is Outcome.PARTIAL
    assert shares(decision) == {"a": 10, "b": 20, "c": 5}
    assert decision.remainder == 1


def test_partial_with_nothing_placed_is_unschedulable() -> None:
    decision = decide(web(3, partial=True), {"a": 0, "b": 0, "c": 0})
    assert decision.outcome is Outcome.UNSCHEDULABLE
    assert decision.remainder == 3


def test_reasons_count_what_filters_refused() -> None:
    clusters = (
        Cluster(name="a", taints=(TAINT,)),
        Cluster(name="b", taints=(TAINT,)),
        Cluster(name="c", ready=False),
        Cluster(name="d"),
    )
    decision = decide(web(9), {"d": 4}, clusters=clusters)
    assert decision.reason == (
        "4 replicas are available, 9 wanted; 3 of 4 clusters were refused:"
        " has the untolerated taint gpu=yes:NoSchedule (2), is not Ready (1)"
    )
    assert [refusal.filter for refusal in decision.trace.filtering.refusals] == [
        "ClusterReady",
        "TaintToleration",
    ]


def test_no_fit_when_filters_leave_nothing() -> None:
    decision = decide(web(1, affinity=ClusterAffinity(cluster_names=("gone",))), {"a": 9})
    assert decision.outcome is Outcome.NO_FIT
    assert decision.reason == (
        "no cluster passes the filters; 3 of 3 clusters were refused:"
        " does not match the cluster affinity (3); no cluster is named gone"
    )


def test_names_that_no_cluster_has_are_told_where_not_all_is_placed() -> None:
    affinity = ClusterAffinity(cluster_names=("a", "west", "east"), exclude=("old", "b"))
    decision = decide(web(9, affinity=affinity), {"a": 4})
    assert decision.outcome is Outcome.UNSCHEDULABLE
    assert decision.reason.endswith("; no cluster is named east, old, west")
    placed = decide(web(4, affinity=affinity), {"a": 4})
    assert (placed.outcome, placed.reason) == (Outcome.SCHEDULED, "")


def test_names_of_other_affinity_groups_are_not_told() -> None:
    near = AffinityGroup(name="near", affinity=ClusterAffinity(cluster_names=("typo",)))
    far = AffinityGroup(
        name="far",
        affinity=ClusterAffinity(cluster_names=("a",)),
        overflow=(ClusterAffinity(cluster_names=("spare", "b")),),
    )
    decision = decide(web(9, affinity_groups=(near, far)), {"a": 4, "b": 2})
    assert decision.trace.affinity_group == "far"
    assert decision.reason.endswith("; no cluster is named spare")
    assert decision.trace.trials[0].reason.endswith("; no cluster is named typo")


def test_of_many_names_the_first_few_are_told() -> None:
    names = tuple(f"n{number}" for number in range(8))
    decision = decide(web(1, affinity=ClusterAffinity(cluster_names=names)), {"a": 9})
    assert decision.reason.endswith("; no cluster is named n0, n1, n2, n3, n4 and 3 more")


def test_an_empty_fleet_is_no_fit() -> None:
    decision = decide(web(1), {}, clusters=())
    assert decision.outcome is Outcome.NO_FIT
    assert decision.reason == "no cluster passes the filters"


def test_unknown_estimates_are_named() -> None:
    decision = decide(web(5), {"a": 2, "b": None, "c": None})
    assert decision.outcome is Outcome.UNSCHEDULABLE
    assert decision.reason == (
        "2 replicas are available, 5 wanted; 2 clusters have no estimate and count as full"
    )


def test_why_there_is_no_estimate_is_named() -> None:
    told = {0: "of no account", 1: "no pool tells zones apart", 2: "no pool tells zones apart"}
    decision = decide(web(5), {"a": 2, "b": None, "c": None}, reasons=told)
    assert decision.reason == (
        "2 replicas are available, 5 wanted; 2 clusters have no estimate and count as full:"
        " no pool tells zones apart (2)"
    )
    decision = decide(web(5), {"a": 2, "b": 1, "c": None}, reasons={})
    assert decision.reason.endswith("; 1 cluster has no estimate and counts as full")


def test_a_cluster_that_is_not_ready_keeps_its_replicas_and_gets_no_more() -> None:
    clusters = (Cluster(name="a", ready=False), Cluster(name="b"))
    decision = decide(web(6, prior={"a": 2}), {"a": 50, "b": 50}, clusters=clusters)
    assert shares(decision) == {"a": 2, "b": 4}


def test_replicas_of_unknown_clusters_are_placed_again() -> None:
    decision = decide(web(6, prior={"gone": 4, "a": 2}), {"a": 9, "b": 9, "c": 0})
    assert sum(shares(decision).values()) == 6
    assert "gone" not in shares(decision)


def test_affinity_groups_in_order() -> None:
    groups = (
        AffinityGroup(name="near", affinity=ClusterAffinity(cluster_names=("a",))),
        AffinityGroup(name="far", affinity=ClusterAffinity(cluster_names=("b", "c"))),
    )
    binding = web(8, affinity_groups=groups)
    near = decide(binding, {"a": 9, "b": 9, "c": 9})
    assert near.trace.affinity_group == "near"
    far = decide(binding, {"a": 1, "b": 9, "c": 9})
    assert far.trace.affinity_group == "far"
    assert [(trial.name, trial.outcome) for trial in far.trace.trials] == [
        ("near", "UNSCHEDULABLE"),
        ("far", "SCHEDULED"),
    ]


def test_groups_are_not_tried_backwards_unless_fresh() -> None:
    groups = (
        AffinityGroup(name="near", affinity=ClusterAffinity(cluster_names=("a",))),
        AffinityGroup(name="far", affinity=ClusterAffinity(cluster_names=("b",))),
    )
    binding = web(3, affinity_groups=groups)
    known = Surroundings(observed_affinity="far")
    everywhere: dict[str, int | None] = {"a": 9, "b": 9, "c": 9}
    assert shares(decide(binding, everywhere, surroundings=known)) == {"b": 3}
    fresh = replace(binding, fresh=True)
    assert shares(decide(fresh, everywhere, surroundings=known)) == {"a": 3}


def test_the_partial_group_that_places_most_wins() -> None:
    groups = tuple(
        AffinityGroup(name=name, affinity=ClusterAffinity(cluster_names=(name,))) for name in "abc"
    )
    binding = web(9, affinity_groups=groups, partial=True)
    assert shares(decide(binding, {"a": 2, "b": 5, "c": 5})) == {"b": 5}


def test_overflow_tiers() -> None:
    group = AffinityGroup(
        name="near",
        affinity=ClusterAffinity(cluster_names=("a",)),
        overflow=(ClusterAffinity(cluster_names=("b",)), ClusterAffinity()),
    )
    binding = web(7, affinity_groups=(group,))
    decision = decide(binding, {"a": 2, "b": 3, "c": 9})
    assert shares(decision) == {"a": 2, "b": 3, "c": 2}
    assert decision.trace.filtering.tier_c.tolist() == [0, 1, 2]
    assert [facts.wanted for facts in decision.trace.division.tiers] == [2, 3, 2]


def test_static_weights_ignore_spread_constraints() -> None:
    scheduling = ReplicaScheduling(
        type=SchedulingType.DIVIDED,
        static_weights=(
            StaticWeight(target=ClusterAffinity(cluster_names=("a", "b")), weight=1),
            StaticWeight(target=ClusterAffinity(cluster_names=("b",)), weight=2),
        ),
    )
    one = SpreadConstraint(by=SpreadField.CLUSTER, max_groups=1)
    binding = web(9, replica_scheduling=scheduling, spread_constraints=(one,))
    assert shares(decide(binding, {})) == {"a": 3, "b": 6}


def test_spread_that_no_choice_keeps_is_no_fit() -> None:
    three = SpreadConstraint(by=SpreadField.REGION, min_groups=3)
    decision = decide(web(3, spread_constraints=(three,)), {"a": 9, "b": 9, "c": 9})
    assert decision.outcome is Outcome.NO_FIT
    assert decision.reason == "2 regions have candidates, 3 wanted"


def test_spread_without_room_is_unschedulable() -> None:
    two = SpreadConstraint(by=SpreadField.CLUSTER, max_groups=2)
    decision = decide(web(25, spread_constraints=(two,)), {"a": 9, "b": 9, "c": 9})
    assert decision.outcome is Outcome.UNSCHEDULABLE
    assert decision.reason == (
        "no more than 18 replicas are available under the spread constraints"
        " (cluster 1 to 2), 25 wanted"
    )


def test_limits() -> None:
    scheduling = replace(
        DYNAMIC,
        limits=(
            ClusterLimit(target=ClusterAffinity(), max=5),
            ClusterLimit(target=ClusterAffinity(cluster_names=("c",)), min=4),
        ),
    )
    decision = decide(web(12, replica_scheduling=scheduling), {"a": 10, "b": 20, "c": 5})
    assert shares(decision) == {"a": 3, "b": 5, "c": 4}
    too_many = decide(web(16, replica_scheduling=scheduling), {"a": 10, "b": 20, "c": 5})
    assert too_many.reason == "15 replicas are available, 16 wanted"


def test_an_object_without_pods_goes_everywhere() -> None:
    binding = Binding(name="settings", placement=Placement())
    decision = decide(binding, {"a": 0})
    assert decision.outcome is Outcome.SCHEDULED
    assert shares(decision) == {"a": 0, "b": 0, "c": 0}


def test_a_workload_scaled_to_zero_goes_nowhere() -> None:
    binding = replace(web(0), requirements=ReplicaRequirements(request={"cpu": 1}))
    decision = decide(binding, {"a": 9, "b": 9, "c": 9})
    assert decision.outcome is Outcome.SCHEDULED
    assert decision.clusters == ()


def components(**placement: Any) -> Binding:
    return replace(
        web(0, **placement),
        components=(Component(name="manager", replicas=1), Component(name="worker", replicas=4)),
    )


def test_a_component_set_goes_to_one_cluster_whole() -> None:
    decision = decide(components(), {"a": 0, "b": 2, "c": 1})
    assert shares(decision) == {"b": 5}
    full = decide(components(), {"a": 0, "b": 0, "c": 0})
    assert full.outcome is Outcome.UNSCHEDULABLE
    assert full.remainder == 5
    assert "has no room for one replica (3)" in full.reason


def test_a_component_set_stays_where_it_is() -> None:
    binding = replace(components(), clusters=(TargetCluster(name="c", replicas=5),))
    assert shares(decide(binding, {"a": 9, "b": 9, "c": 0})) == {"c": 5}


def test_a_lone_remainder_follows_the_tie_break() -> None:
    def winner(uid: str, tie_break: TieBreak) -> str:
        binding = replace(web(1, tie_break=tie_break), resource=ObjectReference(uid=uid))
        (target,) = decide(binding, {"a": 5, "b": 5, "c": 5}).clusters
        return target.name

    assert winner("", TieBreak.HASH) == "a"
    assert winner("uid-1", TieBreak.KARMADA) == "c"
    assert winner("uid-2", TieBreak.KARMADA) == "a"
    assert {winner(f"uid-{n}", TieBreak.HASH) for n in range(30)} == set("abc")


@pytest.mark.parametrize("uid", ["", "uid-1", "uid-7"])
def test_candidates_of_equal_rank_follow_the_tie_break(uid: str) -> None:
    one = SpreadConstraint(by=SpreadField.CLUSTER, max_groups=1)
    binding = replace(
        web(1, spread_constraints=(one,), tie_break=TieBreak.KARMADA),
        resource=ObjectReference(uid=uid),
    )
    assert shares(decide(binding, {"a": 5, "b": 5, "c": 5})) == {"a": 1}


def test_under_karmada_a_scale_down_takes_equals_as_the_binding_lists_them() -> None:
    aggregated = ReplicaScheduling(
        type=SchedulingType.DIVIDED, preference=DivisionPreference.AGGREGATED
    )
    binding = web(
        3,
        prior={"c": 4, "a": 4},
        replica_scheduling=aggregated,
        tie_break=TieBreak.KARMADA,
    )
    assert shares(decide(binding, {"a": 9, "b": 9, "c": 9})) == {"c": 3}


def test_a_profile_chooses_its_plugins() -> None:
    profile = Profile(
        name="packed",
        filters=(Filter(name="Capacity", run=FILTERS["Capacity"]),),
        scores=(
            Score(name="Packing", run=SCORES["Packing"], weight=3),
            Score(name="ClusterLocality", run=SCORES["ClusterLocality"], weight=1),
        ),
    )
    one = SpreadConstraint(by=SpreadField.CLUSTER, max_groups=1)
    binding = web(5, spread_constraints=(one,))
    decision = decide(binding, {"a": 0, "b": 20, "c": 5}, profile=profile)
    assert shares(decision) == {"c": 5}
    assert decision.trace.profile == "packed"
    assert decision.trace.scoring.weights == {"Packing": 3, "ClusterLocality": 1}
    assert decision.trace.scoring.total_c.tolist() == [0, 18, 75]


def test_the_trace_tells_the_arithmetic() -> None:
    trace = decide(web(12, prior={"a": 3, "b": 0}), {"a": 10, "b": 20, "c": 5}).trace
    assert trace.clusters == ("a", "b", "c")
    assert trace.now == 5.0
    assert trace.inputs.previous_c.tolist() == [3, 0, -1]
    assert trace.inputs.available_c.tolist() == [10, 20, 5]
    assert trace.scoring.total_c.tolist() == [100, 100, 0]
    assert trace.selected_c.tolist() == [True, True, True]
    division = trace.division
    assert division.strategy == "DynamicWeight"
    assert division.tiers[0].mode == "SteadyUp"
    assert (division.tiers[0].wanted, division.tiers[0].target) == (12, 9)
    assert division.weight_c.tolist() == [10, 20, 5]
    assert division.quota_c.round(2).tolist() == [2.57, 5.14, 1.29]
    assert division.share_c.tolist() == [6, 5, 1]
    assert division.remainder_c.tolist() == [1, 0, 0]


def test_a_decision_is_plain_enough_for_json() -> None:
    plain = decide(web(2), {"a": 5, "b": 0, "c": 0}).to_plain()
    assert plain["outcome"] == "SCHEDULED"
    assert plain["clusters"] == [{"name": "a", "replicas": 2}]
    assert plain["trace"]["inputs"]["available_c"] == [5, 0, 0]
