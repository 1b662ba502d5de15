"""Promises of new replicas in many clusters at once: all are packed in the same steps.

Pure. Must not pack where pools do not carry the labels of a claim.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeAlias

import numpy as np

from federation.capacity.assignments import Assignment
from federation.capacity.cells import VIEWS, View
from federation.capacity.fleet_rooms import FleetRooms
from federation.capacity.growth import positions_by_promises
from federation.capacity.layers import KnownRoom
from federation.capacity.packing import Packing, pack, pack_in_place
from federation.model.arrays import BoolArray, IntArray
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import Amount, Reason
from federation.model.reservations import Outstanding, PromiseCertificate
from federation.model.workload import ReplicaRequirements

# Promises, and the clusters that get exactly these.
_Group: TypeAlias = tuple[tuple[Outstanding, ...], list[int]]
# Makes the fleet with the promises: a preview never calls it.
Promised: TypeAlias = Callable[[], FleetRooms]
# Up to this number of clusters, packing is faster than reading the free cells of the whole fleet.
_FEW: Final = 256


@dataclass(slots=True, kw_only=True, eq=False)
class _Round:
    """Promises of the same requirements, with the clusters that get each."""

    requirements: ReplicaRequirements
    promises: list[tuple[Outstanding, list[int]]] = field(default_factory=list)

    def is_for(self, requirements: ReplicaRequirements) -> bool:
        return self.requirements is requirements or self.requirements == requirements

    @property
    def strict(self) -> list[int]:
        """The clusters with a strict promise."""
        strict = PromiseCertificate.STRICT
        return [
            c
            for promise, positions in self.promises
            if promise.certificate is strict
            for c in positions
        ]


def simple_asks(
    fleet: FleetRooms, asks: Mapping[int, tuple[Outstanding, ...]]
) -> dict[int, tuple[Outstanding, ...]]:
    """Return the asks in clusters where all replicas need new room that cells can prove."""
    reported = [position for position in asks if fleet.held[position] is not None]
    simple: dict[int, tuple[Outstanding, ...]] = {}
    for promises, positions in positions_by_promises(asks, reported):
        if promises and all(
            promise.certificate.is_packed and not promise.credited for promise in promises
        ):
            carrying = positions
            for promise in promises:
                carrying = fleet.carrying_labels(carrying, promise.requirements.node_claim)
            simple |= dict.fromkeys(carrying, promises)
    return simple


def promised_together(
    fleet: FleetRooms, asks: Mapping[int, tuple[Outstanding, ...]]
) -> Promised | dict[int, Reason]:
    """Pack simple asks, component after component.

    Return the fleet with all of them, or the reasons by cluster where room is short.
    """
    if not asks:
        return lambda: fleet
    if len(asks) > _FEW and _surely_fit(fleet, asks):
        return partial(_with_all, fleet, asks)
    return _packed_together(fleet, asks)


def _surely_fit(fleet: FleetRooms, asks: Mapping[int, tuple[Outstanding, ...]]) -> bool:
    """Tell whether all promises fit by the free cells alone, so that packing can wait."""
    first, *rest = _rounds(positions_by_promises(asks, asks))
    if rest or _strict_c(fleet, first) is not None:
        return False
    least_c = np.minimum(*fleet.max_by_view(first.requirements))
    return all(
        int(least_c[positions].min()) >= promise.to_pack for promise, positions in first.promises
    )


def _with_all(fleet: FleetRooms, asks: Mapping[int, tuple[Outstanding, ...]]) -> FleetRooms:
    """Return the fleet with promises that surely fit."""
    packed = _packed_together(fleet, asks)
    if callable(packed):
        return packed()
    raise LookupError(f"what surely fits finds no room: {packed}")


def _packed_together(
    fleet: FleetRooms, asks: Mapping[int, tuple[Outstanding, ...]]
) -> Promised | dict[int, Reason]:
    """Pack round after round; return the fleet with all of them, or the reasons by cluster."""
    positions, free_cells = fleet.layers.gathered(list(asks))
    place_by = {position: place for place, position in enumerate(positions)}
    promised: dict[int, tuple[Assignment, ...]] = {}
    reasons: dict[int, Reason] = {}
    room: KnownRoom | None = None
    asking = [position for position in positions if position in asks]
    rounds = _rounds(positions_by_promises(asks, asking))
    for turn, current in enumerate(rounds):
        replicas_c = np.zeros(len(positions), dtype=np.int64)
        for promise, clusters in current.promises:
            replicas_c[[place_by[position] for position in clusters]] = promise.to_pack
        suiting_p = fleet.kinds.suiting(current.requirements.node_claim)
        # A gathered table has spare columns for one packing: later rounds copy it.
        packed_on = pack if turn else pack_in_place
        packing = packed_on(free_cells, current.requirements.request, replicas_c, suiting_p)
        free_cells = packing.free_cells
        # Kept for the next binding, which mostly asks for the same.
        room = None
        if packing.room_s is not None and suiting_p is None:
            room = current.requirements.request, packing.room_s.reshape(-1, VIEWS)
        strict_c = _strict_c(fleet, current)
        if (packing.placed_s < replicas_c.repeat(VIEWS)).any() or strict_c is not None:
            max_c = _packed_c(packing, current, place_by, len(fleet))
            if strict_c is not None:
                earlier = {c: [part.contending for part in parts] for c, parts in promised.items()}
                max_c = fleet.max_strict_c(current.requirements, strict_c, max_c, earlier)
            for promise, clusters in current.promises:
                for position in clusters:
                    if max_c[position] < promise.to_pack:
                        reason = shortage(int(max_c[position]), promise)
                        reasons.setdefault(position, reason)
        for promise, clusters in current.promises:
            for c in clusters:
                part = Assignment(promise, packing.takes, place_by[c], fleet.resources(c))
                promised[c] = (*promised[c], part) if c in promised else (part,)
    if reasons:
        return reasons
    return partial(fleet.with_promise, positions, free_cells, promised, room)


def _rounds(groups: Iterable[_Group]) -> list[_Round]:
    """Divide all promises into rounds of equal requirements.

    Each cluster's promises keep their order, because other control planes pack in that order.
    """
    rounds: list[_Round] = []
    for promises, positions in groups:
        turn = 0
        for promise in promises:
            while turn < len(rounds) and not rounds[turn].is_for(promise.requirements):
                turn += 1
            if turn == len(rounds):
                rounds.append(_Round(requirements=promise.requirements))
            rounds[turn].promises.append((promise, positions))
            turn += 1
    return rounds


def _packed_c(
    packing: Packing, current: _Round, place_by: Mapping[int, int], size: int
) -> IntArray:
    """Return how many replicas found room in both views, by cluster of the fleet."""
    least_c = np.minimum(*(packing.placed_s[view::VIEWS] for view in View))
    packed_c = np.zeros(size, dtype=np.int64)
    for _, positions in current.promises:
        packed_c[positions] = least_c[[place_by[position] for position in positions]]
    return packed_c


def _strict_c(fleet: FleetRooms, current: _Round) -> BoolArray | None:
    """Tell where the round promises strictly; None where no strict promise of any binding is."""
    strict = current.strict
    asking = [position for _, positions in current.promises for position in positions]
    if not strict and not fleet.strict_c[asking].any():
        return None
    strict_c = np.zeros(len(fleet), dtype=np.bool_)
    strict_c[strict] = True
    return strict_c


def shortage(max_replicas: int, promise: Outstanding, held: int = 0) -> Reason:
    """Return the reason of a refusal for want of room; the promise adds to ``held`` replicas."""
    return Reason.of(
        ReasonCode.FEWER_FIT, Amount(held + max_replicas), Amount(held + promise.to_pack)
    )
