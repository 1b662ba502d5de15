"""What is left beside a binding that was promised last, against the rooms packed without it."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from federation.capacity.careful import WHATEVER_FITS
from federation.capacity.cluster_room import ReportId, certificate_for
from federation.capacity.fleet_rooms import FleetRooms, UnpackedRoom
from federation.capacity.last_promises import packable_beside_last
from federation.capacity.reserve import Refused, promise
from federation.model.placement import Certificate
from federation.model.reservations import Outstanding, PromiseCertificate
from federation.model.workload import NodeClaim, ReplicaRequirements
from tests.properties.test_reserve_packing import cells_drawn, claims, outstandings, requests, table

LAST = "shop/last"
SMALL = ReplicaRequirements(request={"cpu": 1})
LARGER = ReplicaRequirements(request={"cpu": 3, "memory": 2})
PLENTY = [(0, 5, (30, 30, 12, 0)), (1, 4, (20, 25, 12, 0))]

rooms_drawn = st.lists(
    st.tuples(
        cells_drawn,
        st.lists(outstandings(most=4), max_size=5),
        st.integers(1, 8),
        st.lists(outstandings(most=3), max_size=1),
    ),
    min_size=1,
    max_size=5,
)
_Drawn = list[
    tuple[list[tuple[int, int, tuple[int, ...]]], list[Outstanding], int, list[Outstanding]]
]


def fleets(drawn: _Drawn, requirements: ReplicaRequirements) -> list[FleetRooms]:
    """With the last promise as reports find it, and as it was just made; something may have been
    promised after it.
    """
    every, before, asks = [], [], {}
    for number, (cells, others, replicas, after) in enumerate(drawn):
        last = Outstanding(LAST, requirements, replicas)
        pools, follows = table(cells), number % 2 == 0
        known = tuple(others)
        every.append(UnpackedRoom(ReportId(1, number), pools, follows, (*known, last, *after)))
        before.append(UnpackedRoom(ReportId(1, number), pools, follows, known))
        asks[number] = (last,)
    found = [FleetRooms.of(every)]
    made = promise(
        FleetRooms.of(before), [str(each) for each in asks], LAST, asks, (), WHATEVER_FITS
    )
    return found if isinstance(made, Refused) else [*found, made]


@settings(max_examples=150, deadline=None)
@given(
    drawn=rooms_drawn,
    request=requests,
    claim=claims,
    asked=st.sampled_from([None, *Certificate]),
)
@example(
    drawn=[(PLENTY, [Outstanding("x", LARGER, 3)], 4, [])],
    request={"cpu": 2},
    claim=None,
    asked=Certificate.CAREFUL,
)
# What is kept back of a careful promise is less beside three than beside all.
@example(
    drawn=[(PLENTY, [Outstanding("x", LARGER, 3)], 40, [])],
    request={"cpu": 1},
    claim=None,
    asked=Certificate.CAREFUL,
)
# Spreading leaves no node with room for any of those that best fit places.
@example(
    drawn=[([(0, 20, (3, 9, 9, 0))], [Outstanding("x", SMALL, 20)], 10, [])],
    request={"cpu": 3},
    claim=None,
    asked=Certificate.CAREFUL,
)
def test_what_is_known_beside_the_last_promise_is_what_packing_without_it_finds(
    drawn: _Drawn, request: dict[str, int], claim: NodeClaim | None, asked: Certificate | None
) -> None:
    requirements = ReplicaRequirements(request=request, node_claim=claim)
    for fleet in fleets(drawn, requirements):
        found = packable_beside_last(fleet, LAST, requirements, asked, range(len(drawn)))
        for position, most in found.items():
            room = fleet.rooms[position]
            assert room is not None
            beside = room.beside(LAST)
            certificate = certificate_for(asked, beside, requirements)
            assert most == beside.packable(requirements, certificate)


def test_the_last_promise_is_known_whether_reported_or_made() -> None:
    drawn: _Drawn = [(PLENTY, [Outstanding("x", LARGER, 3)], 4, [])] * 2
    for fleet in fleets(drawn, SMALL):
        assert {*packable_beside_last(fleet, LAST, SMALL, None, range(2))} == {0, 1}


def test_nothing_is_said_where_it_is_not_the_last_or_asks_otherwise_or_others_are_alike() -> None:
    others = [Outstanding("x", LARGER, 3)]
    after = [Outstanding("y", LARGER, 1)]
    alike = [*others, Outstanding("y", SMALL, 1), Outstanding("z", LARGER, 1)]
    twice = [Outstanding(LAST, LARGER, 1)]
    for drawn in ([(PLENTY, others, 4, after)], [(PLENTY, alike, 4, [])], [(PLENTY, twice, 4, [])]):
        (fleet,) = fleets(drawn, SMALL)[:1]
        assert packable_beside_last(fleet, LAST, SMALL, None, [0]) == {}
    (fleet,) = fleets([(PLENTY, others, 4, [])], SMALL)[:1]
    assert packable_beside_last(fleet, LAST, LARGER, None, [0]) == {}
    assert packable_beside_last(fleet, LAST, SMALL, Certificate.STRICT, [0]) == {}
    assert packable_beside_last(fleet, "nobody", SMALL, None, [0]) == {}
    strict = [Outstanding("x", LARGER, 1, certificate=PromiseCertificate.STRICT)]
    (fleet,) = fleets([(PLENTY, strict, 4, [])], SMALL)[:1]
    assert packable_beside_last(fleet, LAST, SMALL, None, [0]) == {}


def test_nothing_is_said_where_a_promise_lost_its_room_or_found_it_in_another_order() -> None:
    def asking(cpu: int, replicas: int) -> Outstanding:
        return Outstanding(f"x{cpu}", ReplicaRequirements(request={"cpu": cpu}), replicas)

    last = ReplicaRequirements(request={"memory": 1})
    nodes = [(0, 2, (10, 30, 12, 0)), (0, 9, (3, 30, 12, 0))]
    # Four of a node, then five of it and five of the other leave six nowhere: six come first.
    reordered = [asking(4, 1), asking(5, 2), asking(6, 1)]
    lost = [asking(4, 1), asking(11, 1)]
    for others, is_lost in ((reordered, False), (lost, True)):
        (fleet,) = fleets([(nodes, others, 2, [])], last)[:1]
        held = fleet.held[0]
        assert held is not None
        assert held.is_overcommitted == is_lost
        assert is_lost or held.arrived
        assert packable_beside_last(fleet, LAST, last, None, [0]) == {}
