"""Whole decisions: sums, bounds, steadiness, and independence of every order."""

from __future__ import annotations

import random
from dataclasses import replace
from hashlib import blake2b

import msgspec
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.history.trace_rows import TRACES, TraceRow, part_of, plain_part_of
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
from federation.model.workload import ObjectReference, TargetCluster
from federation.scheduler.cycle import schedule
from federation.scheduler.decision import Decision, Outcome
from federation.scheduler.fleet import Fleet

TAINT = Taint(key="dedicated", effect=TaintEffect.NO_SCHEDULE)
DIVIDED = SchedulingType.DIVIDED
BY_CAPACITY = (
    ReplicaScheduling(type=DIVIDED, dynamic=True),
    ReplicaScheduling(type=DIVIDED, preference=DivisionPreference.AGGREGATED),
    ReplicaScheduling(type=DIVIDED, preference=DivisionPreference.FILL_FIRST),
    ReplicaScheduling(type=DIVIDED, capacity_bounded=True),
)
BY_WEIGHT = (
    ReplicaScheduling(type=DIVIDED),
    ReplicaScheduling(
        type=DIVIDED,
        static_weights=(
            StaticWeight(target=ClusterAffinity(match_labels={"tier": "a"}), weight=3),
            StaticWeight(target=ClusterAffinity(cluster_names=("c1", "c2")), weight=2),
        ),
    ),
)


@st.composite
def fleets(draw: st.DrawFn, *, plain: bool = False) -> tuple[list[Cluster], dict[str, int]]:
    """Up to seven clusters and how many replicas fit in each."""
    clusters = [
        Cluster(
            name=f"c{number}",
            labels={"tier": draw(st.sampled_from("ab"))},
            region=draw(st.sampled_from(["r0", "r1", "r2"])),
            taints=() if plain else draw(st.sampled_from([(), (), (), (TAINT,)])),
            ready=plain or draw(st.sampled_from([True, True, True, False])),
        )
        for number in range(draw(st.integers(1, 7)))
    ]
    return clusters, {cluster.name: draw(st.integers(0, 12)) for cluster in clusters}


@st.composite
def spreads(draw: st.DrawFn) -> tuple[SpreadConstraint, ...]:
    fields = draw(st.lists(st.sampled_from([SpreadField.CLUSTER, SpreadField.REGION]), unique=True))
    chosen = []
    for field in fields:
        least = draw(st.integers(1, 3))
        most = draw(st.none() | st.integers(least, 5))
        chosen.append(SpreadConstraint(by=field, min_groups=least, max_groups=most))
    return tuple(chosen)


@st.composite
def bindings(
    draw: st.DrawFn, schedulings: tuple[ReplicaScheduling, ...] = BY_CAPACITY + BY_WEIGHT
) -> Binding:
    names = draw(st.lists(st.sampled_from([f"c{n}" for n in range(9)]), unique=True, max_size=5))
    return Binding(
        name="web",
        replicas=draw(st.integers(0, 40)),
        resource=ObjectReference(uid=draw(st.sampled_from(["", "6f1c", "uid-1"]))),
        clusters=tuple(
            TargetCluster(name=name, replicas=draw(st.integers(0, 8))) for name in names
        ),
        fresh=draw(st.booleans()),
        placement=Placement(
            replica_scheduling=draw(st.sampled_from(schedulings)),
            tie_break=draw(st.sampled_from(list(TieBreak))),
        ),
    )


def estimates(fleet: Fleet, fits: dict[str, int]) -> Estimates:
    return Estimates(
        replicas_c=np.array([fits[name] for name in fleet.names], dtype=np.int64),
        source_c=np.full(len(fleet), Source.POOLS, dtype=np.int8),
        bound_c=np.full(len(fleet), Bound.LOWER, dtype=np.int8),
        reasons={},
    )


def decided(binding: Binding, clusters: list[Cluster], fits: dict[str, int]) -> Decision:
    fleet = Fleet.of(clusters)
    return schedule(binding, fleet, estimates(fleet, fits), now=1_000.0)


def spread_over(binding: Binding, spread: tuple[SpreadConstraint, ...]) -> Binding:
    return replace(binding, placement=replace(binding.placement, spread_constraints=spread))


def prior_of(binding: Binding) -> dict[str, int]:
    return {target.name: target.replicas for target in binding.clusters}


def shares_of(decision: Decision) -> dict[str, int]:
    return {target.name: target.replicas for target in decision.clusters}


