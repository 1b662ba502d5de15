"""The level ``pools``: what the cells of a whole fleet prove of one shape.

Pure, whole-array. Must not promise: a promise is a packing (``federation.capacity.packing``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from federation.capacity.fleet_cells import CellBlock, FleetCells
from federation.model.arrays import BoolArray, IntArray
from federation.model.estimate import MAX_REPLICAS, Bound, LevelAnswer, Source
from federation.model.pools.bounds import per_replica, tighter_lower_k, upper_k
from federation.model.pools.matching import Match, keys_not_carried, pool_match
from federation.model.workload import NodeClaim, ReplicaRequirements

# Claims that a block's verdicts on its pools are kept of.
_MOST_VERDICTS: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PoolBounds:
    """What surely fits and what can at most, by cluster (axis c), 0..MAX_REPLICAS.

    Both mean nothing where ``answered_c`` is false; ``reasons`` says why by cluster position.
    ``beside_promises_c``: where something is promised whose pods are on no node yet, so that no
    number is exact; None: nowhere.
    """

    lower_c: IntArray
    upper_c: IntArray
    answered_c: BoolArray
    reasons: dict[int, str]
    beside_promises_c: BoolArray | None = None


def answer_of(bounds: PoolBounds) -> LevelAnswer:
    """LB+ of every cluster that can tell; bound EXACT where the upper bound says the same, and
    nothing is promised that may land on any node.
    """
    is_exact_c = bounds.lower_c == bounds.upper_c
    if bounds.beside_promises_c is not None:
        is_exact_c &= ~bounds.beside_promises_c
    return LevelAnswer(
        source=Source.POOLS,
        replicas_c=bounds.lower_c,
        answered_c=bounds.answered_c,
        bound_c=np.where(is_exact_c, np.int8(Bound.EXACT), np.int8(Bound.LOWER)),
        reasons=bounds.reasons,
    )


def pool_bounds(cells: FleetCells, requirements: ReplicaRequirements) -> PoolBounds:
    """LB+ and UB of every cluster, block after block."""
    return joined_bounds(cells, [block_bounds(block, requirements) for block in cells.blocks])


def joined_bounds(cells: FleetCells, blocks: Sequence[PoolBounds]) -> PoolBounds:
    """The bounds of a fleet out of those of its blocks, in their order."""
    if not blocks:
        nothing_c = np.zeros(0, dtype=np.int64)
        return PoolBounds(
            lower_c=nothing_c, upper_c=nothing_c, answered_c=nothing_c == 1, reasons={}
        )
    return PoolBounds(
        lower_c=np.concatenate([bounds.lower_c for bounds in blocks]),
        upper_c=np.concatenate([bounds.upper_c for bounds in blocks]),
        answered_c=np.concatenate([bounds.answered_c for bounds in blocks]),
        reasons={
            block.start + position: reason
            for block, bounds in zip(cells.blocks, blocks, strict=True)
            for position, reason in bounds.reasons.items()
        },
    )


def block_bounds(block: CellBlock, requirements: ReplicaRequirements) -> PoolBounds:
    """LB+ and UB of the clusters of one block, by position in it.

    A block never changes, so what was computed for it may be kept as long as it is in the fleet.
    """
    claim = requirements.node_claim
    demanded = per_replica(requirements.request)
    verdict_k = block_verdicts(block, claim)
    unknown_c = _any_c(block, verdict_k, Match.UNKNOWN)
    return PoolBounds(
        lower_c=_totals(block, tighter_lower_k(block.cells, demanded), verdict_k),
        upper_c=_totals(block, upper_k(block.cells, demanded), verdict_k),
        answered_c=block.reported_c & ~unknown_c,
        reasons=_reasons(block, unknown_c, claim),
    )


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


def _totals(
    block: CellBlock, bound_k: IntArray, verdict_k: npt.NDArray[np.int8] | None
) -> IntArray:
    """What the suiting cells of each cluster add up to, at most MAX_REPLICAS."""
    if verdict_k is not None:
        bound_k *= verdict_k == Match.YES
    total_c: IntArray = np.add.reduceat(bound_k, block.first_c)
    return np.minimum(total_c, MAX_REPLICAS, out=total_c)


def _any_c(block: CellBlock, verdict_k: npt.NDArray[np.int8] | None, verdict: Match) -> BoolArray:
    """Whether a cluster has a cell with nodes and this verdict."""
    if verdict_k is None:
        return np.zeros(len(block), dtype=np.bool_)
    has_k = (verdict_k == verdict) & (block.cells.count_k > 0)
    any_c: BoolArray = np.logical_or.reduceat(has_k, block.first_c)
    return any_c


def _reasons(block: CellBlock, unknown_c: BoolArray, claim: NodeClaim | None) -> dict[int, str]:
    reasons = {}
    for position in np.flatnonzero(unknown_c).tolist():
        pool = block.pools[int(block.cells.pool_k[block.first_c[position]])]
        keys = ", ".join(keys_not_carried(pool.label_keys, claim))
        reasons[position] = f"the cluster's pools do not tell nodes apart by {keys}"
    return reasons
