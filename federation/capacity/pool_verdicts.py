"""Which pools, and which cells, suit a claim: found out once for a block of clusters.

Pure. Must not estimate anything.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from federation.capacity.fleet_cells import CellBlock
from federation.model.pools.matching import Match, pool_match
from federation.model.workload import NodeClaim

# Claims that a block's verdicts on its pools are kept of.
_MOST_VERDICTS: Final = 256


def block_verdicts(block: CellBlock, claim: NodeClaim | None) -> npt.NDArray[np.int8] | None:
    """The verdict on every cell; None where all suit, which nearly every question finds."""
    verdict_p = pool_verdicts(block, claim)
    return None if verdict_p is None else verdict_p[block.cells.pool_k]


def pool_verdicts(block: CellBlock, claim: NodeClaim | None) -> npt.NDArray[np.int8] | None:
    """The verdict on every pool, kept with the block; None where all suit."""
    key, known = claim and claim.key, block.known_verdicts
    try:
        return known[key]
    except KeyError:
        pass
    verdicts = [pool_match(each.pool, each.label_keys, claim) for each in block.pools]
    is_yes = all(verdict is Match.YES for verdict in verdicts)
    verdict_p = None if is_yes else np.array(verdicts, dtype=np.int8)
    if len(known) >= _MOST_VERDICTS:
        known.clear()
    known[key] = verdict_p
    return verdict_p
