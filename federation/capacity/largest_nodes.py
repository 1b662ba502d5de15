"""The largest nodes of each cluster, and which pods are large there.

Pure. A pod is large if it requests more than 1/``LARGE_PART`` of the largest node that suits it.
Must not know how much room large pods need.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from federation.capacity.assignments import Held
from federation.capacity.cluster_room import ClusterPools
from federation.capacity.filled_nodes import LARGE_PART
from federation.capacity.pool_kinds import PoolKinds
from federation.capacity.rehearsal import part_of
from federation.model.arrays import BoolArray, IntArray, LevelArray
from federation.model.pools.values import SCORED, Cells
from federation.model.positions import GONE, Moves
from federation.model.reservations import Outstanding
from federation.model.workload import ReplicaRequirements

# Requests whose share of the largest node is cached for a cluster.
MAX_SHARES: Final = 256
NO_NODES: Final = -1
UNSEEN: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LargestNodes:
    """The largest nodes of all pools with nodes (axis p), over a fleet's clusters (axis c).

    The pool is of the cluster at ``cluster_p`` and of the kind ``kind_p``. ``most_sp`` are the
    largest amounts of a node in SCORED (axis s). ``has_allocatable_c`` tells whether a cluster
    reports allocatable amounts. ``large_c`` tells where large pods are on their way, UNSEEN until
    ``holds_large_c`` looks.
    """

    cluster_p: IntArray
    kind_p: IntArray
    most_sp: IntArray
    has_allocatable_c: BoolArray
    large_c: LevelArray

    @classmethod
    def none(cls, size: int) -> LargestNodes:
        """Return the largest nodes of ``size`` clusters without pools."""
        return cls(
            cluster_p=np.zeros(0, dtype=np.int64),
            kind_p=np.zeros(0, dtype=np.int64),
            most_sp=np.zeros((len(SCORED), 0), dtype=np.int64),
            has_allocatable_c=np.zeros(size, dtype=np.bool_),
            large_c=np.full(size, UNSEEN, dtype=np.int8),
        )

    def after(self, moves: Moves) -> LargestNodes:
        """Follow clusters that left and joined; new clusters have no pools yet."""
        cluster_p = moves.positions(len(self.has_allocatable_c))[self.cluster_p]
        stays_p = cluster_p != GONE
        return LargestNodes(
            cluster_p=cluster_p[stays_p],
            kind_p=self.kind_p[stays_p],
            most_sp=self.most_sp[:, stays_p],
            has_allocatable_c=moves.array(self.has_allocatable_c, newcomers=False),
            large_c=moves.array(self.large_c, UNSEEN),
        )

    def with_clusters(self, clusters: Mapping[int, ClusterPools | None]) -> LargestNodes:
        """Return the largest nodes with other pools in some clusters."""
        has_allocatable_c, changes_c = (
            self.has_allocatable_c.copy(),
            np.zeros(len(self.has_allocatable_c), np.bool_),
        )
        changes_c[list(clusters)] = True
        stays_p = ~changes_c[self.cluster_p]
        positions, kinds = [self.cluster_p[stays_p]], [self.kind_p[stays_p]]
        amounts = [self.most_sp[:, stays_p]]
        for position, cluster in clusters.items():
            allocatable_rk = cluster.pools.cells.allocatable_rk if cluster else None
            has_allocatable_c[position] = allocatable_rk is not None
            if cluster and allocatable_rk is not None:
                pools_p, most_sp = _largest_by_pool(cluster.pools.cells, allocatable_rk)
                positions.append(np.full(len(pools_p), position))
                kinds.append(cluster.kind_p[pools_p])
                amounts.append(most_sp)
        return LargestNodes(
            cluster_p=np.concatenate(positions),
            kind_p=np.concatenate(kinds),
            most_sp=np.concatenate(amounts, axis=1),
            has_allocatable_c=has_allocatable_c,
            large_c=self._unseen_at(clusters),
        )

    def with_promises(self, positions: Iterable[int]) -> LargestNodes:
        """Return the same nodes with other promises in some clusters."""
        return replace(self, large_c=self._unseen_at(positions))

    def is_large_c(self, kinds: PoolKinds, requirements: ReplicaRequirements) -> BoolArray:
        """Tell where a pod would be large."""
        suits_p = part_of(Outstanding("", requirements, 1), self.kind_p, kinds).suiting_p
        share_c = np.zeros(len(self.has_allocatable_c))
        for name, amount_p in zip(SCORED, self.most_sp, strict=True):
            most_c = np.full(len(share_c), NO_NODES)
            np.maximum.at(most_c, self.cluster_p[suits_p], amount_p[suits_p])
            # A pod that no node suits is not large.
            nodes_c = np.where(most_c == NO_NODES, np.inf, np.maximum(most_c, 1))
            share_c = np.maximum(share_c, requirements.request.get(name, 0) / nodes_c)
        is_large_c: BoolArray = share_c * LARGE_PART > 1
        return is_large_c

    def holds_large_c(
        self,
        clusters: Sequence[ClusterPools | None],
        held: Sequence[Held | None],
        kinds: PoolKinds,
        asked_c: BoolArray,
    ) -> BoolArray:
        """Tell where large pods are on their way, of the clusters at ``asked_c``.

        The answer for a cluster is cached until its pools or promises change. Several threads may
        compute it at once, with the same result.
        """
        for position in np.flatnonzero(asked_c & (self.large_c == UNSEEN)).tolist():
            cluster, promises = clusters[position], held[position]
            is_there = cluster and promises and holds_large(cluster, promises, kinds)
            self.large_c[position] = bool(is_there)
        holds_large_c: BoolArray = asked_c & (self.large_c == 1)
        return holds_large_c

    def _unseen_at(self, positions: Iterable[int]) -> LevelArray:
        large_c = self.large_c.copy()
        large_c[list(positions)] = UNSEEN
        return large_c


def is_large_in(cluster: ClusterPools, kinds: PoolKinds, requirements: ReplicaRequirements) -> bool:
    """Tell whether a pod is large in one cluster."""
    return share_in(cluster, kinds, requirements) * LARGE_PART > 1


def share_in(cluster: ClusterPools, kinds: PoolKinds, requirements: ReplicaRequirements) -> float:
    """Return a pod's largest share, over resources, of the largest node that suits it."""
    request, claim = requirements.request, requirements.node_claim
    key = *(request.get(name, 0) for name in SCORED), claim and claim.key
    shares = cluster.caches.shares
    if key not in shares:
        if len(shares) >= MAX_SHARES:
            shares.clear()
        shares[key] = _share(cluster, kinds, requirements)
    return shares[key]


