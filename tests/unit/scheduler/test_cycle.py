"""Whole cycles by hand-made cases: groups, tiers, outcomes, reasons, warnings and the trace."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from federation.model.cluster import Cluster, Taint, TaintEffect
from federation.model.estimate import Source
from federation.model.placement import (
    AffinityGroup,
    Binding,
    ClusterAffinity,
    ClusterLimit,
    Placement,
    ReplicaScheduling,
    SpreadConstraint,
    SpreadField,
    StaticWeight,
    TieBreak,
)
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import NO_REASON, Reason, stored_reason
from federation.model.workload import (
    Component,
    NodeClaim,
    ObjectReference,
    ReplicaRequirements,
    TargetCluster,
)
from federation.scheduler.cycle import schedule
from federation.scheduler.decision import Decision, Outcome
from federation.scheduler.fleet import Column, Fleet
from federation.scheduler.plugins.filters import FILTERS
from federation.scheduler.plugins.profile import DEFAULT_PROFILE, Filter, Profile
from federation.scheduler.state import BindingContext
from tests.unit.scheduler.states import (
    ABC,
    AGGREGATED,
    DIVIDED,
    DYNAMIC,
    FILL_FIRST,
    decide,
    estimates,
    shares,
    web,
)

SCHEDULED, PARTIAL = Outcome.SCHEDULED, Outcome.PARTIAL
UNSCHEDULABLE, NO_FIT = Outcome.UNSCHEDULABLE, Outcome.NO_FIT
TAINT = Taint(key="gpu", value="yes", effect=TaintEffect.NO_SCHEDULE)
DUPLICATED, WEIGHTED = ReplicaScheduling(), ReplicaScheduling(type=DIVIDED)
CORE = ReplicaRequirements(request={"cpu": 1})
PLENTY: dict[str, int | None] = {"a": 9, "b": 9, "c": 9}
ROOM: dict[str, int | None] = {"a": 10, "b": 20, "c": 5}


def named(*names: str, exclude: tuple[str, ...] = ()) -> ClusterAffinity:
    return ClusterAffinity(cluster_names=names, exclude=exclude)


def group(name: str, *clusters: str, overflow: tuple[ClusterAffinity, ...] = ()) -> AffinityGroup:
    return AffinityGroup(name=name, affinity=named(*clusters), overflow=overflow)


def by(field: SpreadField, least: int = 1, most: int | None = None) -> SpreadConstraint:
    return SpreadConstraint(by=field, min_groups=least, max_groups=most)


CLUSTER, REGION = SpreadField.CLUSTER, SpreadField.REGION
ONE_EACH = tuple(group(name, name) for name in "abc")
NEAR_AND_FAR = (group("near", "a"), group("far", "b", "c"))
LIMITS = replace(
    DYNAMIC,
    limits=(ClusterLimit(target=ClusterAffinity(), max=5), ClusterLimit(target=named("c"), min=4)),
)
STATIC = ReplicaScheduling(
    type=DIVIDED,
    static_weights=(
        StaticWeight(target=named("a", "b"), weight=1),
        StaticWeight(target=named("b"), weight=2),
    ),
)
MANY_NAMES = tuple(f"n{number}" for number in range(8))
REFUSED_AND_UNREADY = "; 3 of 3 clusters were refused: does not match the cluster affinity (3)"


@pytest.mark.parametrize(
    ("binding", "available", "outcome", "placed", "reason"),
    [
        (web(12), ROOM, SCHEDULED, {"a": 3, "b": 7, "c": 2}, ""),
        (web(36), ROOM, UNSCHEDULABLE, {}, "35 replicas are available, 36 wanted"),
        (web(36, partial=True), ROOM, PARTIAL, {"a": 10, "b": 20, "c": 5}, None),
        (web(3, partial=True), {"a": 0, "b": 0, "c": 0}, UNSCHEDULABLE, {}, None),
        (
            web(1, affinity=named("gone")),
            PLENTY,
            NO_FIT,
            {},
            f"no cluster passes the filters{REFUSED_AND_UNREADY}; no cluster is named gone",
        ),
        # Names that no cluster has are told where not all is placed: of many the first few.
        (
            web(1, affinity=named(*MANY_NAMES)),
            PLENTY,
            NO_FIT,
            {},
            (
                f"no cluster passes the filters{REFUSED_AND_UNREADY};"
                " no cluster is named n0, n1, n2, n3, n4 and 3 more"
            ),
        ),
        (
            web(5),
            {"a": 2, "b": None, "c": None},
            UNSCHEDULABLE,
            {},
            "2 replicas are available, 5 wanted; 2 clusters have no estimate and count as full",
        ),
        (
            web(5),
            {"a": 2, "b": 1, "c": None},
            UNSCHEDULABLE,
            {},
            "3 replicas are available, 5 wanted; 1 cluster has no estimate and counts as full",
        ),
        (web(8, affinity_groups=NEAR_AND_FAR), PLENTY, SCHEDULED, {"a": 8}, ""),
        (web(8, affinity_groups=NEAR_AND_FAR), {**PLENTY, "a": 1}, SCHEDULED, {"b": 4, "c": 4}, ""),
        # The partial group that places most wins.
        (
            web(9, affinity_groups=ONE_EACH, partial=True),
            {"a": 2, "b": 5, "c": 5},
            PARTIAL,
            {"b": 5},
            None,
        ),
        # Static weights ignore spread constraints.
        (
            web(9, replica_scheduling=STATIC, spread_constraints=(by(CLUSTER, 1, 1),)),
            {},
            SCHEDULED,
            {"a": 3, "b": 6},
            "",
        ),
        (
            web(3, spread_constraints=(by(REGION, 3),)),
            PLENTY,
            NO_FIT,
            {},
            "2 regions have candidates, 3 wanted",
        ),
        (
            web(25, spread_constraints=(by(CLUSTER, 1, 2),)),
            PLENTY,
            UNSCHEDULABLE,
            {},
            (
                "no more than 18 replicas are available under the spread constraints"
                " (cluster 1 to 2), 25 wanted"
            ),
        ),
        (web(12, replica_scheduling=LIMITS), ROOM, SCHEDULED, {"a": 3, "b": 5, "c": 4}, ""),
        (
            web(16, replica_scheduling=LIMITS),
            ROOM,
            UNSCHEDULABLE,
            {},
            "15 replicas are available, 16 wanted",
        ),
        # An object without pods goes everywhere; a workload that is scaled to zero nowhere.
        (Binding(name="settings"), {"a": 0}, SCHEDULED, {"a": 0, "b": 0, "c": 0}, ""),
        (replace(web(0), requirements=CORE), PLENTY, SCHEDULED, {}, ""),
    ],
)
def test_decisions(
    binding: Binding,
    available: dict[str, int | None],
    outcome: Outcome,
    placed: dict[str, int],
    reason: str | None,
) -> None:
    decision = decide(binding, available)
    assert (decision.outcome, shares(decision)) == (outcome, placed)
    if binding.replicas:
        assert decision.remainder == binding.replicas - sum(placed.values())
    if reason is None:
        assert decision.reason
    else:
        assert str(decision.reason) == reason
    assert decision.trace.warnings == ()


def test_a_partial_placement_has_at_least_what_is_asked_for_over_all_clusters() -> None:
    wanted = replace(web(9, partial=True), min_available=6)
    enough = decide(wanted, {"a": 3, "b": 2, "c": 1})
    assert (enough.outcome, shares(enough)) == (PARTIAL, {"a": 3, "b": 2, "c": 1})
    few = decide(wanted, {"a": 3, "b": 2})
    assert (few.outcome, few.clusters, few.remainder) == (UNSCHEDULABLE, (), 9)
    assert "5 replicas are available, 9 wanted, and at least 6 together" in str(few.reason)
    # What runs counts, and stays where it is.
    placed = replace(wanted, clusters=web(9, prior={"a": 5}).clusters)
    grown = decide(placed, {"a": 0, "b": 1, "c": 0})
    assert (grown.outcome, shares(grown)) == (PARTIAL, {"a": 5, "b": 1})
    assert [each.trace.min_available for each in (enough, few)] == [6, 6]
    # Of several groups the first that has enough is taken.
    grouped = replace(web(9, partial=True, affinity_groups=ONE_EACH), min_available=4)
    assert shares(decide(grouped, {"a": 3, "b": 5, "c": 4})) == {"b": 5}


def test_a_node_selector_that_was_not_heeded_is_told() -> None:
    claim = NodeClaim(node_selector={"disk": "ssd"})
    wanted = replace(web(1), requirements=ReplicaRequirements(node_claim=claim))
    assert decide(wanted, {"a": 1, "b": None}).trace.warnings == ()
    sources = np.array([Source.MODELS, Source.SUMMARY, Source.NONE], dtype=np.int8)
    blind = replace(estimates([3, 3, 0]), source_c=sources)

    def warnings(affinity: ClusterAffinity | None) -> tuple[str, ...]:
        placed = replace(wanted, placement=replace(wanted.placement, affinity=affinity))
        return schedule(placed, Fleet.of(ABC), blind, now=5.0).trace.warnings

    assert "ignored in 2 clusters, whose reports tell" in warnings(None)[0]
    # A cluster that the affinity refuses takes no part.
    assert "ignored in 1 cluster, whose report tells" in warnings(named("a"))[0]
    assert warnings(named("c")) == ()


@pytest.mark.parametrize(
    "placement",
    [
        {"affinity": named("a", "east")},
        {"affinity": named(exclude=("east", "b"))},
        {"affinity_groups": (group("first", "a"), group("second", "east"))},
        {"replica_scheduling": replace(DYNAMIC, limits=(ClusterLimit(target=named("east")),))},
        {
            "replica_scheduling": replace(
                STATIC,
                static_weights=tuple(
                    StaticWeight(target=named(name), weight=1) for name in ("a", "east")
                ),
            )
        },
    ],
)
def test_names_that_no_cluster_has_are_warned_of_or_are_part_of_the_reason(
    placement: dict[str, Any],
) -> None:
    decision = decide(web(2, **placement), {"a": 5, "b": 5, "c": 5})
    assert decision.outcome is SCHEDULED
    assert decision.trace.warnings == ("no cluster is named east",)
    affinity = named("a", "west", "east", exclude=("old", "b"))
    too_many = decide(web(9, affinity=affinity), {"a": 4})
    assert str(too_many.reason).endswith("; no cluster is named east, old, west")
    assert too_many.trace.warnings == ()


def test_names_of_other_affinity_groups_are_not_told() -> None:
    spare = group("far", "a", overflow=(named("spare", "b"),))
    decision = decide(web(9, affinity_groups=(group("near", "typo"), spare)), {"a": 4, "b": 2})
    assert decision.trace.affinity_group == "far"
    assert str(decision.reason).endswith("; no cluster is named spare")
    assert str(decision.trace.trials[0].reason).endswith("; no cluster is named typo")


def test_reasons_count_what_filters_refused_and_why_there_is_no_estimate() -> None:
    clusters = (
        Cluster(name="a", taints=(TAINT,)),
        Cluster(name="b", taints=(TAINT,)),
        Cluster(name="c", ready=False),
        Cluster(name="d"),
    )
    decision = decide(web(9), {"d": 4}, clusters=clusters)
    assert str(decision.reason) == (
        "4 replicas are available, 9 wanted; 3 of 4 clusters were refused:"
        " has the untolerated taint gpu=yes:NoSchedule (2), is not Ready (1)"
    )
    refusals = [refusal.filter for refusal in decision.trace.filtering.refusals]
    assert refusals == ["ClusterReady", "TaintToleration"]
    assert str(decide(web(1), {}, clusters=()).reason) == "no cluster passes the filters"
    told = {0: "of no account", 1: "no pool tells zones apart", 2: "no pool tells zones apart"}
    decision = decide(web(5), {"a": 2, "b": None, "c": None}, reasons=told)
    assert str(decision.reason).endswith("and count as full: no pool tells zones apart (2)")


def test_replicas_of_unknown_clusters_are_placed_again() -> None:
    placed = shares(decide(web(6, prior={"gone": 4, "a": 2}), {"a": 9, "b": 9, "c": 0}))
    assert sum(placed.values()) == 6
    assert "gone" not in placed


def test_groups_are_tried_in_order_and_not_backwards_unless_fresh() -> None:
    far = decide(web(8, affinity_groups=NEAR_AND_FAR), {**PLENTY, "a": 1}).trace
    tried = [(trial.name, trial.outcome) for trial in far.trials]
    assert tried == [("near", "UNSCHEDULABLE"), ("far", "SCHEDULED")]
    binding = web(3, affinity_groups=(group("near", "a"), group("far", "b")))
    known = BindingContext(observed_affinity="far")
    assert shares(decide(binding, PLENTY, surroundings=known)) == {"b": 3}
    fresh = replace(binding, fresh=True)
    assert shares(decide(fresh, PLENTY, surroundings=known)) == {"a": 3}


def test_overflow_tiers() -> None:
    near = group("near", "a", overflow=(named("b"), ClusterAffinity()))
    decision = decide(web(7, affinity_groups=(near,)), {"a": 2, "b": 3, "c": 9})
    assert shares(decision) == {"a": 2, "b": 3, "c": 2}
    assert decision.trace.filtering.tier_c.tolist() == [0, 1, 2]
    assert [facts.wanted for facts in decision.trace.division.tiers] == [2, 3, 2]


def test_a_component_set_goes_to_one_cluster_whole_and_stays_there() -> None:
    parts = (Component(name="manager", replicas=1), Component(name="worker", replicas=4))
    binding = replace(web(0), components=parts)
    assert shares(decide(binding, {"a": 0, "b": 2, "c": 1})) == {"b": 5}
    full = decide(binding, {"a": 0, "b": 0, "c": 0})
    assert (full.outcome, full.remainder) == (UNSCHEDULABLE, 5)
    assert "has no room for one replica (3)" in str(full.reason)
    placed = replace(binding, clusters=(TargetCluster(name="c", replicas=5),))
    assert shares(decide(placed, {"a": 9, "b": 9, "c": 0})) == {"c": 5}


def test_a_lone_remainder_follows_the_tie_break() -> None:
    def winner(uid: str, tie_break: TieBreak, **placement: Any) -> str:
        asked = web(1, tie_break=tie_break, **placement)
        binding = replace(asked, resource=ObjectReference(uid=uid))
        (target,) = decide(binding, {"a": 5, "b": 5, "c": 5}).clusters
        return target.name

    assert winner("", TieBreak.HASH) == "a"
    assert winner("uid-1", TieBreak.KARMADA) == "c"
    assert winner("uid-2", TieBreak.KARMADA) == "a"
    assert {winner(f"uid-{n}", TieBreak.HASH) for n in range(30)} == set("abc")
    # As Karmada chooses among candidates of equal rank, whatever the uid is.
    for uid in ("", "uid-1", "uid-7"):
        one = (by(CLUSTER, 1, 1),)
        assert winner(uid, TieBreak.KARMADA, spread_constraints=one) == "a"
    # A scale-down takes equals as the binding lists them.
    asked = web(3, prior={"c": 4, "a": 4}, tie_break=TieBreak.KARMADA)
    placement = replace(asked.placement, replica_scheduling=AGGREGATED)
    assert shares(decide(replace(asked, placement=placement), PLENTY)) == {"c": 3}


def test_a_profile_chooses_its_plugins() -> None:
    known = {each.name: each for each in DEFAULT_PROFILE.scores}
    profile = Profile(
        name="packed",
        filters=(Filter(name="Capacity", run=FILTERS["Capacity"]),),
        scores=(replace(known["Packing"], weight=3), known["ClusterLocality"]),
    )
    binding = web(5, spread_constraints=(by(CLUSTER, 1, 1),))
    decision = decide(binding, {"a": 0, "b": 20, "c": 5}, profile=profile)
    assert shares(decision) == {"c": 5}
    assert decision.trace.profile == "packed"
    assert decision.trace.scoring.weights == {"Packing": 3, "ClusterLocality": 1}
    assert decision.trace.scoring.total_c.tolist() == [0, 18, 75]


def test_the_trace_tells_the_arithmetic() -> None:
    decision = decide(web(12, prior={"a": 3, "b": 0}), ROOM)
    trace, division = decision.trace, decision.trace.division
    assert (trace.clusters, trace.now) == (("a", "b", "c"), 5.0)
    assert trace.inputs.previous_c.tolist() == [3, 0, -1]
    assert trace.inputs.available_c.tolist() == [10, 20, 5]
    assert trace.scoring.total_c.tolist() == [100, 100, 0]
    assert trace.selected_c.tolist() == [True, True, True]
    assert (division.strategy, division.tiers[0].mode) == ("DynamicWeight", "SteadyUp")
    assert (division.tiers[0].wanted, division.tiers[0].target) == (12, 9)
    assert division.weight_c.tolist() == [10, 20, 5]
    assert division.quota_c.round(2).tolist() == [2.57, 5.14, 1.29]
    assert division.share_c.tolist() == [6, 5, 1]
    assert division.remainder_c.tolist() == [1, 0, 0]
    plain = decision.to_plain()
    assert plain["outcome"] == "SCHEDULED"
    assert plain["clusters"][0] == {"name": "a", "replicas": 6}
    assert plain["trace"]["inputs"]["available_c"] == [10, 20, 5]


@pytest.mark.parametrize(("how", "name"), [(AGGREGATED, "Aggregated"), (FILL_FIRST, "FillFirst")])
def test_replicas_in_fewer_clusters_than_wanted_are_warned_of(
    how: ReplicaScheduling, name: str
) -> None:
    """The constraint chooses two clusters, as with Karmada, and one of them has room for all."""
    decision = decide(web(4, replica_scheduling=how, spread_constraints=(by(CLUSTER, 2),)), PLENTY)
    assert len(decision.clusters) == 1
    assert decision.trace.warnings == (
        (
            "spec.placement.spreadConstraints[0] (cluster 2) bounds only which clusters are"
            " chosen: "
            f"{name} divides all replicas over 1 cluster"
        ),
    )
    both = (by(REGION, 2, 2), by(CLUSTER, 2, 3))
    decision = decide(web(4, replica_scheduling=how, spread_constraints=both), PLENTY)
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
def test_nothing_is_warned_of_where_spread_is_met_or_cannot_be(
    replicas: int, how: ReplicaScheduling, each: int
) -> None:
    asked = web(replicas, replica_scheduling=how, spread_constraints=(by(CLUSTER, 2),))
    asked = replace(asked, requirements=CORE)
    assert decide(asked, dict.fromkeys("abc", each)).trace.warnings == ()


@pytest.mark.parametrize(
    ("scheduling", "expected"),
    [
        (DUPLICATED, {"a": 2, "b": 5}),
        (WEIGHTED, {"a": 2, "b": 3}),
        (DYNAMIC, {"a": 2, "b": 3}),
    ],
)
@pytest.mark.parametrize(
    "fleet",
    [
        Fleet.of([Cluster(name="a"), Cluster(name="b")]).without(
            Column.of([Reason(ReasonCode.STALE), NO_REASON])
        ),
        Fleet.of([Cluster(name="a", cordoned=True), Cluster(name="b")]),
        Fleet.of([Cluster(name="a", ready=False), Cluster(name="b")]),
    ],
)
def test_what_runs_where_nothing_may_grow_stays_and_does_not_grow(
    scheduling: ReplicaScheduling, expected: dict[str, int], fleet: Fleet
) -> None:
    binding = replace(
        web(5, prior={"a": 2, "b": 2}, replica_scheduling=scheduling),
        resource=ObjectReference(api_version="apps/v1", kind="Deployment", name="web"),
        requirements=CORE,
    )
    assert shares(decide(binding, PLENTY, fleet=fleet)) == expected


def duplicated(lost: dict[str, str], **fields: Any) -> Decision:
    """Five replicas in each of a, b and c, of which a and b have two."""
    clusters = tuple(TargetCluster(name=name, replicas=2) for name in "ab")
    binding = Binding(name="web", replicas=5, requirements=CORE, clusters=clusters, **fields)
    left = Fleet.of(ABC).without(Column.of(stored_reason(lost.get(name, "")) for name in "abc"))
    return decide(binding, PLENTY, fleet=left)


def test_what_is_duplicated_and_missing_in_lost_clusters_is_told() -> None:
    decision = duplicated({"a": "is stale", "b": "cannot be seen"})
    assert (decision.outcome, decision.remainder) == (PARTIAL, 6)
    assert shares(decision) == {"a": 2, "b": 2, "c": 5}
    assert str(decision.reason) == (
        "6 replicas are missing in clusters where nothing may grow now; "
        "a is stale, b cannot be seen"
    )
    assert duplicated({}).outcome is SCHEDULED
    too_little = duplicated(
        {"a": "is stale", "b": "is stale"},
        min_available=10,
        placement=Placement(affinity=named(exclude=("c",))),
    )
    assert (too_little.outcome, too_little.clusters) == (UNSCHEDULABLE, ())
    assert too_little.remainder == 5
    # A group is not left for a cluster that is lost.
    groups = (group("near", "a", "b"), group("far", "c"))
    decision = duplicated({"a": "is stale"}, placement=Placement(affinity_groups=groups))
    assert (decision.outcome, decision.trace.affinity_group) == (PARTIAL, "near")
    assert shares(decision) == {"a": 2, "b": 5}
