"""Free capacity of one cluster: the cells of a report, with all outstanding promises packed in.

Pure and immutable. Must not decide which promise gets room: ``federation.capacity.reserve`` does.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, TypeAlias, TypeVar

from federation.capacity.assignments import (
    Assignment,
    Held,
    ShapeIndex,
    by_size,
    in_groups,
    max_careful,
    worth,
)
from federation.capacity.cells import FreeCells, View, cells_left, unpacked_cells
from federation.capacity.filled_nodes import NEWEST_REHEARSED, NodeCaches
from federation.capacity.packing import room_by_segment
from federation.capacity.pool_kinds import PoolKinds
from federation.capacity.rehearsal import RehearsedPromises
from federation.capacity.room_packing import PackedCells, pack_groups, without_reserved_nodes
from federation.capacity.strict_bounds import max_strict
from federation.model.arrays import IntArray, LevelArray
from federation.model.estimate import MAX_REPLICAS
from federation.model.placement import Certificate
from federation.model.pools.matching import Match
from federation.model.pools.values import Pools
from federation.model.reservations import Outstanding, PackingOrder, PromiseCertificate
from federation.model.shapes import request_shape
from federation.model.workload import ReplicaRequirements

T = TypeVar("T")
# By cluster, the groups of promises in packing order.
_Groups: TypeAlias = Sequence[Sequence[Sequence[Outstanding]]]

# Clusters packed in the same steps: their tables fit the caches of a core.
_MAX_AT_ONCE: Final = 200


class ReportId(NamedTuple):
    """The identity of a cluster's report."""

    epoch: int
    sequence: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClusterPools:
    """The reported node pools of a cluster: the ``pools`` of ``report``, and their kinds.

    ``follows_claims``: our binder places the cluster's pods on the nodes that its agent plans.
    ``caches`` are of results about the nodes.
    """

    report: ReportId
    pools: Pools
    follows_claims: bool
    kind_p: IntArray
    caches: NodeCaches = field(default_factory=NodeCaches)

    @classmethod
    def of(
        cls, report: ReportId, pools: Pools, kinds: PoolKinds, *, follows_claims: bool
    ) -> ClusterPools:
        """Make one; the pools must be among the ``kinds``."""
        kind_p = kinds.of(pools)[: len(pools.pools)]
        return cls(report=report, pools=pools, follows_claims=follows_claims, kind_p=kind_p)

    def remembering(self, earlier: ClusterPools | None) -> ClusterPools:
        """Take over the caches of an earlier report with the very same pools."""
        if earlier is None or earlier.pools is not self.pools:
            return self
        return replace(self, caches=earlier.caches)

    def rehearse(
        self, kinds: PoolKinds, promises: tuple[Outstanding, ...], run: int | None = None
    ) -> RehearsedPromises:
        """Rehearse these promises on the reported nodes, and cache the stage after them.

        Usually they continue a cached rehearsal, of this state of the cluster or of another one.
        ``run`` is as in ``RehearsedPromises.going_on``.
        """
        cached = self.caches.rehearsed
        if not cached.begins(promises):
            cached = NEWEST_REHEARSED.get(self.pools, cached)
        cached = cached.going_on(self.pools, self.kind_p, kinds, promises, run)
        self.caches.rehearsed = NEWEST_REHEARSED[self.pools] = cached
        return cached

    def carries_labels(self, verdict_p: LevelArray | None) -> bool:
        """Tell from verdicts on all kinds whether the pools carry the labels that a claim names."""
        return verdict_p is None or Match.UNKNOWN not in verdict_p[self.kind_p]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Room:
    """A cluster as reported, and the cells that outstanding promises leave free.

    ``free_cells`` are in both views: with all that is ``held`` packed by best fit, and packed by
    spreading. Their pools are among the ``kinds``.
    """

    cluster: ClusterPools
    kinds: PoolKinds
    free_cells: FreeCells
    held: Held = field(default_factory=Held)

    @classmethod
    def of(
        cls,
        report: ReportId,
        pools: Pools,
        order: Sequence[Outstanding] | PackingOrder = (),
        *,
        follows_claims: bool = False,
    ) -> Room:
        """Pack what is outstanding into a report's cells; a mere sequence is older than the report.

        The room is a function of the report and the order. Promises older than the report are
        packed kind by kind. If some find no room, pack again with the largest first; if some still
        find none, place all as a stock kube-scheduler does. Those without room are stuck, and each
        reserves the node that may yet become its room. Later promises come one by one, and where
        one finds no room, all before it and itself are packed again as if they were older.
        """
        kinds = PoolKinds().with_pools([pools], ())
        cluster = ClusterPools.of(report, pools, kinds, follows_claims=follows_claims)
        if not isinstance(order, PackingOrder):
            order = PackingOrder.of_report(order)
        (room,) = repack(kinds, [(cluster, order)])
        return room

    @property
    def report(self) -> ReportId:
        return self.cluster.report

    @property
    def pools(self) -> Pools:
        return self.cluster.pools

    @property
    def follows_claims(self) -> bool:
        return self.cluster.follows_claims

    def repacked(self, order: PackingOrder) -> Room:
        """Pack these promises, and no others, from the reported cells on."""
        (room,) = repack(self.kinds, [(self.cluster, order)])
        return room

    def following(self, order: PackingOrder) -> Room | None:
        """Hold these promises, and no others: the current ones and further ones.

        None if they do not begin with the current ones, so that all must be packed anew.
        """
        current = self.outstanding
        if order.grouped != self.held.grouped or order.promises[: len(current)] != current:
            return None
        return self.with_promised(order.promises[len(current) :])

    def with_promised(self, promises: tuple[Outstanding, ...]) -> Room:
        """Add promises that are made already, one by one in the order in which they were made.

        A promise that finds no room behind the earlier ones was made when all were packed anew, so
        all are packed anew here, too.
        """
        room = self
        packed = room._with_groups([[promise] for promise in promises]) if promises else room
        if packed.stuck() == room.stuck():
            return packed
        for promise in promises:
            packed = room.with_one(promise)
            if packed.stuck() != room.stuck():
                packed = room.repacked(room.order_anew(promise)).with_grouped(room.held.grouped)
            room = packed
        return room

    def order_anew(self, promise: Outstanding) -> PackingOrder:
        """Return the order in which all are packed for a promise without room behind them."""
        return PackingOrder.of_report((*self.outstanding, promise))

    def with_grouped(self, grouped: int) -> Room:
        """Say how many of the promises are older than the report."""
        return replace(self, held=self.held._replace(grouped=grouped))

    def with_one(self, outstanding: Outstanding) -> Room:
        """Add a promise; if not all of it fits, as much as fits."""
        return self._with_groups([[outstanding]])

    def without(self, binding: str) -> Room:
        """Remove the promises of a binding."""
        return answered(self.leaving(binding))

    def leaving(self, binding: str) -> Repacking[Room]:
        """Remove the promises of a binding; see ``Repacking``."""
        order = self.held.order
        staying = order.without((binding,))
        return self if len(staying.promises) == len(order.promises) else (yield self, staying)

    @property
    def filled(self) -> Pools:
        """The pools with the cells that best fit leaves free."""
        return replace(self.pools, cells=cells_left(self.free_cells, View.FILLED, self.pools.cells))

    @property
    def spread(self) -> Pools:
        """The pools with the cells that spreading leaves free."""
        return replace(self.pools, cells=cells_left(self.free_cells, View.SPREAD, self.pools.cells))

    @property
    def holdings(self) -> tuple[Assignment, ...]:
        """The packed promises; all their steps, in order, fit the minimums of reported cells."""
        return self.held.every

    def holdings_of(self, binding: str) -> tuple[Assignment, ...]:
        """Return the packed promises of one binding."""
        return tuple(part for part in self.held.every if part.outstanding.binding == binding)

    @property
    def outstanding(self) -> tuple[Outstanding, ...]:
        """All promises in the order in which they were made."""
        return self.held.outstanding

    @property
    def overcommitted(self) -> tuple[Assignment, ...]:
        """Promises that lost their room; unproven ones never had proof of any."""
        if not self.held.is_overcommitted:
            return ()
        return tuple([part for part in self.held.every if part.unplaced and part.is_broken])

    def stuck(self, but_for: str | None = None) -> int:
        """Count the promised replicas that lost their room, except those of a binding."""
        if but_for is None:
            return self.held.late
        return sum(
            [part.unplaced for part in self.overcommitted if part.outstanding.binding != but_for]
        )

    @property
    def holds_strict(self) -> bool:
        """Tell whether a strict promise is outstanding, whose room later promises must leave."""
        return self.held.is_strict

    @property
    def contending(self) -> list[Outstanding]:
        """All promises as strict promises see them."""
        return [part.contending for part in self.held.every]

    def carries_labels(self, requirements: ReplicaRequirements) -> bool:
        """Tell whether the pools carry the labels that a claim names; else nothing is packed."""
        return self.cluster.carries_labels(self.kinds.verdicts(requirements.node_claim))

    def max_by_view(self, requirements: ReplicaRequirements) -> tuple[int, int]:
        """Return how many replicas fit under best fit and under spreading.

        Both are 0 where the pools do not carry the labels that the claim names.
        """
        verdict_p = self.kinds.verdicts(requirements.node_claim)
        if not self.cluster.carries_labels(verdict_p):
            return 0, 0
        suiting_p = None if verdict_p is None else verdict_p == Match.YES
        filled, spread = room_by_segment(self.free_cells, requirements.request, suiting_p).tolist()
        return min(filled, MAX_REPLICAS), min(spread, MAX_REPLICAS)

    def max_replicas(
        self, requirements: ReplicaRequirements, certificate: PromiseCertificate, limit: int
    ) -> int:
        """Return the most replicas, up to ``limit``, that can be promised now."""
        return self._max_replicas(requirements, certificate, limit, self.max_by_view(requirements))

    def packable(self, requirements: ReplicaRequirements, certificate: PromiseCertificate) -> int:
        """Return how many more replicas are available; unless strictly, a margin is kept back."""
        filled, spread = self.max_by_view(requirements)
        max_replicas = self._max_replicas(requirements, certificate, MAX_REPLICAS, (filled, spread))
        if certificate is not PromiseCertificate.STRICT:
            shape = request_shape(requirements.request)
            max_replicas = min(max_replicas, max_careful(filled, spread, self.held, shape))
        return max_replicas

    def _max_replicas(
        self,
        requirements: ReplicaRequirements,
        certificate: PromiseCertificate,
        limit: int,
        by_view: tuple[int, int],
    ) -> int:
        max_replicas = min(limit, *by_view)
        if certificate is PromiseCertificate.STRICT or self.holds_strict:
            return max_strict(self.pools, self.contending, requirements, certificate, max_replicas)
        return max_replicas

    def as_scheduled(self, outstanding: Sequence[Outstanding]) -> Room:
        """Replace best fit's packing by the run of a rehearsal with the fewest pods without a node.

        Return the same capacity where no rehearsal is possible.
        """
        cluster, promises = self.cluster, tuple(outstanding)
        stage = cluster.rehearse(self.kinds, promises).stage
        if stage is None:
            return self
        rehearsed = cluster.rehearse(self.kinds, promises, int(stage.late_l.argmin()))
        free, assignments = rehearsed.packed(self.free_cells, cluster.kind_p)
        return replace(self, free_cells=free, held=Held().with_more(assignments))

    def _with_groups(self, groups: Sequence[Sequence[Outstanding]]) -> Room:
        """Add promises, group after group; those of a group differ in binding and number only."""
        cells = PackedCells(free_cells=self.free_cells)
        (assignments,) = pack_groups(cells, [groups], self.kinds, [self.pools.cells.resources])
        return replace(self, free_cells=cells.free_cells, held=self.held.with_more(assignments))


