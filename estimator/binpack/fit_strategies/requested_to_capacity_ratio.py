"""RequestedToCapacityRatio: percent used, bent by a shape that the operator draws.

Must not treat a resource that scores 0 like the others: kube-scheduler leaves it out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from functools import lru_cache
from typing import Final

import numpy as np

from estimator.binpack.arrays import NodeArrays, ReplicaRequest
from estimator.binpack.fit_columns import fit_columns, weighted_sums
from estimator.binpack.strategy import (
    MAX_SHAPE_SCORE,
    MAX_UTILIZATION,
    ResourceColumn,
    ResourceWeight,
    ShapePoint,
    StrategyReader,
    value_at,
)
from federation.model.arrays import IntArray


class Scale(IntEnum):
    """The factor of a shape's score, which is 0 to 10."""

    DOCUMENTATION = 1  # 0-10, as Kubernetes' page on bin packing works its example
    KUBE_SCHEDULER = 10  # 0-100, what kube-scheduler has answered since 1.17


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedToCapacityRatio:
    """The shape's value per resource; the weighted average of those above 0, rounded to nearest."""

    weights: tuple[ResourceWeight, ...]
    shape: tuple[ShapePoint, ...]
    scale: Scale = Scale.KUBE_SCHEDULER

    @property
    def name(self) -> str:
        return "RequestedToCapacityRatio"

    @property
    def resources(self) -> frozenset[str]:
        return frozenset(item.resource for item in self.weights)

    def most(self, request: ReplicaRequest) -> float:  # noqa: ARG002 - the same for every replica
        return float(MAX_SHAPE_SCORE * self.scale)

    def score(self, nodes: NodeArrays, request: ReplicaRequest) -> IntArray:
        score_sum_n, weight_sum_n = weighted_sums(self.columns(nodes, request), nodes.size)
        # Halves go up. Two integers are nearer to no half than a double can tell, so this equals
        # rounding the quotient of doubles.
        return (2 * score_sum_n + weight_sum_n) // np.maximum(2 * weight_sum_n, 1)

    def columns(self, nodes: NodeArrays, request: ReplicaRequest) -> tuple[ResourceColumn, ...]:
        return tuple(
            _without_zero_scores(column)
            for column in fit_columns(self.name, self.weights, self._shaped, nodes, request)
        )

    def _shaped(self, total_n: IntArray, allocatable_n: IntArray) -> IntArray:
        used_percent_n = np.minimum(total_n, allocatable_n) * MAX_UTILIZATION // allocatable_n
        return _values(self.shape, self.scale)[used_percent_n]


READER: Final = StrategyReader(
    type="RequestedToCapacityRatio", strategy=RequestedToCapacityRatio, takes_shape=True
)


def _without_zero_scores(column: ResourceColumn) -> ResourceColumn:
    if column.score_n is None:
        return column
    return replace(column, counted_n=column.counted_n & (column.score_n != 0))


@lru_cache(maxsize=64)
def _values(shape: tuple[ShapePoint, ...], scale: Scale) -> IntArray:
    """The shape's value at every whole percent. Cached, so read-only."""
    corners = [replace(point, score=point.score * scale) for point in shape]
    values = np.array(
        [value_at(corners, percent) for percent in range(MAX_UTILIZATION + 1)], dtype=np.int64
    )
    values.flags.writeable = False
    return values
