"""Rooms of many clusters against each by itself: whatever is shared, kept or put off, the same is
available, promised and refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from federation.capacity import batch_packing
from federation.capacity.cluster_room import Room
from federation.capacity.fleet_rooms import FleetRooms, UnpackedRoom, packed_room
from federation.capacity.reserve import (
    PackedRooms,
    Refused,
    packable_c,
    promise_less,
)
from federation.model.cluster import Taint, TaintEffect
from federation.model.pools.values import Cells, NodePool
from federation.model.reservations import Outstanding, PackingOrder, PromiseCertificate
from federation.model.workload import NodeClaim, ReplicaRequirements
from lab.promising import asked_of
from lab.slow_packer import broken_promise
from tests.properties.drawn_rooms import (
    PACKED,
    REPORT,
    DrawnCells,
    DrawnRooms,
    cells_drawn,
    requests,
    rooms_drawn,
    shapes,
    table,
    unpacked_rooms,
)

NEW, LAST = "shop/new", "shop/last"
NAMES = tuple(f"member{number}" for number in range(6))
HOST = "kubernetes.io/hostname"
TAINT = Taint(key="dedicated", effect=TaintEffect.NO_SCHEDULE)
BY_HOST = tuple(NodeClaim(node_selector={HOST: f"node{number}"}) for number in (1, 2))

_Asks: TypeAlias = dict[int, tuple[Outstanding, ...]]

maybe_cells = st.lists(cells_drawn | st.none(), min_size=len(NAMES), max_size=len(NAMES))


def plain(cells: Cells) -> list[object]:
    columns = cells.pool_k, cells.count_k, cells.min_rk, cells.max_rk
    return [cells.resources, *(each.tolist() for each in columns)]


def assert_same(found: Room | None, expected: Room | None) -> None:
    if found is None or expected is None:
        assert found is expected
        return
    assert found.report == expected.report
    assert found.follows_claims == expected.follows_claims
    assert found.outstanding == expected.outstanding
    assert found.stuck() == expected.stuck()
    assert found.holds_strict == expected.holds_strict
    assert [(each.steps, each.unplaced) for each in found.holdings] == [
        (each.steps, each.unplaced) for each in expected.holdings
    ]
    assert plain(found.filled.cells) == plain(expected.filled.cells)
    assert plain(found.spread.cells) == plain(expected.spread.cells)
    assert broken_promise(found.pools, found.holdings) == ""


def assert_same_rooms(fleet: FleetRooms, rooms: list[Room | None]) -> None:
    """Each room, and what all of them answer at once."""
    for found, expected in zip(fleet.rooms, rooms, strict=True):
        assert_same(found, expected)
    for request in ({}, {"cpu": 3}, {"memory": 2, "nvidia.com/gpu": 1}):
        for claim in (None, NodeClaim(node_selector={"zone": "b"})):
            asked = ReplicaRequirements(request=request, node_claim=claim)
            most = [each.packable(asked, PACKED[0]) if each else 0 for each in rooms]
            assert packable_c(fleet, asked, None).tolist() == most
            told_c, _ = fleet.label_carriers(asked)
            assert told_c.tolist() == [
                each is not None and each.carries_labels(asked) for each in rooms
            ]


# What one more of the very smallest finds where only pod slots are left.
ONE = Outstanding("x", ReplicaRequirements(request={}), 1)


@settings(max_examples=60, deadline=None)
@given(drawn=rooms_drawn, copies=st.sampled_from([1, 12]))
@example(drawn=[([(0, 1, (0, 0, 2, 0)), (0, 2, (0, 0, 1, 0))], [ONE, ONE])], copies=1)
def test_many_rooms_are_packed_as_each_by_itself(drawn: DrawnRooms, copies: int) -> None:
    """Where many clusters take something, cells are looked through before they are put in order."""
    every = unpacked_rooms(drawn) * copies
    fleet = FleetRooms.of(every)
    for position, unpacked in enumerate(every[: len(drawn) + 1]):
        assert_same(fleet.rooms[position], packed_room(unpacked))


@dataclass(frozen=True, kw_only=True)
class Step:
    """New rooms at some positions, what is asked of the fleet then, and what it promises."""

    changes: Mapping[int, Room | UnpackedRoom | None]
    asked: ReplicaRequirements
    wanted: Mapping[int, int]


@st.composite
def changed_rooms(draw: st.DrawFn) -> Room | UnpackedRoom | None:
    if draw(st.integers(0, 5)) == 0:
        return None
    pool = st.builds(
        NodePool,
        taints=st.sampled_from([(), (), (TAINT,)]),
        labels=st.sampled_from([{HOST: f"node{number}"} for number in range(6)] + [{"zone": "a"}]),
    )
    keys = draw(st.sampled_from([(HOST,), (HOST, "zone"), ("zone",)]))
    pools = replace(table(draw(cells_drawn)), label_keys=keys, pools=(draw(pool), draw(pool)))
    unpacked = UnpackedRoom(REPORT, pools, draw(st.booleans()), PackingOrder((), 0))
    return unpacked if draw(st.booleans()) else packed_room(unpacked)


positions = st.integers(0, 3)
steps = st.lists(
    st.builds(
        Step,
        changes=st.dictionaries(positions, changed_rooms(), max_size=2),
        asked=st.builds(
            ReplicaRequirements, request=requests, node_claim=st.sampled_from([None, *BY_HOST])
        ),
        wanted=st.dictionaries(positions, st.integers(1, 3), max_size=2),
    ),
    max_size=10,
)


def answers(fleet: FleetRooms, asked: ReplicaRequirements) -> list[object]:
    filled_c, spread_c = fleet.max_by_view(asked)
    told_c, reasons = fleet.label_carriers(asked)
    return [filled_c.tolist(), spread_c.tolist(), told_c.tolist(), reasons]


@settings(max_examples=60, deadline=None)
@given(made=steps)
def test_a_fleet_that_changed_is_as_one_made_anew_of_its_rooms(made: list[Step]) -> None:
    history = [FleetRooms.none(4)]
    for number, step in enumerate(made):
        fleet = history[-1].with_rooms(step.changes)
        anew = FleetRooms.of(fleet.rooms)
        assert answers(fleet, step.asked) == answers(anew, step.asked)
        asks = {c: (Outstanding(f"b{number}", step.asked, n),) for c, n in step.wanted.items()}
        found, expected = (asked_of(each, NAMES, f"b{number}", asks) for each in (fleet, anew))
        history.append(fleet)
        if isinstance(found, Refused) or isinstance(expected, Refused):
            assert found == expected
        else:
            for one, other in zip(found.rooms, expected.rooms, strict=True):
                assert_same(one, other)
            history.append(found)
    # What newer ones find out must not change what older ones say.
    for each in reversed(history):
        for claim in (None, *BY_HOST):
            asked = ReplicaRequirements(request={"cpu": 3}, node_claim=claim)
            assert answers(each, asked) == answers(FleetRooms.of(each.rooms), asked)


def test_labels_that_change_for_ever_do_not_make_kinds_for_ever() -> None:
    def reported(number: int) -> UnpackedRoom:
        hosts = tuple(NodePool(labels={HOST: f"node{each}"}) for each in (number, number + 1))
        pools = table([(0, 1, (8, 8, 8, 0)), (1, 1, (8, 8, 8, 0))])
        return UnpackedRoom(
            REPORT, replace(pools, label_keys=(HOST,), pools=hosts), False, PackingOrder((), 0)
        )

    fleet = FleetRooms.of(map(reported, range(4)))
    for number in range(100):
        fleet = fleet.with_rooms({number % 4: reported(10 * number)})
    assert len(fleet.kinds.members) == 2 * 4
    newest = NodeClaim(node_selector={HOST: "node991"})
    asked = ReplicaRequirements(request={"cpu": 4}, node_claim=newest)
    assert fleet.max_by_view(asked)[0].tolist() == [0, 0, 0, 2]
    gone = fleet.with_rooms(dict.fromkeys(range(4)))
    assert gone.kinds.verdicts(NodeClaim(node_selector={"zone": "elsewhere"})) is None


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What a binding asks of some clusters, in replicas of one shape; 0 lets go."""

    binding: str
    requirements: ReplicaRequirements
    certificate: PromiseCertificate
    replicas: Mapping[int, int]

    def outstanding(self, replicas: int) -> Outstanding:
        certificate = self.certificate
        return Outstanding(self.binding, self.requirements, replicas, certificate=certificate)

    def asks(self) -> _Asks:
        return {c: (self.outstanding(n),) if n else () for c, n in self.replicas.items()}


