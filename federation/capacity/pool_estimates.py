"""The level ``pools``: what the cells of a whole fleet prove of one shape.

Pure, whole-array. Must not promise: a promise is a packing (``federation.capacity.packing``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from federation.capacity.fleet_cells import CellBlock, FleetCells, side_by_side
from federation.model.arrays import BoolArray, IntArray
from federation.model.estimate import MAX_REPLICAS, Bound, LevelAnswer, Source
from federation.model.pools.bounds import fit_in_k, per_replica, tighter_lower_k, upper_k
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
    return joined_bounds(cells, block_bounds(cells.blocks, requirements))


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


def block_bounds(
    blocks: Sequence[CellBlock], requirements: ReplicaRequirements
) -> list[PoolBounds]:
    """LB+ and UB of the clusters of each block, by position in it.

    A block never changes, so what was computed for it may be kept as long as it is in the fleet.
    Where the least and the largest node of a cell hold the same number, both bounds are that number
    times its nodes. That is so of nearly all cells: the sums are looked at in the few others, those
    of all blocks in the same steps.
    """
    if not blocks:
        return []
    claim, demanded = requirements.node_claim, per_replica(requirements.request)
    simple = [_SimpleBounds.of(block, demanded, claim) for block in blocks]
    apart = [
        block.uneven.at(each.apart_j, demanded) for block, each in zip(blocks, simple, strict=True)
    ]
    together = side_by_side(apart, np.concatenate([cells.pool_k for cells in apart]))
    lower_j, upper_j = tighter_lower_k(together, demanded), upper_k(together, demanded)
    found, start = [], 0
    for block, each in zip(blocks, simple, strict=True):
        here = slice(start, start + len(each.apart_j))
        start = here.stop
        unknown_c = _any_c(block, block_verdicts(block, claim), Match.UNKNOWN)
        found.append(
            PoolBounds(
                lower_c=each.total_c(block, lower_j[here]),
                upper_c=each.total_c(block, upper_j[here]),
                answered_c=block.reported_c & ~unknown_c,
                reasons=_reasons(block, unknown_c, claim),
            )
        )
    return found


class _SimpleBounds(NamedTuple):
    """What the least node of each suiting cell holds, times its nodes, by cluster of a block; and
    the places among uneven cells where the largest node holds more, axis j, with what is counted
    there already.
    """

    least_c: IntArray
    apart_j: npt.NDArray[np.intp]
    least_j: IntArray

    @classmethod
    def of(cls, block: CellBlock, demanded: Mapping[str, int], claim: NodeClaim | None) -> Self:
        cells, uneven = block.cells, block.uneven
        least_k = fit_in_k(cells.resources, cells.min_rk, demanded)
        most_u = fit_in_k(cells.resources, uneven.cells.max_rk, demanded)
        is_apart_u = least_k.take(uneven.place_u) < most_u
        verdict_k = block_verdicts(block, claim)
        if verdict_k is not None:
            suits_k = verdict_k == Match.YES
            least_k *= suits_k
            is_apart_u &= suits_k.take(uneven.place_u)
        least_k *= cells.count_k
        apart_j = np.flatnonzero(is_apart_u)
        return cls(
            least_c=np.add.reduceat(least_k, block.first_c),
            apart_j=apart_j,
            least_j=least_k.take(uneven.place_u.take(apart_j)),
        )

    def total_c(self, block: CellBlock, bound_j: IntArray) -> IntArray:
        """What suiting cells add up to with better bounds there; at most MAX_REPLICAS."""
        total_c = self.least_c.copy()
        cluster_j = block.cluster_k.take(block.uneven.place_u.take(self.apart_j))
        np.add.at(total_c, cluster_j, bound_j - self.least_j)
        return np.minimum(total_c, MAX_REPLICAS, out=total_c)


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