def holds_large(cluster: ClusterPools, held: Held, kinds: PoolKinds) -> bool:
    """Tell whether large pods are on their way; usually all but the last promises are cached."""
    seen, was_there = cluster.caches.holds_large
    newest: Held | None = held
    is_there = False
    while newest is not None and not is_there:
        if newest is seen:
            is_there = was_there
            break
        is_there = any(
            promise.to_pack > 0 and is_large_in(cluster, kinds, promise.requirements)
            for promise in [assignment.outstanding for assignment in newest.more]
        )
        newest = newest.before
    cluster.caches.holds_large = held, is_there
    return is_there


def _share(cluster: ClusterPools, kinds: PoolKinds, requirements: ReplicaRequirements) -> float:
    cells = cluster.pools.cells
    if cells.allocatable_rk is None:
        return 0.0
    suiting_p = part_of(Outstanding("", requirements, 1), cluster.kind_p, kinds).suiting_p
    suiting_k = suiting_p[cells.pool_k] & (cells.count_k > 0)
    if not suiting_k.any():
        return 0.0
    largest_s: list[int] = np.maximum(cells.allocatable_rk[:, suiting_k].max(axis=1), 1).tolist()
    return max(
        requirements.request.get(name, 0) / amount
        for name, amount in zip(SCORED, largest_s, strict=True)
    )


def _largest_by_pool(cells: Cells, allocatable_rk: IntArray) -> tuple[IntArray, IntArray]:
    """Return the places of the pools that have nodes, and the most that a node of each has."""
    filled_k = cells.count_k > 0
    pools_p, place_k = np.unique(cells.pool_k[filled_k], return_inverse=True)
    most_sp = np.zeros((len(SCORED), len(pools_p)), dtype=np.int64)
    for most_p, amount_k in zip(most_sp, allocatable_rk[:, filled_k], strict=True):
        np.maximum.at(most_p, place_k, amount_k)
    return pools_p.astype(np.int64), most_sp