@settings(max_examples=120, deadline=None)
@given(fleets(), bindings(), spreads())
def test_replicas_are_placed_or_reported(
    fleet: tuple[list[Cluster], dict[str, int]],
    binding: Binding,
    spread: tuple[SpreadConstraint, ...],
) -> None:
    decision = decided(spread_over(binding, spread), *fleet)
    placed = sum(shares_of(decision).values())
    assert placed + decision.remainder == binding.replicas
    if decision.outcome is Outcome.SCHEDULED:
        assert not decision.remainder
        assert not decision.reason
    else:
        assert not decision.clusters
        assert decision.reason


@settings(max_examples=120, deadline=None)
@given(fleets(), bindings(BY_CAPACITY), spreads())
def test_no_share_above_what_fits(
    fleet: tuple[list[Cluster], dict[str, int]],
    binding: Binding,
    spread: tuple[SpreadConstraint, ...],
) -> None:
    clusters, fits = fleet
    prior = prior_of(binding)
    decision = decided(spread_over(binding, spread), clusters, fits)
    ready = {cluster.name for cluster in clusters if cluster.ready}
    for name, share in shares_of(decision).items():
        assert share <= prior.get(name, 0) + (fits[name] if name in ready else 0)


@settings(max_examples=120, deadline=None)
@given(fleets(), bindings(BY_CAPACITY))
def test_partial_places_all_that_fits(
    fleet: tuple[list[Cluster], dict[str, int]], binding: Binding
) -> None:
    clusters, fits = fleet
    decision = decided(
        replace(binding, placement=replace(binding.placement, partial=True)), clusters, fits
    )
    prior = prior_of(binding)
    room = sum(
        prior.get(cluster.name, 0) + (fits[cluster.name] if cluster.ready else 0)
        for cluster in clusters
        if cluster.name in prior or (cluster.ready and not cluster.taints)
    )
    placed = sum(shares_of(decision).values())
    assert placed == min(room, binding.replicas)
    assert decision.remainder == binding.replicas - placed
    if placed and decision.remainder:
        assert decision.outcome is Outcome.PARTIAL


@settings(max_examples=120, deadline=None)
@given(fleets(plain=True), bindings(BY_CAPACITY[:3]))
def test_steady_division_only_adds_or_only_takes(
    fleet: tuple[list[Cluster], dict[str, int]], binding: Binding
) -> None:
    clusters, fits = fleet
    decision = decided(replace(binding, fresh=False), clusters, fits)
    if decision.outcome is not Outcome.SCHEDULED:
        return
    prior, shares = prior_of(binding), shares_of(decision)
    placed = sum(prior.get(cluster.name, 0) for cluster in clusters)
    changes = [shares.get(c.name, 0) - prior.get(c.name, 0) for c in clusters]
    if placed <= binding.replicas:
        assert min(changes) >= 0
    if placed >= binding.replicas:
        assert max(changes) <= 0


@settings(max_examples=80, deadline=None)
@given(fleets(), bindings(), spreads(), st.randoms(use_true_random=False))
def test_order_of_clusters_does_not_matter(
    fleet: tuple[list[Cluster], dict[str, int]],
    binding: Binding,
    spread: tuple[SpreadConstraint, ...],
    shuffler: random.Random,
) -> None:
    clusters, fits = fleet
    asked = spread_over(binding, spread)
    straight = decided(asked, clusters, fits)
    mixed = list(clusters)
    shuffler.shuffle(mixed)
    assert decided(asked, mixed, fits).to_plain() == straight.to_plain()


@settings(max_examples=200, deadline=None)
@given(fleets(), bindings(BY_CAPACITY), spreads(), st.sampled_from(["6f1c", "uid-1", "uid-2"]))
def test_equals_are_taken_in_the_order_of_their_hashes(
    fleet: tuple[list[Cluster], dict[str, int]],
    binding: Binding,
    spread: tuple[SpreadConstraint, ...],
    uid: str,
) -> None:
    """As those would be whose names are in this order, where no uid puts names in another one."""
    clusters, fits = fleet
    few = {name: min(room, 2) for name, room in fits.items()}
    names = sorted(
        fits, key=lambda name: blake2b(f"{uid}\0{name}".encode(), digest_size=8).digest()
    )
    renamed = {name: f"c{place}" for place, name in enumerate(names)}
    placement = replace(binding.placement, tie_break=TieBreak.HASH, spread_constraints=spread)
    prior = [each for each in binding.clusters if each.name in fits]
    asked = replace(
        binding,
        placement=placement,
        clusters=tuple(prior),
        resource=ObjectReference(uid=uid),
        replicas=binding.replicas % 9,
    )
    other = replace(
        asked,
        resource=ObjectReference(uid=""),
        clusters=tuple(replace(each, name=renamed[each.name]) for each in prior),
    )
    found = decided(asked, clusters, few)
    expected = decided(
        other,
        [replace(each, name=renamed[each.name]) for each in clusters],
        {renamed[name]: room for name, room in few.items()},
    )
    assert found.outcome is expected.outcome
    shares = {renamed[name]: count for name, count in shares_of(found).items()}
    assert shares == shares_of(expected)


