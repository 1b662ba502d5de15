"""The largest nodes of each cluster, and which pods are large there.

Pure. A pod is large where it asks for more than one part in ``LARGE_PART`` of the largest node
that suits it. Must not know how much room large pods need.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from federation.capacity.as_scheduled import part_of
from federation.capacity.assignments import Held
from federation.capacity.cluster_room import Site
from federation.capacity.filled_nodes import LARGE_PART
from federation.capacity.pool_kinds import PoolKinds
from federation.model.arrays import BoolArray, FloatArray, IntArray
from federation.model.pools.values import SCORED
from federation.model.positions import Moves
from federation.model.reservations import Outstanding
from federation.model.workload import ReplicaRequirements

# Requests of which a cluster remembers what share of a node they ask for.
MAX_SHARES: Final = 256
NO_NODES: Final = -1.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LargestNodes:
    """The largest nodes of a fleet's clusters by position (axis c).

    ``most_scw`` is the most of what is SCORED (axis s) that a node of each of a cluster's pools
    (axis w) has, and ``kind_cw`` is the kind of that pool. ``most_scw`` is -1 where a pool has no
    nodes, and where a cluster has fewer pools. ``is_told_c`` is false where no allocatable amounts
    are reported. At ``holds_large_c`` something large is on its way.
    """

    kind_cw: IntArray
    most_scw: FloatArray
    is_told_c: BoolArray
    holds_large_c: BoolArray

    @classmethod
    def none(cls, size: int) -> LargestNodes:
        """Return the largest nodes of so many clusters that have no pools."""
        return cls(
            kind_cw=np.zeros((size, 1), dtype=np.int64),
            most_scw=np.full((len(SCORED), size, 1), NO_NODES),
            is_told_c=np.zeros(size, dtype=np.bool_),
            holds_large_c=np.zeros(size, dtype=np.bool_),
        )

    def after(self, moves: Moves) -> LargestNodes:
        """Return those of the fleet after clusters left and came; newcomers have no pools yet."""
        return LargestNodes(
            kind_cw=moves.array(self.kind_cw, 0),
            most_scw=moves.array(self.most_scw, NO_NODES, axis=1),
            is_told_c=moves.array(self.is_told_c, newcomers=False),
            holds_large_c=moves.array(self.holds_large_c, newcomers=False),
        )

    def with_clusters(
        self, clusters: Mapping[int, tuple[Site, Held] | None], kinds: PoolKinds
    ) -> LargestNodes:
        """Return the largest nodes with other pools in some clusters."""
        sites = {c: found[0] for c, found in clusters.items() if found is not None}
        width = max((len(site.kind_p) for site in sites.values()), default=1)
        kind_cw, most_scw = _at_least_as_wide(self.kind_cw, self.most_scw, width)
        is_told_c = self.is_told_c.copy()
        places = list(clusters)
        kind_cw[places], most_scw[:, places], is_told_c[places] = 0, NO_NODES, False
        for position, site in sites.items():
            kind_cw[position, : len(site.kind_p)] = site.kind_p
            allocatable_rk = site.pools.cells.allocatable_rk
            if allocatable_rk is not None:
                is_told_c[position] = True
                most_scw[:, position] = _most_sw(site, allocatable_rk, kind_cw.shape[1])
        changed = LargestNodes(
            kind_cw=kind_cw,
            most_scw=most_scw,
            is_told_c=is_told_c,
            holds_large_c=self.holds_large_c,
        )
        return changed.with_held(clusters, kinds)

    def with_held(
        self, clusters: Mapping[int, tuple[Site, Held] | None], kinds: PoolKinds
    ) -> LargestNodes:
        """Return the same nodes with other promises in some clusters."""
        holds_large_c = self.holds_large_c.copy()
        for position, found in clusters.items():
            holds_large_c[position] = found is not None and holds_large(*found, kinds)
        return LargestNodes(
            kind_cw=self.kind_cw,
            most_scw=self.most_scw,
            is_told_c=self.is_told_c,
            holds_large_c=holds_large_c,
        )

    def is_large_c(self, kinds: PoolKinds, requirements: ReplicaRequirements) -> BoolArray:
        """Tell where a pod would be large."""
        suits_cw = part_of(Outstanding("", requirements, 1), self.kind_cw, kinds).suiting_p
        most_sc = np.where(suits_cw, self.most_scw, NO_NODES).max(axis=2)
        # It is large nowhere where no node suits it.
        most_sc = np.where(most_sc < 0, np.inf, np.maximum(most_sc, 1))
        requested_s = [requirements.request.get(name, 0) for name in SCORED]
        share_c = (np.array(requested_s)[:, np.newaxis] / most_sc).max(axis=0)
        is_large_c: BoolArray = self.is_told_c & (share_c * LARGE_PART > 1)
        return is_large_c


def is_large_in(site: Site, kinds: PoolKinds, requirements: ReplicaRequirements) -> bool:
    """Tell whether a pod is large in one cluster."""
    return share_in(site, kinds, requirements) * LARGE_PART > 1


def share_in(site: Site, kinds: PoolKinds, requirements: ReplicaRequirements) -> float:
    """Return the largest share that a pod asks for of what the largest suitable node has."""
    request, claim = requirements.request, requirements.node_claim
    key = *(request.get(name, 0) for name in SCORED), claim and claim.key
    shares = site.beside_large.shares
    if key not in shares:
        if len(shares) >= MAX_SHARES:
            shares.clear()
        shares[key] = _share(site, kinds, requirements)
    return shares[key]


def holds_large(site: Site, held: Held, kinds: PoolKinds) -> bool:
    """Tell whether something large is on its way: mostly it is known of all but what came last."""
    known, is_there = site.beside_large.large
    newest: Held | None = held
    found = False
    while newest is not None and not found:
        if newest is known:
            found = is_there
            break
        found = any(
            each.outstanding.to_pack > 0 and is_large_in(site, kinds, each.outstanding.requirements)
            for each in newest.more
        )
        newest = newest.before
    site.beside_large.large = held, found
    return found


def _share(site: Site, kinds: PoolKinds, requirements: ReplicaRequirements) -> float:
    cells = site.pools.cells
    if cells.allocatable_rk is None:
        return 0.0
    suiting_p = part_of(Outstanding("", requirements, 1), site.kind_p, kinds).suiting_p
    suiting_k = suiting_p[cells.pool_k] & (cells.count_k > 0)
    if not suiting_k.any():
        return 0.0
    largest_s: list[int] = np.maximum(cells.allocatable_rk[:, suiting_k].max(axis=1), 1).tolist()
    return max(
        requirements.request.get(name, 0) / most
        for name, most in zip(SCORED, largest_s, strict=True)
    )


def _most_sw(site: Site, allocatable_rk: IntArray, width: int) -> FloatArray:
    """Return what the largest node of each pool has."""
    cells = site.pools.cells
    most_sw = np.full((len(SCORED), width), NO_NODES)
    filled_k = cells.count_k > 0
    for most_w, amount_k in zip(most_sw, allocatable_rk, strict=True):
        np.maximum.at(most_w, cells.pool_k[filled_k], amount_k[filled_k])
    return most_sw


def _at_least_as_wide(
    kind_cw: IntArray, most_scw: FloatArray, width: int
) -> tuple[IntArray, FloatArray]:
    """Return copies that have a place for so many pools."""
    more = max(0, width - kind_cw.shape[1])
    wider_scw = np.pad(most_scw, ((0, 0), (0, 0), (0, more)), constant_values=NO_NODES)
    return np.pad(kind_cw, ((0, 0), (0, more))), wider_scw
