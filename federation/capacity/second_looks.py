"""Second looks: a rehearsal of kube-scheduler that grants promises, or refuses them, after all.

Pure. Best fit, spreading and the margin know nothing of a cluster's scheduler. Here all pods on
their way are rehearsed where a stock kube-scheduler puts them. A promise that fits after every run
may be made after all; where little room is left, no more is promised than fits after each run.
Must not promise anything.
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

# Promised: the mean of the runs minus this many standard deviations.
DEVIATIONS: Final = 4.0
# Replicas kept free at least, even where all runs agree, because the next run may not.
LEFT_FREE: Final = 1
# Clusters that get a second look in one decision: those with most room.
MAX_REFINED_CLUSTERS: Final = 2
# Crowded clusters in which one decision limits promises by a rehearsal: those with most room.
MAX_CROWDED_CLUSTERS: Final = 4
# Shapes whose room is cached for a cluster, until something else is promised there.
MAX_CACHED_SHAPES: Final = 200
NOT_REHEARSED: Final = Reason.of(ReasonCode.NOT_REHEARSED)
_NOTHING: Final = RehearsedRoom(0)


def refined_available_c(
    fleet: FleetRooms,
    requirements: ReplicaRequirements,
    requested: Certificate | None,
    available_c: IntArray,
    replicas: int,
) -> tuple[IntArray, dict[int, Reason]]:
    """Return how many of ``replicas`` more can be promised in each cluster (axis c).

    At least ``available_c``, and more where rehearsals show it. The second value has the clusters
    where a rehearsal would take too many steps.
    """
    may_c = (available_c < replicas) & ~fleet.overcommitted_c & ~fleet.strict_c
    if requested is Certificate.STRICT or not may_c.any():
        return available_c, {}
    filled_c, spread_c = fleet.max_by_view(requirements)
    refined_c, reasons = available_c.copy(), dict[int, Reason]()
    order = np.argsort(-np.maximum(filled_c, spread_c), kind="stable")
    for position in order[may_c[order]][:MAX_REFINED_CLUSTERS].tolist():
        cluster, available = fleet.clusters[position], int(available_c[position])
        # To take one cluster out of the layers of the fleet costs more than this check.
        if cluster is None or _max_reported(cluster.pools.cells, requirements) <= available:
            continue
        room = fleet.rooms[position]
        if room is not None:
            refined_c[position] = max(available, max_refined(room, requirements, replicas))
            if _rehearsed_room(room, requirements).is_too_much:
                reasons[position] = NOT_REHEARSED
    return refined_c, reasons


def max_refined(room: Room, requirements: ReplicaRequirements, replicas: int) -> int:
    """Return how many of ``replicas`` a second look grants, with room left for large pods."""
    max_replicas = max_surely_rehearsed(room, requirements, replicas)
    return max_beside_large(room, requirements, max_replicas).replicas


def ranked_crowded(
    fleet: FleetRooms, requirements: ReplicaRequirements, max_c: IntArray
) -> list[int]:
    """Return the clusters in which promises are limited by a rehearsal.

    These are a few with most room, among those with room for no more replicas than pods of other
    shapes are on their way.
    """
    on_way_c = fleet.sums.on_their_way_c(request_shape(requirements.request))
    if not on_way_c.any():
        return []
    filled_c, spread_c = fleet.max_by_view(requirements)
    (crowded,) = np.nonzero((max_c > 0) & (np.minimum(filled_c, spread_c) <= on_way_c))
    ranked = crowded[np.argsort(-max_c[crowded], kind="stable")]
    positions: list[int] = ranked[:MAX_CROWDED_CLUSTERS].tolist()
    return positions


def max_rehearsed(room: Room, requirements: ReplicaRequirements, limit: int) -> int:
    """Return how many replicas fit after each run, less LEFT_FREE, at most ``limit``.

    Return the limit where no rehearsal is possible.
    """
    least_replicas = _rehearsed_room(room, requirements).least_replicas
    if least_replicas is None:
        return limit
    return max(0, min(limit, least_replicas - LEFT_FREE))


def max_surely_rehearsed(room: Room, requirements: ReplicaRequirements, limit: int) -> int:
    """Return how many replicas surely fit after a rehearsal of the outstanding ones.

    0 where the cluster does not report allocatable amounts, where a rehearsal would take too many
    steps, and where a promise lost its room. 0 also where pods choose their nodes: in studies,
    second looks left twice as many large pods of that kind pending, made in any order.
    """
    return min(limit, _rehearsed_room(room, requirements).replicas)


def _rehearsed_room(room: Room, requirements: ReplicaRequirements) -> RehearsedRoom:
    """Return the room after a rehearsal, cached by shape."""
    if room.held.is_overcommitted or requirements.node_claim:
        return _NOTHING
    caches, shape = room.cluster.caches, request_shape(requirements.request)
    if caches.rehearsed_room is None or caches.rehearsed_room[0] is not room.held:
        caches.rehearsed_room = room.held, {}
    held, by_shape = caches.rehearsed_room
    if held is not room.held or len(by_shape) > MAX_CACHED_SHAPES:
        by_shape = {}
    if shape not in by_shape:
        by_shape[shape] = _rehearse(room, requirements)
    return by_shape[shape]


def _max_reported(cells: Cells, requirements: ReplicaRequirements) -> int:
    """Return how many replicas the reported nodes hold: no rehearsal leaves room for more."""
    fits_k = fit_in_k(cells.resources, cells.min_rk, per_replica(requirements.request))
    return int((fits_k * cells.count_k).sum())


def _rehearse(room: Room, requirements: ReplicaRequirements) -> RehearsedRoom:
    if any(promise.requirements.node_claim for promise in room.outstanding):
        return _NOTHING
    # None where the steps, counted from the first promise on, are too many.
    stage = room.cluster.rehearse(room.kinds, room.outstanding).stage
    if stage is None:
        is_reported = room.pools.cells.allocatable_rk is not None
        return RehearsedRoom(0, is_too_much=is_reported)
    room_l = stage.room_l(
        part_of(Outstanding("", requirements, 1), room.cluster.kind_p, room.kinds)
    )
    least_replicas = int(room_l.min())
    # With nothing on its way there is no chance involved.
    replicas = max(0, _surely(room_l) if stage.turns else least_replicas)
    return RehearsedRoom(replicas, least_replicas=least_replicas)


def _surely(room_l: IntArray) -> int:
    """Return the number of replicas for which hardly any run leaves too little room."""
    return int(room_l.mean() - max(DEVIATIONS * float(room_l.std()), LEFT_FREE))
