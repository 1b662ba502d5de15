"""What LeastAllocated and MostAllocated share: a percentage per resource, averaged.

Must not know whether full or empty is good: each strategy's own file says that.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from estimator.binpack.arrays import NodeArrays, ReplicaRequest
from estimator.binpack.fit_columns import fit_columns, floor_average
from estimator.binpack.strategy import MAX_NODE_SCORE, ResourceColumn, ResourceWeight
from federation.model.arrays import IntArray


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
