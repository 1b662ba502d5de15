"""Second looks: promises that are made after all, and where nobody looks again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from federation.capacity.assignments import Held
from federation.capacity.careful import (
    CAREFULLY,
    NOT_REHEARSED,
    WHATEVER_FITS,
    PromiseTerms,
    max_surely_rehearsed,
    refined_available_c,
)
from federation.capacity.cluster_room import ReportId
from federation.capacity.fleet_rooms import FleetRooms, UnpackedRoom
from federation.capacity.rehearsal import RUNS, Part, Placed, Rehearsal, RehearsedPromises
from federation.capacity.reserve import Refused, packable_c
from federation.model.placement import Certificate
from federation.model.pools.values import Pools
from federation.model.reservations import Outstanding, PackingOrder, PromiseCertificate
from federation.model.workload import NodeClaim, ReplicaRequirements, Toleration
from lab.promising import asked_of
from lab.slow_packer import broken_promise
from tests.pools import cells_of, one_pool

GIB = 1 << 30
NODES = 6
CAREFUL, STRICT = PromiseCertificate.CAREFUL, PromiseCertificate.STRICT
LARGE = ReplicaRequirements(request={"cpu": 2800, "memory": 4 * GIB})
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
    order = PackingOrder.of_report(outstanding)
    return FleetRooms.of([UnpackedRoom(report, pools(tells=tells), follows_claims, order)])


def look(
    fleet: FleetRooms, asked: Certificate | None = Certificate.CAREFUL, replicas: int = 4
) -> tuple[int, int]:
    """How many large ones can be promised at first sight, and by a second look."""
    known_c = packable_c(fleet, LARGE, asked)
    refined_c, _ = refined_available_c(fleet, LARGE, asked, known_c, replicas)
    return int(known_c[0]), int(refined_c[0])


BURST = tuple(map(small, range(8)))


@pytest.mark.parametrize("certificate", [CAREFUL, PromiseCertificate.PLANNED])
def test_more_is_promised_after_a_second_look_and_not_refused(
    certificate: PromiseCertificate,
) -> None:
    fleet = fleet_of(*BURST, follows_claims=certificate is not CAREFUL)
    beside_strict = fleet_of(*BURST, small(9, STRICT))
    first, second = look(fleet, Certificate(certificate.value))
    assert first < second
    ask = Outstanding("shop/large", LARGE, second, certificate=certificate)

    def asked(fleet: FleetRooms, wanted: Outstanding, terms: PromiseTerms = REFINED) -> bool:
        made = asked_of(fleet, NAMES, wanted.binding, {0: (wanted,)}, terms)
        if isinstance(made, Refused):
            return False
        (room,) = made.rooms
        assert room is not None
        assert not broken_promise(room.pools, room.holdings)
        return True

    assert asked(fleet, ask)
    assert asked(fleet, ask, WHATEVER_FITS)
    # Without a second look it is refused, and so is more, and what is strict or beside it.
    assert not asked(fleet, ask, CAREFULLY)
    assert not asked(fleet, ask._replace(in_cells=NODES + 1), WHATEVER_FITS)
    assert not asked(fleet, ask._replace(certificate=STRICT))
    assert not asked(beside_strict, ask)


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
        assert (
            max_surely_rehearsed(one, LARGE, limit)
            == max_surely_rehearsed(other, LARGE, limit)
            <= limit
        )


def test_what_was_rehearsed_is_known_beside_a_later_report_of_the_same_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rehearsed = list[int]()
    placing = Rehearsal.placing

    def counted(stage: Rehearsal, part: Part) -> Placed | None:
        rehearsed.append(part.replicas)
        return placing(stage, part)

    monkeypatch.setattr(Rehearsal, "placing", counted)
    fleet = fleet_of(*BURST)
    (site,) = fleet.clusters
    assert site is not None
    seen = look(fleet)
    assert rehearsed == [each.to_pack for each in BURST]
    rehearsed.clear()
    for number, nodes in ((2, site.pools), (3, pools())):
        order = PackingOrder.of_report((*BURST, small(9)))
        report = UnpackedRoom(ReportId(1, number), nodes, False, order)
        fleet = fleet.with_rooms({0: report})
        assert look(fleet)[1] <= seen[1]
        # One more promise is rehearsed; all of them where the nodes are others.
        assert len(rehearsed) == (1 if nodes is site.pools else len(BURST) + 1)
        rehearsed.clear()


def test_a_cluster_with_too_much_on_its_way_says_so() -> None:
    tiny = ReplicaRequirements(request={"cpu": 1})
    many = [Outstanding(f"shop/tiny{number}", tiny, 1) for number in range(200)]
    for promised, reasons in (([*BURST], {}), ([*BURST, *many], {0: NOT_REHEARSED})):
        fleet = fleet_of(*promised)
        known_c = packable_c(fleet, LARGE, Certificate.CAREFUL)
        assert refined_available_c(fleet, LARGE, Certificate.CAREFUL, known_c, 99)[1] == reasons


def test_what_is_never_rehearsed_gets_no_note_whatever_was_asked_about_before() -> None:
    tiny = ReplicaRequirements(request={"cpu": 1})
    fleet = fleet_of(*BURST, *(Outstanding(f"shop/tiny{each}", tiny, 1) for each in range(200)))
    claimed = replace(LARGE, node_claim=NodeClaim(tolerations=(Toleration(key="spot"),)))
    for requirements, reasons in ((claimed, {}), (LARGE, {0: NOT_REHEARSED}), (claimed, {})):
        known_c = packable_c(fleet, requirements, Certificate.CAREFUL)
        found = refined_available_c(fleet, requirements, Certificate.CAREFUL, known_c, 99)
        assert found[1] == reasons
        assert found[0].tolist() == known_c.tolist()


def test_nothing_is_left_free_where_nothing_is_on_its_way() -> None:
    # Nothing is on its way: each of the nodes takes one.
    room = fleet_of().rooms[0]
    assert room is not None
    assert max_surely_rehearsed(room, LARGE, 99) == NODES


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
    assert max_surely_rehearsed(room, LARGE, 4) > 0
    assert max_surely_rehearsed(room, claimed, 4) == 0
    assert max_surely_rehearsed(beside, LARGE, 4) == 0


def test_a_promise_that_rearranges_a_cluster_is_packed_the_same_everywhere() -> None:
    """Also where only the scheduler finds room: then it is packed as the scheduler does."""
    (first,) = fleet_of(*BURST).rooms
    assert first is not None
    scheduled = first.as_scheduled(first.outstanding)
    assert (scheduled.stuck(), scheduled.outstanding) == (0, first.outstanding)
    assert int(scheduled.filled.cells.count_k.sum()) == NODES
    # One more than finds room behind what is promised.
    large, later = Outstanding("shop/large", LARGE, 6, certificate=CAREFUL), small(9)
    assert first.with_one(large).stuck() == 1
    promised = first.repacked(first.order_anew(large))
    assert promised.outstanding == (*BURST, large)
    for room in (scheduled, promised):
        assert not broken_promise(room.pools, room.holdings)
    # What comes later is packed behind it. Another control plane hears of both at once.
    deciding = promised.with_one(later)
    hearing = first.following(PackingOrder((*BURST, large, later), len(BURST)))
    assert hearing is not None
    assert deciding.stuck() == hearing.stuck() == 0
    assert deciding.outstanding == hearing.outstanding == (*BURST, large, later)
    assert [holding.steps for holding in hearing.holdings] == [
        holding.steps for holding in deciding.holdings
    ]


def test_a_promise_goes_on_from_what_was_rehearsed_before(monkeypatch: pytest.MonkeyPatch) -> None:
    rehearsed = list[int]()
    placing = Rehearsal.placing

    def counted(stage: Rehearsal, part: Part) -> Placed | None:
        rehearsed.append(part.replicas)
        return placing(stage, part)

    monkeypatch.setattr(Rehearsal, "placing", counted)
    # No order of packing has room for all of these.
    wanted = Outstanding("shop/large", LARGE, NODES + 1, certificate=CAREFUL)
    fleet, unasked = fleet_of(*BURST), fleet_of(*BURST)
    look(fleet)
    rehearsed.clear()
    (room,), (other,) = fleet.rooms, unasked.rooms
    assert room is not None
    assert other is not None
    repacked = room.repacked(room.order_anew(wanted))
    assert rehearsed == [wanted.to_pack]
    # What was there is rehearsed no more for the one that comes next, in a fleet with the room.
    (later,) = fleet.with_rooms({0: repacked}).rooms
    assert later is not None
    later.repacked(later.order_anew(small(9)))
    assert rehearsed == [wanted.to_pack, small(9).to_pack]
    anew = other.repacked(other.order_anew(wanted))
    assert len(rehearsed) == 2 + len(BURST) + 1
    assert [holding.steps for holding in repacked.holdings] == [
        holding.steps for holding in anew.holdings
    ]


@pytest.mark.parametrize("run", range(RUNS))
def test_each_run_packs_every_promise(run: int) -> None:
    (room,) = fleet_of(*BURST).rooms
    assert room is not None
    room.cluster.rehearse(room.kinds, BURST[:5])
    left, packed = room.cluster.rehearse(room.kinds, BURST, run).packed(
        room.free_cells, room.cluster.kind_p
    )
    there = replace(room, free_cells=left, held=Held().with_more(packed))
    assert (there.outstanding, there.stuck()) == (BURST, 0)
    assert not broken_promise(there.pools, there.holdings)
    pods = sum(step.nodes * step.replicas for each in packed for step in each.steps)
    slots = [cells.min_rk[2] @ cells.count_k for cells in (room.pools.cells, there.filled.cells)]
    assert slots[0] - slots[1] == pods == sum(each.to_pack for each in BURST)


def test_each_run_packs_by_its_own_luck() -> None:
    """Whatever run was rehearsed before: on nodes that are alike, runs differ."""
    cells = cells_of([[(4000, 16 * GIB, 50)]] * NODES, allocatable=[(8000, 32 * GIB)] * NODES)
    site = FleetRooms.of(
        [UnpackedRoom(ReportId(1, 1), one_pool(cells), False, PackingOrder((), 0))]
    ).clusters[0]
    (room,) = fleet_of().rooms
    assert site is not None
    assert room is not None

    def packed(rehearsed: RehearsedPromises) -> list[object]:
        _, assignments = rehearsed.packed(room.free_cells, site.kind_p)
        return [each.steps for each in assignments]

    by_run = list[list[object]]()
    for run in range(RUNS):
        site.rehearse(room.kinds, BURST[:5])
        steps = packed(site.rehearse(room.kinds, BURST[:6], run))
        anew = RehearsedPromises().going_on(site.pools, site.kind_p, room.kinds, BURST[:6], run)
        assert steps == packed(anew)
        by_run.append(steps)
    assert any(steps != by_run[0] for steps in by_run)


@pytest.mark.parametrize(
    "others",
    [BURST[1:], BURST[::-1], (small(9), *BURST), BURST[:-2], (), (*BURST[:-1], small(9), small(8))],
    ids=["less the first", "backwards", "one first", "less the last", "none", "another one last"],
)
def test_a_rehearsal_of_other_promises_begins_anew(others: tuple[Outstanding, ...]) -> None:
    (room,) = fleet_of().rooms
    assert room is not None
    site, kinds = room.cluster, room.kinds
    anew = RehearsedPromises().going_on(site.pools, site.kind_p, kinds, others)
    begun = RehearsedPromises().going_on(site.pools, site.kind_p, kinds, BURST)
    for gone_on in (
        begun.going_on(site.pools, site.kind_p, kinds, others),
        begun.going_on(site.pools, site.kind_p, kinds, (*others, *BURST)).going_on(
            site.pools, site.kind_p, kinds, others
        ),
    ):
        assert gone_on.promises == others
        assert gone_on.stage is not None
        assert anew.stage is not None
        assert np.array_equal(gone_on.stage.free_rk, anew.stage.free_rk)
        assert np.array_equal(gone_on.stage.count_k, anew.stage.count_k)
        assert gone_on.stage.steps_left == anew.stage.steps_left


@pytest.mark.parametrize("minor", [0, 20, 30, 36])
def test_any_release_is_rehearsed(minor: int) -> None:
    told = replace(pools(), kubernetes_minor=minor)
    room = FleetRooms.of(
        [UnpackedRoom(ReportId(1, 1), told, False, PackingOrder.of_report(BURST))]
    ).rooms[0]
    assert room is not None
    assert 0 < max_surely_rehearsed(room, LARGE, 4) <= 4
