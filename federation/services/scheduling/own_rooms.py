"""What is left in the clusters where a binding is, as if it had nothing there.

Plain functions of one thread. Must not promise anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from federation.capacity.cluster_room import Packer, Room, answered_together
from federation.capacity.fleet_rooms import FleetRooms
from federation.capacity.last_promises import packable_beside_last
from federation.model.placement import Binding, Certificate


class OwnRooms(NamedTuple):
    """By position the room without it, and how many of its replicas need some there; ``beside``
    is what is left beside these where that is known without the room.
    """

    rooms: Mapping[int, tuple[Room, int]]
    beside: Mapping[int, int]


def own_rooms(
    fleet: FleetRooms,
    positions: Mapping[str, int],
    binding: Binding,
    asked: Certificate | None,
    kept: Mapping[int, int],
    pack: Packer | None,
) -> OwnRooms:
    """``positions`` are the fleet's by name, ``kept`` is what stays; ``pack`` is as for
    ``answered_together``.
    """
    there = [
        position
        for target in binding.clusters
        if (position := positions.get(target.name)) is not None
    ]
    known: Mapping[int, int] = {}
    if not binding.components:
        known = packable_beside_last(fleet, binding.key, binding.requirements, asked, there)
    rooms = fleet.rooms
    asking = {
        position: room.asking_beside(binding.key)
        for position in there
        if position not in known and (room := rooms[position])
    }
    packed = answered_together(asking, pack)
    return OwnRooms(
        rooms={position: (room, kept.get(position, 0)) for position, room in packed.items()},
        beside={position: max(0, most - kept.get(position, 0)) for position, most in known.items()},
    )
