"""How many replicas may be promised in a cluster beside what is outstanding, and why no more.

Pure. One limit holds for every way to a promise: for what is available, and for a share that is
reserved, packed again under a lock, or committed from a preview, a plan or a gang. Must not pack
what is promised.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple, Self

import numpy as np

from federation.capacity.cluster_room import Room
from federation.capacity.component_sets import max_sets, with_room_for_a_set
from federation.capacity.fleet_rooms import FleetRooms
from federation.capacity.large_pods import is_mixed, max_beside_large, ranked_mixed
from federation.capacity.second_looks import (
    MAX_REFINED_CLUSTERS,
    max_rehearsed,
    ranked_crowded,
    refined_most,
    rehearsed_most,
)
from federation.capacity.worth import OwnReplicas, careful_most
from federation.model.arrays import IntArray
from federation.model.placement import Certificate
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import NO_REASON, Amount, Reason
from federation.model.reservations import (
    RESERVE_PART,
    Outstanding,
    PromiseCertificate,
)
from federation.model.shapes import request_shape
from federation.model.workload import Component, ReplicaRequirements

NO_POSITIONS: Final[frozenset[int]] = frozenset()
NOTHING_OWN: Final[Mapping[int, OwnReplicas]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class PromiseTerms:
    """What a binding's shares may take of the room, unless they are promised strictly.

    ``keeps_margin``: shares of Duplicated and of static weights ignore capacity, so they may take
    all that fits. Shares ``in_sets`` keep the margin back once a set. Where the binding is
    ``placed``, by position, only the margin is kept back. A binding that is placed nowhere may take
    what a second look grants to ``refined_replicas``; 0: nothing.
    """

    keeps_margin: bool = True
    in_sets: bool = False
    placed: Collection[int] = NO_POSITIONS
    refined_replicas: int = 0


# Shares that ignore capacity, and room that is set aside without a promise.
WHATEVER_FITS: Final = PromiseTerms(keeps_margin=False)
CAREFULLY: Final = PromiseTerms()


class RoomLimit(NamedTuple):
    """The most replicas that may be promised; ``kept_back`` says why not all that fit."""

    replicas: int
    kept_back: Reason = NO_REASON

    def shortage(self, requested: int, held: int) -> Reason:
        """Why so many are refused beside those that are held."""
        amounts = Amount(held + self.replicas), Amount(held + requested)
        if not self.kept_back:
            return Reason.of(ReasonCode.FEWER_FIT, *amounts)
        return Reason.of(ReasonCode.FEWER_FIT_BECAUSE, *amounts, self.kept_back)


class LookedAt(NamedTuple):
    """Positions of a few clusters with most room: ``large`` where promises leave room for large
    pods, ``crowded`` where promises are held to a rehearsal.
    """

    large: frozenset[int]
    crowded: frozenset[int]

    @classmethod
    def of(cls, fleet: FleetRooms, requirements: ReplicaRequirements, most_c: IntArray) -> Self:
        return cls(
            large=frozenset(ranked_mixed(fleet, requirements, most_c)),
            crowded=frozenset(ranked_crowded(fleet, requirements, most_c)),
        )


class RoomLimits:
    """The limits of one binding's shares in a fleet's clusters, by the same rules by which rooms
    are available; ``own`` is what it holds there, by position. Belongs to one thread.
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
        # A second look costs a rehearsal.
        self._refined_positions = set[int]()
        # The requirements that were asked about last.
        self._ranked: tuple[ReplicaRequirements, LookedAt] | None = None

    def lacks(self, room: Room, position: int, wanted: Outstanding) -> RoomLimit | None:
        """How little of what is wanted may be promised; None where all of it may."""
        limit = self._limit(room, position, wanted)
        if limit.replicas >= wanted.to_pack:
            return None
        return limit if self._refined(room, position, wanted) < wanted.to_pack else None

    def lacks_set(self, room: Room, wanted: Sequence[Outstanding]) -> bool:
        """Whether a room has too little for what a set needs there, beside what is kept back."""
        if not (self._terms.keeps_margin and self._terms.in_sets):
            return False
        parts = _parts(wanted)
        own = _own_in(room, wanted[0].binding)
        return bool(parts) and max_sets(room, parts, _asked(wanted), own.replicas) == 0

    def within(self, asks: Mapping[int, tuple[Outstanding, ...]]) -> set[int]:
        """The clusters where what a binding asks for beside its own stays within the limits of
        first sight. Strict shares are not looked at, nor whether they fit at all.
        """
        if not self._terms.keeps_margin:
            return set(asks)
        within = set[int]()
        for wanted, positions in _by_value(asks):
            if _asked(wanted) is Certificate.STRICT:
                within.update(positions)
            elif self._terms.in_sets or len(wanted) > 1:
                first = [position for position in positions if position not in self._own]
                within.update(
                    with_room_for_a_set(self._fleet, first, _parts(wanted), _asked(wanted))
                )
            else:
                within.update(self._careful_positions(wanted[0], positions))
        return within

    def _careful_positions(self, wanted: Outstanding, positions: list[int]) -> Iterable[int]:
        """The positions where so much is within the limit."""
        fleet, requirements = self._fleet, wanted.requirements
        is_enough_c = careful_c(fleet, requirements, self._own) >= wanted.to_pack
        # Where nothing is reported there is no limit of ours.
        is_enough_c |= fleet.layers.unknown_c
        looked_at = self._looked_at(requirements)
        for position in looked_at.large | looked_at.crowded:
            room = fleet.rooms[position]
            if room and position not in self._terms.placed and is_enough_c[position]:
                replicas = self._limit(room, position, wanted).replicas
                is_enough_c[position] = replicas >= wanted.to_pack
        within: list[int] = np.array(positions)[is_enough_c[positions]].tolist()
        return within

    def _limit(self, room: Room, position: int, wanted: Outstanding) -> RoomLimit:
        """The most replicas of what is wanted that may be promised at first sight."""
        requirements, certificate = wanted.requirements, wanted.certificate
        is_free = self._terms.in_sets or not self._terms.keeps_margin
        if certificate is PromiseCertificate.STRICT or is_free:
            return RoomLimit(room.most(requirements, certificate, wanted.to_pack))
        filled, spread = room.most_by_view(requirements)
        shape = request_shape(requirements.request)
        own = _own_in(room, wanted.binding)
        replicas, why = careful_most(filled, spread, room.held, shape, own), NO_REASON
        if replicas < min(filled, spread):
            why = Reason.of(ReasonCode.MARGIN_KEPT, Amount(min(filled, spread) - replicas))
        if replicas >= wanted.to_pack and self._leaves_room_for_large(position, requirements):
            beside = max_beside_large(room, requirements, replicas)
            if beside.replicas < replicas:
                replicas, why = beside
        if replicas >= wanted.to_pack and self._is_rehearsed(position, requirements):
            rehearsed = max_rehearsed(room, requirements, replicas)
            if rehearsed < replicas:
                kept_back = Amount(min(filled, spread) - rehearsed)
                replicas, why = rehearsed, Reason.of(ReasonCode.MARGIN_KEPT, kept_back)
        return RoomLimit(room.most(requirements, certificate, replicas), why)

    def _leaves_room_for_large(self, position: int, requirements: ReplicaRequirements) -> bool:
        """Whether it is one of the clusters where room for large pods is looked at."""
        if position in self._terms.placed or not is_mixed(self._fleet, position, requirements):
            return False
        return position in self._looked_at(requirements).large

    def _is_rehearsed(self, position: int, requirements: ReplicaRequirements) -> bool:
        """Whether it is one of the clusters where promises are held to a rehearsal."""
        if position in self._terms.placed:
            return False
        return position in self._looked_at(requirements).crowded

    def _looked_at(self, requirements: ReplicaRequirements) -> LookedAt:
        if self._ranked is None or self._ranked[0] is not requirements:
            most_c = careful_c(self._fleet, requirements)
            self._ranked = requirements, LookedAt.of(self._fleet, requirements, most_c)
        return self._ranked[1]

    def _refined(self, room: Room, position: int, wanted: Outstanding) -> int:
        """The most replicas of what is wanted that a second look grants."""
        terms = self._terms
        if wanted.certificate is PromiseCertificate.STRICT or room.holds_strict:
            return 0
        if terms.in_sets or (terms.keeps_margin and not terms.refined_replicas):
            return 0
        refined = self._refined_positions
        if position not in refined and len(refined) >= MAX_REFINED_CLUSTERS:
            return 0
        refined.add(position)
        if terms.keeps_margin:
            return refined_most(room, wanted.requirements, terms.refined_replicas)
        return rehearsed_most(room, wanted.requirements, wanted.to_pack)


