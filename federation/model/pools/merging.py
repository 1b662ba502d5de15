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
# Pairs are merged in rounds: at most one pair for so many cells, and at most this part of the
# remaining merges. So the last and most expensive merges are chosen one by one.
_CELLS_A_PAIR: Final = 12
_MERGES_LEFT: Final = 4
# Partial sums of coordinates for the lower bound of a merge's cost: with eight, one pair in thirty
# needs its exact cost.
_PARTS: Final = 8
# Float sums of a few hundred coordinates in different orders differ by less than this factor.
_ROUNDING: Final = np.float32(1.0 + 1e-5)


def merge_groups(
    fit_ks: FloatArray, count_k: IntArray, pool_k: npt.NDArray[np.int32], budget: int
) -> npt.NDArray[np.intp]:
    """Return the group 0, 1... of each cell, ``budget`` groups in all; no group spans two pools.

    ``fit_ks`` are coordinates (``fit_space``); a merged cell has the minimum. There are more groups
    than ``budget`` if there are more pools.
    """
    merging = _Merging(fit_ks, count_k, pool_k)
    group_k = np.arange(len(count_k))
    while merging.left > budget:
        staying, gone = merging.cheapest_pairs(limit=-(-(merging.left - budget) // _MERGES_LEFT))
        if len(staying) == 0:
            break
        group_k = merging.merge(staying, gone)[group_k]
    return np.unique(group_k, return_inverse=True)[1]


class _Merging:
    """Cells during merging: coordinates, the cost of every pair, and each cell's best partner.

    A pair that is no cell's best has only a lower bound of its cost: ``_exact_kk`` is false. Cells
    keep their order, and a merged one has the position of its first. Merged cells stay in the
    arrays for a while, and cannot be merged again.
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
        positions = np.arange(self.left)
        self._sum_up(positions)
        self._cost_kk = self._least_costs(positions)
        self._cost_kk[pool_k[:, np.newaxis] != pool_k] = _IMPOSSIBLE
        np.fill_diagonal(self._cost_kk, _IMPOSSIBLE)
        self._exact_kk = self._cost_kk == _IMPOSSIBLE

    def cheapest_pairs(self, limit: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """Return pairs of cells that are each other's best partners, those of least loss first.

        The result is (positions that stay, positions that go); it is empty when no two cells share
        a pool.
        """
        partner_k = self._partners()
        first = np.flatnonzero(partner_k[partner_k] == np.arange(len(partner_k)))
        first = first[first < partner_k[first]]
        cost = self._cost_kk[first, partner_k[first]]
        first, cost = first[cost < _IMPOSSIBLE], cost[cost < _IMPOSSIBLE]
        limit = min(limit, max(1, self.left // _CELLS_A_PAIR))
        staying = np.sort(first[np.argsort(cost, kind="stable")[:limit]])
        return staying, partner_k[staying]

    def merge(
        self, staying: npt.NDArray[np.intp], gone: npt.NDArray[np.intp]
    ) -> npt.NDArray[np.intp]:
        """Merge these pairs; return the position of each cell afterwards."""
        self.left -= len(gone)
        self._fit_ks[staying] = np.minimum(self._fit_ks[staying], self._fit_ks[gone])
        self._count_k[staying] += self._count_k[gone]
        self._sum_up(staying)
        for axis in (np.s_[gone], np.s_[:, gone]):
            self._cost_kk[axis] = _IMPOSSIBLE
            self._exact_kk[axis] = True
        cost_jk = self._least_costs(staying)
        is_settled_jk = self._cost_kk[staying] == _IMPOSSIBLE
        cost_jk[is_settled_jk] = _IMPOSSIBLE
        self._cost_kk[staying], self._cost_kk[:, staying] = cost_jk, cost_jk.T
        self._exact_kk[staying], self._exact_kk[:, staying] = is_settled_jk, is_settled_jk.T
        place_k: npt.NDArray[np.intp] = np.arange(len(self._count_k))
        place_k[gone] = staying
        self._alive_k[gone] = False
        if self.left * 4 < len(place_k) * 3:
            place_k = self._packed()[place_k]
        return place_k

    def _packed(self) -> npt.NDArray[np.intp]:
        """Drop merged cells from the arrays; return the position of each remaining cell."""
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
        """Return the partner of each cell with which it loses least.

        Costs that seem lowest by their bound are computed exactly, until none is lower.
        """
        partner_k: npt.NDArray[np.intp] = self._cost_kk.argmin(axis=1)
        cells = np.arange(len(partner_k))
        while True:
            cells = cells[~self._exact_kk[cells, partner_k[cells]]]
            if len(cells) == 0:
                return partner_k
            partners = partner_k[cells]
            cost = self._costs(cells, partners)
            self._cost_kk[cells, partners] = self._cost_kk[partners, cells] = cost
            self._exact_kk[cells, partners] = self._exact_kk[partners, cells] = True
            partner_k[cells] = self._cost_kk[cells].argmin(axis=1)

    def _sum_up(self, cells: npt.NDArray[np.intp]) -> None:
        fit_js = self._fit_ks[cells]
        self._value_k[cells] = self._count_k[cells] * fit_js.sum(axis=1, dtype=np.float64)
        self._part_pk[:, cells] = np.add.reduceat(fit_js, self._first_p, axis=1).T * _ROUNDING

    def _least_costs(self, cells: npt.NDArray[np.intp]) -> FloatArray:
        """Return lower bounds of the cost of merging some cells (axis j) with each cell (axis k).

        The minimum of two sums is at least the sum of the minimums.
        """
        common_jk = np.zeros((len(cells), len(self._count_k)), dtype=np.float32)
        for part_k in self._part_pk:
            common_jk += np.minimum.outer(part_k[cells], part_k)
        count_k, value_k = self._count_k.astype(np.float32), self._value_k.astype(np.float32)
        common_jk *= np.add.outer(count_k[cells], count_k)
        least_jk: FloatArray = np.add.outer(value_k[cells], value_k) - common_jk
        return least_jk

    def _costs(self, cells: npt.NDArray[np.intp], partners: npt.NDArray[np.intp]) -> FloatArray:
        """Return the replicas lost, as a share of the cluster's, by merging each cell with its
        partner.
        """
        common_j = np.minimum(self._fit_ks[cells], self._fit_ks[partners]).sum(axis=1)
        counts_j = self._count_k[cells] + self._count_k[partners]
        values_j = self._value_k[cells] + self._value_k[partners]
        cost_j: FloatArray = (values_j - counts_j * common_j).astype(np.float32)
        return cost_j
