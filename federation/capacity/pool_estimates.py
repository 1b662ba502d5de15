"""The level ``pools``: bounds of how many replicas of one shape fit in the cells of a fleet, and
estimates by the best level that each cluster's report allows.

Pure, whole-array. Must not promise: a promise is a packing (``federation.capacity.packing``). Must
not ask agents: the level ``exact`` is added elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from federation.capacity.fleet_cells import CELLS_A_TABLE, CellBlock, FleetCells, side_by_side
from federation.capacity.fleet_reports import FleetCapacity
from federation.capacity.some_clusters import SomeClusters, in_tables
from federation.capacity.summary_estimates import positive_amounts, summary_level, without_nodes
from federation.model.arrays import BoolArray, IntArray, LevelArray
from federation.model.component_sets import shape_of_set
from federation.model.estimate import (
    MAX_REPLICAS,
    Bound,
    EstimateOptions,
    Estimates,
    LevelAnswer,
    Merge,
    Source,
    improved,
    merge,
    unknown,
)
from federation.model.pools.bounds import fit_in_k, per_replica, tighter_lower_k, upper_k
from federation.model.pools.matching import Match, keys_not_carried, untold_by_pools
from federation.model.pools.sets import SetEstimate, sets_that_fit
from federation.model.reasons import Reason
from federation.model.tolerations import reaches_nodes_out_of_use
from federation.model.workload import Component, NodeClaim, ReplicaRequirements

# With a larger part of uneven cells in a block, the sums of all its cells are read.
_MAX_UNEVEN: Final = 0.75


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PoolBounds:
    """Lower and upper bounds (LB+, UB) by cluster (axis c), 0..MAX_REPLICAS.

    Both mean nothing where ``answered_c`` is false; ``reasons`` says why by position.
    ``beside_promises_c`` marks clusters with promises whose pods have no node yet, where no number
    is exact; None: no cluster.
    """

    lower_c: IntArray
    upper_c: IntArray
    answered_c: BoolArray
    reasons: dict[int, Reason]
    beside_promises_c: BoolArray | None = None

    @classmethod
    def unanswered(cls, clusters: int) -> Self:
        """Return bounds without an answer, to be filled by ``put``."""
        lower_c, upper_c = np.zeros((2, clusters), dtype=np.int64)
        answered_c = np.zeros(clusters, dtype=np.bool_)
        return cls(lower_c=lower_c, upper_c=upper_c, answered_c=answered_c, reasons={})

    def put(self, position_c: IntArray, some: PoolBounds) -> None:
        """Write the bounds of some clusters, which had none."""
        self.lower_c[position_c] = some.lower_c
        self.upper_c[position_c] = some.upper_c
        self.answered_c[position_c] = some.answered_c
        for place, reason in some.reasons.items():
            self.reasons[int(position_c[place])] = reason


def answer_of(bounds: PoolBounds) -> LevelAnswer:
    """Return the level's answer: LB+, which is EXACT where it equals UB beside no promises."""
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
    """Return LB+ and UB of each cluster."""
    even, uneven_c = [], [np.zeros(0, dtype=np.int64)]
    for block in cells.blocks:
        if _MAX_UNEVEN * len(block.cells) < len(block.uneven):
            uneven_c.append(np.arange(block.start, block.here.stop))
        else:
            even.append(block)
    bounds = PoolBounds.unanswered(len(cells))
    put_some(bounds, cells, np.concatenate(uneven_c), requirements)
    _put_even(bounds, even, requirements)
    return bounds


def put_some(
    bounds: PoolBounds, cells: FleetCells, position_c: IntArray, requirements: ReplicaRequirements
) -> None:
    """Write LB+ and UB of the clusters at some positions, in ascending order."""
    claim, demanded = requirements.node_claim, per_replica(requirements.request)
    for some_c in in_tables(cells, position_c):
        some = SomeClusters.of(cells, some_c, demanded, claim, with_sums=True)
        bounds.put(some_c, _bounds_of_some(cells, some, requirements))


