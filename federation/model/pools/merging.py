"""Greedy merging of cells: the pairs that lose the fewest replicas first, within their pool.

Pure and deterministic: equal costs go to the lower positions. Must not know shapes or resources.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from federation.model.arrays import IntArray
from federation.model.pools.fit_space import FloatArray

_IMPOSSIBLE: Final = np.float32(np.inf)
# Pairs are merged some at a time: at most one of so many cells, and this part of what is left to
# be done, so that the last and dearest merges are chosen one by one.
_CELLS_A_PAIR: Final = 12
_MERGES_LEFT: Final = 4
# Coordinates are added up in so many parts to tell what a merge costs at least: with eight, one
# pair in thirty has to be looked at closely.
_PARTS: Final = 8
# Float sums of a few hundred coordinates agree up to this share, in whatever order.
_ROUNDING: Final = np.float32(1.0 + 1e-5)


def merge_groups(
    fit_ks: FloatArray, count_k: IntArray, pool_k: npt.NDArray[np.int32], budget: int
) -> npt.NDArray[np.intp]:
    """The group 0, 1... of each cell when ``budget`` are to be left; no group spans two pools.

    ``fit_ks`` are coordinates of which merged cells have the least (``fit_space``). More groups
    than ``budget`` are left when there are more pools.
    """
    merging = _Merging(fit_ks, count_k, pool_k)
    group_k = np.arange(len(count_k))
    while merging.left > budget:
        kept, gone = merging.cheapest_pairs(most=-(-(merging.left - budget) // _MERGES_LEFT))
        if len(kept) == 0:
            break
        group_k = merging.merge(kept, gone)[group_k]
    return np.unique(group_k, return_inverse=True)[1]


class _Merging:
    """Cells on their way to fewer: coordinates, the cost of every pair, each one's best partner.

    Of a pair that is no cell's best only a lower bound of the cost is known, where ``_exact_kk``
    is false. Cells keep their order, and a merged one has the place of its first. What is gone
    stays in the arrays for a while, as something that cannot be merged.
    """

    def __init__(
        self, fit_ks: FloatArray, count_k: IntArray, pool_k: npt.NDArray[np.int32]
    ) -> None:
        self.left = len(count_k)
        self._fit_ks = fit_ks.copy()
        self._count_k = count_k.astype(np.float64)
        self._alive_k = np.ones(self.left, dtype=np.bool_)
        self._first_p = np.arange(0, fit_ks.shape[1], max(1, -(-fit_ks.shape[1] // _PARTS)))
        self._value_k = np.empty(self.left, dtype=np.float64)
        self._part_pk = np.empty((len(self._first_p), self.left), dtype=np.float32)
        every = np.arange(self.left)
        self._sum_up(every)
        self._cost_kk = self._least_costs(every)
        self._cost_kk[pool_k[:, np.newaxis] != pool_k] = _IMPOSSIBLE
        np.fill_diagonal(self._cost_kk, _IMPOSSIBLE)
        self._exact_kk = self._cost_kk == _IMPOSSIBLE

    def cheapest_pairs(self, most: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """Some pairs of cells that are each other's best partners, those that lose least, as
        (positions kept, positions gone); none when no two cells share a pool.
        """
        partner_k = self._partners()
        first = np.flatnonzero(partner_k[partner_k] == np.arange(len(partner_k)))
        first = first[first < partner_k[first]]
        cost = self._cost_kk[first, partner_k[first]]
        first, cost = first[cost < _IMPOSSIBLE], cost[cost < _IMPOSSIBLE]
        most = min(most, max(1, self.left // _CELLS_A_PAIR))
        kept = np.sort(first[np.argsort(cost, kind="stable")[:most]])
        return kept, partner_k[kept]

    def merge(self, kept: npt.NDArray[np.intp], gone: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
        """Merge these pairs; returns the place that each cell has afterwards."""
        self.left -= len(gone)
        self._fit_ks[kept] = np.minimum(self._fit_ks[kept], self._fit_ks[gone])
        self._count_k[kept] += self._count_k[gone]
        self._sum_up(kept)
        for axis in (np.s_[gone], np.s_[:, gone]):
            self._cost_kk[axis] = _IMPOSSIBLE
            self._exact_kk[axis] = True
        cost_jk = self._least_costs(kept)
        is_settled_jk = self._cost_kk[kept] == _IMPOSSIBLE
        cost_jk[is_settled_jk] = _IMPOSSIBLE
        self._cost_kk[kept], self._cost_kk[:, kept] = cost_jk, cost_jk.T
        self._exact_kk[kept], self._exact_kk[:, kept] = is_settled_jk, is_settled_jk.T
        place_k: npt.NDArray[np.intp] = np.arange(len(self._count_k))
        place_k[gone] = kept
        self._alive_k[gone] = False
        if self.left * 4 < len(place_k) * 3:
            place_k = self._packed()[place_k]
        return place_k

    def _packed(self) -> npt.NDArray[np.intp]:
        """Drop what is gone from the arrays; returns the place of each cell that is not."""
        keep = np.flatnonzero(self._alive_k)
        place_k = np.cumsum(self._alive_k) - 1
        self._fit_ks = self._fit_ks[keep]
        self._count_k, self._value_k = self._count_k[keep], self._value_k[keep]
        self._part_pk = self._part_pk[:, keep]
        self._cost_kk = self._cost_kk[np.ix_(keep, keep)]
        self._exact_kk = self._exact_kk[np.ix_(keep, keep)]
        self._alive_k = np.ones(len(keep), dtype=np.bool_)
        return place_k

    def _partners(self) -> npt.NDArray[np.intp]:
        """The partner of every cell with which it loses least.

        What seems cheapest by its lower bound is reckoned exactly, until none seems cheaper.
        """
        partner_k: npt.NDArray[np.intp] = self._cost_kk.argmin(axis=1)
        cells = np.arange(len(partner_k))
        while True:
            cells = cells[~self._exact_kk[cells, partner_k[cells]]]
            if len(cells) == 0:
                return partner_k
            others = partner_k[cells]
            cost = self._costs(cells, others)
            self._cost_kk[cells, others] = self._cost_kk[others, cells] = cost
            self._exact_kk[cells, others] = self._exact_kk[others, cells] = True
            partner_k[cells] = self._cost_kk[cells].argmin(axis=1)

    def _sum_up(self, cells: npt.NDArray[np.intp]) -> None:
        fit_js = self._fit_ks[cells]
        self._value_k[cells] = self._count_k[cells] * fit_js.sum(axis=1, dtype=np.float64)
        self._part_pk[:, cells] = np.add.reduceat(fit_js, self._first_p, axis=1).T * _ROUNDING

    def _least_costs(self, cells: npt.NDArray[np.intp]) -> FloatArray:
        """What merging some cells (axis j) with each cell costs at least.

        Of sums of coordinates the least is at least the sum of the least.
        """
        common_jk = np.zeros((len(cells), len(self._count_k)), dtype=np.float32)
        for part_k in self._part_pk:
            common_jk += np.minimum.outer(part_k[cells], part_k)
        count_k, value_k = self._count_k.astype(np.float32), self._value_k.astype(np.float32)
        common_jk *= np.add.outer(count_k[cells], count_k)
        least_jk: FloatArray = np.add.outer(value_k[cells], value_k) - common_jk
        return least_jk

    def _costs(self, cells: npt.NDArray[np.intp], others: npt.NDArray[np.intp]) -> FloatArray:
        """Replicas lost, as a share of the cluster's, by merging each cell with its other one."""
        common_j = np.minimum(self._fit_ks[cells], self._fit_ks[others]).sum(axis=1)
        counts_j = self._count_k[cells] + self._count_k[others]
        values_j = self._value_k[cells] + self._value_k[others]
        cost_j: FloatArray = (values_j - counts_j * common_j).astype(np.float32)
        return cost_j
