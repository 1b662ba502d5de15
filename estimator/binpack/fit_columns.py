"""The part MostAllocated, LeastAllocated and RequestedToCapacityRatio share: which resources count.

Must not average: how the per-resource scores are put together differs between them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from estimator.binpack.arrays import NodeArrays, ReplicaRequest
from estimator.binpack.strategy import MAX_NODE_SCORE, ResourceColumn, ResourceWeight, Skip
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
    requested = request.scored(name)
    used_n = nodes.scored_n(name)
    allocatable_n = nodes.allocatable_n(name)
    dropped = why_dropped(name, requested)
    counted_n = allocatable_n > 0 if dropped is None else np.zeros(nodes.size, dtype=np.bool_)
    return ResourceColumn(
        strategy=strategy,
        resource=name,
        weight=item.weight,
        request=requested,
        used_n=used_n,
        allocatable_n=allocatable_n,
        counted_n=counted_n,
        score_n=rate(used_n + requested, np.maximum(allocatable_n, 1)),
        dropped=dropped,
    )


def why_dropped(resource: str, requested: int) -> Skip | None:
    """Why a configured resource takes no part on any node; None if it does.

    cpu, memory and ephemeral-storage count even when the replica does not ask for them.
    """
    if not is_countable(resource):
        return Skip.NOT_SCORED
    if requested == 0 and resource not in (CPU, MEMORY, EPHEMERAL_STORAGE):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PercentageStrategy(ABC):
    """Percent after placing, rounded down per resource and again in the weighted average."""

    type: ClassVar[str]
    weights: tuple[ResourceWeight, ...]

    @staticmethod
    @abstractmethod
    def percent(total_n: IntArray, allocatable_n: IntArray) -> IntArray:
        """0 to 100 per node, of what is used with the replica and of allocatable ≥ 1."""

    @property
    def name(self) -> str:
        return self.type

    @property
    def resources(self) -> frozenset[str]:
        return frozenset(item.resource for item in self.weights)

    def most(self, request: ReplicaRequest) -> float:  # noqa: ARG002 - the same for every replica
        return float(MAX_NODE_SCORE)

    def score(self, nodes: NodeArrays, request: ReplicaRequest) -> IntArray:
        return floor_average(self.columns(nodes, request), nodes.size)

    def columns(self, nodes: NodeArrays, request: ReplicaRequest) -> tuple[ResourceColumn, ...]:
        return fit_columns(self.name, self.weights, self.percent, nodes, request)
