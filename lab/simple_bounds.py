"""LB, the simplest thing that cells prove: nodes times what the minimum of their cell holds.

The product answers LB+, which is tighter. Must not be fast.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from federation.model.arrays import IntArray
from federation.model.estimate import MAX_REPLICAS
from federation.model.pools.bounds import fit_k, per_replica
from federation.model.pools.matching import Match, pool_match
from federation.model.pools.values import Cells, Pools
from federation.model.workload import ReplicaRequirements


def lower_k(cells: Cells, demanded: Mapping[str, int]) -> IntArray:
    """LB by cell. ``demanded`` is of ``per_replica``."""
    return fit_k(cells, demanded) * cells.count_k


def simple_lower_bound(pools: Pools | None, requirements: ReplicaRequirements) -> int:
    """LB of the pools of a cluster that surely suit."""
    if pools is None:
        return 0
    suits_p = np.array(
        [
            pool_match(pool, pools.label_keys, requirements.node_claim) is Match.YES
            for pool in pools.pools
        ],
        dtype=np.bool_,
    )
    bound_k = lower_k(pools.cells, per_replica(requirements.request))
    return min(MAX_REPLICAS, int(bound_k[suits_p[pools.cells.pool_k]].sum()))
