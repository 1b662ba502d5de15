"""Clusters where promises were packed in another order than they were made in, because of what
lost its room: in which of them one more surely is promised, asked without packing all orders.

Pure. Must not promise anything, nor refuse it: where it is not sure, ``reserve`` finds out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from federation.capacity.careful import RoomLimits
from federation.capacity.cluster_room import LateInOrder, Room, Site
from federation.capacity.fleet_rooms import FleetRooms
from federation.model.reservations import Outstanding, PromiseCertificate


def surely_promised(
    fleet: FleetRooms,
    binding: str,
    asks: Mapping[int, tuple[Outstanding, ...]],
    positions: Collection[int],
    late_in_order: LateInOrder,
    limits: RoomLimits,
) -> frozenset[int]:
    """Those of the positions where ``reserve`` promises what is asked.

    It packs all that is outstanding in several orders, with what is asked last of all, and keeps
    what leaves the fewest without room. Where no more find none in the first order than before,
    they do not in the best.
    """
    asking: dict[int, tuple[Room, Site, tuple[Outstanding, ...]]] = {}
    for position in positions:
        room = _crowded_room(fleet, position, binding)
        if room is None or len(asks[position]) != 1:
            continue
        (wanted,) = asks[position]
        if not wanted.certificate.is_packed or wanted.certificate is PromiseCertificate.STRICT:
            continue
        if limits.lacks(room, position, wanted) is None:
            asking[position] = room, room.site, (*room.outstanding, wanted)
    late = late_in_order(fleet.kinds, [(site, every) for _, site, every in asking.values()])
    return frozenset(
        position
        for (position, (room, _, _)), count in zip(asking.items(), late, strict=True)
        if count <= room.stuck()
    )


def _crowded_room(fleet: FleetRooms, position: int, binding: str) -> Room | None:
    """The room, where all is packed in another order, nothing strictly, and nothing of the
    binding.
    """
    held = fleet.held[position]
    if held is None or not held.arrived or held.is_strict:
        return None
    if any(each.outstanding.binding == binding for each in held.every):
        return None
    return fleet.rooms[position]