decisions = st.lists(
    st.builds(
        Decision,
        binding=st.sampled_from("abcdefgh"),
        requirements=shapes,
        certificate=st.sampled_from(PACKED),
        replicas=st.dictionaries(
            st.integers(0, len(NAMES) - 1), st.integers(0, 12), min_size=1, max_size=len(NAMES)
        ),
    ),
    max_size=12,
)


def by_itself(room: Room, decision: Decision, replicas: int) -> Room | None:
    """One cluster by itself: make the room again without the binding, then see what fits."""
    wanted = decision.outstanding(replicas)
    rest = room.without(decision.binding)
    if not replicas:
        return rest
    most = rest.max_replicas(wanted.requirements, wanted.certificate, replicas)
    return rest.with_one(wanted) if most == replicas and not room.overcommitted else None


def letting_go_of_what_is_held(decision: Decision, rooms: list[Room | None]) -> Decision:
    """A binding asks once: what shrinks is confirmed in its place, as tests of rooms show."""
    if any((room := rooms[c]) and room.holdings_of(decision.binding) for c in decision.replicas):
        return replace(decision, replicas=dict.fromkeys(decision.replicas, 0))
    return decision


def bare_rooms(drawn: list[DrawnCells | None], *, follows: bool = False) -> list[Room | None]:
    return [each and Room.of(REPORT, table(each), follows_claims=follows) for each in drawn]


