"""How many whole sets of a workload of several components can be promised in each cluster.

Pure. Must not promise: it says no more than what a promise then accepts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from federation.capacity.cells import VIEWS, Residues, View
from federation.capacity.cluster_room import Room, certificate_for
from federation.capacity.fleet_rooms import FleetRooms
from federation.capacity.packing import pack, room_by_segment
from federation.model.arrays import BoolArray, IntArray
from federation.model.estimate import MAX_REPLICAS
from federation.model.placement import Certificate
from federation.model.pools.matching import Match
from federation.model.reservations import RESERVE_PART, Outstanding
from federation.model.shapes import request_shape
from federation.model.workload import Component, ReplicaRequirements


class SetMargin(NamedTuple):
    """The replicas that a careful promise of sets keeps back in each cluster, once a set.

    They are replicas of the part at ``part_c``, of which the fewest fit there.
    """

    replicas_c: IntArray
    part_c: IntArray

    def of(self, place: int, is_wanted_c: BoolArray) -> IntArray:
        """How many more replicas of a part have to fit where any set is wanted."""
        kept_c: IntArray = self.replicas_c * ((self.part_c == place) & is_wanted_c)
        return kept_c


def packable_sets_c(
    fleet: FleetRooms,
    components: Sequence[Component],
    asked: Certificate | None,
    own: Mapping[int, Room | None],
) -> IntArray:
    """Whole sets by cluster (axis c), 0 where pools cannot tell; of a set of nothing none fits.

    ``own`` has, for every cluster where the binding is, the room without it, None where there is
    none for it.
    """
    parts = [each for each in components if each.replicas > 0]
    sets_c = np.zeros(len(fleet), dtype=np.int64)
    if not parts:
        return sets_c
    told_c = np.logical_and.reduce([fleet.told(each.requirements)[0] for each in parts])
    apart_c = _apart_c(fleet, asked)
    apart_c[list(own)] = True
    together = np.flatnonzero(told_c & ~apart_c)
    if len(together):
        positions, residues = fleet.layers.gathered(together.tolist())
        most_c = _most_together(fleet, positions, residues, parts)
        sets_c[positions] = most_c
    sets_c[apart_c | ~told_c] = 0
    for position in np.flatnonzero(told_c & apart_c).tolist():
        room = own[position] if position in own else fleet.rooms[position]
        if room is not None:
            sets_c[position] = max_sets(room, parts, asked)
    return sets_c


def with_room_for_a_set(
    fleet: FleetRooms, positions: Sequence[int], parts: Sequence[Component], asked: Certificate
) -> list[int]:
    """The clusters, of those at the positions, that hold a set beside what is kept back."""
    apart_c = _apart_c(fleet, asked)
    holding = []
    together = [position for position in positions if not apart_c[position]]
    if together:
        places, residues = fleet.layers.gathered(together)
        sets_c = np.zeros(len(fleet), dtype=np.int64)
        sets_c[places] = _most_together(fleet, places, residues, parts)
        holding = [position for position in together if sets_c[position] > 0]
    for position in positions:
        room = fleet.rooms[position] if apart_c[position] else None
        if room is not None and max_sets(room, parts, asked) > 0:
            holding.append(position)
    return holding


def max_sets(
    room: Room, parts: Sequence[Component], spec_certificate: Certificate | None, own: int = 0
) -> int:
    """How many sets fit in one room beside what is kept back, where more than cells decides. Their
    binding has so many replicas of its ``own`` there.
    """
    margin, place = (
        _margin_in(room, parts, own) if spec_certificate is not Certificate.STRICT else (0, 0)
    )

    def fit(sets: int) -> bool:
        made = room
        for number, each in enumerate(parts):
            wanted = sets * each.replicas + (margin if number == place else 0)
            certificate = certificate_for(spec_certificate, room, each.requirements)
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
        room.most(
            each.requirements,
            certificate_for(spec_certificate, room, each.requirements),
            MAX_REPLICAS,
        )
        // each.replicas
        for each in parts
    )
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fit(middle) else (low, middle - 1)
    return low


def _margin_in(room: Room, parts: Sequence[Component], own: int) -> tuple[int, int]:
    """The replicas that are kept back in one room, and the place of their part."""
    views = [room.most_by_view(each.requirements) for each in parts]
    least = [min(each) for each in views]
    unequal = max(abs(filled - spread) for filled, spread in views)
    shapes = {request_shape(each.requirements.request) for each in parts}
    on_way = room.held.on_their_way(*shapes) if len(shapes) == 1 else room.held.replicas
    margin = min(unequal, room.held.reserve) + -(-max(0, on_way - own) // RESERVE_PART)
    return margin, least.index(min(least))


def _apart_c(fleet: FleetRooms, asked: Certificate | None) -> BoolArray:
    """Where sets are counted room by room."""
    apart_c: BoolArray = fleet.overcommitted_c | fleet.strict_c | (asked is Certificate.STRICT)
    return apart_c


def _margin(
    fleet: FleetRooms, positions: Sequence[int], parts: Sequence[Component], room_ics: IntArray
) -> SetMargin:
    """``_margin_in`` for many clusters; ``room_ics`` has the room for each part in both views."""
    filled_ic, spread_ic = room_ics[..., View.FILLED], room_ics[..., View.SPREAD]
    unequal_c = np.abs(filled_ic - spread_ic).max(axis=0)
    shapes = {request_shape(each.requirements.request) for each in parts}
    on_way_c = fleet.sums.on_their_way_c(*shapes) if len(shapes) == 1 else fleet.sums.replicas_c
    margin_c = np.minimum(unequal_c, fleet.sums.reserve_c[positions])
    margin_c += -(-on_way_c[positions] // RESERVE_PART)
    return SetMargin(margin_c, np.minimum(filled_ic, spread_ic).argmin(axis=0))


def _most_together(
    fleet: FleetRooms, positions: Sequence[int], residues: Residues, parts: Sequence[Component]
) -> IntArray:
    """The most sets that were seen to fit, by halving what may be possible.

    Fewer sets need not fit where more do: what is answered was packed itself.
    """
    room_ics = np.array(
        [
            room_by_segment(
                residues, each.requirements.request, _suiting(fleet, each.requirements)
            ).reshape(-1, VIEWS)
            for each in parts
        ]
    )
    room_ics = np.minimum(room_ics, MAX_REPLICAS)
    margin = _margin(fleet, positions, parts, room_ics)

    def enough_c(placed_s: IntArray, wanted_c: IntArray) -> BoolArray:
        filled_c, spread_c = placed_s[View.FILLED :: VIEWS], placed_s[View.SPREAD :: VIEWS]
        return (filled_c >= wanted_c) & (spread_c >= wanted_c)

    def fit_c(sets_c: IntArray) -> BoolArray:
        left, fits_c = residues, np.ones(len(residues), dtype=np.bool_)
        for place, each in enumerate(parts):
            wanted_c = sets_c * each.replicas + margin.of(place, sets_c > 0)
            suiting_p = _suiting(fleet, each.requirements)
            packing = pack(left, each.requirements.request, wanted_c, suiting_p)
            left, fits_c = packing.left, fits_c & enough_c(packing.placed_s, wanted_c)
        return fits_c

    high_c = np.full(len(residues), MAX_REPLICAS, dtype=np.int64)
    for each, room_cs in zip(parts, room_ics, strict=True):
        np.minimum(high_c, room_cs[:, View.FILLED] // each.replicas, out=high_c)
    low_c = np.zeros_like(high_c)
    while (low_c < high_c).any():
        middle_c = (low_c + high_c + 1) // 2
        fits_c = fit_c(middle_c)
        low_c = np.where(fits_c, middle_c, low_c)
        high_c = np.where(fits_c, high_c, middle_c - 1)
    return low_c


def _suiting(fleet: FleetRooms, requirements: ReplicaRequirements) -> BoolArray | None:
    verdict_p = fleet.kinds.verdicts(requirements.node_claim)
    return None if verdict_p is None else verdict_p == Match.YES
