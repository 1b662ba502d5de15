"""Nodes whose free resources are set aside for earmarks, and what still fits on other nodes.

Must not promise anything. Live decisions and simulations share this rule.
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
    """Kinds of node pools (axis q) that are set aside, by position of the cluster; None: all
    kinds.
    """

    def __init__(self) -> None:
        self._kinds: dict[int, BoolArray | None] = {}

    def close(self, waiting: Binding, rooms: Iterable[tuple[int, Room | None]]) -> None:
        """Set aside what is free in these clusters, on nodes that could hold a replica of the
        binding.
        """
        for position, room in rooms:
            if room is None:
                self._kinds[position] = None
                continue
            kinds_q = kinds_for(room, requirements_of(waiting))
            closed_q = self._kinds.get(position, kinds_q)
            self._kinds[position] = None if closed_q is None else kinds_q | closed_q

    @property
    def positions(self) -> Iterable[int]:
        return self._kinds

    def limit(self, free_c: IntArray, binding: Binding, position: int, room: Room | None) -> None:
        """Reduce ``free_c`` at a position to the replicas of a binding that fit on other nodes.

        A binding of several components gets nothing there, because its sets may need the same
        nodes.
        """
        kinds_q = self._kinds[position]
        max_replicas = 0
        if room is not None and kinds_q is not None:
            if not kinds_q[room.site.kind_p].any():
                return
            if not binding.components:
                max_replicas = most_elsewhere(room, binding.requirements, kinds_q)
        free_c[position] = min(int(free_c[position]), max_replicas)


def could_hold(binding: Binding, state: ClusterState) -> bool:
    """Return whether the cluster, with all of it free, could hold one replica or set."""
    allocatable = state.report.summary.allocatable if state.report else {}
    return all(
        allocatable.get(name, 0) >= amount for name, amount in shape_of(binding).request.items()
    )


def kinds_for(room: Room, replicas: Iterable[ReplicaRequirements]) -> BoolArray:
    """Return the kinds of node pools (axis q) with a node that could hold one of these replicas.

    A report may lack the allocatable resources of its nodes: then resources do not exclude a kind.
    """
    could_hold_q = np.zeros(len(room.kinds.members), np.bool_)
    for requirements in replicas:
        could_hold_q[room.site.kind_p[_pools_for(room, requirements)]] = True
    return could_hold_q


def most_elsewhere(room: Room, requirements: ReplicaRequirements, taken_q: BoolArray) -> int:
    """Return how many replicas fit on nodes of other kinds than ``taken_q``."""
    verdict_q = room.kinds.verdicts(requirements.node_claim)
    if not room.site.carries_labels(verdict_q):
        return 0
    suiting_q = ~taken_q if verdict_q is None else (verdict_q == Match.YES) & ~taken_q
    return int(room_by_segment(room.left, requirements.request, suiting_q).min())


def _pools_for(room: Room, requirements: ReplicaRequirements) -> list[int]:
    cells, verdict_q = room.pools.cells, room.kinds.verdicts(requirements.node_claim)
    request = {name: amount for name, amount in requirements.request.items() if amount > 0}
    if not request.keys() <= set(cells.resources):
        return []
    suits_k = np.ones(len(cells.count_k), np.bool_)
    if verdict_q is not None:
        suits_k &= verdict_q[room.site.kind_p[cells.pool_k]] == Match.YES
    if cells.allocatable_rk is not None:
        request_s = np.array([request.get(name, 0) for name in SCORED], np.int64)
        suits_k &= (cells.allocatable_rk >= request_s[:, None]).all(axis=0)
    return [int(pool) for pool in np.unique(cells.pool_k[suits_k])]
