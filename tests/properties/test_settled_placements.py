"""Bindings that are asked again: where nothing asks for another placement, nothing moves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from hypothesis import example, given, settings
from hypothesis import strategies as st

from federation.model.cluster import Cluster, Taint, TaintEffect
from federation.model.placement import (
    AffinityGroup,
    Binding,
    ClusterAffinity,
    ClusterLimit,
    Placement,
    ReplicaScheduling,
    SchedulingType,
    SpreadConstraint,
    SpreadField,
    TieBreak,
)
from federation.model.workload import Component, ReplicaRequirements, TargetCluster
from federation.scheduler.cycle import schedule
from federation.scheduler.decision import Decision
from federation.scheduler.fleet import Fleet
from federation.scheduler.state import NO_CONTEXT, BindingContext
from federation.scheduler.triggers import is_settled
from tests.properties.test_scheduler_cycle import (
    BY_CAPACITY,
    BY_WEIGHT,
    DIVIDED,
    estimates,
    shares_of,
)

FULL = Taint(key="full", effect=TaintEffect.NO_SCHEDULE)
NAMES = [f"c{number}" for number in range(6)]
LIMITS = (ClusterLimit(target=ClusterAffinity(), max=6),)
SCHEDULINGS = (
    ReplicaScheduling(),
    ReplicaScheduling(type=DIVIDED, dynamic=True, limits=LIMITS),
    *BY_CAPACITY,
    *BY_WEIGHT,
)
DYNAMIC = BY_CAPACITY[0]
TIER_A = ClusterAffinity(match_labels={"tier": "a"})
NEAR = AffinityGroup(name="near", affinity=TIER_A, overflow=(ClusterAffinity(),))
FAR = AffinityGroup(name="far", affinity=ClusterAffinity(exclude=("c0",)))
SPREADS: tuple[tuple[SpreadConstraint, ...], ...] = (
    (),
    (SpreadConstraint(by=SpreadField.CLUSTER, min_groups=1, max_groups=2),),
    (SpreadConstraint(by=SpreadField.REGION, min_groups=2, max_groups=2),),
    (
        SpreadConstraint(by=SpreadField.REGION, min_groups=1, max_groups=1),
        SpreadConstraint(by=SpreadField.CLUSTER, min_groups=1, max_groups=3),
    ),
)


class World(NamedTuple):
    """Clusters, and how many replicas fit into each beside the binding's own."""

    clusters: Sequence[Cluster]
    room: dict[str, int]


@st.composite
def worlds(draw: st.DrawFn) -> World:
    clusters = [
        Cluster(
            name=name,
            labels={"tier": draw(st.sampled_from("ab"))},
            region=draw(st.sampled_from(["r0", "r1", "r2"])),
            taints=draw(st.sampled_from([(), (), (FULL,)])),
            cordoned=draw(st.sampled_from([False, False, False, True])),
        )
        for name in NAMES[: draw(st.integers(1, len(NAMES)))]
    ]
    return World(clusters, draw(rooms()))


def rooms() -> st.SearchStrategy[dict[str, int]]:
    return st.fixed_dictionaries({name: st.integers(0, 12) for name in NAMES})


@st.composite
def changed(draw: st.DrawFn, world: World) -> World:
    """The same clusters later: with other room, other taints, cordoned or not."""
    clusters = [
        replace(
            each,
            taints=draw(st.sampled_from([(), (FULL,)])),
            cordoned=draw(st.booleans()),
        )
        for each in world.clusters
    ]
    return World(clusters, draw(rooms()))


@st.composite
def bindings(draw: st.DrawFn) -> Binding:
    """New ones: with replicas, of whole sets, or without pods."""
    is_grouped = draw(st.booleans())
    parts = (Component(name="head", replicas=1), Component(name="worker", replicas=3))
    kind = draw(st.sampled_from(["replicas", "replicas", "replicas", "sets", "no pods"]))
    request = {} if kind == "no pods" else {"cpu": 500}
    return Binding(
        name="web",
        replicas=draw(st.integers(1, 20)) if kind == "replicas" else 0,
        requirements=ReplicaRequirements(request=request),
        components=parts if kind == "sets" else (),
        placement=Placement(
            affinity_groups=(NEAR, FAR) if is_grouped else (),
            replica_scheduling=draw(st.sampled_from(SCHEDULINGS)),
            spread_constraints=draw(st.sampled_from(SPREADS)),
            partial=draw(st.booleans()),
        ),
    )


def decided(binding: Binding, world: World, around: BindingContext = NO_CONTEXT) -> Decision:
    fleet = Fleet.of(world.clusters)
    return schedule(binding, fleet, estimates(fleet, world.room), now=1_000.0, surroundings=around)


def asked_again(before: Binding, binding: Binding, world: World, group: str = "") -> Decision:
    settled = is_settled(before, binding)
    around = BindingContext(observed_affinity=group, is_settled=settled)
    return decided(binding, world, around)


@settings(max_examples=300, deadline=None)
@given(st.data(), worlds(), bindings())
def test_what_is_placed_stays_whatever_becomes_of_its_clusters(
    data: st.DataObject, world: World, binding: Binding
) -> None:
    first = decided(binding, world)
    if not first.clusters or first.remainder:
        return
    placed = replace(binding, clusters=first.clusters, last_scheduled_time=5.0)
    bumped = replace(placed, annotations={"bumped": "yes"})
    later = data.draw(changed(world))
    again = asked_again(placed, bumped, later, first.trace.affinity_group)
    assert again.is_placed
    assert again.trace.affinity_group == first.trace.affinity_group
    before, after = shares_of(first), shares_of(again)
    is_whole = not binding.replicas or binding.placement.replica_scheduling == SCHEDULINGS[0]
    if is_whole:
        # An object that goes to all clusters goes to those, too, that let it in only now.
        assert before.items() <= after.items()
    else:
        assert after == before
    if later == world:
        assert after == before


