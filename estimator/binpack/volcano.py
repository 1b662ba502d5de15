"""Volcano's binpack plugin: how full the requested resources get, as a float.

Must not be added to kube-scheduler's scores: the scales have nothing to do with each other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from estimator.binpack.arrays import NodeArrays, ReplicaRequest
from estimator.binpack.strategy import Float64Array, ResourceColumn, ResourceWeight, Skip


@dataclass(frozen=True, slots=True, kw_only=True)
class VolcanoBinpack:
    """Weighted average of (used + request) / allocatable, times 100, times the plugin's weight.

    Only requested resources with a weight of their own count. One that the node lacks adds
    nothing but keeps its weight; one that would overflow makes the whole node 0. ``weight`` may
    be negative, and the result is neither rounded nor confined.
    """

    weight: int
    weights: tuple[ResourceWeight, ...]

    @property
    def name(self) -> str:
        return "VolcanoBinpack"

    @property
    def resources(self) -> frozenset[str]:
        return frozenset(item.resource for item in self.weights)

    def most(self, request: ReplicaRequest) -> float:  # noqa: ARG002 - the same for every replica
        return 100.0 * abs(self.weight)

    def score(self, nodes: NodeArrays, request: ReplicaRequest) -> Float64Array:
        sum_n = np.zeros(nodes.size)
        weight_sum = 0
        overflows_n = np.zeros(nodes.size, dtype=np.bool_)
        for column in self.columns(nodes, request):
            if column.dropped is not None:
                continue
            weight_sum += column.weight
            if column.weight == 0:
                continue
            total_n = (column.used_n + column.request).astype(np.float64)
            exists_n = column.allocatable_n > 0
            overflows_n |= exists_n & (total_n > column.allocatable_n)
            share_n = total_n * column.weight / np.maximum(column.allocatable_n, 1)
            sum_n += np.where(exists_n, share_n, 0.0)
        if weight_sum > 0:
            sum_n /= weight_sum
        sum_n[overflows_n] = 0.0
        return sum_n * (100.0 * self.weight)

    def columns(self, nodes: NodeArrays, request: ReplicaRequest) -> tuple[ResourceColumn, ...]:
        return tuple(self._column(item, nodes, request) for item in self.weights)

    def _column(
        self, item: ResourceWeight, nodes: NodeArrays, request: ReplicaRequest
    ) -> ResourceColumn:
        name = item.resource
        asked = request.amounts.get(name, 0)
        used_n = nodes.requested_n(name)
        allocatable_n = nodes.allocatable_n(name)
        percent_n = (used_n + asked) * 100.0 / np.maximum(allocatable_n, 1)
        return ResourceColumn(
            strategy=self.name,
            resource=name,
            weight=item.weight,
            request=asked,
            used_n=used_n,
            allocatable_n=allocatable_n,
            counted_n=np.full(nodes.size, asked > 0),
            score_n=np.where(allocatable_n > 0, percent_n, 0.0),
            dropped=None if asked > 0 else Skip.NOT_REQUESTED,
        )
