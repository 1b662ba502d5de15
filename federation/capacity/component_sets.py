"""How many whole sets of a workload of several components can be promised in each cluster.

Pure. Must not promise: it says no more than what a promise then accepts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from federation.capacity.cells import VIEWS, Residues, View
from federation.capacity.cluster_room import Room, certificate_for
from federation.capacity.fleet_rooms import FleetRooms
from federation.capacity.packing import pack, room_by_segment
from federation.model.arrays import BoolArray, IntArray
from federation.model.estimate import MAX_REPLICAS
from federation.model.placement import Certificate
from federation.model.pools.matching import Match
from federation.model.reservations import Outstanding
from federation.model.workload import Component, ReplicaRequirements


def packable_sets_c(
    fleet: FleetRooms,
    components: Sequence[Component],
    asked: Certificate | None,
    own: Mapping[int, Room],
) -> IntArray:
    """Whole sets by cluster (axis c), 0 where pools cannot tell; of a set of nothing none fits.

    ``own`` has, for every cluster where the binding is, the room without it.
    """
    parts = [each for each in components if each.replicas > 0]
    sets_c = np.zeros(len(fleet), dtype=np.int64)
    if not parts:
        return sets_c
    told_c = np.logical_and.reduce([fleet.told(each.requirements)[0] for each in parts])
    apart_c = fleet.overcommitted_c | fleet.strict_c | (asked is Certificate.STRICT)
    apart_c[list(own)] = True
    together = np.flatnonzero(told_c & ~apart_c)
    if len(together):
        positions, residues = fleet.layers.gathered(together.tolist())
        most_c = _most_together(fleet, residues, parts)
        sets_c[positions] = most_c
    sets_c[apart_c | ~told_c] = 0
    for position in np.flatnonzero(told_c & apart_c).tolist():
        room = own[position] if position in own else fleet.rooms[position]
        if room is not None:
            sets_c[position] = _most_apart(room, parts, asked)
    return sets_c


def _most_together(fleet: FleetRooms, residues: Residues, parts: Sequence[Component]) -> IntArray:
    """The most sets that were seen to fit, by halving what may be possible.

    Fewer sets need not fit where more do: what is answered was packed itself.
    """

    def enough_c(placed_s: IntArray, wanted_c: IntArray) -> BoolArray:
        filled_c, spread_c = placed_s[View.FILLED :: VIEWS], placed_s[View.SPREAD :: VIEWS]
        return (filled_c >= wanted_c) & (spread_c >= wanted_c)

    def fit_c(sets_c: IntArray) -> BoolArray:
        left, fits_c = residues, np.ones(len(residues), dtype=np.bool_)
        for each in parts:
            wanted_c = sets_c * each.replicas
            suiting_p = _suiting(fleet, each.requirements)
            packing = pack(left, each.requirements.request, wanted_c, suiting_p)
            left, fits_c = packing.left, fits_c & enough_c(packing.placed_s, wanted_c)
        return fits_c

    high_c = np.full(len(residues), MAX_REPLICAS, dtype=np.int64)
    for each in parts:
        suiting_p = _suiting(fleet, each.requirements)
        room_s = room_by_segment(residues, each.requirements.request, suiting_p)
        np.minimum(high_c, room_s[View.FILLED :: VIEWS] // each.replicas, out=high_c)
    low_c = np.zeros_like(high_c)
    while (low_c < high_c).any():
        middle_c = (low_c + high_c + 1) // 2
        fits_c = fit_c(middle_c)
        low_c = np.where(fits_c, middle_c, low_c)
        high_c = np.where(fits_c, high_c, middle_c - 1)
    return low_c


def _most_apart(room: Room, parts: Sequence[Component], asked: Certificate | None) -> int:
    """The same in one room, where more than cells decides."""

    def fit(sets: int) -> bool:
        made = room
        for each in parts:
            wanted = sets * each.replicas
            certificate = certificate_for(asked, room, each.requirements)
            if made.most(each.requirements, certificate, wanted) < wanted:
                return False
            made = made.with_one(
                Outstanding(
                    binding="",
                    component=each.name,
                    requirements=each.requirements,
                    certificate=certificate,
                    in_cells=wanted,
                )
            )
        return True

    low = 0
    high = min(
        room.most(each.requirements, certificate_for(asked, room, each.requirements), MAX_REPLICAS)
        // each.replicas
        for each in parts
    )
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fit(middle) else (low, middle - 1)
    return low


def _suiting(fleet: FleetRooms, requirements: ReplicaRequirements) -> BoolArray | None:
    verdict_p = fleet.kinds.verdicts(requirements.node_claim)
    return None if verdict_p is None else verdict_p == Match.YES
