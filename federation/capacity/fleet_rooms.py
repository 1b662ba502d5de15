"""Free capacity of a fleet's clusters: dense arrays of free cells, of which a few change cheaply.

Pure and immutable. Must not decide which promise gets room.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple, overload

import numpy as np

from federation.capacity.assignments import Assignment, Held, ShapeIndex, in_groups
from federation.capacity.cells import (
    VIEWS,
    FreeCells,
    View,
    gathered,
    unpacked_cells,
    with_kinds,
)
from federation.capacity.cluster_room import ClusterPools, ReportId, Room
from federation.capacity.fleet_cells import FleetCells, LazyCells
from federation.capacity.largest_nodes import LargestNodes
from federation.capacity.layers import KnownRoom, Layers
from federation.capacity.pool_kinds import PoolKinds
from federation.capacity.promise_sums import LazyOutstanding, PromiseSums
from federation.capacity.room_packing import PackedCells, pack_groups
from federation.capacity.strict_bounds import StrictHolds, max_strict_c
from federation.model.arrays import BoolArray, IntArray
from federation.model.estimate import MAX_REPLICAS
from federation.model.pools.matching import Match, keys_not_carried, untold_by_pools
from federation.model.pools.values import Pools
from federation.model.positions import GONE, Moves
from federation.model.reasons import Reason
from federation.model.reservations import Outstanding, PackingOrder
from federation.model.shapes import Shape
from federation.model.workload import NodeClaim, ReplicaRequirements

_NOTHING: Final[Mapping[int, Sequence[Outstanding]]] = MappingProxyType({})


class UnpackedRoom(NamedTuple):
    """A cluster as reported, and its promises, which are not packed yet.

    They are packed in their order, or in another one that leaves fewer without room.
    """

    report: ReportId
    pools: Pools
    follows_claims: bool
    order: PackingOrder


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FleetRooms:
    """The capacity of each cluster by position (axis c), None for a cluster without pools.

    ``clusters`` are the clusters as reported, ``held`` their promises, ``layers`` their free cells,
    and ``sums`` the sums of promises. ``planned_c``: plans are followed. ``cells_c`` is the number
    of reported cells, ``largest`` has the largest nodes. ``filled_cells``, ``reported_cells``,
    ``lazy_outstanding`` and ``strict_holds`` are computed on the first read.
    """

    clusters: tuple[ClusterPools | None, ...]
    held: Sequence[Held | None]
    layers: Layers
    kinds: PoolKinds
    planned_c: BoolArray
    cells_c: IntArray
    sums: PromiseSums
    largest: LargestNodes
    filled_cells: LazyCells
    reported_cells: LazyCells
    lazy_outstanding: LazyOutstanding
    strict_holds: StrictHolds

    @classmethod
    def of(cls, rooms: Iterable[Room | UnpackedRoom | None]) -> FleetRooms:
        rooms = tuple(rooms)
        return cls.none(len(rooms)).with_rooms(dict(enumerate(rooms)))

    @classmethod
    def none(cls, size: int) -> FleetRooms:
        """Return the capacity of ``size`` clusters without pools."""
        return cls(
            clusters=(None,) * size,
            held=(None,) * size,
            layers=Layers.none(size),
            kinds=PoolKinds(),
            planned_c=np.zeros(size, dtype=np.bool_),
            cells_c=np.zeros(size, dtype=np.int64),
            sums=PromiseSums.none(size),
            largest=LargestNodes.none(size),
            filled_cells=LazyCells(),
            reported_cells=LazyCells(),
            lazy_outstanding=LazyOutstanding(),
            strict_holds=StrictHolds(),
        )

    def after(self, moves: Moves) -> FleetRooms:
        """Follow clusters that left and joined; new clusters have no pools yet."""
        newcomers = (None,) * len(moves.added)
        gone = [
            cluster.kind_p for position in moves.removed if (cluster := self.clusters[position])
        ]
        return FleetRooms(
            clusters=moves.items(self.clusters, newcomers),
            held=moves.items(self.held, newcomers),
            layers=self.layers.after(moves),
            kinds=self.kinds.with_pools((), gone),
            planned_c=moves.array(self.planned_c, newcomers=False),
            cells_c=moves.array(self.cells_c, 0),
            sums=self.sums.after(moves),
            largest=self.largest.after(moves),
            filled_cells=self.filled_cells.moved(moves),
            reported_cells=self.reported_cells.moved(moves),
            lazy_outstanding=LazyOutstanding(),
            strict_holds=self.strict_holds,
        )

    def with_rooms(self, changes: Mapping[int, Room | UnpackedRoom | None]) -> FleetRooms:
        """Replace the capacity of some clusters; those not packed yet are packed together."""
        present = {position: room for position, room in changes.items() if room is not None}
        gone = [cluster.kind_p for position in changes if (cluster := self.clusters[position])]
        kinds = self.kinds.with_pools((room.pools for room in present.values()), gone)
        held = {c: room.held for c, room in present.items() if isinstance(room, Room)}
        free = [
            (_left_among(kinds, room), [0]) for room in present.values() if isinstance(room, Room)
        ]
        layers = self.layers.without(list(changes))
        if free:
            layers = layers.with_newest(list(held), gathered(free))
        unpacked = {c: room for c, room in present.items() if isinstance(room, UnpackedRoom)}
        if unpacked:
            newly_held, cells = _packed(list(unpacked.values()), kinds)
            held |= zip(unpacked, newly_held, strict=True)
            layers = layers.with_newest(list(unpacked), cells.free_cells)
            if cells.moved:
                outgrown = np.array(list(unpacked), dtype=np.intp)[list(cells.moved)].tolist()
                layers = layers.with_newest(outgrown, cells.gathered(list(cells.moved)))
        clusters = {
            c: ClusterPools.of(
                room.report, room.pools, kinds, follows_claims=room.follows_claims
            ).remembering(self.clusters[c])
            for c, room in present.items()
        }
        changed = {c: (cluster, held[c]) for c, cluster in clusters.items()}
        return self._with(dict.fromkeys(changes) | changed, layers, kinds)

    def _with(
        self,
        changed: Mapping[int, tuple[ClusterPools, Held] | None],
        layers: Layers,
        kinds: PoolKinds,
    ) -> FleetRooms:
        clusters, held = list(self.clusters), list(self.held)
        planned_c, cells_c = self.planned_c.copy(), self.cells_c.copy()
        reported = []
        for position, newer in changed.items():
            older = clusters[position]
            clusters[position], held[position] = newer or (None, None)
            if older is None or newer is None or older.pools is not newer[0].pools:
                reported.append(position)
            planned_c[position] = newer is not None and newer[0].follows_claims
            cells_c[position] = len(newer[0].pools.cells) if newer is not None else 0
        return FleetRooms(
            clusters=tuple(clusters),
            held=held,
            layers=layers,
            kinds=kinds,
            planned_c=planned_c,
            cells_c=cells_c,
            sums=self.sums.with_clusters({position: held[position] for position in changed}),
            largest=self.largest.with_clusters({c: clusters[c] for c in changed}),
            filled_cells=self.filled_cells.after(changed),
            reported_cells=self.reported_cells.after(reported),
            lazy_outstanding=self.lazy_outstanding.after(changed),
            strict_holds=self.strict_holds,
        )

    def with_promise(
        self,
        positions: Sequence[int],
        free_cells: FreeCells,
        promised: Mapping[int, tuple[Assignment, ...]],
        room: KnownRoom | None,
    ) -> FleetRooms:
        """Add assignments that have room in some clusters.

        ``free_cells`` are the free cells at ``positions``, which may be more clusters. ``room`` is
        their room for one request.
        """
        held, shapes = list(self.held), dict[int, Shape]()
        for position, assignments in promised.items():
            held[position] = (held[position] or Held()).with_more(assignments, shapes)
        return FleetRooms(
            clusters=self.clusters,
            held=held,
            layers=self.layers.with_newest(positions, free_cells, room),
            kinds=self.kinds,
            planned_c=self.planned_c,
            cells_c=self.cells_c,
            sums=self.sums.with_clusters({position: held[position] for position in promised}),
            largest=self.largest.with_promises(promised),
            filled_cells=self.filled_cells.after(promised),
            reported_cells=self.reported_cells,
            lazy_outstanding=self.lazy_outstanding.with_more(promised),
            strict_holds=self.strict_holds,
        )

    def in_order(self, orders: Mapping[int, PackingOrder]) -> FleetRooms:
        """Pack clusters anew that hold other promises, or in another order, than ``orders`` say.

        A trial may have left a cluster as it was: a share that shrinks stays packed where others
        would lose their room. Other control planes do not see that.
        """
        anew = {
            c: UnpackedRoom(cluster.report, cluster.pools, cluster.follows_claims, order)
            for c, order in orders.items()
            if (cluster := self.clusters[c]) and (held := self.held[c]) and held.order != order
        }
        return self.with_rooms(anew) if anew else self

    def report(self, position: int) -> ReportId | None:
        """Return the report that a cluster's cells are from."""
        cluster = self.clusters[position]
        return cluster.report if cluster else None

    def resources(self, position: int) -> tuple[str, ...]:
        """Return the resources of a cluster's cells."""
        cluster = self.clusters[position]
        return cluster.pools.cells.resources if cluster else ()

    @property
    def overcommitted_c(self) -> BoolArray:
        """Clusters where promises lost their room."""
        return self.sums.overcommitted_c

    @property
    def strict_c(self) -> BoolArray:
        """Clusters with strict promises, whose room later promises must leave."""
        return self.sums.strict_c

    def max_by_view(self, requirements: ReplicaRequirements) -> tuple[IntArray, IntArray]:
        """Return how many replicas fit in each cluster, in both views, 0..MAX_REPLICAS.

        0 without a report, and where the pools do not carry the labels of the claim.
        """
        verdict_p = self.kinds.verdicts(requirements.node_claim)
        # The last entry collects the clusters of layers that left the fleet (GONE).
        max_cv = np.zeros((len(self) + 1, VIEWS), dtype=np.int64)
        for layer in self.layers:
            max_cv[layer.position_c] = layer.room(requirements.request, verdict_p)
        max_cv = max_cv[:GONE]
        max_cv[self.layers.unknown_c] = 0
        np.minimum(max_cv, MAX_REPLICAS, out=max_cv)
        return max_cv[:, View.FILLED].copy(), max_cv[:, View.SPREAD].copy()

    def max_strict_c(
        self,
        requirements: ReplicaRequirements,
        is_strict_c: BoolArray,
        limit_c: IntArray,
        added: Mapping[int, Sequence[Outstanding]] = _NOTHING,
    ) -> IntArray:
        """Return the most replicas, up to ``limit_c``, that leave all strict promises their room.

        They are strict themselves at ``is_strict_c``. ``added`` promises count as outstanding.
        """
        by_kind = self.lazy_outstanding.by_kind(self.held)
        return max_strict_c(
            self.reported,
            self.strict_holds,
            by_kind.with_more(added) if added else by_kind,
            requirements,
            is_strict_c,
            limit_c,
        )

    def label_carriers(
        self, requirements: ReplicaRequirements
    ) -> tuple[BoolArray, dict[int, Reason]]:
        """Return which clusters' pools carry the labels of a claim, and why others do not."""
        carries_c = ~self.layers.unknown_c
        verdict_p = self.kinds.verdicts(requirements.node_claim)
        if verdict_p is None or Match.UNKNOWN not in verdict_p:
            return carries_c, {}
        reasons = {}
        for position in np.flatnonzero(carries_c).tolist():
            cluster = self.clusters[position]
            if cluster is not None and not cluster.carries_labels(verdict_p):
                carries_c[position] = False
                missing = keys_not_carried(cluster.pools.label_keys, requirements.node_claim)
                reasons[position] = untold_by_pools(tuple(missing))
        return carries_c, reasons

    def carrying_labels(self, positions: list[int], claim: NodeClaim | None) -> list[int]:
        """Return those of the positions whose pools carry the labels of a claim."""
        verdict_p = self.kinds.verdicts(claim)
        if verdict_p is None or Match.UNKNOWN not in verdict_p:
            return positions
        return [
            c
            for c in positions
            if (cluster := self.clusters[c]) and cluster.carries_labels(verdict_p)
        ]

    @property
    def rooms(self) -> Sequence[Room | None]:
        """The capacity of each cluster, made when it is read."""
        return _Rooms(self)

    @property
    def filled(self) -> FleetCells:
        """The cells that best fit leaves free, derived from those of the previous fleet."""
        rooms = self.rooms

        def pools_at(position: int) -> Pools | None:
            room = rooms[position]
            return room.filled if room else None

        return self.filled_cells.cells(len(self), pools_at)

    @property
    def reported(self) -> FleetCells:
        """The cells as reported, without promises."""

        def pools_at(position: int) -> Pools | None:
            cluster = self.clusters[position]
            return cluster.pools if cluster else None

        return self.reported_cells.cells(len(self), pools_at)

    def __len__(self) -> int:
        return len(self.clusters)


