"""Greedy merging of cells: the pair that loses the fewest replicas first, within its pool.

Pure and deterministic: equal costs go to the lower positions. Must not know shapes or resources.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from federation.model.pools.fit_space import FloatArray
from federation.model.pools.values import Int64Array

_IMPOSSIBLE: Final = np.float32(np.inf)


def merge_groups(
    fit_sk: FloatArray, count_k: Int64Array, pool_k: npt.NDArray[np.int32], budget: int
) -> npt.NDArray[np.intp]:
    """The group 0, 1... of each cell when ``budget`` are to be left; no group spans two pools.

    ``fit_sk`` are coordinates of which merged cells have the least (``fit_space``). Cells come in
    the order of their pools. More groups than ``budget`` are left when there are more pools.
    """
    merging = _Merging(fit_sk, count_k, pool_k)
    owner_k = np.arange(len(count_k))
    while merging.left > budget:
        pair = merging.merge_cheapest()
        if pair is None:
            break
        kept, gone = pair
        owner_k[gone] = kept
    # Cells are kept at the lower position of a pair, so owners are settled in ascending order.
    for cell in range(len(owner_k)):
        owner_k[cell] = owner_k[owner_k[cell]]
    _, group_k = np.unique(owner_k, return_inverse=True)
    return group_k


class _Merging:
    """Cells on their way to fewer: coordinates, the cost of every pair, each one's best partner.

    Positions stay those of the cells given; ``_cell_k`` finds them after the arrays were packed.
    """

    def __init__(
        self, fit_sk: FloatArray, count_k: Int64Array, pool_k: npt.NDArray[np.int32]
    ) -> None:
        self.left = len(count_k)
        self._fit_sk = fit_sk.copy()
        self._count_k = count_k.astype(np.float64)
        self._pool_k = pool_k
        self._cell_k = np.arange(len(count_k))
        self._alive_k = np.ones(len(count_k), dtype=np.bool_)
        self._set_spans()
        self._value_k = self._count_k * self._fit_sk.sum(axis=0, dtype=np.float64)
        self._cost_kk = np.full((len(count_k), len(count_k)), _IMPOSSIBLE, dtype=np.float32)
        for cell in range(len(count_k)):
            stop = self._stop_k[cell]
            cost = self._costs(cell, cell + 1, stop)
            self._cost_kk[cell, cell + 1 : stop] = cost
            self._cost_kk[cell + 1 : stop, cell] = cost
        self._partner_k = self._cost_kk.argmin(axis=1) if self.left else np.zeros(0, np.intp)
        self._best_k = self._cost_kk[np.arange(self.left), self._partner_k]

    def merge_cheapest(self) -> tuple[int, int] | None:
        """Merge the pair that loses least: (position kept, position gone); None without a pair."""
        first = int(self._best_k.argmin())
        if self._best_k[first] == _IMPOSSIBLE:
            return None
        kept, gone = sorted((first, int(self._partner_k[first])))
        pair = int(self._cell_k[kept]), int(self._cell_k[gone])
        self.left -= 1
        self._join(kept, gone)
        self._recost(kept, gone)
        if self.left * 4 < len(self._alive_k) * 3:
            self._pack()
        return pair

    def _join(self, kept: int, gone: int) -> None:
        fit_s = np.minimum(self._fit_sk[:, kept], self._fit_sk[:, gone])
        self._fit_sk[:, kept] = fit_s
        self._count_k[kept] += self._count_k[gone]
        self._value_k[kept] = self._count_k[kept] * fit_s.sum(dtype=np.float64)
        self._alive_k[gone] = False
        self._cost_kk[gone, :] = _IMPOSSIBLE
        self._cost_kk[:, gone] = _IMPOSSIBLE
        self._best_k[gone] = _IMPOSSIBLE

    def _recost(self, kept: int, gone: int) -> None:
        start, stop = self._start_k[kept], self._stop_k[kept]
        cost = self._costs(kept, start, stop)
        cost[~self._alive_k[start:stop]] = _IMPOSSIBLE
        cost[kept - start] = _IMPOSSIBLE
        self._cost_kk[kept, start:stop] = cost
        self._cost_kk[start:stop, kept] = cost
        span = slice(start, stop)
        partner, best = self._partner_k[span], self._best_k[span]
        lost = (partner == kept) | (partner == gone)
        lost[kept - start] = True
        better = (cost < best) | ((cost == best) & (kept < partner))
        better &= self._alive_k[span] & ~lost
        partner[better] = kept
        best[better] = cost[better]
        rows = np.flatnonzero(lost & self._alive_k[span]) + start
        costs = self._cost_kk[rows, span]
        place = costs.argmin(axis=1)
        self._partner_k[rows] = place + start
        self._best_k[rows] = costs[np.arange(len(rows)), place]

    def _costs(self, cell: int, start: int, stop: int) -> FloatArray:
        """Replicas lost, as a share of the cluster's, by merging a cell with each of start..stop.

        Summed shape after shape, so that the same cells cost the same on every machine.
        """
        common_sk = np.minimum(self._fit_sk[:, start:stop], self._fit_sk[:, cell, np.newaxis])
        common_k = np.add.reduce(common_sk, axis=0)
        counts = self._count_k[start:stop] + self._count_k[cell]
        values = self._value_k[start:stop] + self._value_k[cell]
        cost: FloatArray = (values - counts * common_k).astype(np.float32)
        return cost

    def _pack(self) -> None:
        """Drop what is gone from the arrays: most of the time goes into their length."""
        keep = np.flatnonzero(self._alive_k)
        place = np.cumsum(self._alive_k) - 1
        self._fit_sk = np.ascontiguousarray(self._fit_sk[:, keep])
        self._count_k = self._count_k[keep]
        self._value_k = self._value_k[keep]
        self._pool_k = self._pool_k[keep]
        self._cell_k = self._cell_k[keep]
        self._cost_kk = self._cost_kk[np.ix_(keep, keep)]
        self._partner_k = place[self._partner_k[keep]]
        self._best_k = self._best_k[keep]
        self._alive_k = np.ones(len(keep), dtype=np.bool_)
        self._set_spans()

    def _set_spans(self) -> None:
        """Where the pool of each cell starts and stops among the cells."""
        self._start_k = np.searchsorted(self._pool_k, self._pool_k, side="left")
        self._stop_k = np.searchsorted(self._pool_k, self._pool_k, side="right")
