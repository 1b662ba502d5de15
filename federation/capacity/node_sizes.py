"""Which pools of a cluster have nodes that are large enough for a replica, once they are empty.

Pure. Must not count what is free for it: rooms do.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from federation.capacity.cluster_room import Room
from federation.capacity.packing import room_by_segment
from federation.model.arrays import BoolArray
from federation.model.pools.matching import Match
from federation.model.pools.values import SCORED
from federation.model.workload import ReplicaRequirements


def kinds_for(room: Room, replicas: Iterable[ReplicaRequirements]) -> BoolArray:
    """Return which kinds of pools have a node that could hold one of these replicas, as far as the
    report says what nodes have allocatable.
    """
    could_hold_q = np.zeros(len(room.kinds.members), np.bool_)
    for requirements in replicas:
        could_hold_q[room.site.kind_p[_pools_for(room, requirements)]] = True
    return could_hold_q


def most_elsewhere(room: Room, requirements: ReplicaRequirements, taken_q: BoolArray) -> int:
    """Return how many replicas fit on nodes of other kinds than the ``taken_q`` ones."""
    verdict_q = room.kinds.verdicts(requirements.node_claim)
    if not room.site.is_told(verdict_q):
        return 0
    suiting_q = ~taken_q if verdict_q is None else (verdict_q == Match.YES) & ~taken_q
    return int(room_by_segment(room.left, requirements.request, suiting_q).min())


def _pools_for(room: Room, requirements: ReplicaRequirements) -> list[int]:
    cells, verdict_q = room.pools.cells, room.kinds.verdicts(requirements.node_claim)
    asked = {name: amount for name, amount in requirements.request.items() if amount > 0}
    if not asked.keys() <= set(cells.resources):
        return []
    suits_k = np.ones(len(cells.count_k), np.bool_)
    if verdict_q is not None:
        suits_k &= verdict_q[room.site.kind_p[cells.pool_k]] == Match.YES
    if cells.allocatable_rk is not None:
        least_s = np.array([asked.get(name, 0) for name in SCORED], np.int64)
        suits_k &= (cells.allocatable_rk >= least_s[:, None]).all(axis=0)
    return [int(pool) for pool in np.unique(cells.pool_k[suits_k])]
