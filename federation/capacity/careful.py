"""The limit of promises in a cluster beside all outstanding ones, and why there are no more.

Pure. The same limit holds for an estimate, and for a share that is reserved, packed again under a
lock, or committed from a preview, a plan or a gang. Best fit, spreading and the margin know nothing
of a cluster's scheduler: a second look rehearses all pods on their way where a stock kube-scheduler
puts them. A promise that fits after every run may be made after all; where little room is left, no
more is promised than fits after each run. Must not pack what is promised.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple, Self

import numpy as np

from federation.capacity.assignments import OwnReplicas, max_careful
from federation.capacity.cluster_room import Room
from federation.capacity.component_sets import max_sets, with_room_for_a_set
from federation.capacity.fleet_rooms import FleetRooms
from federation.capacity.growth import positions_by_promises
from federation.capacity.large_pods import is_mixed, max_beside_large, ranked_mixed
from federation.capacity.rehearsal import RehearsedRoom, part_of
from federation.model.arrays import IntArray
from federation.model.placement import Certificate
from federation.model.pools.bounds import fit_in_k, per_replica
from federation.model.pools.values import Cells
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import NO_REASON, Amount, Reason
from federation.model.reservations import (
    RESERVE_PART,
    Outstanding,
    PromiseCertificate,
)
from federation.model.shapes import request_shape
from federation.model.workload import Component, ReplicaRequirements

# Promised: the mean of the runs minus this many standard deviations.
DEVIATIONS: Final = 4.0
# Replicas kept free at least, even where all runs agree, because the next run may not.
LEFT_FREE: Final = 1
# Clusters that get a second look in one decision: those with most room.
MAX_REFINED_CLUSTERS: Final = 2
# Crowded clusters in which one decision limits promises by a rehearsal: those with most room.
MAX_CROWDED_CLUSTERS: Final = 4
# Shapes whose room is cached for a cluster, until something else is promised there.
MAX_CACHED_SHAPES: Final = 200
NOT_REHEARSED: Final = Reason.of(ReasonCode.NOT_REHEARSED)
_NOTHING: Final = RehearsedRoom(0)


def refined_available_c(
    fleet: FleetRooms,
    requirements: ReplicaRequirements,
    requested: Certificate | None,
    available_c: IntArray,
    replicas: int,
) -> tuple[IntArray, dict[int, Reason]]:
    """Return how many of ``replicas`` more can be promised in each cluster (axis c).

    At least ``available_c``, and more where rehearsals show it. The second value has the clusters
    where a rehearsal would take too many steps.
    """
    may_c = (available_c < replicas) & ~fleet.overcommitted_c & ~fleet.strict_c
    if requested is Certificate.STRICT or not may_c.any():
        return available_c, {}
    filled_c, spread_c = fleet.max_by_view(requirements)
    refined_c, reasons = available_c.copy(), dict[int, Reason]()
    order = np.argsort(-np.maximum(filled_c, spread_c), kind="stable")
    for position in order[may_c[order]][:MAX_REFINED_CLUSTERS].tolist():
        cluster, available = fleet.clusters[position], int(available_c[position])
        # To take one cluster out of the layers of the fleet costs more than this check.
        if cluster is None or _max_reported(cluster.pools.cells, requirements) <= available:
            continue
        room = fleet.rooms[position]
        if room is not None:
            refined_c[position] = max(available, max_refined(room, requirements, replicas))
            if _rehearsed_room(room, requirements).is_too_much:
                reasons[position] = NOT_REHEARSED
    return refined_c, reasons


def max_refined(room: Room, requirements: ReplicaRequirements, replicas: int) -> int:
    """Return how many of ``replicas`` a second look grants, with room left for large pods."""
    max_replicas = max_surely_rehearsed(room, requirements, replicas)
    return max_beside_large(room, requirements, max_replicas).replicas


def ranked_crowded(
    fleet: FleetRooms, requirements: ReplicaRequirements, max_c: IntArray
) -> list[int]:
    """Return the clusters in which promises are limited by a rehearsal.

    These are a few with most room, among those with room for no more replicas than pods of other
    shapes are on their way.
    """
    on_way_c = fleet.sums.on_their_way_c(request_shape(requirements.request))
    if not on_way_c.any():
        return []
    filled_c, spread_c = fleet.max_by_view(requirements)
    (crowded,) = np.nonzero((max_c > 0) & (np.minimum(filled_c, spread_c) <= on_way_c))
    ranked = crowded[np.argsort(-max_c[crowded], kind="stable")]
    positions: list[int] = ranked[:MAX_CROWDED_CLUSTERS].tolist()
    return positions


def max_rehearsed(room: Room, requirements: ReplicaRequirements, limit: int) -> int:
    """Return how many replicas fit after each run, less LEFT_FREE, at most ``limit``.

    Return the limit where no rehearsal is possible.
    """
    least_replicas = _rehearsed_room(room, requirements).least_replicas
    if least_replicas is None:
        return limit
    return max(0, min(limit, least_replicas - LEFT_FREE))


def max_surely_rehearsed(room: Room, requirements: ReplicaRequirements, limit: int) -> int:
    """Return how many replicas surely fit after a rehearsal of the outstanding ones.

    0 where the cluster does not report allocatable amounts, where a rehearsal would take too many
    steps, and where a promise lost its room. 0 also where pods choose their nodes: in studies,
    second looks left twice as many large pods of that kind pending, made in any order.
    """
    return min(limit, _rehearsed_room(room, requirements).replicas)


def _rehearsed_room(room: Room, requirements: ReplicaRequirements) -> RehearsedRoom:
    """Return the room after a rehearsal, cached by shape."""
    if room.held.is_overcommitted or requirements.node_claim:
        return _NOTHING
    caches, shape = room.cluster.caches, request_shape(requirements.request)
    if caches.rehearsed_room is None or caches.rehearsed_room[0] is not room.held:
        caches.rehearsed_room = room.held, {}
    held, by_shape = caches.rehearsed_room
    if held is not room.held or len(by_shape) > MAX_CACHED_SHAPES:
        by_shape = {}
    if shape not in by_shape:
        by_shape[shape] = _rehearse(room, requirements)
    return by_shape[shape]


def _max_reported(cells: Cells, requirements: ReplicaRequirements) -> int:
    """Return how many replicas the reported nodes hold: no rehearsal leaves room for more."""
    fits_k = fit_in_k(cells.resources, cells.min_rk, per_replica(requirements.request))
    return int((fits_k * cells.count_k).sum())


def _rehearse(room: Room, requirements: ReplicaRequirements) -> RehearsedRoom:
    if any(promise.requirements.node_claim for promise in room.outstanding):
        return _NOTHING
    # None where the steps, counted from the first promise on, are too many.
    stage = room.cluster.rehearse(room.kinds, room.outstanding).stage
    if stage is None:
        is_reported = room.pools.cells.allocatable_rk is not None
        return RehearsedRoom(0, is_too_much=is_reported)
    room_l = stage.room_l(
        part_of(Outstanding("", requirements, 1), room.cluster.kind_p, room.kinds)
    )
    least_replicas = int(room_l.min())
    # With nothing on its way there is no chance involved.
    replicas = max(0, _surely(room_l) if stage.turns else least_replicas)
    return RehearsedRoom(replicas, least_replicas=least_replicas)


def _surely(room_l: IntArray) -> int:
    """Return the number of replicas for which hardly any run leaves too little room."""
    return int(room_l.mean() - max(DEVIATIONS * float(room_l.std()), LEFT_FREE))


NO_POSITIONS: Final[frozenset[int]] = frozenset()
NOTHING_OWN: Final[Mapping[int, OwnReplicas]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class PromiseTerms:
    """The rules for the shares of one binding, unless they are strict.

    ``keeps_margin``: shares of Duplicated and of static weights ignore capacity, so they may take
    all that fits. Shares ``in_sets`` keep the margin back once a set. At the ``placed`` positions,
    where the binding is, only the margin is kept back. A binding that is placed nowhere may get
    what a second look grants to ``refined_replicas``, 0 for nothing.
    """

    keeps_margin: bool = True
    in_sets: bool = False
    placed: Collection[int] = NO_POSITIONS
    refined_replicas: int = 0


# For shares that ignore capacity, and for room that is set aside without a promise.
WHATEVER_FITS: Final = PromiseTerms(keeps_margin=False)
CAREFULLY: Final = PromiseTerms()


class RoomLimit(NamedTuple):
    """The most replicas that may be promised; ``kept_back`` is why no more are, though they fit."""

    replicas: int
    kept_back: Reason = NO_REASON

    def shortage(self, requested: int, held: int) -> Reason:
        """Return the reason to refuse a number of replicas beside those that are held."""
        amounts = Amount(held + self.replicas), Amount(held + requested)
        if not self.kept_back:
            return Reason.of(ReasonCode.FEWER_FIT, *amounts)
        return Reason.of(ReasonCode.FEWER_FIT_BECAUSE, *amounts, self.kept_back)


class LookedAt(NamedTuple):
    """Positions of a few clusters with most room, which get a closer look.

    Promises leave room for large pods at ``large``, and are limited by a rehearsal at ``crowded``.
    """

    large: frozenset[int]
    crowded: frozenset[int]

    @classmethod
    def of(cls, fleet: FleetRooms, requirements: ReplicaRequirements, max_c: IntArray) -> Self:
        return cls(
            large=frozenset(ranked_mixed(fleet, requirements, max_c)),
            crowded=frozenset(ranked_crowded(fleet, requirements, max_c)),
        )


class RoomLimits:
    """The limits of one binding's shares in a fleet's clusters, equal to those of estimates.

    ``own`` are the replicas that it holds there, by position. Belongs to one thread.
    """

    def __init__(
        self,
        fleet: FleetRooms,
        terms: PromiseTerms,
        own: Mapping[int, OwnReplicas] = NOTHING_OWN,
    ) -> None:
        self._fleet = fleet
        self._own = own
        self._terms = terms
        # Clusters that got a second look, which costs a rehearsal.
        self._refined_positions = set[int]()
        # The latest requirements, and the clusters that get a closer look for them.
        self._ranked: tuple[ReplicaRequirements, LookedAt] | None = None

    def lacks(self, room: Room, position: int, promise: Outstanding) -> RoomLimit | None:
        """Return the limit if it is lower than the promise, else None."""
        limit = self._limit(room, position, promise)
        if limit.replicas >= promise.to_pack:
            return None
        return limit if self._refined(room, position, promise) < promise.to_pack else None

    def lacks_set(self, room: Room, promises: Sequence[Outstanding]) -> bool:
        """Tell whether the promises of one set do not fit beside the margin."""
        if not (self._terms.keeps_margin and self._terms.in_sets):
            return False
        parts = _parts(promises)
        own = _own_in(room, promises[0].binding)
        return bool(parts) and max_sets(room, parts, _certificate(promises), own.replicas) == 0

    def within(self, asks: Mapping[int, tuple[Outstanding, ...]]) -> set[int]:
        """Return the clusters whose asks, beside the binding's own, are within the limits.

        No second look is taken. Strict asks are not checked, nor whether an ask fits at all.
        """
        if not self._terms.keeps_margin:
            return set(asks)
        within = set[int]()
        for promises, positions in positions_by_promises(asks, asks):
            if _certificate(promises) is Certificate.STRICT:
                within.update(positions)
            elif self._terms.in_sets or len(promises) > 1:
                new = [position for position in positions if position not in self._own]
                parts, certificate = _parts(promises), _certificate(promises)
                within.update(with_room_for_a_set(self._fleet, new, parts, certificate))
            else:
                within.update(self._careful_positions(promises[0], positions))
        return within

    def _careful_positions(self, promise: Outstanding, positions: list[int]) -> Iterable[int]:
        """Return the positions where the promise is within the limit."""
        fleet, requirements = self._fleet, promise.requirements
        is_enough_c = careful_c(fleet, requirements, self._own) >= promise.to_pack
        # Without a report there is no limit here.
        is_enough_c |= fleet.layers.unknown_c
        looked_at = self._looked_at(requirements)
        for position in looked_at.large | looked_at.crowded:
            room = fleet.rooms[position]
            if room and position not in self._terms.placed and is_enough_c[position]:
                replicas = self._limit(room, position, promise).replicas
                is_enough_c[position] = replicas >= promise.to_pack
        within: list[int] = np.array(positions)[is_enough_c[positions]].tolist()
        return within

    def _limit(self, room: Room, position: int, promise: Outstanding) -> RoomLimit:
        """Return the most replicas of a promise, without a second look."""
        requirements, certificate = promise.requirements, promise.certificate
        is_free = self._terms.in_sets or not self._terms.keeps_margin
        if certificate is PromiseCertificate.STRICT or is_free:
            return RoomLimit(room.max_replicas(requirements, certificate, promise.to_pack))
        filled, spread = room.max_by_view(requirements)
        shape = request_shape(requirements.request)
        own = _own_in(room, promise.binding)
        replicas, why = max_careful(filled, spread, room.held, shape, own), NO_REASON
        if replicas < min(filled, spread):
            why = Reason.of(ReasonCode.MARGIN_KEPT, Amount(min(filled, spread) - replicas))
        if replicas >= promise.to_pack and self._leaves_room_for_large(position, requirements):
            beside = max_beside_large(room, requirements, replicas)
            if beside.replicas < replicas:
                replicas, why = beside
        if replicas >= promise.to_pack and self._is_rehearsed(position, requirements):
            rehearsed = max_rehearsed(room, requirements, replicas)
            if rehearsed < replicas:
                kept_back = Amount(min(filled, spread) - rehearsed)
                replicas, why = rehearsed, Reason.of(ReasonCode.MARGIN_KEPT, kept_back)
        return RoomLimit(room.max_replicas(requirements, certificate, replicas), why)

    def _leaves_room_for_large(self, position: int, requirements: ReplicaRequirements) -> bool:
        """Tell whether the cluster leaves room for large pods."""
        if position in self._terms.placed or not is_mixed(self._fleet, position, requirements):
            return False
        return position in self._looked_at(requirements).large

    def _is_rehearsed(self, position: int, requirements: ReplicaRequirements) -> bool:
        """Tell whether promises in the cluster are limited by a rehearsal."""
        if position in self._terms.placed:
            return False
        return position in self._looked_at(requirements).crowded

    def _looked_at(self, requirements: ReplicaRequirements) -> LookedAt:
        if self._ranked is None or self._ranked[0] is not requirements:
            max_c = careful_c(self._fleet, requirements)
            self._ranked = requirements, LookedAt.of(self._fleet, requirements, max_c)
        return self._ranked[1]

    def _refined(self, room: Room, position: int, promise: Outstanding) -> int:
        """Return the most replicas that a second look grants."""
        terms = self._terms
        if promise.certificate is PromiseCertificate.STRICT or room.holds_strict:
            return 0
        if terms.in_sets or (terms.keeps_margin and not terms.refined_replicas):
            return 0
        refined = self._refined_positions
        if position not in refined and len(refined) >= MAX_REFINED_CLUSTERS:
            return 0
        refined.add(position)
        if terms.keeps_margin:
            return max_refined(room, promise.requirements, terms.refined_replicas)
        return max_surely_rehearsed(room, promise.requirements, promise.to_pack)


def _own_in(room: Room, binding: str) -> OwnReplicas:
    """Count the replicas that a binding holds in a cluster."""
    own = room.holdings_of(binding)
    return OwnReplicas(
        sum([holding.outstanding.to_pack for holding in own]),
        sum([holding.unplaced for holding in own if holding.is_broken]),
    )


def careful_c(
    fleet: FleetRooms,
    requirements: ReplicaRequirements,
    own: Mapping[int, OwnReplicas] = NOTHING_OWN,
) -> IntArray:
    """Return how many more replicas may be promised in each cluster (axis c).

    The margin is kept back where best fit and spreading leave unequal room, and where much of
    other shapes is outstanding, which is packed in neither of the two ways. Agents choose the
    nodes of planned replicas by other rules, too. ``own`` is what the binding holds
    by position. Room for large pods is not looked at.
    """
    filled_c, spread_c = fleet.max_by_view(requirements)
    reserve_c = np.minimum(np.abs(filled_c - spread_c), fleet.sums.reserve_c)
    on_way_c = fleet.sums.on_their_way_c(request_shape(requirements.request))
    if own:
        # An array of pairs would take ten times as long.
        replicas, stuck = (list(column) for column in zip(*own.values(), strict=True))
        places = list(own)
        on_way_c[places] = np.maximum(on_way_c[places] - replicas, 0)
        reserve_c[places] += stuck
    reserve_c += -(-on_way_c // RESERVE_PART)
    careful_c: IntArray = np.maximum(np.minimum(filled_c, spread_c) - reserve_c, 0)
    return careful_c


def careful_beside_large(
    fleet: FleetRooms, requirements: ReplicaRequirements
) -> tuple[IntArray, dict[int, Reason]]:
    """Return ``careful_c`` less room for large pods, limited by rehearsals, in a few clusters.

    The second value says why where room is kept for large pods.
    """
    max_c, reasons = careful_c(fleet, requirements), dict[int, Reason]()
    looked_at = LookedAt.of(fleet, requirements, max_c)
    for position in looked_at.large | looked_at.crowded:
        room, replicas = fleet.rooms[position], int(max_c[position])
        if room is None:
            continue
        if position in looked_at.large:
            replicas, reason = max_beside_large(room, requirements, replicas)
            if reason:
                reasons[position] = reason
        if position in looked_at.crowded:
            replicas = max_rehearsed(room, requirements, replicas)
        max_c[position] = replicas
    return max_c, reasons


def _parts(promises: Iterable[Outstanding]) -> list[Component]:
    """Return the components of a set that need room."""
    return [
        Component(
            name=promise.component, replicas=promise.to_pack, requirements=promise.requirements
        )
        for promise in promises
        if promise.to_pack > 0
    ]


def _certificate(promises: Sequence[Outstanding]) -> Certificate:
    """Return the certificate by which a cluster's shares are promised."""
    strict = any(promise.certificate is PromiseCertificate.STRICT for promise in promises)
    return Certificate.STRICT if strict else Certificate.CAREFUL
