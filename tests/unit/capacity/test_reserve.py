"""Promises: what is packed, what is refused and why, and what each certificate asks for."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from federation.capacity.assignments import PackingStep
from federation.capacity.cluster_room import ReportId, Room
from federation.capacity.component_sets import packable_sets_c
from federation.capacity.reserve import (
    FleetRooms,
    Refused,
    certificate_for,
    packable_c,
    promise,
)
from federation.model.cluster import Taint, TaintEffect
from federation.model.placement import Certificate
from federation.model.pools.values import Cells, NodePool, Pools
from federation.model.reservations import Outstanding, PromiseCertificate
from federation.model.workload import (
    Component,
    NodeClaim,
    ReplicaRequirements,
    Toleration,
    TolerationOperator,
)
from lab.promising import asked_of, promises_of
from lab.slow_packer import broken_promise

REPORT = ReportId(1, 7)
CAREFUL, PLANNED = PromiseCertificate.CAREFUL, PromiseCertificate.PLANNED
STRICT, UNPROVEN = PromiseCertificate.STRICT, PromiseCertificate.UNPROVEN


def pools(*cells: tuple[int, int], pool: NodePool | None = None) -> Pools:
    """Cells of so many nodes with so much cpu each, and pod slots enough."""
    count_k = np.array([nodes for nodes, _ in cells], np.int64)
    min_rk = np.array([[cpu, 10**6, 20] for _, cpu in cells], np.int64).T.copy()
    return Pools(
        label_keys=("zone",),
        pools=(pool or NodePool(),),
        cells=Cells(
            resources=("cpu", "memory", "pods"),
            pool_k=np.zeros(len(cells), np.int32),
            count_k=count_k,
            min_rk=min_rk,
            sum_rk=min_rk * count_k,
            max_rk=min_rk.copy(),
            sum_exact_k=np.ones(len(cells), np.bool_),
        ),
    )


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
    return answer.reasons["member1"]


def test_a_promise_names_its_report_and_shows_where_it_fits() -> None:
    room = Room.of(REPORT, pools((2, 25), (1, 40)))
    answer = asked(room, wanted(5))
    assert isinstance(answer, FleetRooms)
    (promise,) = promises_of(answer, ["member1"], "web", [0])
    assert (promise.cluster, promise.report, promise.certificate) == ("member1", REPORT, CAREFUL)
    assert promise.holding.steps == (
        PackingStep(pool=0, free=(25, 10**6, 20), nodes=2, replicas=2),
        PackingStep(pool=0, free=(40, 10**6, 20), nodes=1, replicas=1),
    )


def test_all_or_nothing_over_clusters() -> None:
    small, large = Room.of(REPORT, pools((1, 10))), Room.of(REPORT, pools((1, 90)))
    fleet = FleetRooms.of([large, small])
    asks = {0: (wanted(4),), 1: (wanted(4),)}
    assert why(asked_of(fleet, ["large", "member1"], "web", asks)) == "1 of 4 replicas find room"


def test_components_cannot_have_the_same_room() -> None:
    room = Room.of(REPORT, pools((1, 40)))
    answer = asked(room, wanted(3), wanted(1, 20))
    assert why(answer) == "0 of 1 replicas find room"


def test_the_own_reservation_is_free_for_its_binding() -> None:
    room = Room.of(REPORT, pools((1, 100)), [wanted(6), wanted(2, binding="other")])
    fleet = FleetRooms.of([room])
    own = {0: (room.without("web"), 6)}
    assert packable_c(fleet, cpu(10), None, own).tolist() == [2]
    assert packable_c(fleet, cpu(10), None, {}).tolist() == [2]
    assert taken(asked(room, wanted(8))).overcommitted == ()
    assert why(asked(room, wanted(9))) == "8 of 9 replicas find room"


def test_who_is_promised_what_it_holds_changes_nothing() -> None:
    held, other = wanted(2), wanted(1, binding="db")
    fleet = FleetRooms.of([Room.of(REPORT, pools((1, 40)), [held, other])] * 2)
    asks = {0: (held,), 1: (held,)}
    assert promise(fleet, ["a", "b"], held.binding, asks, [0, 1]) is fleet
    less = promise(fleet, ["a", "b"], held.binding, {0: (held,), 1: (wanted(1),)}, [0, 1])
    assert isinstance(less, FleetRooms)
    assert less.outstanding_c.tolist() == [3, 2]


def test_more_fits_of_a_smaller_shape_in_the_place_of_the_own_larger_one() -> None:
    room = Room.of(REPORT, pools((1, 100)), [wanted(2, 50)])
    assert packable_c(FleetRooms.of([room]), cpu(10), None, {}).tolist() == [0]
    own = {0: (room.without("web"), 0)}
    assert packable_c(FleetRooms.of([room]), cpu(10), None, own).tolist() == [10]


def test_what_does_not_grow_is_confirmed_where_others_are_stuck() -> None:
    room = Room.of(REPORT, pools((1, 50)), [wanted(4), wanted(4, binding="other")])
    (short,) = room.overcommitted
    assert (short.outstanding.binding, short.unplaced) == ("other", 3)
    assert room.outstanding == (wanted(4), wanted(4, binding="other"))
    assert taken(asked(room, wanted(4))).outstanding == room.outstanding
    scaled_down = taken(asked(room, wanted(1)))
    assert scaled_down.overcommitted == ()
    assert why(asked(room, wanted(6))) == "1 of 6 replicas find room"
    assert why(asked(room, wanted(1, binding="new"))) == "0 of 1 replicas find room"
    assert packable_c(FleetRooms.of([room]), cpu(1), None, {}).tolist() == [0]


def test_a_stuck_promise_keeps_one_node_and_leaves_the_others_open() -> None:
    """It lost a node of 90; the node of 80 may be the first that comes free for it."""
    room = Room.of(REPORT, pools((1, 80), (5, 40)), [wanted(1, 90, binding="large")])
    assert room.stuck() == 1
    assert room.most(cpu(10), CAREFUL, 99) == 20
    made = taken(asked(room, wanted(20, binding="new")))
    assert made.stuck() == 1
    assert why(asked(made, wanted(1, binding="more"))) == "0 of 1 replicas find room"


def test_a_stuck_promise_keeps_nothing_in_pools_that_it_may_not_use() -> None:
    tainted = NodePool(taints=(Taint(key="dedicated", effect=TaintEffect.NO_SCHEDULE),))
    room = Room.of(REPORT, pools((3, 40), pool=tainted), [wanted(1, 50)])
    tolerates = NodeClaim(
        tolerations=(Toleration(key="dedicated", operator=TolerationOperator.EXISTS),)
    )
    assert room.stuck() == 1
    assert room.most(cpu(10, tolerates), CAREFUL, 99) == 12


def test_a_strict_promise_that_lost_its_room_does_not_close_the_cluster() -> None:
    room = Room.of(REPORT, pools((4, 40)), [wanted(1, 50, binding="db", certificate=STRICT)])
    assert room.stuck() == 1
    assert room.most(cpu(10), CAREFUL, 99) == 12
    assert taken(asked(room, wanted(12))).stuck() == 1


def test_another_order_is_tried_before_a_cluster_counts_as_over_committed() -> None:
    # One after the other, the small one goes where a large one has to go.
    room = Room.of(REPORT, pools((1, 50), (1, 60)), [wanted(1, 10), wanted(2, 50)])
    assert room.overcommitted == ()


def test_credited_replicas_need_no_room() -> None:
    room = Room.of(REPORT, pools((1, 20)))
    assert taken(asked(room, wanted(5, credited=3))).overcommitted == ()
    assert why(asked(room, wanted(5, credited=2))) == "2 of 3 replicas find room"


def test_careful_promises_what_both_placers_leave() -> None:
    room = Room.of(REPORT, pools((4, 40)), [wanted(4, 10, binding="other")])
    # Best fit leaves three whole nodes, spreading none.
    assert room.most_by_view(cpu(40)) == (3, 0)
    assert room.most(cpu(40), CAREFUL, 9) == 0
    assert room.most(cpu(30), CAREFUL, 9) == 3


def test_plans_are_as_careful_beside_what_has_no_nodes_yet() -> None:
    """Agents choose nodes by other rules than best fit, and in another order."""
    room = Room.of(REPORT, pools((4, 40)), [wanted(4, 10, binding="other")], follows_claims=True)
    fleet = FleetRooms.of([room])
    assert room.most_by_view(cpu(40)) == (3, 0)
    assert room.most(cpu(40), PLANNED, 9) == 0
    assert packable_c(fleet, cpu(40), Certificate.PLANNED, {}).tolist() == [0]
    assert packable_c(fleet, cpu(30), Certificate.PLANNED, {}).tolist() == [1]
    assert why(asked(room, wanted(1, 40, certificate=PLANNED))) == "0 of 1 replicas find room"
    alone = FleetRooms.of([Room.of(REPORT, pools((3, 40), (1, 10)), [], follows_claims=True)])
    assert packable_c(alone, cpu(40), Certificate.PLANNED, {}).tolist() == [3]
    assert packable_c(alone, cpu(10), Certificate.PLANNED, {}).tolist() == [13]


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
    room = Room.of(REPORT, pools((4, 40)), [wanted(3, 1, binding="other")])
    assert room.most_by_view(cpu(40)) == (3, 1)
    assert room.most(cpu(40), STRICT, 9) == 1
    assert room.most(cpu(39), STRICT, 9) == 3, "a node has 1 to spare: two pods spoil it"


def test_nobody_takes_what_a_strict_promise_may_need() -> None:
    room = Room.of(REPORT, pools((4, 40)), [wanted(2, 40, binding="db", certificate=STRICT)])
    assert room.most(cpu(1), CAREFUL, 99) == 2
    answer = asked(room, wanted(3, 1))
    assert why(answer) == "2 of 3 replicas find room"
    fleet = FleetRooms.of([room])
    assert packable_c(fleet, cpu(1), None, {}).tolist() == [2]
    assert packable_c(fleet, cpu(40), Certificate.STRICT, {}).tolist() == [2]


def test_credited_replicas_may_come_before_their_place_is_free() -> None:
    room = Room.of(REPORT, pools((4, 40)), [wanted(2, 40, binding="db", certificate=STRICT)])
    answer = asked(room, wanted(3, 1, credited=2))
    assert why(answer) == "strict promises would no longer be sure of their room"


def test_a_stricter_promise_is_a_new_one() -> None:
    room = Room.of(REPORT, pools((2, 40)), [wanted(2, 40), wanted(1, 1, binding="other")])
    assert room.overcommitted
    room = Room.of(REPORT, pools((3, 40)), [wanted(3, 1, binding="other"), wanted(1, 40)])
    answer = asked(room, wanted(1, 40, certificate=STRICT))
    assert why(answer) == "0 of 1 replicas find room"


ZONE = NodeClaim(node_selector={"zone": "a"})
RACK = NodeClaim(node_selector={"rack": "7"})


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


def test_nothing_is_proven_of_a_cluster_without_pools() -> None:
    assert certificate_for(None, None, cpu(1)) is UNPROVEN
    unproven = wanted(1, certificate=UNPROVEN)
    assert why(asked(None, unproven)) == "nothing shows whether there is room"
    answer = asked(None, unproven, allow_unproven=True)
    assert isinstance(answer, FleetRooms)
    assert list(answer.rooms) == [None]
    assert packable_c(FleetRooms.of([None]), cpu(1), None, {}).tolist() == [0]


def test_what_is_unproven_keeps_others_away_and_is_no_over_commitment() -> None:
    room = Room.of(REPORT, pools((1, 40)))
    unproven = wanted(9, 10, "blind", UNPROVEN, claim=RACK)
    assert why(asked(room, unproven)) == "nothing shows whether there is room"
    room = taken(asked(room, unproven, allow_unproven=True))
    assert room.overcommitted == ()
    assert room.most(cpu(1), CAREFUL, 9) == 0


def test_taints_keep_promises_away() -> None:
    taint = Taint(key="dedicated", effect=TaintEffect.NO_SCHEDULE)
    room = Room.of(REPORT, pools((1, 40), pool=NodePool(taints=(taint,))))
    assert room.most(cpu(1), CAREFUL, 9) == 0


def test_a_fleet_with_newer_rooms_is_the_fleet_of_the_newer_rooms() -> None:
    rooms: list[Room | None] = [Room.of(REPORT, pools((1, 10 * n))) for n in range(1, 5)]
    fleet = FleetRooms.of(rooms)
    rooms[1], rooms[3] = None, Room.of(REPORT, pools((1, 40)), [wanted(9)])
    changed = fleet.with_rooms({1: rooms[1], 3: rooms[3]})
    assert packable_c(changed, cpu(10), None, {}).tolist() == [1, 0, 3, 0]
    assert packable_c(FleetRooms.of(rooms), cpu(10), None, {}).tolist() == [1, 0, 3, 0]
    assert packable_c(fleet, cpu(10), None, {}).tolist() == [1, 2, 3, 4]


def test_pools_tell_of_a_claim_or_say_which_labels_they_lack() -> None:
    fleet = FleetRooms.of([Room.of(REPORT, pools((1, 10))), None])
    told_c, reasons = fleet.told(cpu(1, RACK))
    assert told_c.tolist() == [False, False]
    assert reasons == {0: "the cluster's pools do not tell nodes apart by rack"}
    told_c, reasons = fleet.told(cpu(1, ZONE))
    assert (told_c.tolist(), reasons) == ([True, False], {})
    assert packable_c(fleet, cpu(1, RACK), None, {}).tolist() == [0, 0]


def test_a_room_does_not_fall_to_pieces() -> None:
    room = Room.of(REPORT, pools(*((1, 50 + n) for n in range(64))))
    requests: Mapping[str, int] = {f"b{n}": n % 7 + 1 for n in range(300)}
    for binding, amount in requests.items():
        room = room.with_one(wanted(1, amount, binding))
    assert len(room.holdings) == 300
    assert len(room.filled.cells) <= 64 + 64
    assert broken_promise(room.pools, room.holdings) == ""


def test_what_many_decisions_promised_is_all_there_in_its_order() -> None:
    names = ["a", "b", "c"]
    bare = [Room.of(REPORT, pools((40, 25), (20, 40))) for _ in names]
    fleet, alone = FleetRooms.of(bare), list(bare)
    for number in range(70):
        (one,) = outstanding = (wanted(1, amount=5 + number % 3, binding=f"web{number}"),)
        # One cluster has every promise, the others every second.
        asks = {0: outstanding, 1 + number % 2: outstanding}
        answer = asked_of(fleet, names, one.binding, asks)
        assert isinstance(answer, FleetRooms)
        made = promises_of(answer, names, one.binding, asks)
        assert [(each.cluster, each.holding.outstanding) for each in made] == [
            (names[position], one) for position in asks
        ]
        fleet = answer
        for position in asks:
            alone[position] = alone[position].with_one(one)
        if number == 50:
            # A new report of one of them.
            alone[1] = Room.of(REPORT, pools((30, 30)), alone[1].outstanding)
            fleet = fleet.with_rooms({1: alone[1]})
    for now, by_itself in zip(fleet.rooms, alone, strict=True):
        assert now is not None
        assert [(each.outstanding, each.steps) for each in now.holdings] == [
            (each.outstanding, each.steps) for each in by_itself.holdings
        ]
        assert broken_promise(now.pools, now.holdings) == ""
    # Who holds something there already gets no more than what is asked for.
    for binding in ("web0", "web69"):
        more = asked_of(fleet, names, binding, {0: (wanted(2, amount=5, binding=binding),)})
        assert isinstance(more, FleetRooms)
        (room,) = more.rooms[:1]
        assert room is not None
        assert [each.outstanding.in_cells for each in room.holdings_of(binding)] == [2]


def test_a_reserve_is_kept_back_where_packings_disagree_and_more_where_promises_are_late() -> None:
    small = Room.of(REPORT, pools((2, 50)), [wanted(5, binding="db")])
    large = Room.of(REPORT, pools((9, 50)), [wanted(9, binding="db")])
    assert [each.most_by_view(cpu(20)) for each in (small, large)] == [(2, 2), (14, 18)]
    assert [each.most_by_view(cpu(25)) for each in (small, large)] == [(2, 1), (14, 9)]
    fleet = FleetRooms.of([small, large])
    assert packable_c(fleet, cpu(20), None, {}).tolist() == [1, 11]
    assert packable_c(fleet, cpu(25), None, {}).tolist() == [0, 6]
    own = {1: (large, 3)}
    assert packable_c(fleet, cpu(25), None, own).tolist() == [0, 3]
    # Of nine that take a whole node each, two find none any more.
    late = Room.of(REPORT, pools((7, 200), (1, 50)), [wanted(9, 200, binding="db")])
    assert late.stuck() == 2
    assert FleetRooms.of([None, large, late]).reserve_c.tolist() == [2, 2, 4]


def test_the_next_that_asks_for_the_same_finds_as_much_less() -> None:
    fleet = FleetRooms.of([Room.of(REPORT, pools((4, 25), (3, 40))) for _ in range(2)])
    asks = {0: (wanted(3),), 1: (wanted(9),)}
    answer = asked_of(fleet, ["a", "b"], "web", asks)
    assert isinstance(answer, FleetRooms)
    assert packable_c(fleet, cpu(10), None, {}).tolist() == [20, 20]
    assert packable_c(answer, cpu(10), None, {}).tolist() == [17, 11]
    views = [room.most_by_view(cpu(20)) for room in answer.rooms if room]
    assert views == [(8, 7), (5, 3)]
    assert packable_c(answer, cpu(20), None, {}).tolist() == [5, 0]


def test_of_many_other_replicas_on_their_way_one_in_16_is_kept_back() -> None:
    """However alike best fit and spreading see it: pods go neither this way nor that."""
    room = Room.of(REPORT, pools((96, 2)), [wanted(48, 2)])
    assert room.most_by_view(cpu(1)) == (96, 96)
    for fleet in (FleetRooms.of([room]), promised_one_by_one(48)):
        assert packable_c(fleet, cpu(1), Certificate.CAREFUL, {}).tolist() == [93]
        alike = "wherever pods of the same shape land, each takes the room of one"
        assert packable_c(fleet, cpu(2), Certificate.CAREFUL, {}).tolist() == [48], alike
    assert [room.packable(cpu(1), CAREFUL), room.packable(cpu(2), CAREFUL)] == [93, 48]


def promised_one_by_one(count: int) -> FleetRooms:
    fleet = FleetRooms.of([Room.of(REPORT, pools((96, 2)), [])])
    for number in range(count):
        answer = asked_of(fleet, ["member1"], f"b{number}", {0: (wanted(1, 2),)})
        assert isinstance(answer, FleetRooms)
        fleet = answer
    return fleet
