"""Promises in many clusters at once against one cluster after the other, one room at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.capacity import batch_packing
from federation.capacity.cells import KIND, Residues
from federation.capacity.cluster_room import ReportId, Room
from federation.capacity.component_sets import packable_sets_c
from federation.capacity.reserve import (
    FleetRooms,
    PackedRooms,
    Refused,
    certificate_for,
    packable_c,
    promise_less,
)
from federation.model.placement import Certificate
from federation.model.reservations import Outstanding, PromiseCertificate
from federation.model.workload import Component, NodeClaim, ReplicaRequirements
from lab.promising import asked_of, promises_of
from lab.simple_bounds import simple_lower_bound
from lab.slow_packer import broken_promise
from tests.properties.test_reserve_packing import cells_drawn, claims, outstandings, requests, table

REPORT = ReportId(1, 1)
NAMES = tuple(f"member{number}" for number in range(6))

rooms_drawn = st.lists(cells_drawn | st.none(), min_size=len(NAMES), max_size=len(NAMES))


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a binding asks of some clusters, in replicas of one shape; 0 lets go."""

    binding: str
    requirements: ReplicaRequirements
    certificate: PromiseCertificate
    replicas: dict[int, int]

    def asks(self) -> dict[int, tuple[Outstanding, ...]]:
        return {
            position: (self.outstanding(replicas),) if replicas else ()
            for position, replicas in self.replicas.items()
        }

    def outstanding(self, replicas: int) -> Outstanding:
        return Outstanding(
            binding=self.binding,
            requirements=self.requirements,
            certificate=self.certificate,
            in_cells=replicas,
        )


decisions = st.lists(
    st.builds(
        Decision,
        binding=st.sampled_from("abcdefgh"),
        requirements=st.builds(ReplicaRequirements, request=requests, node_claim=claims),
        certificate=st.sampled_from(
            [PromiseCertificate.CAREFUL, PromiseCertificate.PLANNED, PromiseCertificate.STRICT]
        ),
        replicas=st.dictionaries(
            st.integers(0, len(NAMES) - 1), st.integers(0, 12), min_size=1, max_size=len(NAMES)
        ),
    ),
    max_size=12,
)


def obviously(room: Room, decision: Decision, replicas: int) -> Room | None:
    """One cluster by itself: make the room again without the binding, then see what fits."""
    wanted = decision.outstanding(replicas)
    rest = room.without(decision.binding)
    if not replicas:
        return rest
    if (
        room.overcommitted
        or rest.most(wanted.requirements, wanted.certificate, replicas) < replicas
    ):
        return None
    return rest.with_one(wanted)


def letting_go_of_what_is_held(decision: Decision, rooms: list[Room | None]) -> Decision:
    """A binding asks once: what shrinks is confirmed in its place, as tests of rooms show."""
    for position in decision.replicas:
        room = rooms[position]
        if room is not None and room.holdings_of(decision.binding):
            return replace(decision, replicas=dict.fromkeys(decision.replicas, 0))
    return decision