class _Rooms(Sequence[Room | None]):
    """The capacities of a fleet's clusters by position, made when they are read."""

    def __init__(self, fleet: FleetRooms) -> None:
        self._fleet = fleet

    @overload
    def __getitem__(self, position: int) -> Room | None: ...
    @overload
    def __getitem__(self, position: slice) -> tuple[Room | None, ...]: ...
    def __getitem__(self, position: int | slice) -> Room | tuple[Room | None, ...] | None:
        if isinstance(position, slice):
            return tuple(self[place] for place in range(*position.indices(len(self))))
        fleet = self._fleet
        cluster, held = fleet.clusters[position], fleet.held[position]
        if cluster is None or held is None:
            return None
        return Room(
            cluster=cluster, kinds=fleet.kinds, free_cells=fleet.layers.only(position), held=held
        )

    def __len__(self) -> int:
        return len(self._fleet)

    def __iter__(self) -> Iterator[Room | None]:
        return (self[position] for position in range(len(self)))


def _left_among(kinds: PoolKinds, room: Room) -> FreeCells:
    """Return the free cells of one cluster, numbered by the kinds of the fleet."""
    if room.kinds.numbers_like(kinds):
        return room.free_cells
    return with_kinds(room.free_cells, [kinds.of(room.pools)])