def _own_in(room: Room, binding: str) -> OwnReplicas:
    """Count the replicas that a binding holds in a room."""
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
    """How many more replicas may be promised in each cluster (axis c), room for large pods apart,
    to a binding that holds its ``own`` by position.

    Some are kept back where best fit and spreading leave unequal room, and where much of other
    shapes is outstanding. Other shapes are packed in neither of the two ways. Agents choose the
    nodes of planned replicas, by other rules and in another order.
    """
    filled_c, spread_c = fleet.most_by_view(requirements)
    reserve_c = np.minimum(np.abs(filled_c - spread_c), fleet.sums.reserve_c)
    on_way_c = fleet.sums.on_their_way_c(request_shape(requirements.request))
    if own:
        # An array of pairs would take ten times as long to make.
        replicas, stuck = (list(column) for column in zip(*own.values(), strict=True))
        places = list(own)
        on_way_c[places] = np.maximum(on_way_c[places] - replicas, 0)
        reserve_c[places] += stuck
    reserve_c += -(-on_way_c // RESERVE_PART)
    most_c: IntArray = np.maximum(np.minimum(filled_c, spread_c) - reserve_c, 0)
    return most_c


def careful_beside_large(
    fleet: FleetRooms, requirements: ReplicaRequirements
) -> tuple[IntArray, dict[int, Reason]]:
    """``careful_c``, held to room for large pods and to rehearsals where these are looked at; and
    where room for large pods is less, why.
    """
    most_c, reasons = careful_c(fleet, requirements), dict[int, Reason]()
    looked_at = LookedAt.of(fleet, requirements, most_c)
    for position in looked_at.large | looked_at.crowded:
        room, replicas = fleet.rooms[position], int(most_c[position])
        if room is None:
            continue
        if position in looked_at.large:
            replicas, reason = max_beside_large(room, requirements, replicas)
            if reason:
                reasons[position] = reason
        if position in looked_at.crowded:
            replicas = max_rehearsed(room, requirements, replicas)
        most_c[position] = replicas
    return most_c, reasons


def _parts(wanted: Iterable[Outstanding]) -> list[Component]:
    """What of a set needs room."""
    return [
        Component(name=each.component, replicas=each.to_pack, requirements=each.requirements)
        for each in wanted
        if each.to_pack > 0
    ]


def _asked(wanted: Sequence[Outstanding]) -> Certificate:
    """The certificate by which the shares of one cluster are promised."""
    strict = any(each.certificate is PromiseCertificate.STRICT for each in wanted)
    return Certificate.STRICT if strict else Certificate.CAREFUL


def _by_value(
    asks: Mapping[int, tuple[Outstanding, ...]],
) -> Iterable[tuple[tuple[Outstanding, ...], list[int]]]:
    """The clusters by what is asked for there, which those of a decision mostly share."""
    groups: dict[int, tuple[tuple[Outstanding, ...], list[int]]] = {}
    for position, wanted in asks.items():
        groups.setdefault(id(wanted), (wanted, []))[1].append(position)
    return groups.values()
