"""MostAllocated: the fuller the node, the better. kube-scheduler's stock bin packing.

Must not refuse an overfull node: filtering comes first, and an overfull one scores 100.
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
class MostAllocated:
    """Percent used after placing, rounded down per resource and again in the weighted average."""

    weights: tuple[ResourceWeight, ...]

    @property
    def name(self) -> str:
        return "MostAllocated"

    @property
    def resources(self) -> frozenset[str]:
        return frozenset(item.resource for item in self.weights)

    def most(self, request: ReplicaRequest) -> float:  # noqa: ARG002 - the same for every replica
        return float(MAX_NODE_SCORE)

    def score(self, nodes: NodeArrays, request: ReplicaRequest) -> IntArray:
        return floor_average(self.columns(nodes, request), nodes.size)

    def columns(self, nodes: NodeArrays, request: ReplicaRequest) -> tuple[ResourceColumn, ...]:
        return fit_columns(self.name, self.weights, _percent_used, nodes, request)


READER: Final = StrategyReader(type="MostAllocated", strategy=MostAllocated)


def _percent_used(total_n: IntArray, allocatable_n: IntArray) -> IntArray:
    return np.minimum(total_n, allocatable_n) * MAX_NODE_SCORE // allocatable_n
