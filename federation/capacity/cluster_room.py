"""The room in one cluster: one report's cells, with all that is outstanding packed into them.

Pure and immutable. Must not decide who gets room: ``federation.capacity.reserve`` asks.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, TypeAlias, TypeVar

from federation.capacity.as_scheduled import RehearsedPromises
from federation.capacity.assignments import (
    Alike,
    Assignment,
    Held,
    by_size,
    outstanding_alike,
    runs_alike,
)
from federation.capacity.cells import Residues, View, bare_residues, cells_left
from federation.capacity.growth import with_parts_as_one
from federation.capacity.packing import room_by_segment
from federation.capacity.pool_kinds import PoolKinds
from federation.capacity.remembered import NEWEST_REHEARSED, KnownBesideLarge, Rehearsed
from federation.capacity.room_packing import PackedCells, pack_groups
from federation.capacity.strict_bounds import strict_most
from federation.capacity.stuck import without_reserved_nodes
from federation.capacity.worth import careful_most, worth
from federation.model.arrays import IntArray, LevelArray
from federation.model.estimate import MAX_REPLICAS
from federation.model.placement import Certificate
from federation.model.pools.matching import Match
from federation.model.pools.values import Pools
from federation.model.reservations import Outstanding, PromiseCertificate
from federation.model.shapes import request_shape
from federation.model.workload import ReplicaRequirements

T = TypeVar("T")
# By cluster what is packed, group after group.
_Groups: TypeAlias = Sequence[Sequence[Sequence[Outstanding]]]

# So many clusters are packed in the same steps: what these go over stays in the caches.
_AT_ONCE: Final = 200


class ReportId(NamedTuple):
    """Which report of a cluster."""

    epoch: int
    sequence: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Site:
    """What a room has that promises do not change: ``pools`` as ``report`` has them, and the kind
    of each. What was ``rehearsed`` of it once need not be again.

    ``follows_claims``: a placer of ours puts the cluster's pods where its agent plans them.
    """

    report: ReportId
    pools: Pools
    follows_claims: bool
    kind_p: IntArray
    rehearsed: Rehearsed = field(default_factory=Rehearsed)
    beside_large: KnownBesideLarge = field(default_factory=KnownBesideLarge)

    @classmethod
    def of(cls, report: ReportId, pools: Pools, kinds: PoolKinds, *, follows_claims: bool) -> Site:
        """A cluster as reported, whose pools are among the kinds."""
        kind_p = kinds.of(pools)[: len(pools.pools)]
        return cls(report=report, pools=pools, follows_claims=follows_claims, kind_p=kind_p)

    def remembering(self, before: Site | None) -> Site:
        """With what was worked out of the very same pools by an earlier report."""
        if before is None or before.pools is not self.pools:
            return self
        return replace(self, rehearsed=before.rehearsed, beside_large=before.beside_large)

    def rehearse(
        self, kinds: PoolKinds, promises: tuple[Outstanding, ...], run: int | None = None
    ) -> RehearsedPromises:
        """Rehearse these promises on the reported nodes: mostly they are what was rehearsed before,
        in this room or in another one of these nodes, and a little more. ``run`` is as in
        ``RehearsedPromises.going_on``.
        """
        known = self.rehearsed.known
        if not known.begins(promises):
            known = NEWEST_REHEARSED.get(self.pools, known)
        known = known.going_on(self.pools, self.kind_p, kinds, promises, run)
        self.rehearsed.known = NEWEST_REHEARSED[self.pools] = known
        return known

    def is_told(self, verdict_p: LevelArray | None) -> bool:
        """Whether its pools carry what a node claim names, by the verdicts on all kinds."""
        return verdict_p is None or Match.UNKNOWN not in verdict_p[self.kind_p]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Room:
    """A cluster as reported, and what outstanding replicas leave of its cells.

    ``left`` are the cells in two views: as they are when what is ``held`` goes where it fits
    best, and when it goes where most is free. Their pools are among the ``kinds``.
    """

    site: Site
    kinds: PoolKinds
    left: Residues
    held: Held = field(default_factory=Held)

    @classmethod
    def of(
        cls,
        report: ReportId,
        pools: Pools,
        outstanding: Sequence[Outstanding] = (),
        *,
        follows_claims: bool = False,
    ) -> Room:
        """The room that a report's cells have beside what is outstanding, packed in its order.

        What is alike is packed as one. Where some finds no room, the largest go first, and where
        that has none either, all of it goes where a stock kube-scheduler would put it. What still
        finds none is stuck, and keeps others from the nodes that may yet become its room.
        """
        kinds = PoolKinds().with_pools([pools], ())
        site = Site.of(report, pools, kinds, follows_claims=follows_claims)
        (room,) = packed_anew(kinds, [(site, outstanding)])
        return room

    @property
    def report(self) -> ReportId:
        return self.site.report

    @property
    def pools(self) -> Pools:
        return self.site.pools

    @property
    def follows_claims(self) -> bool:
        return self.site.follows_claims

    def repacked(self, outstanding: Iterable[Outstanding]) -> Room:
        """With this outstanding and no other, packed anew."""
        (room,) = packed_anew(self.kinds, [(self.site, tuple(outstanding))])
        return room

    def with_all(self, outstanding: Iterable[Outstanding]) -> Room:
        """With more outstanding, one after the other."""
        groups = [[each] for each in outstanding]
        return self._with_groups(groups) if groups else self

    def holding(self, outstanding: tuple[Outstanding, ...]) -> Room:
        """With this outstanding and no other, which mostly is what it had and more.

        Parts that became one stay where they are.
        """
        had = with_parts_as_one(self.outstanding, outstanding)
        if had is None:
            return self.repacked(outstanding)
        return _arrived(self, had).with_promised(outstanding[len(had) :])

    def with_promised(self, promises: tuple[Outstanding, ...]) -> Room:
        """With more that was promised already.

        What finds no room behind what was promised before was promised as all was packed anew.
        """
        room = self
        packed = room._with_groups(runs_alike(promises)) if promises else room
        if packed.stuck() == room.stuck():
            return packed
        for one in promises:
            packed = room.with_one(one)
            room = (
                packed
                if packed.stuck() == room.stuck()
                else room.repacked((*room.outstanding, one))
            )
        return room

    def with_one(self, outstanding: Outstanding) -> Room:
        """With this outstanding as well; as much as fits where not all of it does."""
        return self._with_groups([[outstanding]])

    def without(self, binding: str) -> Room:
        """As if the binding had nothing outstanding."""
        return answered(self.leaving(binding))

    def leaving(self, binding: str) -> Repacking[Room]:
        """``without`` along with others."""
        kept = [each for each in self.outstanding if each.binding != binding]
        return self if len(kept) == len(self.holdings) else (yield self, tuple(kept))

    @property
    def filled(self) -> Pools:
        """The pools with the cells that best fit leaves."""
        return replace(self.pools, cells=cells_left(self.left, View.FILLED, self.pools.cells))

    @property
    def spread(self) -> Pools:
        """The pools with the cells that spreading leaves."""
        return replace(self.pools, cells=cells_left(self.left, View.SPREAD, self.pools.cells))

    @property
    def holdings(self) -> tuple[Assignment, ...]:
        """Everything outstanding. All steps, in order, pack it into the report's minimums."""
        return self.held.every

    def holdings_of(self, binding: str) -> tuple[Assignment, ...]:
        """What one binding holds."""
        return tuple(each for each in self.held.every if each.outstanding.binding == binding)

    @property
    def outstanding(self) -> tuple[Outstanding, ...]:
        """In the order in which it was promised."""
        return self.held.outstanding

    @property
    def overcommitted(self) -> tuple[Assignment, ...]:
        """What finds no room any more; unproven promises never showed that they had any."""
        if not self.held.is_overcommitted:
            return ()
        return tuple([each for each in self.held.every if each.unplaced and each.is_broken])

    def stuck(self, but_for: str | None = None) -> int:
        """How many promised replicas find no room any more, those of a binding left out."""
        if but_for is None:
            return self.held.late
        return sum(
            [each.unplaced for each in self.overcommitted if each.outstanding.binding != but_for]
        )

    @property
    def holds_strict(self) -> bool:
        """Whether something strict is outstanding, which later promises must leave its room."""
        return self.held.is_strict

    @property
    def contending(self) -> list[Outstanding]:
        """All that is outstanding, as strict promises have to reckon with it."""
        return [each.contending for each in self.held.every]

    def can_tell(self, requirements: ReplicaRequirements) -> bool:
        """Whether the pools carry what the node claim names; else nothing can be packed."""
        return self.site.is_told(self.kinds.verdicts(requirements.node_claim))

    def most_by_view(self, requirements: ReplicaRequirements) -> tuple[int, int]:
        """How many replicas the cells hold under best fit and under spreading; 0 where they cannot
        tell.
        """
        verdict_p = self.kinds.verdicts(requirements.node_claim)
        if not self.site.is_told(verdict_p):
            return 0, 0
        suiting_p = None if verdict_p is None else verdict_p == Match.YES
        filled, spread = room_by_segment(self.left, requirements.request, suiting_p).tolist()
        return min(filled, MAX_REPLICAS), min(spread, MAX_REPLICAS)

    def most(
        self, requirements: ReplicaRequirements, certificate: PromiseCertificate, limit: int
    ) -> int:
        """The most replicas, up to ``limit``, that can be promised beside what is outstanding."""
        return self._most(requirements, certificate, limit, self.most_by_view(requirements))

    def packable(self, requirements: ReplicaRequirements, certificate: PromiseCertificate) -> int:
        """How many more replicas may be asked for: unless strictly, some are kept back."""
        filled, spread = self.most_by_view(requirements)
        most = self._most(requirements, certificate, MAX_REPLICAS, (filled, spread))
        if certificate is not PromiseCertificate.STRICT:
            shape = request_shape(requirements.request)
            most = min(most, careful_most(filled, spread, self.held, shape))
        return most

    def _most(
        self,
        requirements: ReplicaRequirements,
        certificate: PromiseCertificate,
        limit: int,
        by_view: tuple[int, int],
    ) -> int:
        most = min(limit, *by_view)
        if certificate is PromiseCertificate.STRICT or self.holds_strict:
            most = strict_most(self.pools, self.contending, requirements, certificate, most)
        return most

    def as_scheduled(self, outstanding: Sequence[Outstanding]) -> Room:
        """With best fit's packing replaced by a rehearsal's, as it is in the run that leaves the
        fewest without a node; the same where there is none.
        """
        site, promises = self.site, tuple(outstanding)
        stage = site.rehearse(self.kinds, promises).stage
        if stage is None:
            return self
        rehearsed = site.rehearse(self.kinds, promises, int(stage.late_l.argmin()))
        left, assignments = rehearsed.packed(self.left, site.kind_p)
        return replace(self, left=left, held=Held().with_more(assignments))

    def _with_groups(self, groups: Sequence[Sequence[Outstanding]]) -> Room:
        """With more outstanding, group after group; those of a group differ in nothing but whose
        they are and how many.
        """
        cells = PackedCells(residues=self.left)
        (more,) = pack_groups(cells, [groups], self.kinds, [self.pools.cells.resources])
        return replace(self, left=cells.residues, held=self.held.with_more(more))