# Yields a capacity and promises, and is sent the capacity with just these promises, packed anew.
Repacking: TypeAlias = Generator[tuple[Room, PackingOrder], Room, T]


def answered(repacking: Repacking[T]) -> T:
    """Run one generator, and return its result."""
    return answered_together({0: repacking})[0]


def answered_together(repackings: Mapping[int, Repacking[T]]) -> dict[int, T]:
    """Run generators, and return their results; pack the requests of all in the same steps."""
    answers: dict[int, T] = {}
    rooms: dict[int, Room | None] = dict.fromkeys(repackings)
    while rooms:
        requests: dict[int, tuple[Room, PackingOrder]] = {}
        for place, room in rooms.items():
            repacking = repackings[place]
            try:
                requests[place] = next(repacking) if room is None else repacking.send(room)
            except StopIteration as ended:
                answers[place] = ended.value
        rooms = {}
        for kinds, places in _by_kinds(requests):
            orders_at = [(requests[place][0].cluster, requests[place][1]) for place in places]
            rooms |= zip(places, repack(kinds, orders_at), strict=True)
    return answers


def _by_kinds(
    requests: Mapping[int, tuple[Room, PackingOrder]],
) -> Iterable[tuple[PoolKinds, list[int]]]:
    """Group places by their kinds of pools, which all capacities of one fleet share."""
    groups: dict[int, tuple[PoolKinds, list[int]]] = {}
    for place, (room, _) in requests.items():
        groups.setdefault(id(room.kinds), (room.kinds, []))[1].append(place)
    return groups.values()


