"""Room for large pods that come late: careful promises are held to it where both are on their way.

Pure. A large pod fits on few nodes, mostly the emptiest, and that is where a stock kube-scheduler
puts small pods that are made before it. So those are rehearsed first, whatever was promised first.
Pods come in other orders too, and luck differs: so room for one more of each large shape is left.
Must not grant anything: it only says where less may be promised.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_
from typing import Final, NamedTuple

import numpy as np

from federation.capacity.as_scheduled import part_of, rehearsal_of
from federation.capacity.assignments import Held, summed_alike
from federation.capacity.cluster_room import Room, Site
from federation.capacity.fleet_rooms import FleetRooms
from federation.capacity.rehearsal import Rehearsal
from federation.model.arrays import IntArray
from federation.model.pools.values import SCORED
from federation.model.reservations import Outstanding
from federation.model.shapes import request_shape
from federation.model.workload import ReplicaRequirements

# Large is what asks for more than one in so many of what the largest node has of a resource.
LARGE_PART: Final = 4
# Runs of these rehearsals: they only have to show whether anything is lost.
RUNS: Final = 6
# Of so many clusters, those with most room.
MOST_LOOKED_AT: Final = 4
# What is tried, of what fits at first sight.
PARTS: Final = (1.0, 0.75, 0.5, 0.25, 0.125)


class Late(NamedTuple):
    """In all runs together: large ``pods`` that find no node, and how often the nodes are ``full``
    for one more of a shape. The less of the first, the better.
    """

    pods: int
    full: int


NONE_LATE: Final = Late(pods=0, full=0)


def beside_large_c(
    fleet: FleetRooms, requirements: ReplicaRequirements, most_c: IntArray
) -> IntArray:
    """How many of so many replicas (axis c) leave room for large pods that come late, and have it
    themselves.
    """
    found_c = most_c.copy()
    (may,) = np.nonzero((most_c > 0) & (fleet.outstanding_c > 0))
    mixed = [position for position in may.tolist() if _is_mixed(fleet, position, requirements)]
    mixed.sort(key=lambda position: -int(most_c[position]))
    for position in mixed[:MOST_LOOKED_AT]:
        found_c[position] = most_beside_large(fleet, position, requirements, int(most_c[position]))
    return found_c


def most_beside_large(
    fleet: FleetRooms, position: int, requirements: ReplicaRequirements, limit: int
) -> int:
    """The most of so many replicas in a cluster that leave no more large pods without a node, or
    without room for another one, than are already; all of them where large pods do not mix with
    others, or cannot be rehearsed.
    """
    room = fleet.rooms[position] if _is_mixed(fleet, position, requirements) else None
    stage, large = (None, ()) if room is None else _early(room)
    if room is None or stage is None:
        return limit
    late = _late(room, stage, large)
    for part in PARTS:
        most = int(limit * part)
        wanted = Outstanding("", requirements, most)
        if most and _late_beside(room, stage, large, wanted) <= late:
            return most
    return 0


def _late_beside(
    room: Room, stage: Rehearsal, large: Sequence[Outstanding], wanted: Outstanding
) -> Late:
    if _share(room.site, wanted.requirements) * LARGE_PART > 1:
        return _late(room, stage, [*large, wanted])
    after = stage.with_pods(part_of(wanted, room.site.kind_p, room.kinds))
    return NONE_LATE if after is None else _late(room, after, large)


def _late(room: Room, stage: Rehearsal | None, large: Sequence[Outstanding]) -> Late:
    """What is missing for the large pods, the largest of which come last."""
    if stage is None:
        return NONE_LATE
    before_l = stage.late_l
    every = sorted(summed_alike(large), key=lambda each: _share(room.site, each.requirements))
    parts = [part_of(each, room.site.kind_p, room.kinds) for each in every]
    for part in parts:
        stage = stage.with_pods(part)
        if stage is None:
            return NONE_LATE
    full = sum(int((stage.room_l(part) == 0).sum()) for part in parts)
    return Late(pods=int((stage.late_l - before_l).sum()), full=full)


def _is_mixed(fleet: FleetRooms, position: int, requirements: ReplicaRequirements) -> bool:
    """Whether large pods and others are on their way there, or would be."""
    site, held = fleet.sites[position], fleet.held[position]
    if site is None or held is None or site.pools.cells.allocatable_rk is None:
        return False
    if held.only is not None and held.only == request_shape(requirements.request):
        return False
    return _share(site, requirements) * LARGE_PART > 1 or _holds_large(site, held)


def _holds_large(site: Site, held: Held) -> bool:
    """Whether something large is on its way: mostly it is known of all but what came last."""
    known, is_there = site.early.large
    newest: Held | None = held
    found = False
    while newest is not None and not found:
        if newest is known:
            found = is_there
            break
        found = any(_is_large(site, each.outstanding) for each in newest.more)
        newest = newest.before
    site.early.large = held, found
    return found


def _is_large(site: Site, outstanding: Outstanding) -> bool:
    return outstanding.to_pack > 0 and _share(site, outstanding.requirements) * LARGE_PART > 1


def _share(site: Site, requirements: ReplicaRequirements) -> float:
    """The largest share that a pod asks for of what the largest node has."""
    allocatable_sk = site.pools.cells.allocatable_rk
    if allocatable_sk is None or not allocatable_sk.size:
        return 0.0
    if not site.early.largest:
        site.early.largest = tuple(np.maximum(allocatable_sk.max(axis=1), 1).tolist())
    return max(
        requirements.request.get(name, 0) / most
        for name, most in zip(SCORED, site.early.largest, strict=True)
    )


def _early(room: Room) -> tuple[Rehearsal | None, tuple[Outstanding, ...]]:
    """The nodes after all that is outstanding but for what is large, and that."""
    outstanding = room.outstanding
    known, stage, large = room.site.early.known
    if stage is None or not (len(known) <= len(outstanding) and all(map(is_, known, outstanding))):
        known, large = (), ()
        stage = rehearsal_of(room.pools, len(outstanding), RUNS)
    for each in outstanding[len(known) :]:
        if _is_large(room.site, each):
            large = (*large, each)
        elif stage is not None:
            stage = stage.with_pods(part_of(each, room.site.kind_p, room.kinds))
    room.site.early.known = outstanding, stage, large
    return stage, large
