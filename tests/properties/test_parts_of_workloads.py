"""Workloads of several parts in many clusters: as many sets as are said to fit, in their order."""

from __future__ import annotations

from functools import reduce

from hypothesis import given, settings
from hypothesis import strategies as st

from federation.capacity.cluster_room import Room
from federation.capacity.component_sets import packable_sets_c
from federation.capacity.fleet_rooms import FleetRooms
from federation.capacity.reserve import certificate_for
from federation.model.placement import Certificate
from federation.model.reservations import Outstanding, PromiseCertificate
from federation.model.workload import Component, ReplicaRequirements
from lab.promising import asked_of
from lab.slow_packer import broken_promise
from tests.properties.drawn_rooms import (
    REPORT,
    DrawnCells,
    claims,
    outstandings,
    requests,
    table,
)
from tests.properties.test_rooms_of_fleets import (
    NAMES,
    assert_same_rooms,
    bare_rooms,
    maybe_cells,
)

sets_drawn = st.lists(
    st.builds(
        Component,
        name=st.sampled_from(["driver", "worker", "cache"]),
        replicas=st.integers(0, 4),
        requirements=st.builds(ReplicaRequirements, request=requests, node_claim=claims),
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda each: each.name,
)


@settings(max_examples=60, deadline=None)
@given(
    drawn=maybe_cells,
    held=st.lists(outstandings(most=6), max_size=3),
    parts=sets_drawn,
    asked=st.sampled_from([None, *Certificate]),
    follows=st.booleans(),
)
def test_as_many_sets_are_promised_as_are_said_to_fit(
    drawn: list[DrawnCells | None],
    held: list[Outstanding],
    parts: list[Component],
    asked: Certificate | None,
    follows: bool,
) -> None:
    fleet = FleetRooms.of(
        each and Room.of(REPORT, table(each), held, follows_claims=follows) for each in drawn
    )
    sets_c = packable_sets_c(fleet, parts, asked, {}).tolist()
    asks = {
        position: tuple(
            Outstanding(
                binding="sets",
                component=each.name,
                requirements=each.requirements,
                certificate=certificate_for(asked, fleet.rooms[position], each.requirements),
                in_cells=sets * each.replicas,
            )
            for each in parts
            if each.replicas
        )
        for position, sets in enumerate(sets_c)
        if sets
    }
    answer = asked_of(fleet, NAMES, "sets", asks)
    assert isinstance(answer, FleetRooms)
    for room in answer.rooms:
        assert room is None or broken_promise(room.pools, room.holdings) == ""
    rooms = list(fleet.rooms)
    alone = [packable_sets_c(FleetRooms.of([room]), parts, asked, {}).item() for room in rooms]
    own = {c: room for c, room in enumerate(rooms) if room}
    assert sets_c == alone == packable_sets_c(fleet, parts, asked, own).tolist()


few_shapes = st.sampled_from(
    [ReplicaRequirements(request={"cpu": amount}) for amount in (3, 7)]
    + [ReplicaRequirements(request={"memory": 5})]
)


@settings(max_examples=80, deadline=None)
@given(
    drawn=maybe_cells,
    asked=st.lists(
        st.lists(st.tuples(few_shapes, st.integers(1, 3)), max_size=3), max_size=len(NAMES)
    ),
    follows=st.booleans(),
)
def test_each_cluster_is_packed_in_the_order_of_its_ask(
    drawn: list[DrawnCells | None],
    asked: list[list[tuple[ReplicaRequirements, int]]],
    *,
    follows: bool,
) -> None:
    rooms = bare_rooms(drawn, follows=follows)
    asks = {
        position: tuple(
            Outstanding("new", *each, component=f"c{place}", certificate=PromiseCertificate.PLANNED)
            for place, each in enumerate(wanted)
        )
        for position, wanted in enumerate(asked)
        if rooms[position] is not None
    }
    answer = asked_of(FleetRooms.of(rooms), NAMES, "new", asks)
    expected = list(rooms)
    for position, wanted in asks.items():
        for each in wanted:
            room = expected[position]
            has_room = room and room.max_replicas(each.requirements, each.certificate, each.to_pack)
            expected[position] = room.with_one(each) if room and has_room == each.to_pack else None
    has_all = all(expected[position] for position in asks)
    assert isinstance(answer, FleetRooms) == has_all
    if isinstance(answer, FleetRooms):
        assert_same_rooms(answer, expected)


def test_many_parts_of_one_cluster_leave_the_others_as_they_are() -> None:
    """Every part divides a cell anew: a table has no more columns than for a few of them."""
    room = Room.of(REPORT, table([(0, 20, (30, 30, 12, 0))]))
    parts = tuple(
        Outstanding("new", ReplicaRequirements(request={"cpu": amount}), 1, component=f"c{amount}")
        for amount in range(1, 9)
    )
    answer = asked_of(FleetRooms.of([room] * 3), NAMES, "new", {0: parts, 1: parts})
    assert isinstance(answer, FleetRooms)
    packed = reduce(Room.with_one, parts, room)
    assert_same_rooms(answer, [packed, packed, room])
