"""LeastAllocated: the emptier the node, the better. kube-scheduler's default.

Must not be read as 100 minus MostAllocated: both round down, so they add up to 99 or 100.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from estimator.binpack.arrays import NodeArrays, ReplicaRequest
from estimator.binpack.fit_columns import fit_columns, floor_average
from estimator.binpack.strategy import (
    MAX_NODE_SCORE,
    ResourceColumn,
    ResourceWeight,
    StrategyReader,
)
from federation.model.arrays import IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastAllocated:
    """Percent free after placing, rounded down per resource and again in the weighted average."""

    weights: tuple[ResourceWeight, ...]

    @property
    def name(self) -> str:
        return "LeastAllocated"

    @property
    def resources(self) -> frozenset[str]:
        return frozenset(item.resource for item in self.weights)

    def most(self, request: ReplicaRequest) -> float:  # noqa: ARG002 - the same for every replica
        return float(MAX_NODE_SCORE)

    def score(self, nodes: NodeArrays, request: ReplicaRequest) -> IntArray:
        return floor_average(self.columns(nodes, request), nodes.size)

    def columns(self, nodes: NodeArrays, request: ReplicaRequest) -> tuple[ResourceColumn, ...]:
        return fit_columns(self.name, self.weights, _percent_free, nodes, request)


READER: Final = StrategyReader(type="LeastAllocated", strategy=LeastAllocated)


def _percent_free(total_n: IntArray, allocatable_n: IntArray) -> IntArray:
    free_n: IntArray = np.maximum(allocatable_n - total_n, 0)
    return free_n * MAX_NODE_SCORE // allocatable_n
