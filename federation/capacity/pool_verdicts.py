"""Verdicts of a node claim on the pools and the cells of a block of clusters, cached by the block.

Pure. Must not estimate anything.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from federation.capacity.fleet_cells import CellBlock
from federation.model.arrays import LevelArray
from federation.model.pools.matching import Match, pool_match
from federation.model.workload import NodeClaim

# Claims whose verdicts a block caches.
_MAX_CACHED_CLAIMS: Final = 256


def block_verdicts(block: CellBlock, claim: NodeClaim | None) -> LevelArray | None:
    """Return the verdict on each cell (axis k); None where all match, the usual case."""
    verdict_p = pool_verdicts(block, claim)
    return None if verdict_p is None else verdict_p[block.cells.pool_k]


def pool_verdicts(block: CellBlock, claim: NodeClaim | None) -> LevelArray | None:
    """Return the verdict on each pool (axis p); None where all match."""
    key, cached = claim and claim.key, block.cached_verdicts
    try:
        return cached[key]
    except KeyError:
        pass
    verdicts = [pool_match(carried.pool, carried.label_keys, claim) for carried in block.pools]
    is_yes = all(verdict is Match.YES for verdict in verdicts)
    verdict_p = None if is_yes else np.array(verdicts, dtype=np.int8)
    if len(cached) >= _MAX_CACHED_CLAIMS:
        cached.clear()
    cached[key] = verdict_p
    return verdict_p