def packed_room(unpacked: UnpackedRoom) -> Room:
    """Pack one cluster by itself, as a fleet of one."""
    (room,) = FleetRooms.of([unpacked]).rooms
    if room is None:
        raise LookupError("a fleet of one room has none")
    return room


def _packed(
    unpacked: Sequence[UnpackedRoom], kinds: PoolKinds
) -> tuple[Sequence[Held], PackedCells]:
    """Pack clusters together; all their pools must be among the kinds."""
    kinds_by_room = [kinds.of(room.pools) for room in unpacked]
    reported = [room.pools.cells for room in unpacked]
    cells = PackedCells(free_cells=unpacked_cells(reported, kinds_by_room))
    index = ShapeIndex()
    groups = [in_groups(room.order, index) for room in unpacked]
    resources = [reported_cells.resources for reported_cells in reported]
    held = []
    for room, assignments in zip(
        unpacked, pack_groups(cells, groups, kinds, resources, index), strict=True
    ):
        promises = Held(grouped=room.order.grouped)
        promises = promises.with_more(assignments) if assignments else promises
        if promises.outstanding != room.order.promises:
            promises = promises._replace(arrived=room.order.promises)
        held.append(promises)
    for place, promises in enumerate(held):
        if promises.is_overcommitted:
            report, pools, follows_claims, order = unpacked[place]
            anew = Room.of(report, pools, order, follows_claims=follows_claims)
            held[place] = anew.held
            cells.moved[place] = with_kinds(anew.free_cells, [kinds.of(pools)]), 0
    return held, cells