def _bounds_of_some(
    cells: FleetCells, some: SomeClusters, requirements: ReplicaRequirements
) -> PoolBounds:
    demanded = per_replica(requirements.request)
    pools_c = [cells.pools[position] for position in some.position_c]
    answered_c = np.array([pools is not None for pools in pools_c])
    reasons: dict[int, Reason] = {}
    if some.verdict_k is not None:
        is_unknown_k = (some.verdict_k == Match.UNKNOWN) & (some.cells.count_k > 0)
        unknown_c = np.logical_or.reduceat(is_unknown_k, some.first_c)
        answered_c &= ~unknown_c
        for place in np.flatnonzero(unknown_c).tolist():
            pools = pools_c[place]
            label_keys = pools.label_keys if pools is not None else ()
            reasons[place] = _untold(label_keys, requirements.node_claim)
    lower_k, upper_by_k = tighter_lower_k(some.cells, demanded), upper_k(some.cells, demanded)
    return PoolBounds(
        lower_c=_total_c(some.suiting(lower_k), some.first_c),
        upper_c=_total_c(some.suiting(upper_by_k), some.first_c),
        answered_c=answered_c,
        reasons=reasons,
    )


def _put_even(
    bounds: PoolBounds, blocks: Sequence[CellBlock], requirements: ReplicaRequirements
) -> None:
    """Write LB+ and UB of the clusters of blocks, most of whose cells have equal nodes.

    Where the smallest and the largest node of a cell hold the same number, both bounds are that
    number times its nodes. Sums are read of the other cells only, of several blocks together.
    """
    claim, demanded = requirements.node_claim, per_replica(requirements.request)
    batch: list[tuple[CellBlock, _SimpleBounds]] = []
    for place, block in enumerate(blocks, start=1):
        batch.append((block, _SimpleBounds.of(block, demanded, claim)))
        unknown_c = _any_c(block, block.cell_verdicts(claim), Match.UNKNOWN)
        bounds.answered_c[block.here] = block.reported_c & ~unknown_c
        bounds.reasons.update(_reasons(block, unknown_c, claim))
        apart = sum(len(simple.apart_j) for _, simple in batch)
        if apart >= CELLS_A_TABLE or place == len(blocks):
            for summed, lower_c, upper_c in _with_sums(batch, demanded):
                bounds.lower_c[summed.here], bounds.upper_c[summed.here] = lower_c, upper_c
            batch = []


def _with_sums(
    batch: Sequence[tuple[CellBlock, _SimpleBounds]], demanded: Mapping[str, int]
) -> Iterator[tuple[CellBlock, IntArray, IntArray]]:
    """Yield the bounds of each block's clusters, with sums of several blocks read together."""
    apart = [block.uneven.at(simple.apart_j, demanded) for block, simple in batch]
    table = side_by_side(apart, np.concatenate([cells.pool_k for cells in apart]))
    lower_j, upper_j = tighter_lower_k(table, demanded), upper_k(table, demanded)
    start = 0
    for block, simple in batch:
        columns = slice(start, start + len(simple.apart_j))
        start = columns.stop
        lower_c = simple.total_c(block, lower_j[columns])
        yield block, lower_c, simple.total_c(block, upper_j[columns])


def _total_c(bound_k: IntArray, first_c: IntArray) -> IntArray:
    total_c: IntArray = np.minimum(np.add.reduceat(bound_k, first_c), MAX_REPLICAS)
    return total_c


class _SimpleBounds(NamedTuple):
    """Bounds of a block's clusters by the smallest node of each matching cell.

    ``least_c`` is the sum of its replicas times the nodes of the cell. ``apart_j`` are the uneven
    cells (axis j) whose largest node holds more; ``least_j`` of their replicas are in ``least_c``.
    """

    least_c: IntArray
    apart_j: npt.NDArray[np.intp]
    least_j: IntArray

    @classmethod
    def of(cls, block: CellBlock, demanded: Mapping[str, int], claim: NodeClaim | None) -> Self:
        cells, uneven = block.cells, block.uneven
        least_k = fit_in_k(cells.resources, cells.min_rk, demanded)
        largest_u = fit_in_k(cells.resources, uneven.cells.max_rk, demanded)
        is_apart_u = least_k.take(uneven.place_u) < largest_u
        verdict_k = block.cell_verdicts(claim)
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
        """Replace the replicas of uneven cells by better bounds; at most MAX_REPLICAS."""
        total_c = self.least_c.copy()
        cluster_j = block.cluster_k.take(block.uneven.place_u.take(self.apart_j))
        np.add.at(total_c, cluster_j, bound_j - self.least_j)
        return np.minimum(total_c, MAX_REPLICAS, out=total_c)