@settings(max_examples=300, deadline=None)
@given(st.data(), worlds(), bindings())
def test_clusters_that_somebody_else_chose_stay_where_the_placement_allows_them(
    data: st.DataObject, world: World, binding: Binding
) -> None:
    binding = replace(
        binding,
        components=(),
        replicas=binding.replicas or 7,
        placement=replace(binding.placement, spread_constraints=(), affinity_groups=()),
    )
    names = [each.name for each in world.clusters]
    chosen = data.draw(st.lists(st.sampled_from(names), unique=True, min_size=1, max_size=3))
    scheduling = binding.placement.replica_scheduling
    if scheduling.type is SchedulingType.DUPLICATED:
        shares = [binding.replicas] * len(chosen)
    else:
        shares = [1] * len(chosen)
        binding = replace(binding, replicas=max(binding.replicas, len(chosen)))
        shares[0] += binding.replicas - len(chosen)
        if scheduling.limits and shares[0] > 6:
            return
    clusters = [TargetCluster(name=n, replicas=r) for n, r in zip(chosen, shares, strict=True)]
    adopted = replace(binding, clusters=tuple(clusters), last_scheduled_time=5.0)
    again = decided(adopted, world, BindingContext(is_settled=is_settled(None, adopted)))
    assert again.is_placed
    had = {each.name: each.replicas for each in clusters}
    assert had.items() <= shares_of(again).items()
    if scheduling.type is SchedulingType.DIVIDED:
        assert len(again.clusters) == len(clusters)


@settings(max_examples=200, deadline=None)
@given(worlds(), bindings(), st.sampled_from(["near", "far"]))
@example(
    World([Cluster(name="c0", labels={"tier": "a"}), Cluster(name="c1")], dict.fromkeys(NAMES, 9)),
    Binding(
        name="web",
        replicas=4,
        requirements=ReplicaRequirements(request={"cpu": 500}),
        placement=Placement(
            affinity_groups=(NEAR, FAR),
            replica_scheduling=DYNAMIC,
        ),
    ),
    "far",
)
@example(
    World(
        [Cluster(name="c1", labels={"tier": "a"}), Cluster(name="c2", labels={"tier": "b"})],
        dict.fromkeys(NAMES, 1),
    ),
    Binding(
        name="web",
        components=(Component(name="head", replicas=1), Component(name="worker", replicas=3)),
        placement=Placement(
            affinity_groups=(NEAR, FAR),
            spread_constraints=(
                SpreadConstraint(by=SpreadField.CLUSTER, min_groups=1, max_groups=2),
            ),
        ),
    ),
    "near",
)
@example(
    World(
        [Cluster(name="c0", labels={"tier": "a"}), Cluster(name="c1", labels={"tier": "b"})],
        dict.fromkeys(NAMES, 0),
    ),
    Binding(
        name="web",
        replicas=1,
        requirements=ReplicaRequirements(request={"cpu": 500}),
        placement=Placement(affinity_groups=(NEAR, FAR), replica_scheduling=BY_WEIGHT[0]),
    ),
    "near",
)
def test_a_later_affinity_group_is_kept_until_a_reschedule(
    world: World, binding: Binding, group: str
) -> None:
    placement = replace(binding.placement, affinity_groups=(NEAR, FAR))
    binding = replace(binding, placement=placement)
    first = decided(binding, world, BindingContext(observed_affinity=group))
    if not first.clusters or first.remainder:
        return
    placed = replace(binding, clusters=first.clusters, last_scheduled_time=5.0)
    landed = first.trace.affinity_group
    again = asked_again(placed, placed, world, landed)
    assert again.clusters == first.clusters
    assert again.trace.affinity_group == landed
    fresh = asked_again(placed, replace(placed, fresh=True), world, landed)
    assert fresh.trace.trials[0].name == "near"


@settings(max_examples=200, deadline=None)
@given(worlds(), bindings(), st.sampled_from(SCHEDULINGS[1:]))
def test_more_replicas_are_divided_as_if_nothing_were_settled(
    world: World, binding: Binding, scheduling: ReplicaScheduling
) -> None:
    """Each trigger has the answer that the strategy gives."""
    placement = replace(binding.placement, replica_scheduling=scheduling)
    binding = replace(binding, components=(), replicas=binding.replicas or 5, placement=placement)
    first = decided(binding, world)
    if not first.clusters or first.remainder:
        return
    placed = replace(binding, clusters=first.clusters, last_scheduled_time=5.0)
    for wanted in (
        replace(placed, replicas=placed.replicas + 3),
        replace(placed, requirements=ReplicaRequirements(request={"cpu": 900})),
        replace(placed, placement=replace(placement, tolerations=(), affinity=TIER_A)),
        replace(placed, is_unsettled=True),
        replace(placed, fresh=True),
    ):
        assert asked_again(placed, wanted, world).clusters == decided(wanted, world).clusters


def test_the_order_among_equals_moves_nothing() -> None:
    placed = Binding(
        name="web",
        replicas=3,
        clusters=(TargetCluster(name="c0", replicas=3),),
        placement=Placement(replica_scheduling=BY_WEIGHT[0]),
    )
    karmada = replace(placed, placement=replace(placed.placement, tie_break=TieBreak.KARMADA))
    assert is_settled(placed, karmada)