# Asks for a room to be packed anew, with this outstanding and no other, until it has its answer.
Repacking: TypeAlias = Generator[tuple[Room, tuple[Outstanding, ...]], Room, T]


def answered(asking: Repacking[T]) -> T:
    """What one comes to by itself."""
    return answered_together({0: asking})[0]


def answered_together(asking: Mapping[int, Repacking[T]]) -> dict[int, T]:
    """The result of each; all requests of all of them are packed in the same steps."""
    answers: dict[int, T] = {}
    rooms: dict[int, Room | None] = dict.fromkeys(asking)
    while rooms:
        wanted: dict[int, tuple[Room, tuple[Outstanding, ...]]] = {}
        for place, room in rooms.items():
            try:
                wanted[place] = next(asking[place]) if room is None else asking[place].send(room)
            except StopIteration as ended:
                answers[place] = ended.value
        rooms = {}
        for kinds, places in _by_kinds(wanted):
            every = [(wanted[place][0].site, wanted[place][1]) for place in places]
            rooms |= zip(places, packed_anew(kinds, every), strict=True)
    return answers


def _by_kinds(
    wanted: Mapping[int, tuple[Room, tuple[Outstanding, ...]]],
) -> Iterable[tuple[PoolKinds, list[int]]]:
    """Rooms of one fleet share theirs."""
    found: dict[int, tuple[PoolKinds, list[int]]] = {}
    for place, (room, _) in wanted.items():
        found.setdefault(id(room.kinds), (room.kinds, []))[1].append(place)
    return found.values()