def _any_c(block: CellBlock, verdict_k: LevelArray | None, verdict: Match) -> BoolArray:
    """Tell which clusters have a cell with nodes and this verdict."""
    if verdict_k is None:
        return np.zeros(len(block), dtype=np.bool_)
    has_k = (verdict_k == verdict) & (block.cells.count_k > 0)
    any_c: BoolArray = np.logical_or.reduceat(has_k, block.first_c)
    return any_c


def _reasons(block: CellBlock, unknown_c: BoolArray, claim: NodeClaim | None) -> dict[int, Reason]:
    reasons = {}
    for position in np.flatnonzero(unknown_c).tolist():
        pool = block.pools[int(block.cells.pool_k[block.first_c[position]])]
        reasons[block.start + position] = _untold(pool.label_keys, claim)
    return reasons


def _untold(label_keys: tuple[str, ...], claim: NodeClaim | None) -> Reason:
    return untold_by_pools(tuple(keys_not_carried(label_keys, claim)))


def improved_by_pools(
    estimate: Callable[[], Estimates],
    bounds: PoolBounds,
    options: EstimateOptions,
    is_open_above_c: BoolArray,
) -> Estimates:
    """Merge the estimates of lesser levels with the bounds of pools.

    Pools also give an upper bound, except where the claim may reach nodes that are in no pool.
    """
    bounds = replace(bounds, upper_c=np.where(is_open_above_c, -1, bounds.upper_c))
    if options.merge is Merge.QUALITY and bounds.answered_c.all():
        lesser = unknown(len(bounds.answered_c))
    else:
        lesser = estimate()
    estimates = improved(lesser, answer_of(bounds), options.merge)
    return replace(estimates, upper_c=np.where(bounds.answered_c, bounds.upper_c, -1))


def open_above_c(capacity: FleetCapacity, cells: FleetCells, claim: NodeClaim | None) -> BoolArray:
    """Tell where a claim may reach nodes that are in no pool, as cordoned and unready ones."""
    if reaches_nodes_out_of_use(claim):
        return capacity.nodes_c > cells.nodes_c
    return np.zeros(len(cells), dtype=np.bool_)


def estimate_sets(
    capacity: FleetCapacity,
    cells: FleetCells,
    components: Sequence[Component],
    options: EstimateOptions,
    positions: Collection[int] | None = None,
) -> Estimates:
    """Estimate whole sets of components: packed into cells, or else by the total of a set.

    Grade counts cannot count sets, because their nodes are not told apart. Packing takes
    milliseconds a cluster, so only the clusters at the positions are packed, None: all.
    """
    summary = summary_level(capacity, positive_amounts(shape_of_set(components)))
    if not options.ignore_claims and any(part.requirements.chooses_nodes for part in components):
        summary = without_nodes(summary)
    # A set without replicas asks for nothing, so that only pod slots limit it.
    if options.highest < Source.POOLS or not any(part.replicas for part in components):
        return merge([summary], options.merge)
    chosen = range(len(cells)) if positions is None else positions
    return merge([_packed(cells, components, chosen), summary], options.merge)


def _packed(
    cells: FleetCells, components: Sequence[Component], positions: Collection[int]
) -> LevelAnswer:
    fitting = [SetEstimate(sets=0, answered=False)] * len(cells)
    for position in positions:
        pools = cells.pools[position]
        if pools is not None:
            fitting[position] = sets_that_fit(pools, components, MAX_REPLICAS)
    return LevelAnswer(
        source=Source.POOLS,
        replicas_c=np.array([estimate.sets for estimate in fitting], dtype=np.int64),
        answered_c=np.array([estimate.answered for estimate in fitting], dtype=np.bool_),
        bound_c=np.full(len(fitting), Bound.LOWER, dtype=np.int8),
        reasons={
            position: estimate.reason
            for position, estimate in enumerate(fitting)
            if estimate.reason
        },
    )
