"""Estimates of how many replicas fit in each cluster, by the best level that its report allows.

Pure. Must not ask agents: the level ``exact`` is added elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import numpy as np

from federation.capacity.fleet_cells import FleetCells
from federation.capacity.fleet_reports import FleetCapacity
from federation.capacity.pool_estimates import PoolBounds, answer_of
from federation.capacity.summary_estimates import positive_amounts, summary_level, without_nodes
from federation.model.arrays import BoolArray
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
from federation.model.pools.sets import SetEstimate, sets_that_fit
from federation.model.tolerations import reaches_nodes_out_of_use
from federation.model.workload import Component, NodeClaim


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
