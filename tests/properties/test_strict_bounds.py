"""Strict promises in many clusters at once against the obvious loops, one cluster and replica at
a time.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.capacity.careful import WHATEVER_FITS
from federation.capacity.cluster_room import ReportId, Room
from federation.capacity.contention import Contention
from federation.capacity.fleet_cells import FleetCells
from federation.capacity.reserve import FleetRooms, packable_c, promise
from federation.capacity.strict_bounds import (
    KnownHolds,
    strict_most,
    strict_most_c,
    strict_promises_hold,
)
from federation.model.placement import Certificate
from federation.model.pools.values import Pools
from federation.model.reservations import Outstanding, PromiseCertificate
from federation.model.resources import MAX_AMOUNT
from federation.model.workload import ReplicaRequirements
from tests import slow_strict
from tests.properties.test_reserve_packing import cells_drawn, claims, outstandings, requests, table

STRICT = PromiseCertificate.STRICT
CLUSTERS = 4

fleets = st.lists(
    st.none() | st.tuples(cells_drawn, st.lists(outstandings(most=8), max_size=5)),
    min_size=CLUSTERS,
    max_size=CLUSTERS,
)
shapes = st.builds(ReplicaRequirements, request=requests, node_claim=claims)


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
    drawn=fleets,
    asked=st.lists(st.tuples(shapes, st.booleans(), st.integers(0, 40)), min_size=1, max_size=3),
)
def test_the_most_beside_strict_promises_is_what_the_obvious_loop_finds(
    drawn: list[tuple[list[tuple[int, int, tuple[int, ...]]], list[Outstanding]] | None],
    asked: list[tuple[ReplicaRequirements, bool, int]],
) -> None:
    every = [None if each is None else table(each[0]) for each in drawn]
    held = [[] if each is None else each[1] for each in drawn]
    cells, known = FleetCells.of(every), KnownHolds()
    contention = Contention.of(CLUSTERS, dict(enumerate(held)))
    for requirements, is_strict, limit in asked:
        certificate = STRICT if is_strict else PromiseCertificate.CAREFUL
        wanted = Outstanding("new", requirements, 0, certificate=certificate)
        limit_c = np.array([0 if pools is None else limit for pools in every], dtype=np.int64)
        strict_c = np.full(CLUSTERS, is_strict)
        most_c = strict_most_c(cells, known, contention, requirements, strict_c, limit_c)
        assert most_c.tolist() == [
            0 if pools is None else most_of(pools, here, wanted, limit)
            for pools, here in zip(every, held, strict=True)
        ]


@settings(max_examples=120, deadline=None)
@given(drawn=cells_drawn, every=st.lists(outstandings(most=8), max_size=6))
def test_all_that_is_strict_holds_where_the_obvious_loop_says_so(
    drawn: list[tuple[int, int, tuple[int, ...]]], every: list[Outstanding]
) -> None:
    pools = table(drawn)
    expected = slow_strict.strict_promises_hold(pools, every)
    assert strict_promises_hold(pools, every) == expected


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
    drawn: list[tuple[int, int, tuple[int, ...]]],
    every: list[tuple[dict[str, int], int]],
    more: dict[str, int],
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
    assert strict_most(table(drawn), others, wanted, STRICT, 99) <= max(left, 0)


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


changes = st.lists(
    st.tuples(st.booleans(), st.integers(0, CLUSTERS - 1), st.lists(outstandings(), max_size=3)),
    max_size=8,
)


@settings(max_examples=60, deadline=None)
@given(made=changes)
def test_contention_that_changed_is_as_made_anew(
    made: list[tuple[bool, int, list[Outstanding]]],
) -> None:
    held: dict[int, list[Outstanding]] = {c: [] for c in range(CLUSTERS)}
    contention = Contention(size=CLUSTERS)
    for is_anew, position, more in made:
        if is_anew:
            held[position] = []
            contention = contention.without([position])
        held[position] += more
        contention = contention.with_more({position: more})
        assert as_counted(contention) == as_counted(Contention.of(CLUSTERS, held))


def as_counted(contention: Contention) -> dict[object, tuple[list[int], list[bool]]]:
    return {
        kind.key: (replicas_c.tolist(), strict_c.tolist())
        for kind, replicas_c, strict_c in zip(
            contention.kinds, contention.replicas, contention.is_strict, strict=True
        )
        if replicas_c.any()
    }


def test_amounts_beyond_counting_are_all_lost() -> None:
    """Sums that no integer of 64 bits holds leave nothing rather than too much."""
    pools = table([(0, 3, (9, 9, 9, 0))])
    huge = ReplicaRequirements(request={"cpu": MAX_AMOUNT, "memory": MAX_AMOUNT})
    rival = Outstanding("rival", huge, 2**31 - 1)
    strict = Outstanding("db", ReplicaRequirements(request={"cpu": 3}), 1, certificate=STRICT)
    assert strict_promises_hold(pools, [strict])
    assert not strict_promises_hold(pools, [rival, strict])
    assert not strict_promises_hold(pools, [strict, rival])


@settings(max_examples=50, deadline=None)
@given(
    drawn=st.lists(
        st.tuples(cells_drawn, st.lists(outstandings(most=8), max_size=4)),
        min_size=CLUSTERS,
        max_size=CLUSTERS,
    ),
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
def test_as_much_is_promised_beside_strict_promises_as_each_room_says(
    drawn: list[tuple[list[tuple[int, int, tuple[int, ...]]], list[Outstanding]]],
    made: list[tuple[ReplicaRequirements, Certificate, int]],
) -> None:
    names = [f"member{number}" for number in range(CLUSTERS)]
    fleet = FleetRooms.of(Room.of(ReportId(1, 1), table(cells), held) for cells, held in drawn)
    held_strictly = [
        slow_strict.strict_promises_hold(r.pools, r.contending) for r in fleet.rooms if r
    ]
    for number, (requirements, asked, replicas) in enumerate(made):
        certificate = PromiseCertificate(asked.value)
        most = [
            min(room.packable(requirements, certificate), 99) if room else 0 for room in fleet.rooms
        ]
        found_c = np.minimum(packable_c(fleet, requirements, asked, {}), 99)
        assert found_c.tolist() == most
        binding = f"b{number}"
        wanted = (Outstanding(binding, requirements, replicas, certificate=certificate),)
        for here in (range(CLUSTERS), range(2)):
            answer = promise(fleet, names, binding, dict.fromkeys(here, wanted), (), WHATEVER_FITS)
            assert isinstance(answer, FleetRooms) == all(most[c] >= replicas for c in here)
            if isinstance(answer, FleetRooms):
                fleet = answer
                break
    for room, was_held in zip(fleet.rooms, held_strictly, strict=True):
        assert room is not None
        assert not was_held or slow_strict.strict_promises_hold(room.pools, room.contending)
