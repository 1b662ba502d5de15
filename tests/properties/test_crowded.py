"""What surely is promised where other promises lost their room, against packing all orders."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import example, given, settings
from hypothesis import strategies as st

from federation.capacity.careful import WHATEVER_FITS, RoomLimits
from federation.capacity.cluster_room import Room, Site, late_in_order, packed_anew
from federation.capacity.crowded import surely_promised
from federation.capacity.fleet_rooms import FleetRooms, UnpackedRoom
from federation.capacity.pool_kinds import PoolKinds
from federation.capacity.reserve import Promised, Refused, promised
from federation.model.reservations import Outstanding, PromiseCertificate
from federation.model.workload import NodeClaim, ReplicaRequirements
from tests.properties.test_many_rooms import assert_same, rooms_drawn, unpacked_rooms
from tests.properties.test_reserve_packing import claims, outstandings, requests, table
from tests.unit.capacity.test_reserve import REPORT

_Cells = list[tuple[int, int, tuple[int, ...]]]
NEW = "shop/new"
# Eleven of a node's ten are nowhere; of a smaller node three are left.
NODES: _Cells = [(0, 2, (10, 30, 12, 0)), (0, 9, (3, 30, 12, 0))]
LOST = Outstanding("x", ReplicaRequirements(request={"cpu": 11}), 1)
SMALL = ReplicaRequirements(request={"cpu": 1})


# Few nodes and many promises of few sizes: some lose their room, and the order matters.
crowds = st.lists(
    st.tuples(
        st.lists(
            st.builds(
                lambda count, cpu: (0, count, (cpu, 30, 12, 0)),
                st.integers(1, 2),
                st.integers(3, 11),
            ),
            min_size=1,
            max_size=3,
        ),
        st.lists(
            st.builds(
                lambda cpu, replicas: Outstanding(
                    f"x{cpu}", ReplicaRequirements(request={"cpu": cpu}), replicas
                ),
                st.integers(2, 7),
                st.integers(1, 2),
            ),
            min_size=2,
            max_size=6,
        ),
    ),
    min_size=1,
    max_size=4,
)


def asking(*sizes: tuple[int, int]) -> list[Outstanding]:
    """So much CPU each, so many."""
    return [
        Outstanding(f"x{cpu}", ReplicaRequirements(request={"cpu": cpu}), replicas)
        for cpu, replicas in sizes
    ]


def nodes_of(*cpus: int) -> _Cells:
    """Two of each."""
    return [(0, 2, (cpu, 30, 12, 0)) for cpu in cpus]


TWO_SIZES = nodes_of(10, 11)
SIZES = asking((2, 1), (4, 1), (6, 2), (3, 2), (2, 1), (2, 1), (2, 2), (6, 2))
FOUR_SIZES = nodes_of(11, 10, 9, 9)
FIVES_AND_SIXES = asking((5, 1), (5, 1), (3, 1), (5, 3), (6, 2), (6, 3))


def answer(
    fleet: FleetRooms, asks: dict[int, tuple[Outstanding, ...]], *, may_wait: bool
) -> FleetRooms | Refused:
    names = [str(each) for each in range(len(fleet))]
    late = late_in_order if may_wait else None
    found = promised(fleet, names, NEW, asks, (), WHATEVER_FITS, late=late)
    return found if isinstance(found, Refused) else found()


def assert_answered_alike(
    fleet: FleetRooms, asks: dict[int, tuple[Outstanding, ...]]
) -> FleetRooms | Refused:
    expected = answer(fleet, asks, may_wait=False)
    found = answer(fleet, asks, may_wait=True)
    if isinstance(expected, Refused) or isinstance(found, Refused):
        assert found == expected
        return found
    for room, other in zip(found.rooms, expected.rooms, strict=True):
        assert other is not None
        assert_same(room, other)
    return found


@settings(max_examples=80, deadline=None)
@given(
    drawn=rooms_drawn,
    request=requests,
    claim=claims,
    certificate=st.sampled_from(PromiseCertificate),
    replicas=st.integers(1, 4),
    own=st.lists(outstandings(most=2), max_size=1),
)
def test_whether_it_waits_or_not_the_same_is_promised_and_refused(
    drawn: list[tuple[_Cells, list[Outstanding]]],
    request: dict[str, int],
    claim: NodeClaim | None,
    certificate: PromiseCertificate,
    replicas: int,
    own: list[Outstanding],
) -> None:
    requirements = ReplicaRequirements(request=request, node_claim=claim)
    wanted = Outstanding(NEW, requirements, replicas, certificate=certificate)
    fleet = FleetRooms.of(unpacked_rooms(drawn))
    # One with two components is never sure.
    every = (wanted, *(each._replace(binding=NEW, component="b") for each in own))
    asks = dict.fromkeys(range(len(drawn)), every)
    assert_answered_alike(fleet, asks)
    sure = surely_promised(fleet, NEW, asks, asks, late_in_order, RoomLimits(fleet, WHATEVER_FITS))
    for position in asks:
        alone = assert_answered_alike(fleet, {position: every})
        assert isinstance(alone, FleetRooms) or position not in sure


@settings(max_examples=150, deadline=None)
@given(drawn=crowds, cpu=st.integers(1, 5), replicas=st.integers(1, 2))
# It has room, but among others of its size it comes before some that then have none.
@example(drawn=[(TWO_SIZES, SIZES)], cpu=2, replicas=1)
# In their order two more find no room, in the best none.
@example(drawn=[(FOUR_SIZES, FIVES_AND_SIXES)], cpu=1, replicas=1)
def test_where_the_order_matters_the_same_is_promised_and_refused(
    drawn: list[tuple[_Cells, list[Outstanding]]], cpu: int, replicas: int
) -> None:
    wanted = Outstanding(NEW, ReplicaRequirements(request={"cpu": cpu}), replicas)
    wanted = wanted._replace(certificate=PromiseCertificate.PLANNED)
    fleet = FleetRooms.of(unpacked_rooms(drawn))
    for position in range(len(fleet)):
        assert_answered_alike(fleet, {position: (wanted,)})


@settings(max_examples=60, deadline=None)
@given(drawn=crowds)
def test_no_fewer_are_late_in_their_order_than_in_the_best(
    drawn: list[tuple[_Cells, list[Outstanding]]],
) -> None:
    rooms = [room for room in FleetRooms.of(unpacked_rooms(drawn)).rooms if room is not None]
    every = [(room.site, room.outstanding) for room in rooms]
    kinds = rooms[0].kinds
    for count, room in zip(late_in_order(kinds, every), packed_anew(kinds, every), strict=True):
        assert count >= room.stuck()
        assert bool(count) or not room.held.is_overcommitted


def test_what_is_sure_is_packed_for_whoever_goes_on_with_it() -> None:
    packings: list[int] = []

    def pack(kinds: PoolKinds, every: Sequence[tuple[Site, Sequence[Outstanding]]]) -> list[Room]:
        packings.append(len(every))
        return packed_anew(kinds, every)

    fleet = FleetRooms.of([UnpackedRoom(REPORT, table(NODES), False, (LOST,))])
    asks = {0: (Outstanding(NEW, SMALL, 2),)}
    assert surely_promised(
        fleet, NEW, asks, asks, late_in_order, RoomLimits(fleet, WHATEVER_FITS)
    ) == {0}
    found = promised(fleet, ["a"], NEW, asks, (), WHATEVER_FITS, pack=pack, late=late_in_order)
    assert not isinstance(found, Refused)
    assert packings == []
    taken: Promised = found
    assert [each.outstanding.binding for each in taken().rooms[0].holdings] == ["x", NEW]  # type: ignore[union-attr]  # there is one
    assert packings == [1]


def test_nothing_is_sure_where_it_has_something_or_asks_strictly_or_of_several_kinds() -> None:
    def sure(*wanted: Outstanding, held: Sequence[Outstanding] = (LOST,)) -> frozenset[int]:
        fleet = FleetRooms.of([UnpackedRoom(REPORT, table(NODES), False, tuple(held))])
        limits = RoomLimits(fleet, WHATEVER_FITS)
        return surely_promised(fleet, NEW, {0: wanted}, [0], late_in_order, limits)

    one = Outstanding(NEW, SMALL, 2)
    assert sure(one) == {0}
    assert not sure(one, one._replace(component="b"))
    assert not sure(one, held=[LOST, one])
    assert not sure(one, held=[])
    assert not sure(one._replace(certificate=PromiseCertificate.STRICT))
    assert not sure(one._replace(certificate=PromiseCertificate.UNPROVEN))
    assert not sure(one._replace(in_cells=1000))
    strict = Outstanding("y", SMALL, 1, certificate=PromiseCertificate.STRICT)
    assert not sure(one, held=[LOST, strict])
