"""Strict promises against the obvious loops, one cluster and replica at a time, and against placers
that mean harm.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from federation.capacity.careful import WHATEVER_FITS
from federation.capacity.fleet_cells import FleetCells
from federation.capacity.promise_sums import OutstandingByKind
from federation.capacity.reserve import FleetRooms, packable_c, promise
from federation.capacity.strict_bounds import (
    StrictHolds,
    max_strict,
    max_strict_c,
    strict_promises_hold,
)
from federation.model.placement import Certificate
from federation.model.pools.values import Pools
from federation.model.reservations import Outstanding, PromiseCertificate
from federation.model.resources import MAX_AMOUNT
from federation.model.workload import ReplicaRequirements
from lab.slow_packer import after_one, nodes_of
from tests import slow_strict
from tests.properties.drawn_rooms import (
    POOLS,
    RESOURCES,
    DrawnCells,
    DrawnRooms,
    cells_drawn,
    fleet_of,
    outstandings,
    shapes,
    table,
)

STRICT = PromiseCertificate.STRICT
CLUSTERS = 4

rooms = st.tuples(cells_drawn, st.lists(outstandings(most=8), max_size=5))
some_rooms = st.lists(st.none() | rooms, min_size=CLUSTERS, max_size=CLUSTERS)


def most_of(pools: Pools, held: list[Outstanding], wanted: Outstanding, limit: int) -> int:
    """Replica after replica, as long as everything strict is sure of its room."""
    most = 0
    while most < limit:
        more = wanted._replace(in_cells=most + 1)
        if not slow_strict.strict_promises_hold(pools, [*held, more]):
            break
        most += 1
    return most


@settings(max_examples=120, deadline=None)
@given(
    drawn=some_rooms,
    asked=st.lists(st.tuples(shapes, st.booleans(), st.integers(0, 40)), min_size=1, max_size=3),
)
def test_the_most_beside_strict_promises_is_what_the_obvious_loop_finds(
    drawn: list[tuple[DrawnCells, list[Outstanding]] | None],
    asked: list[tuple[ReplicaRequirements, bool, int]],
) -> None:
    """Also with few bytes for what is known, of which most is forgotten between two questions."""
    every = [None if each is None else table(each[0]) for each in drawn]
    held = [[] if each is None else each[1] for each in drawn]
    cells, known, few = FleetCells.of(every), StrictHolds(), StrictHolds(1)
    by_kind = OutstandingByKind.of(CLUSTERS, dict(enumerate(held)))
    for requirements, is_strict, limit in asked:
        certificate = STRICT if is_strict else PromiseCertificate.CAREFUL
        wanted = Outstanding("new", requirements, 0, certificate=certificate)
        limit_c = np.array([0 if pools is None else limit for pools in every], dtype=np.int64)
        strict_c = np.full(CLUSTERS, is_strict)
        expected = [
            0 if pools is None else most_of(pools, here, wanted, limit)
            for pools, here in zip(every, held, strict=True)
        ]
        for holds in (known, few):
            most_c = max_strict_c(cells, holds, by_kind, requirements, strict_c, limit_c)
            assert most_c.tolist() == expected
    for pools, here in zip(every, held, strict=True):
        if pools is not None:
            expected_to_hold = slow_strict.strict_promises_hold(pools, here)
            assert strict_promises_hold(pools, here) == expected_to_hold


few_nodes = st.lists(
    st.tuples(
        st.just(0), st.just(1), st.tuples(*[st.integers(0, 9)] * 2, st.integers(0, 4), st.just(0))
    ),
    min_size=1,
    max_size=3,
)
small = st.fixed_dictionaries({"cpu": st.integers(0, 4), "memory": st.integers(0, 4)})


@settings(max_examples=150, deadline=None)
@given(drawn=few_nodes, every=st.lists(st.tuples(small, st.integers(1, 2)), max_size=3), more=small)
def test_no_way_of_placing_others_leaves_less_than_is_promised(
    drawn: DrawnCells, every: list[tuple[dict[str, int], int]], more: dict[str, int]
) -> None:
    """An adversary that puts any of the other pods on any nodes, in all ways that there are."""
    wanted = ReplicaRequirements(request=more)
    others = [
        Outstanding(f"b{number}", ReplicaRequirements(request=request), replicas)
        for number, (request, replicas) in enumerate(every)
    ]
    nodes = [dict(zip(("cpu", "memory", "pods"), free, strict=False)) for _, _, free in drawn]
    pods = [
        slow_strict.demanded_by(each.requirements) for each in others for _ in range(each.in_cells)
    ]
    asked = slow_strict.demanded_by(wanted)
    alike = [pod for pod in pods if pod == asked]
    rivals = [pod for pod in pods if pod != asked]
    left = min(room_beside(nodes, rivals, asked)) - len(alike)
    assert max_strict(table(drawn), others, wanted, STRICT, 99) <= max(left, 0)


def room_beside(
    nodes: list[dict[str, int]], rivals: list[dict[str, int]], asked: dict[str, int]
) -> Iterator[int]:
    """How many of what is asked for find room, for every way of placing none to all rivals."""
    yield sum(min(node[name] // amount for name, amount in asked.items()) for node in nodes)
    if rivals:
        first, *others = rivals
        yield from room_beside(nodes, others, asked)
        for place, node in enumerate(nodes):
            after = {name: free - first.get(name, 0) for name, free in node.items()}
            if min(after.values()) >= 0:
                there = [*nodes[:place], after, *nodes[place + 1 :]]
                yield from room_beside(there, others, asked)


def test_amounts_beyond_counting_are_all_lost() -> None:
    """Sums that no integer of 64 bits holds leave nothing rather than too much."""
    pools = table([(0, 3, (9, 9, 9, 0))])
    huge = ReplicaRequirements(request={"cpu": MAX_AMOUNT, "memory": MAX_AMOUNT})
    rival = Outstanding("rival", huge, 2**31 - 1)
    strict = Outstanding("db", ReplicaRequirements(request={"cpu": 3}), 1, certificate=STRICT)
    assert strict_promises_hold(pools, [strict])
    assert not strict_promises_hold(pools, [rival, strict])
    assert not strict_promises_hold(pools, [strict, rival])


ANY = ReplicaRequirements(request={})
TOO_LARGE = Outstanding("x", ReplicaRequirements(request={"memory": 2}), 1)
STUCK = ([(0, 1, (0, 1, 2, 0)), (0, 1, (1, 0, 1, 0))], [Outstanding("x", ANY, 1), TOO_LARGE])


@settings(max_examples=50, deadline=None)
@given(
    drawn=st.lists(rooms, min_size=CLUSTERS, max_size=CLUSTERS),
    made=st.lists(
        st.tuples(
            shapes,
            st.sampled_from([Certificate.STRICT, Certificate.STRICT, Certificate.CAREFUL]),
            st.integers(1, 4),
        ),
        min_size=1,
        max_size=6,
    ),
)
# One that lost its room keeps nodes from others.
@example(drawn=[STUCK] * CLUSTERS, made=[(ANY, Certificate.STRICT, 1)])
def test_as_much_is_promised_beside_strict_promises_as_each_room_says(
    drawn: DrawnRooms, made: list[tuple[ReplicaRequirements, Certificate, int]]
) -> None:
    names = [f"member{number}" for number in range(CLUSTERS)]
    fleet = fleet_of(drawn)
    held_strictly = [
        slow_strict.strict_promises_hold(r.pools, r.contending) for r in fleet.rooms if r
    ]
    for number, (requirements, asked, replicas) in enumerate(made):
        certificate = PromiseCertificate(asked.value)
        most = [
            min(room.packable(requirements, certificate), 99) if room else 0 for room in fleet.rooms
        ]
        found_c = np.minimum(packable_c(fleet, requirements, asked), 99)
        assert found_c.tolist() == most
        binding = f"b{number}"
        wanted = (Outstanding(binding, requirements, replicas, certificate=certificate),)
        for here in (range(CLUSTERS), range(2)):
            answer = promise(fleet, names, binding, dict.fromkeys(here, wanted), (), WHATEVER_FITS)
            has_room = all(most[c] >= replicas for c in here)
            # Of careful promises some are kept back that these terms may take all the same.
            assert isinstance(answer, FleetRooms) >= has_room
            assert asked is not Certificate.STRICT or isinstance(answer, FleetRooms) == has_room
            if isinstance(answer, FleetRooms):
                fleet = answer
                break
    for room, was_held in zip(fleet.rooms, held_strictly, strict=True):
        assert room is not None
        assert not was_held or slow_strict.strict_promises_hold(room.pools, room.contending)


@settings(max_examples=60, deadline=None)
@given(
    drawn=cells_drawn,
    wanted=st.lists(outstandings(most=12), min_size=1, max_size=4),
    seed=st.integers(0, 9999),
)
def test_strict_promises_hold_whoever_comes_first_and_wherever_they_go(
    drawn: DrawnCells, wanted: list[Outstanding], seed: int
) -> None:
    pools = table(drawn)
    every: list[Outstanding] = []
    for each in wanted:
        if strict_promises_hold(pools, [*every, each]):
            every.append(each)
    chance = random.Random(seed)
    pods = [each for each in every for _ in range(each.in_cells)]
    chance.shuffle(pods)
    if chance.random() < 0.5:
        # Strict ones last, which is the worst that can happen to them.
        pods.sort(key=lambda each: each.certificate is STRICT)
    # Real nodes have at least what a cell says of them.
    extra = chance.choice([0, 4])
    nodes = [
        (pool, tuple(amount + chance.randint(0, extra) for amount in free))
        for pool, free in nodes_of(pools).elements()
    ]
    for pod in pods:
        claim = pod.requirements.node_claim
        places = [
            (place, after)
            for place, node in enumerate(nodes)
            if claim is None or POOLS[node[0]].labels == claim.node_selector
            if (after := after_one(node, RESOURCES, pod.requirements.request)) is not None
        ]
        if not places:
            assert pod.certificate is not STRICT
            continue
        worst = max(places, key=lambda each: (sum(each[1][1]), chance.random()))
        place, after = worst if chance.random() < 0.5 else chance.choice(places)
        nodes[place] = after