@settings(max_examples=80, deadline=None)
@given(drawn=maybe_cells, made=decisions, follows=st.booleans(), few=st.sampled_from([0, 256]))
def test_a_decision_is_promised_where_each_of_its_clusters_has_room_by_itself(
    drawn: list[DrawnCells | None], made: list[Decision], *, follows: bool, few: int
) -> None:
    """Also where the clusters are so many that what is left is looked at before they are packed."""
    rooms = bare_rooms(drawn, follows=follows)
    fleet = FleetRooms.of(rooms)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(batch_packing, "_FEW", few)
        for drawn_decision in made:
            decision = letting_go_of_what_is_held(drawn_decision, rooms)
            # Without pools nothing is certain: nothing is asked for there.
            if any(n and rooms[c] is None for c, n in decision.replicas.items()):
                continue
            expected = {
                position: by_itself(room, decision, replicas)
                for position, replicas in decision.replicas.items()
                if (room := rooms[position]) is not None
            }
            answer = asked_of(fleet, NAMES, decision.binding, decision.asks())
            assert isinstance(answer, FleetRooms) == all(expected.values())
            if isinstance(answer, FleetRooms):
                fleet = answer
                for position, room in expected.items():
                    rooms[position] = room
                assert_same_rooms(fleet, rooms)


@settings(max_examples=60, deadline=None)
@given(drawn=maybe_cells, made=decisions, data=st.data())
def test_many_lose_some_of_what_they_have_as_one_after_the_other(
    drawn: list[DrawnCells | None], made: list[Decision], data: st.DataObject
) -> None:
    fleet = FleetRooms.of(bare_rooms(drawn))
    had: dict[str, Decision] = {}
    for each in made:
        seen = {c: n for c, n in each.replicas.items() if n and fleet.rooms[c] is not None}
        decision = replace(each, replicas=seen)
        answer = asked_of(fleet, NAMES, each.binding, decision.asks())
        if each.binding not in had and seen and isinstance(answer, FleetRooms):
            fleet, had[each.binding] = answer, decision
    left = {
        key: replace(
            decision,
            # At most one more, of which it has to be asked whether there is room.
            replicas={c: data.draw(st.integers(0, n + 1)) for c, n in decision.replicas.items()},
        )
        for key, decision in had.items()
    }
    asks, packed = {key: each.asks() for key, each in left.items()}, PackedRooms()
    one_by_one: FleetRooms | Refused = fleet
    # Who gets more of something asks before others have left.
    for decision in sorted(left.values(), key=lambda each: not is_more(each, had[each.binding])):
        one_by_one = asked_of(one_by_one, NAMES, decision.binding, decision.asks())
        if isinstance(one_by_one, Refused):
            break
    # What was packed once is as it was.
    for _ in range(2):
        together = promise_less(fleet, NAMES, asks, packed)
        if isinstance(one_by_one, Refused) or isinstance(together, Refused):
            assert together == one_by_one
        else:
            assert_same_rooms(together, list(one_by_one.rooms))


def is_more(now: Decision, before: Decision) -> bool:
    return any(count > before.replicas[c] for c, count in now.replicas.items())
