"""The rooms of a fleet's clusters: dense arrays of all that is left, cheap to change a few of.

Pure and immutable. Must not decide who gets room.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple, overload

import numpy as np

from federation.capacity.assignments import Assignment, Held, runs_alike, tallied
from federation.capacity.cells import (
    VIEWS,
    Residues,
    View,
    bare_residues,
    gathered,
    with_kinds,
)
from federation.capacity.cluster_room import ReportId, Room, Site
from federation.capacity.fleet_cells import FleetCells
from federation.capacity.known_fleet import LazyCells, LazyContention
from federation.capacity.largest_nodes import LargestNodes
from federation.capacity.layers import KnownRoom, Layers
from federation.capacity.pool_kinds import PoolKinds
from federation.capacity.promise_sums import PromiseSums
from federation.capacity.room_packing import PackedCells, pack_groups
from federation.capacity.strict_bounds import KnownHolds, strict_most_c
from federation.model.arrays import BoolArray, IntArray
from federation.model.estimate import MAX_REPLICAS
from federation.model.pools.matching import Match, keys_not_carried, untold_by_pools
from federation.model.pools.values import Pools
from federation.model.positions import GONE, Moves
from federation.model.reasons import Reason
from federation.model.reservations import Outstanding
from federation.model.shapes import Shape
from federation.model.workload import NodeClaim, ReplicaRequirements

_NOTHING: Final[Mapping[int, Sequence[Outstanding]]] = MappingProxyType({})


class UnpackedRoom(NamedTuple):
    """What a room is made of; what is outstanding is packed in its order, or in another where
    that leaves less without room.
    """

    report: ReportId
    pools: Pools
    follows_claims: bool
    outstanding: tuple[Outstanding, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FleetRooms:
    """The rooms of a fleet's clusters by position (axis c), None where a cluster has no pools.

    ``sums`` are of what is outstanding. ``cells_c`` is how many cells each cluster reported, and
    ``largest`` are its largest nodes.
    """

    sites: tuple[Site | None, ...]
    held: Sequence[Held | None]
    layers: Layers
    kinds: PoolKinds
    planned_c: BoolArray
    cells_c: IntArray
    sums: PromiseSums
    largest: LargestNodes
    known_filled: LazyCells
    known_reported: LazyCells
    known_contention: LazyContention
    known_holds: KnownHolds

    @classmethod
    def of(cls, rooms: Iterable[Room | UnpackedRoom | None]) -> FleetRooms:
        rooms = tuple(rooms)
        return cls.none(len(rooms)).with_rooms(dict(enumerate(rooms)))

    @classmethod
    def none(cls, size: int) -> FleetRooms:
        """The rooms of so many clusters that have no pools."""
        return cls(
            sites=(None,) * size,
            held=(None,) * size,
            layers=Layers.none(size),
            kinds=PoolKinds(),
            planned_c=np.zeros(size, dtype=np.bool_),
            cells_c=np.zeros(size, dtype=np.int64),
            sums=PromiseSums.none(size),
            largest=LargestNodes.none(size),
            known_filled=LazyCells(),
            known_reported=LazyCells(),
            known_contention=LazyContention(),
            known_holds=KnownHolds(),
        )

    def after(self, moves: Moves) -> FleetRooms:
        """Of the fleet after clusters left and came; newcomers have no pools yet."""
        nobody = (None,) * len(moves.taken)
        gone = [site.kind_p for position in moves.left if (site := self.sites[position])]
        return FleetRooms(
            sites=moves.items(self.sites, nobody),
            held=moves.items(self.held, nobody),
            layers=self.layers.after(moves),
            kinds=self.kinds.with_pools((), gone),
            planned_c=moves.array(self.planned_c, newcomers=False),
            cells_c=moves.array(self.cells_c, 0),
            sums=self.sums.after(moves),
            largest=self.largest.after(moves),
            known_filled=self.known_filled.moved(moves),
            known_reported=self.known_reported.moved(moves),
            known_contention=LazyContention(),
            known_holds=self.known_holds,
        )

    def with_rooms(self, changes: Mapping[int, Room | UnpackedRoom | None]) -> FleetRooms:
        """The same fleet with newer rooms at some positions; this one stays as it is.

        All that are not packed yet are packed in the same steps.
        """
        there = {position: room for position, room in changes.items() if room is not None}
        gone = [site.kind_p for position in changes if (site := self.sites[position])]
        kinds = self.kinds.with_pools((room.pools for room in there.values()), gone)
        held = {c: room.held for c, room in there.items() if isinstance(room, Room)}
        left = [
            (_left_among(kinds, room), [0]) for room in there.values() if isinstance(room, Room)
        ]
        layers = self.layers.without(list(changes))
        if left:
            layers = layers.with_newest(list(held), gathered(left))
        unpacked = {c: room for c, room in there.items() if isinstance(room, UnpackedRoom)}
        if unpacked:
            newly_held, cells = _packed(list(unpacked.values()), kinds)
            held |= zip(unpacked, newly_held, strict=True)
            layers = layers.with_newest(list(unpacked), cells.residues)
            if cells.moved:
                outgrown = np.array(list(unpacked), dtype=np.intp)[list(cells.moved)].tolist()
                layers = layers.with_newest(outgrown, cells.gathered(list(cells.moved)))
        sites = {
            c: Site.of(
                room.report, room.pools, kinds, follows_claims=room.follows_claims
            ).remembering(self.sites[c])
            for c, room in there.items()
        }
        taken = {c: (site, held[c]) for c, site in sites.items()}
        return self._with(dict.fromkeys(changes) | taken, layers, kinds)

    def _with(
        self, taken: Mapping[int, tuple[Site, Held] | None], layers: Layers, kinds: PoolKinds
    ) -> FleetRooms:
        sites, held = list(self.sites), list(self.held)
        planned_c, cells_c = self.planned_c.copy(), self.cells_c.copy()
        reported = []
        for position, found in taken.items():
            before = sites[position]
            sites[position], held[position] = found or (None, None)
            if before is None or found is None or before.pools is not found[0].pools:
                reported.append(position)
            planned_c[position] = found is not None and found[0].follows_claims
            cells_c[position] = len(found[0].pools.cells) if found is not None else 0
        return FleetRooms(
            sites=tuple(sites),
            held=held,
            layers=layers,
            kinds=kinds,
            planned_c=planned_c,
            cells_c=cells_c,
            sums=self.sums.with_clusters({position: held[position] for position in taken}),
            largest=self.largest.with_sites({c: sites[c] for c in taken}),
            known_filled=self.known_filled.after(taken),
            known_reported=self.known_reported.after(reported),
            known_contention=self.known_contention.after(taken),
            known_holds=self.known_holds,
        )

    def with_promise(
        self,
        positions: Sequence[int],
        residues: Residues,
        promised: Mapping[int, tuple[Assignment, ...]],
        known: KnownRoom | None,
        strict: Sequence[int],
    ) -> FleetRooms:
        """The same fleet with more held in some clusters, all of it with room, and some of it, at
        ``strict``, promised strictly.

        What is left now is told of the clusters at ``positions``, which may be more; ``known`` is
        how much room that is for one request.
        """
        held, strict_positions = list(self.held), frozenset(strict)
        # Those of a decision share their requirements.
        shapes: dict[int, Shape] = {}
        for position, more in promised.items():
            before = held[position]
            replicas, only = (before.replicas, before.only) if before else (0, None)
            is_strict = position in strict_positions or (before is not None and before.is_strict)
            for one in more:
                outstanding = one.outstanding
                key = id(outstanding.requirements)
                if key not in shapes:
                    shapes[key] = outstanding.shape
                replicas, only = tallied(replicas, only, outstanding.to_pack, shapes[key])
            # By name they would take twice as long, in every cluster of every decision.
            arrived = before.arrived if before else ()
            if arrived:
                arrived = (*arrived, *[one.outstanding for one in more])
            is_stuck = before is not None and before.is_overcommitted
            held[position] = Held(before, more, is_stuck, is_strict, replicas, only, arrived)
        return FleetRooms(
            sites=self.sites,
            held=held,
            layers=self.layers.with_newest(positions, residues, known),
            kinds=self.kinds,
            planned_c=self.planned_c,
            cells_c=self.cells_c,
            sums=self.sums.with_clusters({position: held[position] for position in promised}),
            largest=self.largest.with_promises(promised),
            known_filled=self.known_filled.after(promised),
            known_reported=self.known_reported,
            known_contention=self.known_contention.with_more(promised),
            known_holds=self.known_holds,
        )

    def report(self, position: int) -> ReportId | None:
        """The report that a cluster's cells are from."""
        site = self.sites[position]
        return site.report if site else None

    def resources(self, position: int) -> tuple[str, ...]:
        """The resources of a cluster's cells."""
        site = self.sites[position]
        return site.pools.cells.resources if site else ()

    @property
    def overcommitted_c(self) -> BoolArray:
        """Where promises lost their room."""
        return self.sums.overcommitted_c

    @property
    def strict_c(self) -> BoolArray:
        """Where strict promises are outstanding, which later ones must leave their room."""
        return self.sums.strict_c

    def most_by_view(self, requirements: ReplicaRequirements) -> tuple[IntArray, IntArray]:
        """How many replicas the cells hold in every cluster, in both views, 0..MAX_REPLICAS.

        0 where nothing is reported, or the pools cannot tell.
        """
        verdict_p = self.kinds.verdicts(requirements.node_claim)
        # The last one more is where those stand that left the fleet.
        most_cv = np.zeros((len(self) + 1, VIEWS), dtype=np.int64)
        for layer in self.layers:
            most_cv[layer.position_c] = layer.room(requirements.request, verdict_p)
        most_cv = most_cv[:GONE]
        most_cv[self.layers.unknown_c] = 0
        np.minimum(most_cv, MAX_REPLICAS, out=most_cv)
        return most_cv[:, View.FILLED].copy(), most_cv[:, View.SPREAD].copy()

    def strict_most_c(
        self,
        requirements: ReplicaRequirements,
        is_strict_c: BoolArray,
        limit_c: IntArray,
        more: Mapping[int, Sequence[Outstanding]] = _NOTHING,
    ) -> IntArray:
        """The most replicas, up to ``limit_c``, beside which every strict promise is sure of its
        room, theirs included where they are strict; with ``more`` outstanding.
        """
        others = self.known_contention.contention(self.held)
        return strict_most_c(
            self.reported,
            self.known_holds,
            others.with_more(more) if more else others,
            requirements,
            is_strict_c,
            limit_c,
        )

    def told(self, requirements: ReplicaRequirements) -> tuple[BoolArray, dict[int, Reason]]:
        """Which clusters' pools can tell where replicas may run, and why others cannot."""
        told_c = ~self.layers.unknown_c
        verdict_p = self.kinds.verdicts(requirements.node_claim)
        if verdict_p is None or Match.UNKNOWN not in verdict_p:
            return told_c, {}
        reasons = {}
        for position in np.flatnonzero(told_c).tolist():
            site = self.sites[position]
            if site is not None and not site.is_told(verdict_p):
                told_c[position] = False
                missing = keys_not_carried(site.pools.label_keys, requirements.node_claim)
                reasons[position] = untold_by_pools(tuple(missing))
        return told_c, reasons

    def telling(self, positions: list[int], claim: NodeClaim | None) -> list[int]:
        """Those of some clusters whose pools can tell where such replicas may run."""
        verdict_p = self.kinds.verdicts(claim)
        if verdict_p is None or Match.UNKNOWN not in verdict_p:
            return positions
        return [c for c in positions if (site := self.sites[c]) and site.is_told(verdict_p)]

    @property
    def rooms(self) -> Sequence[Room | None]:
        """The rooms one by one, made when asked for."""
        return _Rooms(self)

    @property
    def filled(self) -> FleetCells:
        """The cells that best fit leaves; made of those of the fleet that this one comes from."""
        rooms = self.rooms

        def left(position: int) -> Pools | None:
            room = rooms[position]
            return room.filled if room else None

        return self.known_filled.cells(len(self), left)

    @property
    def reported(self) -> FleetCells:
        """The cells as reports have them, whatever is promised in them."""

        def as_reported(position: int) -> Pools | None:
            site = self.sites[position]
            return site.pools if site else None

        return self.known_reported.cells(len(self), as_reported)

    def __len__(self) -> int:
        return len(self.sites)


