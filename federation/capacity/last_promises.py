"""How much room there is beside a binding in clusters where it was promised last: all else was
packed before it, so nothing has to be packed anew to leave it out.

Pure. Must not answer where others were packed since, nor where they would be packed otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from federation.capacity.assignments import Alike, Assignment, Held
from federation.capacity.fleet_rooms import FleetRooms
from federation.capacity.worth import careful_most
from federation.model.estimate import MAX_REPLICAS
from federation.model.placement import Certificate
from federation.model.shapes import request_shape
from federation.model.workload import ReplicaRequirements


class _Last(NamedTuple):
    """So many replicas, and how many of which shape were held before them."""

    replicas: int
    before: Held


def packable_beside_last(
    fleet: FleetRooms,
    binding: str,
    requirements: ReplicaRequirements,
    asked: Certificate | None,
    positions: Iterable[int],
) -> dict[int, int]:
    """What ``Room.packable`` says of the rooms ``beside`` the binding, in those of some clusters
    where that is known without packing them.

    A replica that leaves its node makes room for one more of the same there, and for no other.
    """
    if asked is Certificate.STRICT:
        return {}
    alike, shape = Alike(), request_shape(requirements.request)
    last = {
        position: found
        for position in positions
        if (found := _last(fleet.held[position], binding, requirements, alike))
    }
    if not last:
        return {}
    filled_c, spread_c = (each_c.tolist() for each_c in fleet.most_by_view(requirements))
    most: dict[int, int] = {}
    for position in fleet.telling(list(last), requirements.node_claim):
        replicas, before = last[position]
        filled, spread = filled_c[position] + replicas, spread_c[position] + replicas
        # Where spreading leaves no room it may have found too little for all of them; and what is
        # not counted to its end may be more.
        if spread_c[position] and max(filled, spread) < MAX_REPLICAS:
            most[position] = careful_most(filled, spread, before, shape)
    return most


def _last(
    held: Held | None, binding: str, requirements: ReplicaRequirements, alike: Alike
) -> _Last | None:
    """What the binding holds, where that is the last thing that was packed, of the very same shape.

    Others must all differ: what is alike is packed as one where it is packed anew.
    """
    if held is None or held.is_overcommitted or held.is_strict or held.arrived or not held.more:
        return None
    one, outstanding = held.more[-1], held.more[-1].outstanding
    if outstanding.binding != binding or one.unplaced or not outstanding.certificate.is_packed:
        return None
    wanted = outstanding._replace(requirements=requirements)
    if alike.number(outstanding) != alike.number(wanted):
        return None
    others = held.every[:-1]
    if not _all_differ(others, alike):
        return None
    if binding in [each.outstanding.binding for each in others]:
        return None
    # Whether the others are all of this shape is all that has to be known of them.
    replicas = outstanding.to_pack
    before = Held(replicas=held.replicas - replicas, only=held.only)
    return _Last(replicas=replicas, before=before)


def _all_differ(others: Iterable[Assignment], alike: Alike) -> bool:
    """Mostly the first few say that they do not: where some shapes are common."""
    seen = set[int]()
    for each in others:
        number = alike.number(each.outstanding)
        if number in seen:
            return False
        seen.add(number)
    return True