def repack(kinds: PoolKinds, orders_at: Sequence[tuple[ClusterPools, PackingOrder]]) -> list[Room]:
    """Pack the promises of clusters from the reported cells on, as ``Room.of`` does.

    All pools must be among the ``kinds``. Clusters with the same resources are packed in the same
    steps.
    """
    packed_rooms: dict[int, Room] = {}
    # Shared, because mostly the same groups occur in many clusters.
    index = ShapeIndex()
    groups = [in_groups(order, index) for _, order in orders_at]
    by_resources: dict[tuple[str, ...], list[int]] = {}
    for place in sorted(range(len(orders_at)), key=lambda place: -len(groups[place])):
        resources = orders_at[place][0].pools.cells.resources
        by_resources.setdefault(resources, []).append(place)
    for places in by_resources.values():
        for first in range(0, len(places), _MAX_AT_ONCE):
            some = places[first : first + _MAX_AT_ONCE]
            rooms = _packed_alike(
                kinds,
                [orders_at[place] for place in some],
                [groups[place] for place in some],
                index,
            )
            packed_rooms |= zip(some, rooms, strict=True)
    return [packed_rooms[place] for place in range(len(orders_at))]


def _packed_alike(
    kinds: PoolKinds,
    orders_at: Sequence[tuple[ClusterPools, PackingOrder]],
    groups: _Groups,
    index: ShapeIndex,
) -> list[Room]:
    """Pack the promises of clusters with the same resources."""
    clusters = [cluster for cluster, _ in orders_at]
    packed = _in_order(kinds, clusters, groups, index)
    overfull = [place for place, packing in enumerate(packed) if packing.held.is_overcommitted]
    short = [place for place in overfull if not orders_at[place][1].later]
    best = {
        place: _one_by_one(kinds, *orders_at[place]) for place in overfull if place not in short
    }
    if short:
        largest_first = [by_size(clusters[place].pools, groups[place]) for place in short]
        resorted = _in_order(kinds, [clusters[place] for place in short], largest_first, index)
        for place, other in zip(short, resorted, strict=True):
            best[place] = _best(packed[place], other, orders_at[place][1].promises)
    rooms = [best.get(place) or packing.room() for place, packing in enumerate(packed)]
    return [_arrived(room, order) for room, (_, order) in zip(rooms, orders_at, strict=True)]