def packed_anew(
    kinds: PoolKinds, every: Sequence[tuple[Site, Sequence[Outstanding]]]
) -> list[Room]:
    """The rooms of sites, whose pools are all among the kinds, with this outstanding and no other:
    each as ``Room.of`` says. Those of the same resources are packed in the same steps.
    """
    packed_rooms: dict[int, Room] = {}
    # What is packed in the same way mostly is so in many clusters.
    numbers = Alike()
    groups = [outstanding_alike(outstanding, numbers) for _, outstanding in every]
    alike: dict[tuple[str, ...], list[int]] = {}
    for place in sorted(range(len(every)), key=lambda place: -len(groups[place])):
        alike.setdefault(every[place][0].pools.cells.resources, []).append(place)
    for places in alike.values():
        for first in range(0, len(places), _AT_ONCE):
            here = places[first : first + _AT_ONCE]
            some = _packed_alike(
                kinds, [every[place] for place in here], [groups[place] for place in here], numbers
            )
            packed_rooms |= zip(here, some, strict=True)
    return [packed_rooms[place] for place in range(len(every))]


def _packed_alike(
    kinds: PoolKinds,
    every: Sequence[tuple[Site, Sequence[Outstanding]]],
    groups: _Groups,
    numbers: Alike,
) -> list[Room]:
    sites = [site for site, _ in every]
    packed = _in_order(kinds, sites, groups, numbers)
    short = [place for place, each in enumerate(packed) if each.held.is_overcommitted]
    best: dict[int, Room] = {}
    if short:
        largest_first = [by_size(sites[place].pools, groups[place]) for place in short]
        others = _in_order(kinds, [sites[place] for place in short], largest_first, numbers)
        for place, other in zip(short, others, strict=True):
            best[place] = _best(packed[place], other, every[place][1])
    rooms = [best.get(place) or repacked.room() for place, repacked in enumerate(packed)]
    return [
        _arrived(room, tuple(outstanding))
        for room, (_, outstanding) in zip(rooms, every, strict=True)
    ]


