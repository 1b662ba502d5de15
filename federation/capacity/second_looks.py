"""Second looks: which promises may be made after all, unless strictly, before they are refused; and
which must not be made although they seem to fit.

Pure. Best fit, spreading and what is kept back know nothing of a cluster's scheduler. Here all that
is on its way is rehearsed where a stock kube-scheduler puts it: what still fits after every
rehearsal may be promised. Where little is left, no more is promised than fits after each run. Must
not promise anything.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from federation.capacity.as_scheduled import part_of
from federation.capacity.cluster_room import Room
from federation.capacity.fleet_rooms import FleetRooms
from federation.capacity.large_pods import max_beside_large
from federation.capacity.rehearsal import RehearsedRoom
from federation.model.arrays import IntArray
from federation.model.placement import Certificate
from federation.model.pools.bounds import fit_in_k, per_replica
from federation.model.pools.values import Cells
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import Reason
from federation.model.reservations import Outstanding
from federation.model.shapes import request_shape
from federation.model.workload import ReplicaRequirements

# So many standard deviations less than the runs of a rehearsal have on average are promised.
DEVIATIONS: Final = 4.0
# And so many less at least: where all runs agree, the next one need not.
LEFT_FREE: Final = 1
# Of so many clusters, those with most room, a second look is taken.
MAX_REFINED_CLUSTERS: Final = 2
# Crowded clusters in which one decision holds promises to a rehearsal: those with most room.
MAX_CROWDED_CLUSTERS: Final = 4
# Of so many shapes it is remembered what fits, for as long as nothing else is promised there.
MOST_REMEMBERED: Final = 200
NOT_REHEARSED: Final = Reason.of(ReasonCode.NOT_REHEARSED)
_NOTHING: Final = RehearsedRoom(0)


def looked_again_c(
    fleet: FleetRooms,
    requirements: ReplicaRequirements,
    asked: Certificate | None,
    known_c: IntArray,
    replicas: int,
) -> tuple[IntArray, dict[int, Reason]]:
    """How many more replicas, of so many that are wanted, can be promised in each cluster (axis c):
    as many as is known, and more where rehearsals show that; and where one would take too long.
    """
    may_c = (known_c < replicas) & ~fleet.overcommitted_c & ~fleet.strict_c
    if asked is Certificate.STRICT or not may_c.any():
        return known_c, {}
    most_c, spread_c = fleet.most_by_view(requirements)
    found_c, reasons = known_c.copy(), dict[int, Reason]()
    order = np.argsort(-np.maximum(most_c, spread_c), kind="stable")
    for position in order[may_c[order]][:MAX_REFINED_CLUSTERS].tolist():
        site, known = fleet.sites[position], int(known_c[position])
        # A room has to be taken out of those of the whole fleet.
        if site is None or _reported_most(site.pools.cells, requirements) <= known:
            continue
        room = fleet.rooms[position]
        if room is not None:
            found_c[position] = max(known, refined_most(room, requirements, replicas))
            if _rehearsed_room(room, requirements).is_too_much:
                reasons[position] = NOT_REHEARSED
    return found_c, reasons


def refined_most(room: Room, requirements: ReplicaRequirements, replicas: int) -> int:
    """How many of so many replicas that are wanted a second look grants, beside large pods."""
    most = rehearsed_most(room, requirements, replicas)
    return max_beside_large(room, requirements, most).replicas


def ranked_crowded(
    fleet: FleetRooms, requirements: ReplicaRequirements, most_c: IntArray
) -> list[int]:
    """The clusters in which promises are held to a rehearsal: of those with room for no more
    replicas than pods of other shapes are on their way, a few with most room.
    """
    on_way_c = fleet.sums.on_their_way_c(request_shape(requirements.request))
    if not on_way_c.any():
        return []
    filled_c, spread_c = fleet.most_by_view(requirements)
    (crowded,) = np.nonzero((most_c > 0) & (np.minimum(filled_c, spread_c) <= on_way_c))
    ranked = crowded[np.argsort(-most_c[crowded], kind="stable")]
    positions: list[int] = ranked[:MAX_CROWDED_CLUSTERS].tolist()
    return positions


def max_rehearsed(room: Room, requirements: ReplicaRequirements, limit: int) -> int:
    """The most of so many replicas that fit after each run of a rehearsal, less LEFT_FREE; all
    where none can be made.
    """
    least_replicas = _rehearsed_room(room, requirements).least_replicas
    if least_replicas is None:
        return limit
    return max(0, min(limit, least_replicas - LEFT_FREE))


def rehearsed_most(room: Room, requirements: ReplicaRequirements, limit: int) -> int:
    """The most replicas, up to ``limit``, that fit after every run of a rehearsal of what is
    outstanding.

    None where the cluster does not tell what its nodes have allocatable, where a rehearsal would
    take more than its steps, or where something lost its room. None either where pods choose their
    nodes: of large ones that do, made in any order, second looks left twice as many pending in
    studies.
    """
    return min(limit, _rehearsed_room(room, requirements).replicas)


def _rehearsed_room(room: Room, requirements: ReplicaRequirements) -> RehearsedRoom:
    """What a rehearsal leaves room for: of what was asked already, it is remembered."""
    if room.held.is_overcommitted or requirements.node_claim:
        return _NOTHING
    rehearsed, shape = room.site.rehearsed, request_shape(requirements.request)
    if rehearsed.found is None or rehearsed.found[0] is not room.held:
        rehearsed.found = room.held, {}
    held, found = rehearsed.found
    if held is not room.held or len(found) > MOST_REMEMBERED:
        found = {}
    if shape not in found:
        found[shape] = _most(room, requirements)
    return found[shape]


def _reported_most(cells: Cells, requirements: ReplicaRequirements) -> int:
    """What the nodes hold as reported: no rehearsal leaves room for more."""
    fits_k = fit_in_k(cells.resources, cells.min_rk, per_replica(requirements.request))
    return int((fits_k * cells.count_k).sum())


def _most(room: Room, requirements: ReplicaRequirements) -> RehearsedRoom:
    if any(each.requirements.node_claim for each in room.outstanding):
        return _NOTHING
    # Where that takes too many steps, counted from the first promise on, there is none.
    stage = room.site.rehearse(room.kinds, room.outstanding).stage
    if stage is None:
        is_reported = room.pools.cells.allocatable_rk is not None
        return RehearsedRoom(0, is_too_much=is_reported)
    room_l = stage.room_l(part_of(Outstanding("", requirements, 1), room.site.kind_p, room.kinds))
    least_replicas = int(room_l.min())
    # What nothing is on the way for is no matter of luck.
    replicas = max(0, _surely(room_l) if stage.turns else least_replicas)
    return RehearsedRoom(replicas, least_replicas=least_replicas)


def _surely(room_l: IntArray) -> int:
    """As many as hardly any luck leaves no room for."""
    return int(room_l.mean() - max(DEVIATIONS * float(room_l.std()), LEFT_FREE))
