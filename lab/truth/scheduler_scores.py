"""What kube-scheduler's fit filter and its scores see of nodes, and the scores themselves.

Must not share code with the product's scorer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

import numpy as np

from estimator.binpack.arrays import ReplicaRequest
from estimator.placement.incoming import IncomingPod
from estimator.snapshot import NodeTable
from federation.model.arrays import BoolArray, IntArray
from federation.model.cluster import TaintEffect
from federation.model.resources import CPU, MEMORY, is_countable

STORAGE = "ephemeral-storage"
TAINT_TOLERATION_WEIGHT = 3


class Strategy(StrEnum):
    """The type of NodeResourcesFit's scoringStrategy."""

    LEAST_ALLOCATED = "LeastAllocated"
    DEFAULT_STRATEGY = "MostAllocated"
    REQUESTED_TO_CAPACITY_RATIO = "RequestedToCapacityRatio"


class Loads:
    """What is requested on every node, as the filter counts it and as scores do."""

    def __init__(self, table: NodeTable) -> None:
        self._rows = {node.name: row for row, node in enumerate(table.nodes)}
        self._allocatable = table.allocatable
        self._requested: dict[str, IntArray] = {}
        self._nonzero: dict[str, IntArray] = {}

    def add(self, request: ReplicaRequest, node: str, sign: int) -> None:
        row = self._rows.get(node)
        if row is None:
            return
        for columns, amounts in (
            (self._requested, request.amounts),
            (self._nonzero, request.nonzero_placed),
        ):
            for name, amount in amounts.items():
                column = columns.setdefault(name, np.zeros(len(self._rows), np.int64))
                column[row] += sign * amount

    def fits_n(self, request: ReplicaRequest) -> BoolArray:
        fits_n = np.ones(len(self._rows), dtype=np.bool_)
        for name, amount in request.amounts.items():
            if amount > 0:
                fits_n &= self.requested_n(name) + amount <= self.allocatable_n(name)
        return fits_n

    def allocatable_n(self, name: str) -> IntArray:
        return self._column(self._allocatable, name)

    def requested_n(self, name: str) -> IntArray:
        return self._column(self._requested, name)

    def scored_n(self, name: str) -> IntArray:
        """cpu and memory with a default for what asks for none."""
        return self._column(self._nonzero if name in (CPU, MEMORY) else self._requested, name)

    def _column(self, columns: Mapping[str, IntArray], name: str) -> IntArray:
        column = columns.get(name)
        return np.zeros(len(self._rows), dtype=np.int64) if column is None else column


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The score plugins that can tell nodes apart here; stock as it stands.

    ``weights`` are those of resources, ``shape`` holds utilization and score, 0 to 10.
    """

    strategy: Strategy = Strategy.LEAST_ALLOCATED
    weights: Sequence[tuple[str, int]] = ((CPU, 1), (MEMORY, 1))
    shape: tuple[tuple[int, int], ...] = ((0, 0), (100, 10))
    fit_weight: int = 1
    balanced_weight: int = 1

    def scores(self, table: NodeTable, loads: Loads, pod: IncomingPod) -> IntArray:
        """Every node's sum over the plugins."""
        return (
            self.fit_weight * self.fit_n(loads, pod.request)
            + self.balanced_weight * balanced_n(loads, pod.request)
            + TAINT_TOLERATION_WEIGHT * _untainted_n(table, pod)
        )

    def fit_n(self, loads: Loads, request: ReplicaRequest) -> IntArray:
        size = len(loads.allocatable_n(CPU))
        total_n, weight_n = np.zeros(size, np.int64), np.zeros(size, np.int64)
        for name, weight in self.weights:
            asked = request.nonzero if name in (CPU, MEMORY) else request.amounts
            is_asked = name in (CPU, MEMORY, STORAGE) or asked.get(name, 0)
            if not is_asked or not is_countable(name):
                continue
            has_n = loads.allocatable_n(name) > 0
            capacity_n = np.maximum(loads.allocatable_n(name), 1)
            used_n = loads.scored_n(name) + asked.get(name, 0)
            score_n = self._score_n(used_n, capacity_n)
            if self.strategy is Strategy.REQUESTED_TO_CAPACITY_RATIO:
                has_n = has_n & (score_n > 0)
            total_n += np.where(has_n, score_n * weight, 0)
            weight_n += np.where(has_n, weight, 0)
        safe_n = np.maximum(weight_n, 1)
        if self.strategy is Strategy.REQUESTED_TO_CAPACITY_RATIO:
            # Half away from zero; nothing here is below it.
            return (2 * total_n + safe_n) // (2 * safe_n)
        return total_n // safe_n

    def _score_n(self, used_n: IntArray, capacity_n: IntArray) -> IntArray:
        match self.strategy:
            case Strategy.LEAST_ALLOCATED:
                return np.maximum(capacity_n - used_n, 0) * 100 // capacity_n
            case Strategy.DEFAULT_STRATEGY:
                return np.minimum(used_n, capacity_n) * 100 // capacity_n
            case Strategy.REQUESTED_TO_CAPACITY_RATIO:
                percent_n = np.minimum(used_n * 100 // capacity_n, 100)
                by_percent = np.array([self._on_shape(percent) for percent in range(101)])
                return by_percent[percent_n]

    def _on_shape(self, percent: int) -> int:
        points = [(utilization, 10 * score) for utilization, score in self.shape]
        if percent <= points[0][0]:
            return points[0][1]
        for (left, low), (right, high) in pairwise(points):
            if percent <= right:
                # Towards zero, as Go divides.
                return low + int((high - low) * (percent - left) / (right - left))
        return points[-1][1]


def balanced_n(loads: Loads, request: ReplicaRequest) -> IntArray:
    """How much more alike the shares of cpu and memory are with the pod; 75 is: no change."""
    if not (request.amounts.get(CPU) or request.amounts.get(MEMORY)):
        return np.zeros(len(loads.allocatable_n(CPU)), np.int64)

    both_n = (loads.allocatable_n(CPU) > 0) & (loads.allocatable_n(MEMORY) > 0)

    def evenness_n(extra: Mapping[str, int]) -> IntArray:
        shares = [
            np.minimum(
                (loads.requested_n(name) + extra.get(name, 0))
                / np.maximum(loads.allocatable_n(name), 1),
                1.0,
            )
            for name in (CPU, MEMORY)
        ]
        apart_n = np.where(both_n, np.abs(shares[0] - shares[1]) / 2, 0.0)
        return ((1 - apart_n) * 100).astype(np.int64)

    change_n = evenness_n(request.amounts) - evenness_n({})
    return 50 + np.trunc((50 + change_n) / 2).astype(np.int64)


def _untainted_n(table: NodeTable, pod: IncomingPod) -> IntArray:
    """100 less for nodes with more PreferNoSchedule taints that the pod does not tolerate."""
    keys = {each.key for each in pod.node_claim.tolerations}
    count_n = np.array(
        [
            sum(
                taint.effect is TaintEffect.PREFER_NO_SCHEDULE and not keys & {taint.key, ""}
                for taint in node.taints
            )
            for node in table.nodes
        ],
        dtype=np.int64,
    )
    most = int(count_n.max(initial=0))
    return 100 - 100 * count_n // most if most else np.full(len(count_n), 100)