@settings(max_examples=150, deadline=None)
@given(fleets(), bindings(BY_CAPACITY), spreads(), st.data())
def test_more_capacity_never_makes_a_binding_unschedulable(
    fleet: tuple[list[Cluster], dict[str, int]],
    binding: Binding,
    spread: tuple[SpreadConstraint, ...],
    data: st.DataObject,
) -> None:
    clusters, fits = fleet
    placement = replace(binding.placement, tie_break=TieBreak.HASH, spread_constraints=spread)
    asked = replace(binding, placement=placement)
    if decided(asked, clusters, fits).outcome is not Outcome.SCHEDULED:
        return
    more = {name: room + data.draw(st.integers(0, 9)) for name, room in fits.items()}
    assert decided(asked, clusters, more).outcome is Outcome.SCHEDULED


@settings(max_examples=120, deadline=None)
@given(fleets(plain=True), bindings(BY_CAPACITY + BY_WEIGHT), st.data())
def test_limits_are_kept(
    fleet: tuple[list[Cluster], dict[str, int]], binding: Binding, data: st.DataObject
) -> None:
    clusters, fits = fleet
    limits = {}
    for cluster in clusters:
        least = data.draw(st.sampled_from([0, 0, 2]))
        limits[cluster.name] = (least, least + data.draw(st.integers(0, 9)))
    scheduling = replace(
        binding.placement.replica_scheduling,
        limits=tuple(
            ClusterLimit(target=ClusterAffinity(cluster_names=(name,)), min=least, max=most)
            for name, (least, most) in limits.items()
        ),
    )
    asked = replace(binding, placement=replace(binding.placement, replica_scheduling=scheduling))
    decision = decided(asked, clusters, fits)
    if decision.outcome is Outcome.SCHEDULED and binding.replicas:
        shares = shares_of(decision)
        assert sum(shares.values()) == binding.replicas
        for name, (least, most) in limits.items():
            assert least <= shares.get(name, 0) <= most
            if scheduling in BY_CAPACITY:
                assert shares.get(name, 0) <= fits[name] + prior_of(binding).get(name, 0)


@settings(max_examples=80, deadline=None)
@given(fleets(plain=True), bindings(BY_CAPACITY))
def test_an_overflow_tier_is_used_only_when_those_before_it_are_full(
    fleet: tuple[list[Cluster], dict[str, int]], binding: Binding
) -> None:
    clusters, fits = fleet
    group = AffinityGroup(
        name="main",
        affinity=ClusterAffinity(match_labels={"tier": "a"}),
        overflow=(ClusterAffinity(),),
    )
    asked = replace(binding, placement=replace(binding.placement, affinity_groups=(group,)))
    decision = decided(asked, clusters, fits)
    if decision.outcome is not Outcome.SCHEDULED:
        return
    prior, shares = prior_of(binding), shares_of(decision)
    main = {cluster.name for cluster in clusters if cluster.labels["tier"] == "a"}
    if any(share for name, share in shares.items() if name not in main):
        assert all(shares.get(name, 0) == fits[name] + prior.get(name, 0) for name in main)


@settings(max_examples=50, deadline=None)
@given(fleets(), bindings(), spreads())
def test_a_trace_survives_json(
    fleet: tuple[list[Cluster], dict[str, int]],
    binding: Binding,
    spread: tuple[SpreadConstraint, ...],
) -> None:
    trace = decided(spread_over(binding, spread), *fleet).trace
    stored = msgspec.json.encode(TRACES.pack(trace), enc_hook=plain_part_of)
    row = msgspec.json.decode(stored, type=TraceRow, dec_hook=part_of)
    assert TRACES.unpack(row).to_plain() == trace.to_plain()
