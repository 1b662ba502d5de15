"""How many replicas fit into every cluster, by the best of the levels that reports feed.

Pure. Must not ask agents: the level ``exact`` comes on top of this.
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
    """What the lesser levels ``estimate``, where they count, with what pools prove.

    Where pools answer they also say how many fit at most, but for where more may fit on nodes
    that are in no pool.
    """
    bounds = replace(bounds, upper_c=np.where(is_open_above_c, -1, bounds.upper_c))
    if options.merge is Merge.QUALITY and bounds.answered_c.all():
        lesser = unknown(len(bounds.answered_c))
    else:
        lesser = estimate()
    estimates = improved(lesser, answer_of(bounds), options.merge)
    return replace(estimates, upper_c=np.where(bounds.answered_c, bounds.upper_c, -1))


def open_above_c(capacity: FleetCapacity, cells: FleetCells, claim: NodeClaim | None) -> BoolArray:
    """Where the claim may reach nodes that are in no pool, as cordoned and unready ones are: more
    fit there than pools know.
    """
    if reaches_nodes_out_of_use(claim):
        return capacity.nodes_c > cells.nodes_c
    return np.zeros(len(cells), dtype=np.bool_)


def estimate_sets(
    capacity: FleetCapacity,
    cells: FleetCells,
    components: Sequence[Component],
    options: EstimateOptions,
    wanted: Collection[int] | None = None,
) -> Estimates:
    """Whole sets of components: packed into cells, or else by the sum that a set asks for.

    Grades do not count sets: their nodes cannot be told apart by what was put on them. Packing
    takes milliseconds a cluster: only those at the ``wanted`` positions are packed, None: all.
    """
    summary = summary_level(capacity, positive_amounts(shape_of_set(components)))
    if not options.ignore_claims and any(each.requirements.chooses_nodes for each in components):
        summary = without_nodes(summary)
    # A set without replicas asks for nothing, which only pod slots limit.
    if options.highest < Source.POOLS or not any(each.replicas for each in components):
        return merge([summary], options.merge)
    chosen = range(len(cells)) if wanted is None else wanted
    return merge([_packed(cells, components, chosen), summary], options.merge)


def _packed(
    cells: FleetCells, components: Sequence[Component], wanted: Collection[int]
) -> LevelAnswer:
    fitting = [SetEstimate(sets=0, answered=False)] * len(cells)
    for position in wanted:
        pools = cells.pools[position]
        if pools is not None:
            fitting[position] = sets_that_fit(pools, components, MAX_REPLICAS)
    return LevelAnswer(
        source=Source.POOLS,
        replicas_c=np.array([each.sets for each in fitting], dtype=np.int64),
        answered_c=np.array([each.answered for each in fitting], dtype=np.bool_),
        bound_c=np.full(len(fitting), Bound.LOWER, dtype=np.int8),
        reasons={position: each.reason for position, each in enumerate(fitting) if each.reason},
    )
