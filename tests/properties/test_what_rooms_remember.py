"""Memory changes no answer: a room that remembers says what one says that remembers nothing."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.capacity.careful import PromiseTerms, max_surely_rehearsed
from federation.capacity.cluster_room import ReportId, Room
from federation.capacity.filled_nodes import NodeCaches
from federation.capacity.fleet_rooms import FleetRooms, UnpackedRoom
from federation.capacity.large_pods import is_mixed, max_beside_large, mixed_c
from federation.capacity.reserve import Refused, promise, promise_less
from federation.model.cluster import Taint, TaintEffect
from federation.model.pools.building import build_pools
from federation.model.pools.values import NodeColumn, NodeColumns, Pools
from federation.model.positions import Moves
from federation.model.reported_pools import pools_of, reported_pools
from federation.model.reservations import Outstanding, PackingOrder, PromiseCertificate
from federation.model.workload import (
    NodeClaim,
    ReplicaRequirements,
    Toleration,
    TolerationOperator,
)

GIB: Final = 1 << 30
NAMES: Final = ("a", "b")
ARCH: Final = "kubernetes.io/arch"
DEDICATED: Final = Taint(key="dedicated", effect=TaintEffect.NO_SCHEDULE)
TOLERATES: Final = (Toleration(key=DEDICATED.key, operator=TolerationOperator.EXISTS),)
CLAIMS: Final = (
    NodeClaim(),
    NodeClaim(tolerations=TOLERATES),
    NodeClaim(node_selector={ARCH: "arm64"}),
    NodeClaim(node_selector={ARCH: "amd64"}, tolerations=TOLERATES),
)
CERTIFICATES: Final = (PromiseCertificate.CAREFUL,) * 3 + (PromiseCertificate.PLANNED,)


class Node(NamedTuple):
    """A node: its cores, how many quarters of them are free, and what it is labelled as."""

    cores: int
    quarters: int
    is_arm: bool
    is_dedicated: bool


class Change(NamedTuple):
    """A thing that happens to a fleet; its numbers choose among what is there."""

    kind: str
    cluster: int
    first: int
    second: int


nodes = st.builds(
    Node,
    cores=st.sampled_from([8, 16, 16, 32]),
    quarters=st.sampled_from([0, 1, 3, 4, 4]),
    is_arm=st.booleans(),
    is_dedicated=st.sampled_from([False, False, True]),
)
clusters = st.lists(nodes, min_size=3, max_size=9)
requests = st.builds(
    lambda cpu, memory: {"cpu": cpu, "memory": memory},
    st.sampled_from([0, 100, 250, 1000, 1000, 3000, 6000, 9000, 12_000]),
    st.sampled_from([GIB // 8, GIB, 3 * GIB + 17]),
)
changes = st.builds(
    Change,
    kind=st.sampled_from(["promise"] * 5 + ["shrink", "end", "report", "nodes", "older", "older"]),
    cluster=st.integers(0, 1),
    first=st.integers(0, 99),
    second=st.integers(0, 99),
)


@st.composite
def workloads(draw: st.DrawFn) -> list[ReplicaRequirements]:
    """Draw a few kinds of pods, that all choose their nodes, or none of them does."""
    claims = draw(st.sampled_from([(None,), (None,), CLAIMS]))
    return [
        ReplicaRequirements(request=draw(requests), node_claim=draw(st.sampled_from(claims)))
        for _ in range(5)
    ]


def pools(drawn: list[Node], kubernetes_minor: int = 0) -> Pools:
    """Pools as a control plane reads them from an agent."""
    cpu_n = np.array([node.cores * 1000 for node in drawn])
    memory_n = np.array([node.cores * 4 * GIB for node in drawn])
    is_dedicated_n = np.array([node.is_dedicated for node in drawn])
    is_amd_n = np.array([not node.is_arm for node in drawn])
    quarters_n = np.array([node.quarters for node in drawn])
    columns = NodeColumns(
        free={
            "cpu": cpu_n * quarters_n // 4,
            "memory": memory_n * quarters_n // 4,
            "pods": np.full(len(drawn), 110),
        },
        taints=NodeColumn(values=[(), (DEDICATED,)], code_n=is_dedicated_n.astype(np.int32)),
        labels={ARCH: NodeColumn(values=["arm64", "amd64"], code_n=is_amd_n.astype(np.int32))},
        allocatable={"cpu": cpu_n, "memory": memory_n},
    )
    built = pools_of(reported_pools(build_pools(columns, label_keys=[ARCH])))
    return replace(built, kubernetes_minor=kubernetes_minor)


@dataclass
class Fleet:
    """A fleet that changes, and those that it was before."""

    rooms: FleetRooms
    kinds: list[ReplicaRequirements]
    older: list[FleetRooms] = field(default_factory=list)
    changes: int = 0

    def change(self, change: Change) -> None:
        """Do what a control plane does; what is refused changes nothing."""
        self.older.append(self.rooms)
        self.changes += 1
        changed: FleetRooms | Refused
        match change.kind:
            case "promise":
                changed = self._promised(change)
            case "shrink" | "end":
                changed = self._lessened(change)
            case "report" | "nodes":
                changed = self._reported(change)
            case _:
                changed = self.older[-1 - change.first % min(len(self.older), 5)]
        if isinstance(changed, FleetRooms):
            self.rooms = changed

    def room(self, cluster: int) -> Room:
        room = self.rooms.rooms[cluster]
        assert room is not None
        return room

    def _promised(self, change: Change) -> FleetRooms | Refused:
        replicas = (1, 1, 2, 5, 20)[change.second % 5]
        requested = Outstanding(
            f"shop/w{self.changes}",
            self.kinds[change.first % len(self.kinds)],
            replicas,
            certificate=CERTIFICATES[change.second % len(CERTIFICATES)],
        )
        # All that fits is promised at times, so that large pods are crowded out.
        terms = PromiseTerms(keeps_margin=change.first % 3 > 0, refined_replicas=replicas)
        return promise(
            self.rooms, NAMES, requested.binding, {change.cluster: (requested,)}, (), terms
        )

    def _lessened(self, change: Change) -> FleetRooms | Refused:
        outstanding = self.room(change.cluster).outstanding
        if not outstanding:
            return self.rooms
        had = outstanding[change.first % len(outstanding)]
        remaining = had.in_cells // 2 if change.kind == "shrink" else 0
        requested = (had._replace(in_cells=remaining),) if remaining else ()
        return promise_less(self.rooms, NAMES, {had.binding: {change.cluster: requested}}, {})

    def _reported(self, change: Change) -> FleetRooms:
        """A newer report: of the same nodes, of another release, or of nodes with less free, which
        are twice as large at times, or half as large.
        """
        room = self.room(change.cluster)
        reported = room.pools
        if change.kind == "nodes":
            cells = reported.cells
            less_rk = cells.min_rk * (50 + change.first % 51) // 100
            assert cells.allocatable_rk is not None
            size_rk = cells.allocatable_rk * (2, 4, 1)[change.second % 3] // 2
            reported = replace(
                reported,
                kubernetes_minor=(0, 20, 30, 36)[change.second % 4],
                cells=replace(cells, min_rk=less_rk, allocatable_rk=size_rk),
            )
        report = UnpackedRoom(
            ReportId(1, 1 + self.changes), reported, False, PackingOrder.of_report(room.outstanding)
        )
        return self.rooms.with_rooms({change.cluster: report})


def without_memory(room: Room) -> Room:
    """The same room on nodes that nobody has looked at."""
    cluster = replace(room.cluster, pools=replace(room.pools), caches=NodeCaches())
    return replace(room, cluster=cluster)


def packing(room: Room) -> tuple[object, ...]:
    """All that a room says of what is outstanding there."""
    holdings = [(held.outstanding, held.unplaced, held.steps) for held in room.holdings]
    return holdings, room.stuck(), room.free_cells.table_xk.tolist()


@settings(max_examples=200)
@given(
    drawn=st.tuples(clusters, clusters),
    kinds=workloads(),
    happenings=st.lists(changes, min_size=4, max_size=14),
    limit=st.sampled_from([1, 4, 17, 100, 5000]),
)
def test_what_a_room_remembers_changes_no_answer(
    drawn: tuple[list[Node], list[Node]],
    kinds: list[ReplicaRequirements],
    happenings: list[Change],
    limit: int,
) -> None:
    rooms = FleetRooms.of(
        [
            UnpackedRoom(ReportId(1, 1), pools(cluster), False, PackingOrder((), 0))
            for cluster in drawn
        ]
    )
    fleet = Fleet(rooms, kinds)
    for number, change in enumerate(happenings):
        fleet.change(change)
        requested = kinds[number % len(kinds)]
        room = fleet.room(change.cluster)
        anew = without_memory(room)
        assert max_beside_large(room, requested, limit) == max_beside_large(anew, requested, limit)
        assert max_surely_rehearsed(room, requested, limit) == max_surely_rehearsed(
            anew, requested, limit
        )
        if number % 4 == 3:
            order = room.order_anew(Outstanding("shop/more", requested, limit))
            assert packing(room.repacked(order)) == packing(anew.repacked(order))


@given(
    drawn=st.tuples(clusters, clusters),
    kinds=workloads(),
    happenings=st.lists(
        changes | changes.map(lambda change: change._replace(kind="nodes")), min_size=1, max_size=8
    ),
)
def test_columns_tell_where_large_pods_mix_with_others_as_a_look_at_each_cluster_does(
    drawn: tuple[list[Node], list[Node]],
    kinds: list[ReplicaRequirements],
    happenings: list[Change],
) -> None:
    rooms = FleetRooms.of(
        [
            UnpackedRoom(ReportId(1, 1), pools(cluster), False, PackingOrder((), 0))
            for cluster in drawn
        ]
    )
    fleet = Fleet(rooms, kinds)
    for change in happenings:
        fleet.change(change)
        moved = [fleet.rooms.after(moves) for moves in (Moves(removed=[0]), Moves(added=[1]))]
        for rooms in (fleet.rooms, *moved):
            for requested in kinds:
                by_look = [is_mixed(rooms, position, requested) for position in range(len(rooms))]
                assert mixed_c(rooms, requested).tolist() == by_look