def _one_by_one(kinds: PoolKinds, cluster: ClusterPools, order: PackingOrder) -> Room:
    """Pack older promises, then one later promise after the other."""
    (room,) = repack(kinds, [(cluster, PackingOrder.of_report(order.older))])
    return room.with_promised(order.later)


def _arrived(room: Room, order: PackingOrder) -> Room:
    """Record the order in which the promises were made, if they are packed in another one."""
    held = room.held._replace(grouped=order.grouped)
    if held.outstanding != order.promises:
        held = held._replace(arrived=order.promises)
    return replace(room, held=held)


class _Packed(NamedTuple):
    """A cluster's promises, packed into the cells at a place of a table of several clusters."""

    cluster: ClusterPools
    kinds: PoolKinds
    cells: PackedCells
    place: int
    held: Held

    def room(self) -> Room:
        return Room(
            # New caches, because those of the cluster are about other promises.
            cluster=replace(self.cluster, caches=NodeCaches()),
            kinds=self.kinds,
            free_cells=self.cells.only(self.place),
            held=self.held,
        )


def _in_order(
    kinds: PoolKinds,
    clusters: Sequence[ClusterPools],
    groups: _Groups,
    index: ShapeIndex,
) -> list[_Packed]:
    """Pack the groups of each cluster in order, whether all of them find room or not."""
    reported = [cluster.pools.cells for cluster in clusters]
    # One kind at least, for a cell of no nodes.
    kinds_by_cluster = [
        cluster.kind_p if len(cluster.kind_p) else kinds.of(cluster.pools) for cluster in clusters
    ]
    cells = PackedCells(free_cells=unpacked_cells(reported, kinds_by_cluster))
    resources = [reported_cells.resources for reported_cells in reported]
    packed = pack_groups(cells, groups, kinds, resources, index)
    return [
        _Packed(cluster, kinds, cells, place, Held().with_more(assignments))
        for place, (cluster, assignments) in enumerate(zip(clusters, packed, strict=True))
    ]


def _best(packed: _Packed, other: _Packed, outstanding: Sequence[Outstanding]) -> Room:
    """Return the packing with the fewest stuck replicas: one of two, or kube-scheduler's."""
    room = min(packed, other, key=lambda packing: packing.held.late).room()
    if room.held.is_overcommitted:
        room = min(room, room.as_scheduled(outstanding), key=Room.stuck)
    return replace(
        room, free_cells=without_reserved_nodes(room.free_cells, room.overcommitted, room.kinds)
    )


def certificate_for(
    requested: Certificate | None, room: Room | None, requirements: ReplicaRequirements
) -> PromiseCertificate:
    """Return the certificate of a promise in a cluster, if there is room; careful by default.

    A planned promise is careful where no binder of ours would follow the plan.
    """
    if room is None:
        return worth(requested, carries_labels=False, follows_plans=False)
    carries_labels = room.carries_labels(requirements)
    return worth(requested, carries_labels=carries_labels, follows_plans=room.follows_claims)