@pytest.fixture(params=[0, len(NAMES)], scope="module")
def few(request: pytest.FixtureRequest) -> Iterator[int]:
    """How many clusters are packed before it is known what is left, rather than after."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(batch_packing, "_FEW", request.param)
        yield request.param


@pytest.mark.usefixtures("few")
@settings(max_examples=60, deadline=None)
@given(drawn=rooms_drawn, made=decisions, follows=st.booleans())
def test_a_decision_is_promised_where_each_of_its_clusters_has_room_by_itself(
    drawn: list[list[tuple[int, int, tuple[int, ...]]] | None],
    made: list[Decision],
    *,
    follows: bool,
) -> None:
    rooms = [
        None if cells is None else Room.of(REPORT, table(cells), follows_claims=follows)
        for cells in drawn
    ]
    fleet = FleetRooms.of(rooms)
    for drawn_decision in made:
        decision = letting_go_of_what_is_held(drawn_decision, rooms)
        expected = {
            position: obviously(room, decision, replicas)
            for position, replicas in decision.replicas.items()
            if (room := rooms[position]) is not None
        }
        is_blind = any(
            replicas and rooms[position] is None for position, replicas in decision.replicas.items()
        )
        # Without pools nothing is certain: ask for nothing there but unproven promises.
        if is_blind:
            continue
        answer = asked_of(fleet, NAMES, decision.binding, decision.asks())
        assert isinstance(answer, FleetRooms) == all(expected.values())
        if not isinstance(answer, FleetRooms):
            continue
        for position, room in expected.items():
            rooms[position] = room
        fleet = answer
        for each in promises_of(fleet, NAMES, decision.binding, decision.replicas):
            position = NAMES.index(each.cluster)
            now = fleet.rooms[position]
            assert now is not None
            shown = [(other.outstanding, other.steps) for other in now.holdings]
            assert (each.holding.outstanding, each.holding.steps) in shown
        assert_same(fleet, rooms)
        if not any(room and (room.overcommitted or room.holds_strict) for room in rooms):
            asked = decision.requirements
            assert packable_c(fleet, asked, Certificate.CAREFUL, {}).tolist() == [
                room.packable(asked, PromiseCertificate.CAREFUL) if room else 0 for room in rooms
            ]


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
    drawn=rooms_drawn,
    held=st.lists(outstandings(most=6), max_size=3),
    parts=sets_drawn,
    asked=st.sampled_from([None, *Certificate]),
    follows=st.booleans(),
)
def test_as_many_sets_are_promised_as_are_said_to_fit(
    drawn: list[list[tuple[int, int, tuple[int, ...]]] | None],
    held: list[Outstanding],
    parts: list[Component],
    asked: Certificate | None,
    follows: bool,
) -> None:
    fleet = FleetRooms.of(
        None if cells is None else Room.of(REPORT, table(cells), held, follows_claims=follows)
        for cells in drawn
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
    alone_c = [
        packable_sets_c(FleetRooms.of([room]), parts, asked, {}).item() for room in fleet.rooms
    ]
    assert sets_c == alone_c
    assert (
        sets_c
        == packable_sets_c(
            fleet, parts, asked, {c: room for c, room in enumerate(fleet.rooms) if room}
        ).tolist()
    )


def one_by_one(room: Room, asked: tuple[Outstanding, ...]) -> Room | None:
    """The room with all of it, each beside what came before; None where something has no room."""
    for each in asked:
        if room.most(each.requirements, each.certificate, each.to_pack) < each.to_pack:
            return None
        room = room.with_one(each)
    return room


few_shapes = st.sampled_from(
    [ReplicaRequirements(request={"cpu": amount}) for amount in (3, 7)]
    + [ReplicaRequirements(request={"memory": 5})]
)
asks_drawn = st.lists(
    st.lists(st.tuples(few_shapes, st.integers(1, 3)), max_size=3), max_size=len(NAMES)
)


@pytest.mark.usefixtures("few")
@settings(max_examples=60, deadline=None)
@given(drawn=rooms_drawn, asked=asks_drawn, follows=st.booleans())
def test_each_cluster_is_packed_in_the_order_of_its_ask(
    drawn: list[list[tuple[int, int, tuple[int, ...]]] | None],
    asked: list[list[tuple[ReplicaRequirements, int]]],
    *,
    follows: bool,
) -> None:
    rooms = [
        None if cells is None else Room.of(REPORT, table(cells), follows_claims=follows)
        for cells in drawn
    ]
    asks = {
        position: tuple(
            Outstanding(
                binding="new",
                component=f"c{place}",
                requirements=requirements,
                certificate=PromiseCertificate.PLANNED,
                in_cells=replicas,
            )
            for place, (requirements, replicas) in enumerate(wanted)
        )
        for position, wanted in enumerate(asked)
        if rooms[position] is not None
    }
    answer = asked_of(FleetRooms.of(rooms), NAMES, "new", asks)
    alone = {
        position: one_by_one(room, asks[position])
        for position, room in enumerate(rooms)
        if room is not None and position in asks
    }
    has_room = None not in alone.values()
    assert isinstance(answer, FleetRooms) == has_room
    if isinstance(answer, FleetRooms):
        expected = [alone.get(position, room) for position, room in enumerate(rooms)]
        assert_same(answer, expected)


@settings(max_examples=60, deadline=None)
@given(drawn=rooms_drawn, made=decisions, data=st.data())
def test_many_lose_some_of_what_they_have_as_one_after_the_other(
    drawn: list[list[tuple[int, int, tuple[int, ...]]] | None],
    made: list[Decision],
    data: st.DataObject,
) -> None:
    fleet = FleetRooms.of(
        None if cells is None else Room.of(REPORT, table(cells)) for cells in drawn
    )
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
    asks = {key: each.asks() for key, each in left.items()}
    packed: PackedRooms = {}
    together = promise_less(fleet, NAMES, asks, packed)
    one_by_one: FleetRooms | Refused = fleet
    # Who gets more of something asks before others have left.
    grown = [each for key, each in left.items() if is_more(each, had[key])]
    for decision in [*grown, *(each for each in left.values() if each not in grown)]:
        assert isinstance(one_by_one, FleetRooms)
        one_by_one = asked_of(one_by_one, NAMES, decision.binding, decision.asks())
        if isinstance(one_by_one, Refused):
            break
    if isinstance(one_by_one, Refused):
        assert isinstance(together, Refused)
        assert together.reasons == one_by_one.reasons
        return
    assert isinstance(together, FleetRooms)
    assert_same(together, list(one_by_one.rooms))
    # What was packed once is as it was.
    again = promise_less(fleet, NAMES, asks, packed)
    assert isinstance(again, FleetRooms)
    assert_same(again, list(one_by_one.rooms))


def is_more(now: Decision, before: Decision) -> bool:
    return any(count > before.replicas[c] for c, count in now.replicas.items())


def test_many_parts_of_one_cluster_leave_the_others_as_they_are() -> None:
    """Every part divides a cell anew: a table has no more columns than for a few of them."""
    room = Room.of(REPORT, table([(0, 20, (30, 30, 12, 0))]))
    parts = tuple(
        Outstanding(
            binding="new",
            component=f"c{amount}",
            requirements=ReplicaRequirements(request={"cpu": amount}),
            certificate=PromiseCertificate.CAREFUL,
            in_cells=1,
        )
        for amount in range(1, 9)
    )
    answer = asked_of(FleetRooms.of([room] * 3), NAMES, "new", {0: parts, 1: parts})
    assert isinstance(answer, FleetRooms)
    assert_same(answer, [room.with_all(parts), room.with_all(parts), room])


def without_kinds(left: Residues) -> list[list[int]]:
    """A table but for the kinds of pools, which are numbered by the fleet."""
    table: list[list[int]] = np.delete(left.table_xk, KIND, axis=0).tolist()
    return table


def assert_same(fleet: FleetRooms, rooms: list[Room | None]) -> None:
    assert len(fleet.rooms) == len(rooms)
    for now, room in zip(fleet.rooms, rooms, strict=True):
        if room is None or now is None:
            assert now is room
            continue
        assert now.outstanding == room.outstanding
        assert [each.steps for each in now.holdings] == [each.steps for each in room.holdings]
        assert broken_promise(now.pools, now.holdings) == ""
        assert without_kinds(now.left) == without_kinds(room.left)
    for request in ({}, {"cpu": 3}, {"memory": 2, "nvidia.com/gpu": 1}):
        for claim in (None, NodeClaim(node_selector={"zone": "b"})):
            requirements = ReplicaRequirements(request=request, node_claim=claim)
            most = [
                room.packable(requirements, PromiseCertificate.CAREFUL) if room else 0
                for room in rooms
            ]
            assert packable_c(fleet, requirements, None, {}).tolist() == most
            filled = [
                room.most_by_view(requirements)[0]
                if room and not room.overcommitted and not room.holds_strict
                else None
                for room in rooms
            ]
            lower_c = [simple_lower_bound(pools, requirements) for pools in fleet.filled.pools]
            assert all(
                here is None or here == lower for here, lower in zip(filled, lower_c, strict=True)
            )
