"""Room that is kept for earmarks bit by bit: where nothing more is for others, and what still is.

Must not promise anything. Live decisions and simulations keep room by the same rule.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from federation.capacity.cluster_room import Room
from federation.capacity.packing import room_by_segment
from federation.model.arrays import BoolArray, IntArray
from federation.model.cluster import ClusterState
from federation.model.component_sets import shape_of
from federation.model.placement import Binding
from federation.model.pools.matching import Match
from federation.model.pools.values import SCORED
from federation.model.workload import ReplicaRequirements
from federation.scheduler.promisable import requirements_of


class ClosedRooms:
    """By position of a cluster, the kinds of pools where all that is free is kept; None: all."""

    def __init__(self) -> None:
        self._kinds: dict[int, BoolArray | None] = {}

    def close(self, waiting: Binding, rooms: Iterable[tuple[int, Room | None]]) -> None:
        """What is free in these rooms is kept, on nodes that could hold a replica of a binding."""
        for position, room in rooms:
            if room is None:
                self._kinds[position] = None
                continue
            kinds_q = kinds_for(room, requirements_of(waiting))
            before_q = self._kinds.get(position, kinds_q)
            self._kinds[position] = None if before_q is None else kinds_q | before_q

    @property
    def positions(self) -> Iterable[int]:
        return self._kinds

    def limit(self, left_c: IntArray, binding: Binding, position: int, room: Room | None) -> None:
        """Leave to a binding what fits on other nodes of the cluster; nothing where it goes there
        in sets of components.
        """
        kinds_q = self._kinds[position]
        most = 0
        if room is not None and kinds_q is not None:
            if not kinds_q[room.site.kind_p].any():
                return
            if not binding.components:
                most = most_elsewhere(room, binding.requirements, kinds_q)
        left_c[position] = min(int(left_c[position]), most)


def could_hold(binding: Binding, state: ClusterState) -> bool:
    """Whether the cluster as a whole, all of it free, could hold a replica or set."""
    most = state.report.summary.allocatable if state.report else {}
    return all(most.get(name, 0) >= amount for name, amount in shape_of(binding).request.items())


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
