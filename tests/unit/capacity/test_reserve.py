"""Promises: what is packed where, what is refused and why, and what each certificate asks for."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from federation.capacity.cluster_room import ReportId, Room
from federation.capacity.component_sets import packable_sets_c
from federation.capacity.own_promises import OwnPromises
from federation.capacity.reserve import (
    FleetRooms,
    Refused,
    certificate_for,
    packable_c,
    promise,
)
from federation.model.cluster import Taint, TaintEffect
from federation.model.estimate import MAX_REPLICAS
from federation.model.placement import Certificate
from federation.model.pools.bounds import per_replica, upper_k
from federation.model.pools.values import Cells, NodePool, Pools
from federation.model.reasons import texts_of
from federation.model.reservations import Outstanding, PromiseCertificate
from federation.model.resources import MAX_AMOUNT
from federation.model.workload import (
    Component,
    NodeClaim,
    ReplicaRequirements,
    Toleration,
    TolerationOperator,
)
from lab.promising import asked_of, promises_of
from lab.slow_packer import broken_promise
from tests.pools import alike, cells_of, one_pool

REPORT = ReportId(1, 7)
CAREFUL, PLANNED = PromiseCertificate.CAREFUL, PromiseCertificate.PLANNED
STRICT, UNPROVEN = PromiseCertificate.STRICT, PromiseCertificate.UNPROVEN
ZONE, RACK = NodeClaim(node_selector={"zone": "a"}), NodeClaim(node_selector={"rack": "7"})
TAINT = Taint(key="dedicated", effect=TaintEffect.NO_SCHEDULE)
TOLERATES = NodeClaim(
    tolerations=(Toleration(key="dedicated", operator=TolerationOperator.EXISTS),)
)
TAINTED = NodePool(taints=(TAINT,))


def pools(*cells: tuple[int, int], pool: NodePool | None = None) -> Pools:
    """Cells of so many nodes with so much cpu each, and pod slots enough."""
    table = cells_of([alike(count, (cpu, 10**6, 20)) for count, cpu in cells])
    return one_pool(table, pool, ["zone"])


def cpu(amount: int, claim: NodeClaim | None = None) -> ReplicaRequirements:
    return ReplicaRequirements(request={"cpu": amount}, node_claim=claim)


def wanted(
    replicas: int,
    amount: int = 10,
    binding: str = "web",
    certificate: PromiseCertificate = CAREFUL,
    credited: int = 0,
    claim: NodeClaim | None = None,
) -> Outstanding:
    return Outstanding(
        binding=binding,
        requirements=cpu(amount, claim),
        certificate=certificate,
        in_cells=replicas,
        credited=credited,
    )


def room_of(*cells: tuple[int, int], held: tuple[Outstanding, ...] = ()) -> Room:
    return Room.of(REPORT, pools(*cells), held)


def asked(
    room: Room | None, *outstanding: Outstanding, allow_unproven: bool = False
) -> FleetRooms | Refused:
    """Ask one cluster, for the binding of what is asked for."""
    (binding,) = {each.binding for each in outstanding}
    fleet = FleetRooms.of([room])
    return asked_of(fleet, ["member1"], binding, {0: outstanding}, allow_unproven=allow_unproven)


def taken(answer: FleetRooms | Refused) -> Room:
    assert isinstance(answer, FleetRooms)
    room = answer.rooms[0]
    assert room is not None
    assert broken_promise(room.pools, room.holdings) == ""
    return room


def why(answer: FleetRooms | Refused) -> str:
    assert isinstance(answer, Refused)
    return str(answer.reasons["member1"])


def left_of(cells: Cells) -> list[tuple[int, tuple[int, ...]]]:
    columns = cells.min_rk.T.tolist()
    return sorted(zip(cells.count_k.tolist(), map(tuple, columns), strict=True))


GPUS = ("cpu", "memory", "pods", "nvidia.com/gpu")


@pytest.mark.parametrize(
    ("cells", "request_of", "replicas", "steps", "left"),
    [
        # The smallest cell that takes one comes first.
        (
            [(2, (8, 8, 9, 0)), (3, (3, 3, 9, 0)), (4, (1, 9, 9, 0))],
            {"cpu": 2},
            4,
            [((3, 3, 9, 0), 3, 1), ((8, 8, 9, 0), 1, 1)],
            [(1, (6, 8, 8, 0)), (1, (8, 8, 9, 0)), (3, (1, 3, 8, 0)), (4, (1, 9, 9, 0))],
        ),
        # A partly used node becomes a cell of its own.
        (
            [(5, (7, 9, 9, 0))],
            {"cpu": 2},
            8,
            [((7, 9, 9, 0), 2, 3), ((7, 9, 9, 0), 1, 2)],
            [(1, (3, 9, 7, 0)), (2, (1, 9, 6, 0)), (2, (7, 9, 9, 0))],
        ),
        # Nodes with devices are for those who ask.
        (
            [(1, (2, 2, 9, 1)), (1, (90, 90, 90, 0))],
            {"cpu": 1},
            91,
            [((90, 90, 90, 0), 1, 90), ((2, 2, 9, 1), 1, 1)],
            [(1, (0, 90, 0, 0)), (1, (1, 2, 8, 1))],
        ),
        (
            [(1, (2, 2, 9, 1)), (1, (90, 90, 90, 0))],
            {"cpu": 1, "nvidia.com/gpu": 1},
            1,
            [((2, 2, 9, 1), 1, 1)],
            [(1, (1, 2, 8, 0)), (1, (90, 90, 90, 0))],
        ),
        ([(3, (1, 1, 1, 0))], {"example.com/unheard": 1}, 5, [], [(3, (1, 1, 1, 0))]),
    ],
)
def test_where_replicas_are_packed(
    cells: list[tuple[int, tuple[int, ...]]],
    request_of: dict[str, int],
    replicas: int,
    steps: list[tuple[tuple[int, ...], int, int]],
    left: list[tuple[int, tuple[int, ...]]],
) -> None:
    requirements = ReplicaRequirements(request=request_of)
    report = one_pool(cells_of([alike(*each) for each in cells], GPUS))
    room = Room.of(REPORT, report).with_one(Outstanding("web", requirements, replicas))
    (holding,) = room.holdings
    assert [(each.free, each.nodes, each.replicas) for each in holding.steps] == steps
    assert left_of(room.filled.cells) == left
    assert broken_promise(report, room.holdings) == ""


def test_a_million_replicas_are_packed_at_once_and_equal_cells_are_one_again() -> None:
    room = Room.of(REPORT, one_pool(cells_of([alike(100_000, (64_000, 64_000, 110))])))
    room = room.with_one(Outstanding("web", cpu(500), 1_000_000))
    assert room.stuck() == 0
    assert len(room.filled.cells) == 3
    small = Room.of(REPORT, one_pool(cells_of([alike(40, (6, 9, 9))])))
    for number in range(30):
        small = small.with_one(Outstanding(f"b{number}", cpu(2), 4))
    assert left_of(small.filled.cells) == [(40, (0, 9, 6))]


def test_room_beyond_what_is_counted_is_counted_again() -> None:
    most = MAX_REPLICAS + 10
    room = Room.of(REPORT, one_pool(cells_of([[(most, most, most)]])))
    made = taken(asked(room, wanted(4, 1)))
    assert made.max_by_view(cpu(1)) == (MAX_REPLICAS, MAX_REPLICAS)


def test_pieces_of_a_cell_of_unlike_nodes_have_the_least_sums() -> None:
    report = one_pool(cells_of([[(4, 4, 9), (6, 4, 9), (8, 4, 9)]]))
    left = Room.of(REPORT, report).with_one(Outstanding("web", cpu(4), 1)).filled.cells
    # One node has at most 8 of the 18, so the other two have at least 10; and one at least 4.
    assert left.sum_rk[0].tolist() == [4 - 4, 10]
    assert left.max_rk[0].tolist() == [4, 8]
    assert left.sum_exact_k.tolist() == [False, False]
    assert upper_k(left, per_replica({"cpu": 4})).tolist() == [1, 4]


def test_an_enormous_sum_is_not_taken_for_what_is_left_of_it() -> None:
    huge_rk = np.full((3, 1), MAX_AMOUNT)
    cells = Cells(
        resources=("cpu", "memory", "pods"),
        pool_k=np.zeros(1, np.int32),
        count_k=np.array([3]),
        min_rk=huge_rk,
        sum_rk=huge_rk,
        max_rk=huge_rk,
        sum_exact_k=np.zeros(1, np.bool_),
    )
    room = Room.of(REPORT, one_pool(cells)).with_one(Outstanding("web", cpu(MAX_AMOUNT), 2))
    left = room.filled.cells
    assert left.min_rk[0].tolist() == [0, MAX_AMOUNT]
    assert upper_k(left, per_replica({"cpu": MAX_AMOUNT})).tolist() == [0, 1]


def test_a_room_does_not_fall_to_pieces() -> None:
    room = room_of(*((1, 50 + n) for n in range(64)))
    for number in range(300):
        room = room.with_one(wanted(1, number % 7 + 1, f"b{number}"))
    assert len(room.holdings) == 300
    assert len(room.filled.cells) <= 64 + 64
    assert broken_promise(room.pools, room.holdings) == ""


def test_a_promise_names_its_report_and_shows_where_it_fits() -> None:
    answer = asked(room_of((2, 25), (1, 40)), wanted(5))
    assert isinstance(answer, FleetRooms)
    (promise,) = promises_of(answer, ["member1"], "web", [0])
    assert (promise.cluster, promise.report, promise.certificate) == ("member1", REPORT, CAREFUL)
    assert [
        (each.pool, each.free, each.nodes, each.replicas) for each in promise.holding.steps
    ] == [
        (0, (25, 10**6, 20), 2, 2),
        (0, (40, 10**6, 20), 1, 1),
    ]


def test_all_or_nothing_over_clusters() -> None:
    fleet = FleetRooms.of([room_of((1, 90)), room_of((1, 10))])
    asks = {0: (wanted(4),), 1: (wanted(4),)}
    assert why(asked_of(fleet, ["large", "member1"], "web", asks)) == "1 of 4 replicas find room"


def test_what_a_binding_holds_is_free_for_it_and_is_confirmed_unchanged() -> None:
    room = room_of((1, 100), held=(wanted(6), wanted(2, binding="other")))
    fleet = FleetRooms.of([room])
    own = OwnPromises(repacked={0: (room.without("web"), 6)})
    assert packable_c(fleet, cpu(10), None, own).tolist() == [2]
    assert packable_c(fleet, cpu(10), None).tolist() == [2]
    assert taken(asked(room, wanted(8))).overcommitted == ()
    assert why(asked(room, wanted(9))) == "8 of 9 replicas find room"
    # More fits of a smaller shape in the place of the own larger one.
    larger = room_of((1, 100), held=(wanted(2, 50),))
    free = OwnPromises(repacked={0: (larger.without("web"), 0)})
    assert packable_c(FleetRooms.of([larger]), cpu(10), None).tolist() == [0]
    assert packable_c(FleetRooms.of([larger]), cpu(10), None, free).tolist() == [10]
    # Who is promised what it holds changes nothing.
    held = wanted(2)
    both = FleetRooms.of([room_of((1, 40), held=(held, wanted(1, binding="db")))] * 2)
    assert promise(both, ["a", "b"], "web", {0: (held,), 1: (held,)}, [0, 1]) is both
    less = promise(both, ["a", "b"], "web", {0: (held,), 1: (wanted(1),)}, [0, 1])
    assert isinstance(less, FleetRooms)
    assert less.sums.replicas_c.tolist() == [3, 2]


def test_what_does_not_grow_is_confirmed_where_others_are_stuck() -> None:
    room = room_of((1, 50), held=(wanted(4), wanted(4, binding="other")))
    (short,) = room.overcommitted
    assert (short.outstanding.binding, short.unplaced) == ("other", 3)
    assert room.outstanding == (wanted(4), wanted(4, binding="other"))
    assert taken(asked(room, wanted(4))).outstanding == room.outstanding
    assert taken(asked(room, wanted(1))).overcommitted == ()
    assert why(asked(room, wanted(6))) == "4 of 6 replicas find room"
    assert why(asked(room, wanted(1, binding="new"))) == "0 of 1 replicas find room"
    assert packable_c(FleetRooms.of([room]), cpu(1), None).tolist() == [0]


def test_a_stuck_promise_keeps_one_node_that_suits_it_and_leaves_the_others_open() -> None:
    """It lost a node of 90; the node of 80 may be the first that comes free for it."""
    room = room_of((1, 80), (5, 40), held=(wanted(1, 90, binding="large"),))
    assert room.stuck() == 1
    assert room.max_replicas(cpu(10), CAREFUL, 99) == 20
    made = taken(asked(room, wanted(20, binding="new")))
    assert made.stuck() == 1
    assert why(asked(made, wanted(1, binding="more"))) == "0 of 1 replicas find room"
    # Pools that it may not use, and all of them where it was strict, are open.
    tainted = Room.of(REPORT, pools((3, 40), pool=TAINTED), [wanted(1, 50)])
    assert (tainted.stuck(), tainted.max_replicas(cpu(10, TOLERATES), CAREFUL, 99)) == (1, 12)
    strict = room_of((4, 40), held=(wanted(1, 50, binding="db", certificate=STRICT),))
    assert (strict.stuck(), strict.max_replicas(cpu(10), CAREFUL, 99)) == (1, 12)
    assert taken(asked(strict, wanted(12))).stuck() == 1


def test_another_order_is_tried_before_a_cluster_counts_as_over_committed() -> None:
    # One after the other, the small one goes where a large one has to go.
    assert room_of((1, 50), (1, 60), held=(wanted(1, 10), wanted(2, 50))).overcommitted == ()


OTHERS = wanted(4, 10, binding="other")
STRICT_DB = wanted(2, 40, binding="db", certificate=STRICT)


@pytest.mark.parametrize(
    ("room", "outstanding", "reason"),
    [
        # Components cannot have the same room.
        (room_of((1, 40)), (wanted(3), wanted(1, 20)), "0 of 1 replicas find room"),
        # Credited replicas need no room.
        (room_of((1, 20)), (wanted(5, credited=3),), ""),
        (room_of((1, 20)), (wanted(5, credited=2),), "2 of 3 replicas find room"),
        # But they may come before their place is free.
        (
            room_of((4, 40), held=(STRICT_DB,)),
            (wanted(3, 1, credited=2),),
            "strict promises would no longer be sure of their room",
        ),
        # Nobody takes what a strict promise may need.
        (room_of((4, 40), held=(STRICT_DB,)), (wanted(3, 1),), "2 of 3 replicas find room"),
        # A stricter promise is a new one.
        (
            room_of((3, 40), held=(wanted(3, 1, binding="other"), wanted(1, 40))),
            (wanted(1, 40, certificate=STRICT),),
            "0 of 1 replicas find room",
        ),
        (None, (wanted(1, certificate=UNPROVEN),), "nothing shows whether there is room"),
        (
            room_of((1, 40)),
            (wanted(9, 10, "blind", UNPROVEN, claim=RACK),),
            "nothing shows whether there is room",
        ),
    ],
)
def test_what_is_promised_and_why_not(
    room: Room | None, outstanding: tuple[Outstanding, ...], reason: str
) -> None:
    answer = asked(room, *outstanding)
    assert (why(answer) if isinstance(answer, Refused) else "") == reason


def test_careful_promises_and_plans_what_both_placers_leave() -> None:
    room = room_of((4, 40), held=(OTHERS,))
    # Best fit leaves three whole nodes, spreading none.
    assert room.max_by_view(cpu(40)) == (3, 0)
    assert (room.max_replicas(cpu(40), CAREFUL, 9), room.max_replicas(cpu(30), CAREFUL, 9)) == (
        0,
        3,
    )
    # Agents choose nodes by other rules than best fit, and in another order.
    planned = Room.of(REPORT, pools((4, 40)), [OTHERS], follows_claims=True)
    assert planned.max_replicas(cpu(40), PLANNED, 9) == 0
    fleet = FleetRooms.of([planned, Room.of(REPORT, pools((3, 40), (1, 10)), follows_claims=True)])
    for amount, most in ((40, [0, 3]), (30, [1, 3])):
        assert packable_c(fleet, cpu(amount), Certificate.PLANNED).tolist() == most
    assert why(asked(planned, wanted(1, 40, certificate=PLANNED))) == "0 of 1 replicas find room"


def test_the_parts_of_a_plan_are_as_careful_beside_one_another() -> None:
    room = Room.of(REPORT, pools((4, 40)), follows_claims=True)
    parts = [
        Component(name="small", replicas=4, requirements=cpu(10)),
        Component(name="large", replicas=1, requirements=cpu(40)),
    ]
    assert packable_sets_c(FleetRooms.of([room]), parts, Certificate.PLANNED, {}).tolist() == [0]
    both = [wanted(4, 10, certificate=PLANNED), wanted(1, 40, certificate=PLANNED)]
    assert why(asked(room, *both)) == "0 of 1 replicas find room"


def test_strict_promises_what_any_placer_leaves() -> None:
    room = room_of((4, 40), held=(wanted(3, 1, binding="other"),))
    assert room.max_by_view(cpu(40)) == (3, 1)
    assert room.max_replicas(cpu(40), STRICT, 9) == 1
    assert room.max_replicas(cpu(39), STRICT, 9) == 3, "a node has 1 to spare: two pods spoil it"
    fleet = FleetRooms.of([room_of((4, 40), held=(STRICT_DB,))])
    assert packable_c(fleet, cpu(1), None).tolist() == [2]
    assert packable_c(fleet, cpu(40), Certificate.STRICT).tolist() == [2]


@pytest.mark.parametrize(
    ("certificate", "follows_claims", "claim", "expected"),
    [
        (None, False, None, CAREFUL),
        (None, True, None, PLANNED),
        (Certificate.PLANNED, False, None, CAREFUL),
        (Certificate.PLANNED, True, ZONE, PLANNED),
        (Certificate.CAREFUL, True, None, CAREFUL),
        (Certificate.STRICT, True, None, STRICT),
        (Certificate.STRICT, True, RACK, UNPROVEN),
    ],
)
def test_certificates(
    certificate: Certificate | None,
    follows_claims: bool,
    claim: NodeClaim | None,
    expected: PromiseCertificate,
) -> None:
    room = Room.of(REPORT, pools((1, 10)), follows_claims=follows_claims)
    assert certificate_for(certificate, room, cpu(1, claim)) is expected
    assert certificate_for(certificate, None, cpu(1, claim)) is UNPROVEN


def test_what_is_unproven_keeps_others_away_and_is_no_over_commitment() -> None:
    blind = asked(None, wanted(1, certificate=UNPROVEN), allow_unproven=True)
    assert isinstance(blind, FleetRooms)
    assert list(blind.rooms) == [None]
    unproven = wanted(9, 10, "blind", UNPROVEN, claim=RACK)
    room = taken(asked(room_of((1, 40)), unproven, allow_unproven=True))
    assert room.overcommitted == ()
    assert room.max_replicas(cpu(1), CAREFUL, 9) == 0


def test_pools_tell_of_a_claim_or_say_which_labels_they_lack() -> None:
    tainted = Room.of(REPORT, pools((1, 40), pool=TAINTED))
    fleet = FleetRooms.of([room_of((1, 10)), None, tainted])
    told_c, reasons = fleet.label_carriers(cpu(1, RACK))
    assert told_c.tolist() == [False, False, True], "taints keep it away, whatever the labels are"
    assert texts_of(reasons) == {0: "the cluster's pools do not tell nodes apart by rack"}
    told_c, reasons = fleet.label_carriers(cpu(1, ZONE))
    assert (told_c.tolist(), reasons) == ([True, False, True], {})
    assert packable_c(fleet, cpu(1, RACK), None).tolist() == [0, 0, 0]
    assert packable_c(fleet, cpu(1), None).tolist() == [10, 0, 0]


def test_what_many_decisions_promised_is_all_there_in_its_order() -> None:
    names, bare = ["a", "b", "c"], [room_of((40, 25), (20, 40)) for _ in range(3)]
    fleet, alone = FleetRooms.of(bare), list(bare)
    for number in range(70):
        outstanding = (wanted(1, amount=5 + number % 3, binding=f"web{number}"),)
        # One cluster has every promise, the others every second.
        asks = {0: outstanding, 1 + number % 2: outstanding}
        answer = asked_of(fleet, names, f"web{number}", asks)
        assert isinstance(answer, FleetRooms)
        fleet = answer
        for position in asks:
            alone[position] = alone[position].with_one(outstanding[0])
        if number == 50:
            # A new report of one of them.
            alone[1] = Room.of(REPORT, pools((30, 30)), alone[1].outstanding)
            fleet = fleet.with_rooms({1: alone[1]})
    for now, by_itself in zip(fleet.rooms, alone, strict=True):
        assert now is not None
        assert [(each.outstanding, each.steps) for each in now.holdings] == [
            (each.outstanding, each.steps) for each in by_itself.holdings
        ]
    # Who holds something there already gets no more than what is asked for.
    for binding in ("web0", "web69"):
        more = asked_of(fleet, names, binding, {0: (wanted(2, amount=5, binding=binding),)})
        held = [holding.outstanding.in_cells for holding in taken(more).holdings_of(binding)]
        assert held == [1, 1]


def test_a_reserve_is_kept_back_where_packings_disagree_and_more_where_promises_are_late() -> None:
    small = room_of((2, 50), held=(wanted(5, binding="db"),))
    large = room_of((9, 50), held=(wanted(9, binding="db"),))
    assert [each.max_by_view(cpu(20)) for each in (small, large)] == [(2, 2), (14, 18)]
    assert [each.max_by_view(cpu(25)) for each in (small, large)] == [(2, 1), (14, 9)]
    fleet = FleetRooms.of([small, large])
    assert packable_c(fleet, cpu(20), None).tolist() == [1, 11]
    assert packable_c(fleet, cpu(25), None).tolist() == [0, 6]
    own = OwnPromises(repacked={1: (large, 3)})
    assert packable_c(fleet, cpu(25), None, own).tolist() == [0, 3]
    # Of nine that take a whole node each, two find none any more.
    late = room_of((7, 200), (1, 50), held=(wanted(9, 200, binding="db"),))
    assert late.stuck() == 2
    assert FleetRooms.of([None, large, late]).sums.reserve_c.tolist() == [2, 2, 4]


def promised_one_by_one(count: int) -> FleetRooms:
    fleet = FleetRooms.of([room_of((96, 2))])
    for number in range(count):
        answer = asked_of(fleet, ["member1"], f"b{number}", {0: (wanted(1, 2),)})
        assert isinstance(answer, FleetRooms)
        fleet = answer
    return fleet


@pytest.mark.parametrize(
    "fleet_of",
    [
        lambda: FleetRooms.of([room_of((96, 2), held=(wanted(48, 2),))]),
        lambda: promised_one_by_one(48),
    ],
)
def test_of_many_other_replicas_on_their_way_one_in_16_is_kept_back(
    fleet_of: Callable[[], FleetRooms],
) -> None:
    """However alike best fit and spreading see it: pods go neither this way nor that."""
    fleet = fleet_of()
    (room,) = fleet.rooms
    assert room is not None
    assert room.max_by_view(cpu(1)) == (96, 96)
    alike_too = "wherever pods of the same shape land, each takes the room of one"
    for amount, most in ((1, 93), (2, 48)):
        found_c = packable_c(fleet, cpu(amount), Certificate.CAREFUL)
        assert found_c.tolist() == [room.packable(cpu(amount), CAREFUL)] == [most], alike_too
