"""The part MostAllocated, LeastAllocated and RequestedToCapacityRatio share: which resources count.

Must not average: how the per-resource scores are put together differs between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from estimator.binpack.arrays import NodeArrays, ReplicaRequest
from estimator.binpack.strategy import ResourceColumn, ResourceWeight, Skip
from federation.model.arrays import IntArray
from federation.model.resources import CPU, EPHEMERAL_STORAGE, MEMORY, is_countable

Rate = Callable[[IntArray, IntArray], IntArray]
"""(used + request, allocatable ≥ 1) → score of one resource on every node."""


def fit_columns(
    strategy: str,
    weights: Iterable[ResourceWeight],
    rate: Rate,
    nodes: NodeArrays,
    request: ReplicaRequest,
) -> tuple[ResourceColumn, ...]:
    """One column per configured resource, in order; a resource named twice counts twice."""
    return tuple(_column(strategy, item, rate, nodes, request) for item in weights)


def _column(
    strategy: str,
    item: ResourceWeight,
    rate: Rate,
    nodes: NodeArrays,
    request: ReplicaRequest,
) -> ResourceColumn:
    name = item.resource
    asked = request.scored(name)
    used_n = nodes.scored_n(name)
    allocatable_n = nodes.allocatable_n(name)
    dropped = why_dropped(name, asked)
    counted_n = allocatable_n > 0 if dropped is None else np.zeros(nodes.size, dtype=np.bool_)
    return ResourceColumn(
        strategy=strategy,
        resource=name,
        weight=item.weight,
        request=asked,
        used_n=used_n,
        allocatable_n=allocatable_n,
        counted_n=counted_n,
        score_n=rate(used_n + asked, np.maximum(allocatable_n, 1)),
        dropped=dropped,
    )


def why_dropped(resource: str, asked: int) -> Skip | None:
    """Why a configured resource takes no part on any node; None if it does.

    cpu, memory and ephemeral-storage count even when the replica does not ask for them.
    """
    if not is_countable(resource):
        return Skip.NOT_SCORED
    if asked == 0 and resource not in (CPU, MEMORY, EPHEMERAL_STORAGE):
        return Skip.NOT_REQUESTED
    return None


def weighted_sums(columns: Iterable[ResourceColumn], size: int) -> tuple[IntArray, IntArray]:
    """Per node the sums of weight times score and of weight, over the resources that count."""
    score_sum_n = np.zeros(size, dtype=np.int64)
    weight_sum_n = np.zeros(size, dtype=np.int64)
    for column in columns:
        if column.dropped is None and column.score_n is not None:
            weight_n = column.counted_n * np.int64(column.weight)
            score_sum_n += column.score_n.astype(np.int64, copy=False) * weight_n
            weight_sum_n += weight_n
    return score_sum_n, weight_sum_n


def floor_average(columns: Iterable[ResourceColumn], size: int) -> IntArray:
    """The weighted average per node, rounded down; 0 where no resource counts."""
    score_sum_n, weight_sum_n = weighted_sums(columns, size)
    return score_sum_n // np.maximum(weight_sum_n, 1)
