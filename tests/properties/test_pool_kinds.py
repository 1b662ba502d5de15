"""Fleets whose pools come, change and go against fleets made anew from the rooms they have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st

from federation.capacity.cluster_room import ReportId, Room
from federation.capacity.fleet_rooms import UnpackedRoom, packed_room
from federation.capacity.reserve import FleetRooms
from federation.model.cluster import Taint, TaintEffect
from federation.model.pools.values import NodePool, Pools
from federation.model.reservations import Outstanding, PromiseCertificate
from federation.model.workload import NodeClaim, ReplicaRequirements
from lab.promising import asked_of, promises_of
from tests.properties.test_reserve_packing import cells_drawn, requests, table

HOST = "kubernetes.io/hostname"
NAMES = tuple(f"member{number}" for number in range(4))
POOLS = 2
CLAIMS = (
    None,
    NodeClaim(node_selector={HOST: "node1"}),
    NodeClaim(node_selector={HOST: "node2"}),
    NodeClaim(node_selector={"zone": "a"}),
)
TAINT = Taint(key="dedicated", value="", effect=TaintEffect.NO_SCHEDULE)

_Changes: TypeAlias = dict[int, Room | UnpackedRoom | None]

hosts = st.integers(0, 6).map("node{}".format)
pools_drawn = st.lists(
    st.builds(
        NodePool,
        taints=st.sampled_from([(), (), (TAINT,)]),
        labels=st.one_of(hosts.map(lambda host: {HOST: host}), st.just({"zone": "a"})),
    ),
    min_size=POOLS,
    max_size=POOLS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """New rooms at some positions, what is asked of the fleet then, and what it promises."""

    changes: _Changes
    asked: ReplicaRequirements
    wanted: Mapping[int, int]


@st.composite
def rooms(draw: st.DrawFn) -> Room | UnpackedRoom | None:
    if draw(st.integers(0, 5)) == 0:
        return None
    keys = draw(st.sampled_from([(HOST,), (HOST, "zone"), ("zone",)]))
    pools = replace(table(draw(cells_drawn)), label_keys=keys, pools=tuple(draw(pools_drawn)))
    if draw(st.integers(0, 5)) == 0:
        pools = replace(table([(0, 0, (0, 0, 0, 0))]), label_keys=keys, pools=())
    unpacked = UnpackedRoom(ReportId(1, 1), pools, draw(st.booleans()), ())
    return unpacked if draw(st.booleans()) else packed_room(unpacked)


requirements = st.builds(ReplicaRequirements, request=requests, node_claim=st.sampled_from(CLAIMS))
positions = st.integers(0, len(NAMES) - 1)
steps = st.lists(
    st.builds(
        Step,
        changes=st.dictionaries(positions, rooms(), max_size=2),
        asked=requirements,
        wanted=st.dictionaries(positions, st.integers(1, 3), max_size=2),
    ),
    max_size=10,
)


def answers(fleet: FleetRooms, asked: ReplicaRequirements) -> list[object]:
    filled_c, spread_c = fleet.most_by_view(asked)
    told_c, reasons = fleet.told(asked)
    return [filled_c.tolist(), spread_c.tolist(), told_c.tolist(), reasons]


def promised(fleet: FleetRooms, binding: str, step: Step) -> tuple[object, FleetRooms]:
    """What came of it, for comparing; the fleet as it was where it refuses."""
    asks = {
        position: (
            Outstanding(
                binding=binding,
                requirements=step.asked,
                certificate=PromiseCertificate.CAREFUL,
                in_cells=replicas,
            ),
        )
        for position, replicas in step.wanted.items()
    }
    answer = asked_of(fleet, NAMES, binding, asks)
    if not isinstance(answer, FleetRooms):
        return answer.reasons, fleet
    made = promises_of(answer, NAMES, binding, asks)
    return [(each.cluster, each.holding.steps) for each in made], answer


def assert_tells_as_its_rooms_do(fleet: FleetRooms, asked: ReplicaRequirements) -> None:
    told_c, _ = fleet.told(asked)
    expected = [room is not None and room.can_tell(asked) for room in fleet.rooms]
    assert told_c.tolist() == expected


def different(fleet: FleetRooms) -> int:
    """Kinds of pools in a fleet, counted one by one."""
    return len(
        {
            (pool.taints, room.pools.label_keys, frozenset(pool.labels.items()))
            for room in fleet.rooms
            if room
            for pool in room.pools.pools
        }
    )


@settings(max_examples=60, deadline=None)
@given(made=steps)
def test_a_fleet_that_changed_is_as_one_made_anew_of_its_rooms(made: list[Step]) -> None:
    fleet, most = FleetRooms.none(len(NAMES)), 0
    history = [fleet]
    for number, step in enumerate(made):
        fleet = fleet.with_rooms(step.changes)
        anew = FleetRooms.of(fleet.rooms)
        most = max(most, different(fleet))
        assert len(fleet.kinds.members) <= most
        assert answers(fleet, step.asked) == answers(anew, step.asked)
        found, after = promised(fleet, f"binding{number}", step)
        assert found == promised(anew, f"binding{number}", step)[0]
        history += [fleet, after]
        fleet = after
    # What newer ones find out must not change what older ones say.
    for each in reversed(history):
        anew = FleetRooms.of(each.rooms)
        for claim in CLAIMS:
            asked = ReplicaRequirements(request={"cpu": 3}, node_claim=claim)
            assert answers(each, asked) == answers(anew, asked)
            assert_tells_as_its_rooms_do(each, asked)


def test_labels_that_change_for_ever_do_not_make_kinds_for_ever() -> None:
    def reported(number: int) -> UnpackedRoom:
        pools: Pools = table([(0, 1, (8, 8, 8, 0)), (1, 1, (8, 8, 8, 0))])
        names = (f"node{number}", f"node{number + 1}")
        hosted = tuple(NodePool(labels={HOST: name}) for name in names)
        return UnpackedRoom(
            ReportId(1, number), replace(pools, label_keys=(HOST,), pools=hosted), False, ()
        )

    fleet = FleetRooms.of(reported(position) for position in range(len(NAMES)))
    kinds = len(fleet.kinds.members)
    for number in range(100):
        fleet = fleet.with_rooms({number % len(NAMES): reported(10 * number)})
    assert kinds == len(NAMES) + 1
    assert len(fleet.kinds.members) == len(fleet.kinds.places) == 2 * len(NAMES)
    newest = ReplicaRequirements(
        request={"cpu": 4}, node_claim=NodeClaim(node_selector={HOST: "node991"})
    )
    assert fleet.most_by_view(newest)[0].tolist() == [0, 0, 0, 2]


def test_kinds_that_are_gone_are_matched_against_no_claim() -> None:
    pools = replace(table([(0, 1, (8, 8, 8, 0))]), label_keys=("zone",))
    room = UnpackedRoom(ReportId(1, 1), pools, False, ())
    kinds = FleetRooms.of([room, room]).with_rooms({0: None, 1: None}).kinds
    assert kinds.verdicts(NodeClaim(node_selector={"zone": "elsewhere"})) is None