def _arrived(room: Room, outstanding: tuple[Outstanding, ...]) -> Room:
    """The room, which knows in which order all was promised, if not in that of its packing."""
    if room.outstanding == outstanding:
        return room
    return replace(room, held=room.held._replace(arrived=outstanding))


class _Packed(NamedTuple):
    """A site's cells, at a place among those of others, and what they hold."""

    site: Site
    kinds: PoolKinds
    cells: PackedCells
    place: int
    held: Held

    def room(self) -> Room:
        return Room(
            # What it remembers is of what was outstanding.
            site=replace(self.site, rehearsed=Rehearsed(), beside_large=KnownBesideLarge()),
            kinds=self.kinds,
            left=self.cells.only(self.place),
            held=self.held,
        )


def _in_order(
    kinds: PoolKinds,
    sites: Sequence[Site],
    groups: _Groups,
    numbers: Alike,
) -> list[_Packed]:
    """Each group after the other, whatever finds no room."""
    every = [site.pools.cells for site in sites]
    # One kind at least, for cells of no nodes.
    kinds_by_site = [site.kind_p if len(site.kind_p) else kinds.of(site.pools) for site in sites]
    cells = PackedCells(residues=bare_residues(every, kinds_by_site))
    packed = pack_groups(cells, groups, kinds, [each.resources for each in every], numbers)
    return [
        _Packed(site, kinds, cells, place, Held().with_more(more))
        for place, (site, more) in enumerate(zip(sites, packed, strict=True))
    ]


def _best(packed: _Packed, other: _Packed, outstanding: Sequence[Outstanding]) -> Room:
    """The one of two packings that leaves less stuck, or that of a stock kube-scheduler."""
    room = min(packed, other, key=lambda each: each.held.late).room()
    if room.held.is_overcommitted:
        room = min(room, room.as_scheduled(outstanding), key=Room.stuck)
    return replace(room, left=without_reserved_nodes(room.left, room.overcommitted, room.kinds))


def certificate_for(
    asked: Certificate | None, room: Room | None, requirements: ReplicaRequirements
) -> PromiseCertificate:
    """What a promise in a cluster will be worth if there is room; careful where nothing was asked.

    Without a placer of ours nobody would follow a plan, so what is asked for then is careful too.
    """
    told = room is not None and room.can_tell(requirements)
    return worth(asked, told=told, planned=room is not None and room.follows_claims)