class _Rooms(Sequence[Room | None]):
    """The rooms of a fleet by position."""

    def __init__(self, fleet: FleetRooms) -> None:
        self._fleet = fleet

    @overload
    def __getitem__(self, position: int) -> Room | None: ...
    @overload
    def __getitem__(self, position: slice) -> tuple[Room | None, ...]: ...
    def __getitem__(self, position: int | slice) -> Room | tuple[Room | None, ...] | None:
        if isinstance(position, slice):
            return tuple(self[each] for each in range(*position.indices(len(self))))
        fleet = self._fleet
        site, held = fleet.sites[position], fleet.held[position]
        if site is None or held is None:
            return None
        return Room(site=site, kinds=fleet.kinds, left=fleet.layers.only(position), held=held)

    def __len__(self) -> int:
        return len(self._fleet)

    def __iter__(self) -> Iterator[Room | None]:
        return (self[position] for position in range(len(self)))


def _left_among(kinds: PoolKinds, room: Room) -> Residues:
    """What is left in a room, whose pools are among the kinds."""
    if room.kinds.numbers_like(kinds):
        return room.left
    return with_kinds(room.left, [kinds.of(room.pools)])


def packed_room(unpacked: UnpackedRoom) -> Room:
    """One room by itself, which is a fleet of one."""
    (room,) = FleetRooms.of([unpacked]).rooms
    if room is None:
        raise LookupError("a fleet of one room has none")
    return room


def _packed(every: Sequence[UnpackedRoom], kinds: PoolKinds) -> tuple[Sequence[Held], PackedCells]:
    """What is held in each of the rooms, whose pools are all among the kinds, and what is left."""
    kinds_by_room = [kinds.of(each.pools) for each in every]
    cells = PackedCells(residues=bare_residues([each.pools.cells for each in every], kinds_by_room))
    groups = [runs_alike(each.outstanding) for each in every]
    resources = [each.pools.cells.resources for each in every]
    held = [
        Held().with_more(each) if each else Held()
        for each in pack_groups(cells, groups, kinds, resources)
    ]
    for place, each in enumerate(held):
        if each.is_overcommitted:
            report, pools, follows_claims, outstanding = every[place]
            room = Room.of(report, pools, outstanding, follows_claims=follows_claims)
            held[place] = room.held
            cells.moved[place] = with_kinds(room.left, [kinds.of(pools)]), 0
    return held, cells
