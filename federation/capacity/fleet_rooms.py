"""The rooms of a fleet's clusters: dense arrays of all that is left, cheap to change a few of.

Pure and immutable. Must not decide who gets room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, overload

import numpy as np

from federation.capacity.assignments import Held, JointPromise, JointRun, Unions
from federation.capacity.cells import VIEWS, Residues, View, gathered, with_kinds
from federation.capacity.cluster_room import ReportId, Room
from federation.capacity.fleet_cells import FleetCells
from federation.capacity.layers import KnownRoom, Layers
from federation.capacity.many_rooms import UnpackedRoom, packed_rooms
from federation.capacity.pool_kinds import PoolKinds
from federation.model.arrays import BoolArray, IntArray, LevelArray
from federation.model.estimate import MAX_REPLICAS
from federation.model.pools.matching import Match, keys_not_carried
from federation.model.pools.values import Pools
from federation.model.positions import GONE, Moves
from federation.model.workload import NodeClaim, ReplicaRequirements

# So many are looked through whenever a binding is decided.
_NEWEST: Final = 32
NOT_TOLD_APART: Final = "the cluster's pools do not tell nodes apart by {keys}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Site:
    """What a room has that promises do not change. ``kind_p`` is the kind of each pool."""

    report: ReportId
    pools: Pools
    follows_claims: bool
    kind_p: IntArray


@dataclass(slots=True, eq=False)
class _KnownCells:
    """Cells of all clusters, made when somebody asks, out of an earlier fleet's.

    ``known`` has those of an earlier fleet, and what changed or moved since: one value, as several
    threads may read a fleet.
    """

    known: tuple[FleetCells, tuple[Moves | frozenset[int], ...]] | None = None

    def after(self, changed: Iterable[int]) -> _KnownCells:
        if self.known is None:
            return _KnownCells()
        cells, later = self.known
        newest = later[-1] if later else None
        if isinstance(newest, frozenset):
            return _KnownCells((cells, (*later[:-1], newest.union(changed))))
        return _KnownCells((cells, (*later, frozenset(changed))))

    def moved(self, moves: Moves) -> _KnownCells:
        if self.known is None or len(self.known[1]) >= _NEWEST:
            return _KnownCells()
        cells, later = self.known
        return _KnownCells((cells, (*later, moves)))

    def cells(self, size: int, pools_at: Callable[[int], Pools | None]) -> FleetCells:
        """The cells of so many clusters, whose pools are asked for where they are not known."""
        if self.known is None:
            cells = FleetCells.of(pools_at(position) for position in range(size))
        else:
            cells, later = self.known
            stale = set[int]()
            for change in later:
                if isinstance(change, Moves):
                    moved_c = change.positions(len(cells))
                    stale = {int(moved_c[c]) for c in stale} - {GONE}
                    cells = cells.after(change)
                else:
                    stale |= change
            if stale:
                cells = cells.with_clusters({c: pools_at(c) for c in sorted(stale)})
        self.known = cells, ()
        return cells


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FleetRooms:
    """The rooms of a fleet's clusters by position (axis c), None where a cluster has no pools.

    ``special_c`` are clusters where more is to be looked at than cells: over-committed ones, and
    ones that hold strict promises. ``settled`` is what each holds but for the newest promises,
    ``joint``, which are written down there by and by: none is older than its clusters' sites.
    """

    sites: tuple[Site | None, ...]
    settled: tuple[Held | None, ...]
    joint: tuple[JointPromise, ...]
    layers: Layers
    kinds: PoolKinds
    planned_c: BoolArray
    special_c: BoolArray
    known_filled: _KnownCells
    known_reported: _KnownCells

    @classmethod
    def of(cls, rooms: Iterable[Room | UnpackedRoom | None]) -> FleetRooms:
        rooms = tuple(rooms)
        return cls.none(len(rooms)).with_rooms(dict(enumerate(rooms)))

    @classmethod
    def none(cls, size: int) -> FleetRooms:
        """The rooms of so many clusters that have no pools."""
        return cls(
            sites=(None,) * size,
            settled=(None,) * size,
            joint=(),
            layers=Layers.none(size),
            kinds=PoolKinds(),
            planned_c=np.zeros(size, dtype=np.bool_),
            special_c=np.zeros(size, dtype=np.bool_),
            known_filled=_KnownCells(),
            known_reported=_KnownCells(),
        )

    def after(self, moves: Moves) -> FleetRooms:
        """Of the fleet after clusters left and came; newcomers have no pools yet."""
        nobody = (None,) * len(moves.taken)
        gone = [site.kind_p for position in moves.left if (site := self.sites[position])]
        return FleetRooms(
            sites=moves.items(self.sites, nobody),
            settled=moves.items(self._all_settled(), nobody),
            joint=(),
            layers=self.layers.after(moves),
            kinds=self.kinds.with_pools((), gone),
            planned_c=moves.array(self.planned_c, newcomers=False),
            special_c=moves.array(self.special_c, newcomers=False),
            known_filled=self.known_filled.moved(moves),
            known_reported=self.known_reported.moved(moves),
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
            (with_kinds(room.left, [kinds.of(room.pools)]), [0])
            for room in there.values()
            if isinstance(room, Room)
        ]
        layers = self.layers.without(list(changes))
        if left:
            layers = layers.with_newest(list(held), gathered(left))
        unpacked = {c: room for c, room in there.items() if isinstance(room, UnpackedRoom)}
        if unpacked:
            packed = packed_rooms(list(unpacked.values()), kinds)
            held |= zip(unpacked, packed.held, strict=True)
            layers = layers.with_newest(list(unpacked), packed.residues)
            if packed.moved:
                moved = np.array(list(unpacked), dtype=np.intp)[packed.moved].tolist()
                layers = layers.with_newest(moved, packed.moved_residues)
        taken = {c: (_site(room, kinds), held[c]) for c, room in there.items()}
        return self._with(dict.fromkeys(changes) | taken, layers, kinds)

    def _with(
        self, taken: Mapping[int, tuple[Site, Held] | None], layers: Layers, kinds: PoolKinds
    ) -> FleetRooms:
        sites, held = list(self.sites), list(self._all_settled())
        planned_c, special_c = self.planned_c.copy(), self.special_c.copy()
        reported = []
        for position, found in taken.items():
            before = sites[position]
            sites[position], held[position] = found or (None, None)
            if before is None or found is None or before.pools is not found[0].pools:
                reported.append(position)
            planned_c[position] = found is not None and found[0].follows_claims
            special_c[position] = found is not None and found[1].is_special
        return FleetRooms(
            sites=tuple(sites),
            settled=tuple(held),
            joint=(),
            layers=layers,
            kinds=kinds,
            planned_c=planned_c,
            special_c=special_c,
            known_filled=self.known_filled.after(taken),
            known_reported=self.known_reported.after(reported),
        )

    def with_promise(
        self,
        positions: Sequence[int],
        residues: Residues,
        promise: JointPromise,
        known: KnownRoom | None,
    ) -> FleetRooms:
        """The same fleet with more held in some clusters, none of it strict or without room.

        What is left now is told of the clusters at ``positions``, which may be more; ``known`` is
        how much room that is for one request.
        """
        settled, joint = self.settled, self.joint
        if len(joint) == _NEWEST:
            settled, joint = self._all_settled(), ()
        return FleetRooms(
            sites=self.sites,
            settled=settled,
            joint=(*joint, promise),
            layers=self.layers.with_newest(positions, residues, known),
            kinds=self.kinds,
            planned_c=self.planned_c,
            special_c=self.special_c,
            known_filled=self.known_filled.after(promise.asks),
            known_reported=self.known_reported,
        )

    def held(self, position: int) -> Held | None:
        """Everything outstanding in a cluster, None where it has no pools."""
        return self._held(position, {})

    def plain(self, positions: Iterable[int], binding: str) -> list[int]:
        """Those of some clusters where nothing but the cells decides what such a binding is
        promised: it holds nothing there, and what others hold is not special.
        """
        joint = {c for each in self.joint if each.binding == binding for c in each.asks}
        return [
            position
            for position in positions
            if (held := self.settled[position]) is not None
            and not held.is_special
            and binding not in held.bindings
            and position not in joint
        ]

    def _held(self, position: int, unions: Unions) -> Held | None:
        settled = self.settled[position]
        if settled is None or not self.joint:
            return settled
        return settled.with_run(JointRun(self.joint, position, self.resources(position)), unions)

    def _all_settled(self) -> tuple[Held | None, ...]:
        """What each cluster holds, the newest promises included."""
        if not self.joint:
            return self.settled
        settled, unions = list(self.settled), Unions()
        for position in {c for each in self.joint for c in each.asks}:
            settled[position] = self._held(position, unions)
        return tuple(settled)

    def report(self, position: int) -> ReportId | None:
        """The report that a cluster's cells are from."""
        site = self.sites[position]
        return site.report if site else None

    def resources(self, position: int) -> tuple[str, ...]:
        """The resources of a cluster's cells."""
        site = self.sites[position]
        return site.pools.cells.resources if site else ()

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

    def told(self, requirements: ReplicaRequirements) -> tuple[BoolArray, dict[int, str]]:
        """Which clusters' pools can tell where replicas may run, and why others cannot."""
        told_c = ~self.layers.unknown_c
        verdict_p = self.kinds.verdicts(requirements.node_claim)
        if verdict_p is None or Match.UNKNOWN not in verdict_p:
            return told_c, {}
        reasons = {}
        for position in np.flatnonzero(told_c).tolist():
            site = self.sites[position]
            if site is not None and not self._tells(position, verdict_p):
                told_c[position] = False
                missing = keys_not_carried(site.pools.label_keys, requirements.node_claim)
                reasons[position] = NOT_TOLD_APART.format(keys=", ".join(missing))
        return told_c, reasons

    def telling(self, positions: list[int], claim: NodeClaim | None) -> list[int]:
        """Those of some clusters whose pools can tell where such replicas may run."""
        verdict_p = self.kinds.verdicts(claim)
        if verdict_p is None or Match.UNKNOWN not in verdict_p:
            return positions
        return [position for position in positions if self._tells(position, verdict_p)]

    def _tells(self, position: int, verdict_p: LevelArray) -> bool:
        site = self.sites[position]
        return site is not None and Match.UNKNOWN not in verdict_p[site.kind_p]

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
        site, held = fleet.sites[position], fleet.held(position)
        if site is None or held is None:
            return None
        return Room(
            report=site.report,
            pools=site.pools,
            follows_claims=site.follows_claims,
            left=fleet.layers.only(position),
            held=held,
        )

    def __len__(self) -> int:
        return len(self._fleet)

    def __iter__(self) -> Iterator[Room | None]:
        return (self[position] for position in range(len(self)))


def _site(room: Room | UnpackedRoom, kinds: PoolKinds) -> Site:
    return Site(
        report=room.report,
        pools=room.pools,
        follows_claims=room.follows_claims,
        kind_p=kinds.of(room.pools)[: len(room.pools.pools)],
    )
