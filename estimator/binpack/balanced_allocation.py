"""NodeResourcesBalancedAllocation: prefer the node whose resources the replica evens out.

Must not count defaults: this plugin goes by plain requests, unlike Fit scoring.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from estimator.binpack.arrays import NodeArrays, ReplicaRequest
from estimator.binpack.fit_columns import why_dropped
from estimator.binpack.strategy import MAX_NODE_SCORE, ResourceColumn, ResourceWeight
from federation.model.arrays import BoolArray, FloatArray, IntArray

# So many that their arrays stay in the cache, and in memory that the process already has.
_BLOCK_NODES: Final = 2_500


@dataclass(frozen=True, slots=True, kw_only=True)
class BalancedAllocation:
    """50 plus half of what the balance gains: 75 is no change, 100 the greatest improvement."""

    weights: tuple[ResourceWeight, ...]

    @property
    def name(self) -> str:
        return "BalancedAllocation"

    @property
    def resources(self) -> frozenset[str]:
        return frozenset(item.resource for item in self.weights)

    def applies_to(self, request: ReplicaRequest) -> bool:
        """Whether the replica asks for any of the resources; if not, the plugin has no say."""
        requested = (
            (item.resource, request.amounts.get(item.resource, 0)) for item in self.weights
        )
        return any(amount > 0 and why_dropped(name, amount) is None for name, amount in requested)

    def most(self, request: ReplicaRequest) -> float:  # noqa: ARG002 - the same for every replica
        return float(MAX_NODE_SCORE)

    def score(self, nodes: NodeArrays, request: ReplicaRequest) -> IntArray:
        columns = [column for column in self.columns(nodes, request) if column.dropped is None]
        score_n = np.empty(nodes.size, dtype=np.int64)
        half = MAX_NODE_SCORE // 2
        for start in range(0, nodes.size, _BLOCK_NODES):
            block = slice(start, min(start + _BLOCK_NODES, nodes.size))
            before_n, after_n = _balances_pn(columns, block)
            # A balance lies in 50..100, so what is halved is never negative: >> cuts off as Go.
            score_n[block] = half + ((half + after_n - before_n) >> 1)
        return score_n

    def columns(self, nodes: NodeArrays, request: ReplicaRequest) -> tuple[ResourceColumn, ...]:
        return tuple(self._column(item, nodes, request) for item in self.weights)

    def _column(
        self, item: ResourceWeight, nodes: NodeArrays, request: ReplicaRequest
    ) -> ResourceColumn:
        name = item.resource
        requested = request.amounts.get(name, 0)
        allocatable_n = nodes.allocatable_n(name)
        dropped = why_dropped(name, requested)
        return ResourceColumn(
            strategy=self.name,
            resource=name,
            weight=item.weight,
            request=requested,
            used_n=nodes.requested_n(name),
            allocatable_n=allocatable_n,
            counted_n=(allocatable_n > 0) & (dropped is None),
            score_n=None,
            dropped=dropped,
        )


def _balances_pn(columns: Sequence[ResourceColumn], block: slice) -> IntArray:
    """100 less the spread of the used fractions in percent, cut off; before and after placing.

    The sums run in configured order and a left-out resource adds 0.0, which changes no double:
    the cut makes the order of operations visible.
    """
    size = block.stop - block.start
    counted_cn = [column.counted_n[block] for column in columns]
    fraction_cpn = np.empty((len(columns), 2, size))
    count_n = np.zeros(size)
    mean_pn = np.zeros((2, size))
    for column, counted_n, fraction_pn in zip(columns, counted_cn, fraction_cpn, strict=True):
        divisor_n = np.where(counted_n, column.allocatable_n[block], np.inf)
        np.divide(column.used_n[block], divisor_n, out=fraction_pn[0])
        np.divide(column.used_n[block] + column.request, divisor_n, out=fraction_pn[1])
        np.minimum(fraction_pn, 1.0, out=fraction_pn)
        mean_pn += fraction_pn
        count_n += counted_n
    at_least_one_n = np.maximum(count_n, 1.0)
    mean_pn /= at_least_one_n
    spread_pn = np.zeros((2, size))
    for counted_n, fraction_pn in zip(counted_cn, fraction_cpn, strict=True):
        square_pn = fraction_pn - mean_pn
        square_pn *= square_pn
        square_pn *= counted_n
        spread_pn += square_pn
    spread_pn /= at_least_one_n
    np.sqrt(spread_pn, out=spread_pn)
    pair_n = count_n == 2
    if pair_n.any():
        spread_pn = np.where(pair_n, _half_difference_pn(counted_cn, fraction_cpn), spread_pn)
    balance_pn: IntArray = ((1 - spread_pn) * MAX_NODE_SCORE).astype(np.int64)
    return balance_pn


def _half_difference_pn(counted_cn: Sequence[BoolArray], fraction_cpn: FloatArray) -> FloatArray:
    """Compute the deviation of two fractions as half their difference."""
    difference_pn = np.zeros(fraction_cpn.shape[1:])
    for counted_n, fraction_pn in zip(counted_cn, fraction_cpn, strict=True):
        difference_pn = np.where(counted_n, fraction_pn - difference_pn, difference_pn)
    return np.abs(difference_pn) / 2
