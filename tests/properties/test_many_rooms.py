"""The rooms of many clusters, packed at once, against each of them packed by itself."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from federation.capacity.cluster_room import ReportId, Room, answered_together
from federation.capacity.fleet_rooms import FleetRooms, UnpackedRoom, packed_room
from federation.model.pools.values import Cells
from federation.model.reservations import Outstanding, PromiseCertificate
from federation.model.workload import ReplicaRequirements
from tests.properties.test_reserve_packing import cells_drawn, outstandings, table

_Drawn: TypeAlias = tuple[list[tuple[int, int, tuple[int, ...]]], list[Outstanding]]

rooms_drawn = st.lists(
    st.tuples(cells_drawn, st.lists(outstandings(most=6), max_size=14)), min_size=1, max_size=6
)


def unpacked_rooms(drawn: list[_Drawn]) -> list[UnpackedRoom]:
    """Every other one follows claims; some have a resource of their own."""
    found = []
    for number, (cells, outstanding) in enumerate(drawn):
        pools = table(cells)
        if number % 3 == 1:
            pools = replace(pools, cells=with_more_resources(pools.cells))
        found.append(UnpackedRoom(ReportId(1, number), pools, number % 2 == 0, tuple(outstanding)))
    return found


def with_more_resources(cells: Cells) -> Cells:
    more_k = np.ones((1, len(cells)), dtype=np.int64)
    return replace(
        cells,
        resources=(*cells.resources, "vendor.example.com/rare"),
        min_rk=np.concatenate([cells.min_rk, more_k]),
        sum_rk=np.concatenate([cells.sum_rk, more_k * cells.count_k]),
        max_rk=np.concatenate([cells.max_rk, more_k]),
    )


def plain(cells: Cells) -> list[object]:
    return [
        cells.resources,
        *(each.tolist() for each in (cells.pool_k, cells.count_k, cells.min_rk, cells.max_rk)),
    ]


def assert_same(found: Room | None, expected: Room) -> None:
    assert found is not None
    assert found.report == expected.report
    assert found.follows_claims == expected.follows_claims
    assert found.outstanding == expected.outstanding
    assert bool(found.overcommitted) == bool(expected.overcommitted)
    assert found.holds_strict == expected.holds_strict
    assert [each.unplaced for each in found.holdings] == [
        each.unplaced for each in expected.holdings
    ]
    assert [each.steps for each in found.holdings] == [each.steps for each in expected.holdings]
    assert plain(found.filled.cells) == plain(expected.filled.cells)
    assert plain(found.spread.cells) == plain(expected.spread.cells)


ONE = Outstanding("x", ReplicaRequirements(request={}), 1)
ASKED = ReplicaRequirements(request={"cpu": 1})


@settings(max_examples=60, deadline=None)
@given(drawn=rooms_drawn)
@example(drawn=[([(0, 1, (0, 0, 2, 0)), (0, 2, (0, 0, 1, 0))], [ONE, ONE])])
def test_many_rooms_are_packed_as_each_by_itself(drawn: list[_Drawn]) -> None:
    every = unpacked_rooms(drawn)
    fleet = FleetRooms.of(every)
    for position, unpacked in enumerate(every):
        assert_same(fleet.rooms[position], packed_room(unpacked))


@settings(max_examples=50, deadline=None)
@given(drawn=rooms_drawn, again=rooms_drawn)
def test_rooms_take_the_place_of_others(drawn: list[_Drawn], again: list[_Drawn]) -> None:
    before, after = unpacked_rooms(drawn), unpacked_rooms(again)
    changed = {2 * place: each for place, each in enumerate(after) if 2 * place < len(before)}
    fleet = FleetRooms.of(packed_room(each) for each in before).with_rooms(changed)
    for position, unpacked in enumerate(before):
        assert_same(fleet.rooms[position], packed_room(changed.get(position, unpacked)))


@settings(max_examples=60, deadline=None)
@given(drawn=rooms_drawn)
def test_beside_a_binding_as_much_is_left_as_without_it(drawn: list[_Drawn]) -> None:
    for unpacked in unpacked_rooms(drawn):
        room = packed_room(unpacked)
        for binding in {"nobody", *(each.binding for each in room.outstanding)}:
            found, expected = room.beside(binding), room.without(binding)
            assert plain(found.filled.cells) == plain(expected.filled.cells)
            assert plain(found.spread.cells) == plain(expected.spread.cells)
            assert found.holds_strict == expected.holds_strict
            assert found.stuck() == expected.stuck()
            for certificate in PromiseCertificate:
                assert found.most(ASKED, certificate, 99) == expected.most(ASKED, certificate, 99)


@settings(max_examples=60, deadline=None)
@given(drawn=rooms_drawn)
def test_rooms_are_packed_anew_together_as_each_by_itself(drawn: list[_Drawn]) -> None:
    """In a fleet the rooms share its kinds of pools; by themselves each has its own."""
    every = unpacked_rooms(drawn)
    fleet = FleetRooms.of(every)
    there = [room for room in fleet.rooms if room is not None]
    alone = list(map(packed_room, every))
    for binding in {"nobody", *(each.binding for room in alone for each in room.outstanding)}:
        together = answered_together(
            {place: room.asking_beside(binding) for place, room in enumerate(there)}
            | {-1 - place: room.leaving(binding) for place, room in enumerate(there)}
        )
        for place, room in enumerate(alone):
            assert_same(together[place], room.beside(binding))
            assert_same(together[-1 - place], room.without(binding))
    more = [(*room.outstanding, ONE) for room in alone]
    rearranged = answered_together(
        {place: room.rearranging(more[place]) for place, room in enumerate(there)}
    )
    for place, room in enumerate(alone):
        assert_same(rearranged[place], room.rearranged(more[place]))


def test_what_is_alike_is_held_as_one_beside_a_binding() -> None:
    every = [ONE._replace(binding=f"shop/web-{number}", in_cells=2) for number in range(50)]
    pools = table([(0, 100, (9, 9, 9, 9))])
    room = packed_room(UnpackedRoom(ReportId(1, 1), pools, False, tuple(every)))
    (one,) = room.beside("shop/web-7").holdings
    assert one.outstanding.in_cells == 98
