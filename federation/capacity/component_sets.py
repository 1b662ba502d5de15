"""Number of whole sets of a workload's components that can be promised in each cluster.

Pure. Must not promise: it offers no more than a promise then accepts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from federation.capacity.cells import VIEWS, FreeCells, View
from federation.capacity.cluster_room import Room, certificate_for
from federation.capacity.fleet_rooms import FleetRooms
from federation.capacity.packing import pack, room_by_segment
from federation.model.arrays import BoolArray, IntArray
from federation.model.estimate import MAX_REPLICAS
from federation.model.placement import Certificate
from federation.model.reservations import RESERVE_PART, Outstanding
from federation.model.shapes import request_shape
from federation.model.workload import Component


class SetMargin(NamedTuple):
    """The replicas that a careful promise of sets keeps back in each cluster (axis c), once a set.

    They are replicas of the part at ``part_c``, of which the fewest fit there.
    """

    replicas_c: IntArray
    part_c: IntArray

    def of(self, place: int, has_sets_c: BoolArray) -> IntArray:
        """Return how many more replicas of a part must fit in the clusters that get any set."""
        margin_c: IntArray = self.replicas_c * ((self.part_c == place) & has_sets_c)
        return margin_c


def packable_sets_c(
    fleet: FleetRooms,
    components: Sequence[Component],
    requested: Certificate | None,
    own: Mapping[int, Room | None],
) -> IntArray:
    """Return the whole sets that fit in each cluster (axis c).

    0 where the pools do not carry the labels that a claim names, and for a set without replicas.
    ``own`` has, for each cluster with promises of the binding, the capacity without them; None
    where it has none.
    """
    parts = [component for component in components if component.replicas > 0]
    sets_c = np.zeros(len(fleet), dtype=np.int64)
    if not parts:
        return sets_c
    carries_c = np.logical_and.reduce(
        [fleet.label_carriers(part.requirements)[0] for part in parts]
    )
    apart_c = _apart_c(fleet, requested)
    apart_c[list(own)] = True
    together = np.flatnonzero(carries_c & ~apart_c)
    if len(together):
        positions, free_cells = fleet.layers.gathered(together.tolist())
        max_c = _max_together(fleet, positions, free_cells, parts)
        sets_c[positions] = max_c
    sets_c[apart_c | ~carries_c] = 0
    for position in np.flatnonzero(carries_c & apart_c).tolist():
        room = own[position] if position in own else fleet.rooms[position]
        if room is not None:
            sets_c[position] = max_sets(room, parts, requested)
    return sets_c


def with_room_for_a_set(
    fleet: FleetRooms, positions: Sequence[int], parts: Sequence[Component], requested: Certificate
) -> list[int]:
    """Return those of the clusters at the positions that hold a set beside the margin."""
    apart_c = _apart_c(fleet, requested)
    holding = []
    together = [position for position in positions if not apart_c[position]]
    if together:
        places, free_cells = fleet.layers.gathered(together)
        sets_c = np.zeros(len(fleet), dtype=np.int64)
        sets_c[places] = _max_together(fleet, places, free_cells, parts)
        holding = [position for position in together if sets_c[position] > 0]
    for position in positions:
        room = fleet.rooms[position] if apart_c[position] else None
        if room is not None and max_sets(room, parts, requested) > 0:
            holding.append(position)
    return holding


def max_sets(
    room: Room, parts: Sequence[Component], spec_certificate: Certificate | None, own: int = 0
) -> int:
    """Return how many sets fit in one cluster beside the margin, packed one part after the other.

    The binding has ``own`` replicas there.
    """
    margin, place = (
        _margin_in(room, parts, own) if spec_certificate is not Certificate.STRICT else (0, 0)
    )

    def fit(sets: int) -> bool:
        packed = room
        for number, part in enumerate(parts):
            replicas = sets * part.replicas + (margin if number == place else 0)
            certificate = certificate_for(spec_certificate, room, part.requirements)
            if packed.max_replicas(part.requirements, certificate, replicas) < replicas:
                return False
            packed = packed.with_one(
                Outstanding(
                    binding="",
                    component=part.name,
                    requirements=part.requirements,
                    certificate=certificate,
                    in_cells=replicas,
                )
            )
        return True

    low = 0
    high = min(
        room.max_replicas(
            part.requirements,
            certificate_for(spec_certificate, room, part.requirements),
            MAX_REPLICAS,
        )
        // part.replicas
        for part in parts
    )
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fit(middle) else (low, middle - 1)
    return low


def _margin_in(room: Room, parts: Sequence[Component], own: int) -> tuple[int, int]:
    """Return the replicas kept back in one cluster, and the place of their part."""
    views = [room.max_by_view(part.requirements) for part in parts]
    least = [min(view) for view in views]
    unequal = max(abs(filled - spread) for filled, spread in views)
    shapes = {request_shape(part.requirements.request) for part in parts}
    on_way = room.held.on_their_way(*shapes) if len(shapes) == 1 else room.held.replicas
    margin = min(unequal, room.held.reserve) + -(-max(0, on_way - own) // RESERVE_PART)
    return margin, least.index(min(least))


def _apart_c(fleet: FleetRooms, requested: Certificate | None) -> BoolArray:
    """Tell where sets are counted cluster by cluster."""
    is_strict = requested is Certificate.STRICT
    apart_c: BoolArray = fleet.overcommitted_c | fleet.strict_c | is_strict
    return apart_c


def _margin(
    fleet: FleetRooms, positions: Sequence[int], parts: Sequence[Component], room_ics: IntArray
) -> SetMargin:
    """Return ``_margin_in`` of many clusters.

    ``room_ics`` is the room for each part (axis i) by cluster (axis c) and view (axis s).
    """
    filled_ic, spread_ic = room_ics[..., View.FILLED], room_ics[..., View.SPREAD]
    unequal_c = np.abs(filled_ic - spread_ic).max(axis=0)
    shapes = {request_shape(part.requirements.request) for part in parts}
    on_way_c = fleet.sums.on_their_way_c(*shapes) if len(shapes) == 1 else fleet.sums.replicas_c
    margin_c = np.minimum(unequal_c, fleet.sums.reserve_c[positions])
    margin_c += -(-on_way_c[positions] // RESERVE_PART)
    return SetMargin(margin_c, np.minimum(filled_ic, spread_ic).argmin(axis=0))


def _max_together(
    fleet: FleetRooms, positions: Sequence[int], free_cells: FreeCells, parts: Sequence[Component]
) -> IntArray:
    """Return the most sets that were seen to fit, by bisection.

    Fewer sets may fail where more fit, so each answer was packed itself.
    """
    room_ics = np.array(
        [
            room_by_segment(
                free_cells,
                part.requirements.request,
                fleet.kinds.suiting(part.requirements.node_claim),
            ).reshape(-1, VIEWS)
            for part in parts
        ]
    )
    room_ics = np.minimum(room_ics, MAX_REPLICAS)
    margin = _margin(fleet, positions, parts, room_ics)

    def enough_c(placed_s: IntArray, replicas_c: IntArray) -> BoolArray:
        filled_c, spread_c = placed_s[View.FILLED :: VIEWS], placed_s[View.SPREAD :: VIEWS]
        return (filled_c >= replicas_c) & (spread_c >= replicas_c)

    def fit_c(sets_c: IntArray) -> BoolArray:
        packed, fits_c = free_cells, np.ones(len(free_cells), dtype=np.bool_)
        for place, part in enumerate(parts):
            replicas_c = sets_c * part.replicas + margin.of(place, sets_c > 0)
            suiting_p = fleet.kinds.suiting(part.requirements.node_claim)
            packing = pack(packed, part.requirements.request, replicas_c, suiting_p)
            packed, fits_c = packing.free_cells, fits_c & enough_c(packing.placed_s, replicas_c)
        return fits_c

    high_c = np.full(len(free_cells), MAX_REPLICAS, dtype=np.int64)
    for part, room_cs in zip(parts, room_ics, strict=True):
        np.minimum(high_c, room_cs[:, View.FILLED] // part.replicas, out=high_c)
    low_c = np.zeros_like(high_c)
    while (low_c < high_c).any():
        middle_c = (low_c + high_c + 1) // 2
        fits_c = fit_c(middle_c)
        low_c = np.where(fits_c, middle_c, low_c)
        high_c = np.where(fits_c, high_c, middle_c - 1)
    return low_c
