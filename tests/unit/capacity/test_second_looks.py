"""Second looks: promises that are made after all, and where nobody looks again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from federation.capacity.careful import CAREFULLY, WHATEVER_FITS, PromiseTerms, RoomLimits
from federation.capacity.cluster_room import ReportId
from federation.capacity.fleet_rooms import FleetRooms, UnpackedRoom
from federation.capacity.reserve import Refused, packable_c
from federation.capacity.second_looks import looked_again_c, refined_most, rehearsed_most
from federation.model.placement import Certificate
from federation.model.pools.values import Pools
from federation.model.reservations import Outstanding, PromiseCertificate
from federation.model.workload import NodeClaim, ReplicaRequirements, Toleration
from lab.promising import asked_of
from lab.slow_packer import broken_promise
from tests.pools import cells_of, one_pool

GIB = 1 << 30
NODES = 6
CAREFUL, STRICT = PromiseCertificate.CAREFUL, PromiseCertificate.STRICT
LARGE = ReplicaRequirements(request={"cpu": 3000, "memory": 4 * GIB})
NAMES = ("a",)
REFINED = PromiseTerms(refined_replicas=NODES)


def pools(*, tells: bool = True) -> Pools:
    """Nodes of 8 cores and 32 GiB of which half is free, each a little different."""
    groups = [[(4000 + number * 100, 16 * GIB + number * 100, 50)] for number in range(NODES)]
    totals = [(8000, 32 * GIB)] * NODES if tells else None
    return one_pool(cells_of(groups, allocatable=totals))


def small(number: int, certificate: PromiseCertificate = CAREFUL) -> Outstanding:
    cpu = 100 + 50 * (number % 2)
    requirements = ReplicaRequirements(request={"cpu": cpu, "memory": GIB // 8})
    return Outstanding(f"shop/w{number}", requirements, 4, certificate=certificate)


def fleet_of(
    *outstanding: Outstanding, tells: bool = True, follows_claims: bool = False
) -> FleetRooms:
    report = ReportId(1, 1)
    return FleetRooms.of([UnpackedRoom(report, pools(tells=tells), follows_claims, outstanding)])


def look(
    fleet: FleetRooms, asked: Certificate | None = Certificate.CAREFUL, replicas: int = 4
) -> tuple[int, int]:
    """How many large ones can be promised at first sight, and by a second look."""
    known_c = packable_c(fleet, LARGE, asked, {})
    return int(known_c[0]), int(looked_again_c(fleet, LARGE, asked, known_c, replicas)[0])


BURST = tuple(map(small, range(8)))


@pytest.mark.parametrize("certificate", [CAREFUL, PromiseCertificate.PLANNED])
def test_more_is_promised_after_a_second_look(certificate: PromiseCertificate) -> None:
    fleet = fleet_of(*BURST, follows_claims=certificate is not CAREFUL)
    first, second = look(fleet, Certificate(certificate.value))
    assert first < second
    ask = Outstanding("shop/large", LARGE, second, certificate=certificate)
    made = asked_of(fleet, NAMES, ask.binding, {0: (ask,)})
    assert isinstance(made, FleetRooms)
    room = made.rooms[0]
    assert room is not None
    assert not broken_promise(room.pools, room.holdings)
    too_many = asked_of(fleet, NAMES, ask.binding, {0: (ask._replace(in_cells=NODES + 1),)})
    assert isinstance(too_many, Refused)


@pytest.mark.parametrize("certificate", [CAREFUL, PromiseCertificate.PLANNED])
def test_what_a_second_look_found_is_not_refused_for_want_of_room(
    certificate: PromiseCertificate,
) -> None:
    fleet = fleet_of(*BURST, follows_claims=certificate is not CAREFUL)
    beside_strict = fleet_of(*BURST, small(9, STRICT))
    room = fleet.rooms[0]
    assert room is not None
    most = refined_most(room, LARGE, NODES)
    assert most > 0
    ask = Outstanding("shop/large", LARGE, most, certificate=certificate)

    def lacks(fleet: FleetRooms, wanted: Outstanding, terms: PromiseTerms = REFINED) -> bool:
        room = fleet.rooms[0]
        assert room is not None
        return RoomLimits(fleet, terms).lacks(room, 0, wanted) is not None

    assert not lacks(fleet, ask)
    assert not lacks(fleet, ask, WHATEVER_FITS)
    # Without a second look it is refused.
    assert lacks(fleet, ask, CAREFULLY)
    assert lacks(fleet, ask._replace(in_cells=most + 1))
    assert lacks(fleet, ask._replace(certificate=STRICT))
    assert lacks(beside_strict, ask)


def test_what_is_promised_one_by_one_is_rehearsed_as_all_at_once() -> None:
    grown = fleet_of()
    for each in BURST:
        made = asked_of(grown, NAMES, each.binding, {0: (each,)})
        assert isinstance(made, FleetRooms)
        grown = made
        # As is rehearsed in between, where something else is refused.
        look(grown)
    at_once = fleet_of(*BURST)
    assert look(grown) == look(at_once)
    assert look(at_once) == look(at_once)
    one, other = grown.rooms[0], at_once.rooms[0]
    assert one is not None
    assert other is not None
    for limit in range(8):
        assert rehearsed_most(one, LARGE, limit) == rehearsed_most(other, LARGE, limit) <= limit


def test_nothing_is_left_free_where_nothing_is_on_its_way() -> None:
    # Nothing is on its way: each of the nodes takes one.
    room = fleet_of().rooms[0]
    assert room is not None
    assert rehearsed_most(room, LARGE, 99) == NODES


@pytest.mark.parametrize(
    "fleet",
    [
        fleet_of(*BURST, tells=False),
        fleet_of(*BURST, small(9, STRICT)),
        fleet_of(*BURST, small(9)._replace(in_cells=500)),
    ],
    ids=["no allocatable", "something strict", "over-committed"],
)
def test_nobody_looks_again_where_it_would_prove_nothing(fleet: FleetRooms) -> None:
    first, second = look(fleet)
    assert first == second


@pytest.mark.parametrize(
    ("asked", "follows_claims", "looks"),
    [
        (Certificate.CAREFUL, True, True),
        (None, False, True),
        (Certificate.PLANNED, True, True),
        (None, True, True),
        (Certificate.STRICT, False, False),
    ],
)
def test_all_but_strict_promises_are_looked_at_again(
    asked: Certificate | None, *, follows_claims: bool, looks: bool
) -> None:
    fleet = fleet_of(*BURST, follows_claims=follows_claims)
    first, second = look(fleet, asked, replicas=99)
    assert (first < second) is looks


def test_what_chooses_its_nodes_is_not_rehearsed() -> None:
    claimed = replace(LARGE, node_claim=NodeClaim(tolerations=(Toleration(key="spot"),)))
    room = fleet_of(*BURST).rooms[0]
    beside = fleet_of(*BURST, small(9)._replace(requirements=claimed, in_cells=1)).rooms[0]
    assert room is not None
    assert beside is not None
    assert rehearsed_most(room, LARGE, 4) > 0
    assert rehearsed_most(room, claimed, 4) == 0
    assert rehearsed_most(beside, LARGE, 4) == 0


def test_where_only_the_scheduler_finds_room_it_is_packed_as_the_scheduler_does() -> None:
    fleet = fleet_of(*BURST)
    room = fleet.rooms[0]
    assert room is not None
    scheduled = room.as_scheduled(room.outstanding)
    assert scheduled.stuck() == 0
    assert scheduled.outstanding == room.outstanding
    assert not broken_promise(scheduled.pools, scheduled.holdings)
    assert int(scheduled.filled.cells.count_k.sum()) == NODES


def test_a_promise_that_rearranges_a_cluster_is_packed_the_same_everywhere() -> None:
    fleet = fleet_of(*BURST)
    first = fleet.rooms[0]
    assert first is not None
    wanted = Outstanding("shop/large", LARGE, 2, certificate=CAREFUL)
    here = first.rearranged((*first.outstanding, wanted))
    assert here.outstanding == (*BURST, wanted)
    assert not broken_promise(here.pools, here.holdings)
    # Another control plane hears of both at once.
    later = small(9)
    there = here.holding((*BURST, wanted, later))
    anew = first.rearranged((*BURST, wanted, later))
    assert [each.steps for each in there.holdings] == [each.steps for each in anew.holdings]


@pytest.mark.parametrize("minor", [0, 20, 30, 36])
def test_any_release_is_rehearsed(minor: int) -> None:
    told = replace(pools(), kubernetes_minor=minor)
    room = FleetRooms.of([UnpackedRoom(ReportId(1, 1), told, False, BURST)]).rooms[0]
    assert room is not None
    assert 0 < rehearsed_most(room, LARGE, 4) <= 4
