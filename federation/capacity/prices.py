"""What is to be taken of the nodes of cells before they hold so many replicas less.

Pure, whole-array. Must not know who takes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from federation.capacity.fleet_cells import CellBlock
from federation.model.arrays import BoolArray, IntArray

# Sums of prices stay below this, else anything taken counts as all: int64 holds twice as much.
_SAFE: Final = 2.0**62


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PriceLists:
    """How much of each resource (axis r) buys how many replicas of each cluster of a block (axis
    c): a list for each of both, those of a resource side by side.

    The prices (axis s) of the list at q begin at ``first_q[q]``, the cheapest first. All before
    place s cost ``spent_s[s]`` and buy ``had_s[s]``, which have one place more than prices.
    """

    size: int
    first_q: IntArray
    price_s: IntArray
    spent_s: IntArray
    had_s: IntArray
    is_safe: bool

    @classmethod
    def of(
        cls, block: CellBlock, demanded: Mapping[str, int], fits_k: IntArray, sold_c: BoolArray
    ) -> PriceLists:
        """The prices where a replica takes what is ``demanded``, and each node of a cell holds
        ``fits_k``; only of the clusters that are sold.
        """
        size, cells = len(block), block.cells
        is_sold_k = (fits_k > 0) & (cells.count_k > 0) & sold_c.repeat(block.cells_c)
        (j,) = np.nonzero(is_sold_k)
        cluster_j = np.arange(size).repeat(block.cells_c)[j]
        fit_j, count_j = fits_k[j], cells.count_k[j]
        prices: list[IntArray] = []
        lists: list[IntArray] = []
        for row, (name, amount) in enumerate(demanded.items()):
            # What nobody has is not among the resources.
            free_j = cells.min_rk[cells.resources.index(name), j] if len(j) else fit_j
            prices += _prices(free_j, fit_j, amount)
            lists += [cluster_j + row * size] * 2
        price_s, list_s = np.concatenate(prices), np.concatenate(lists)
        count_s = np.tile(np.concatenate([count_j, count_j * (fit_j - 1)]), len(demanded))
        # Twice as fast as a lexsort: small integers are sorted by their digits.
        order = np.argsort(price_s)
        order = order[np.argsort(list_s[order].astype(np.int16), kind="stable")]
        price_s, count_s = price_s[order], count_s[order]
        return cls(
            size=size,
            first_q=_sums(np.bincount(list_s, minlength=size * len(demanded))),
            price_s=np.append(price_s, 1),
            spent_s=_sums(price_s * count_s),
            had_s=_sums(count_s),
            is_safe=float(price_s.astype(np.float64) @ count_s.astype(np.float64)) < _SAFE,
        )

    def bought(self, budget_rc: IntArray, cluster_c: IntArray) -> IntArray:
        """How many replicas so much of each resource buys in all, in some clusters: of each the
        cheapest first.
        """
        list_rc = cluster_c + np.arange(len(budget_rc))[:, np.newaxis] * self.size
        first_rc, stop_rc = self.first_q.take(list_rc), self.first_q.take(list_rc + 1)
        had_rc = self.had_s.take(first_rc)
        if not self.is_safe:
            all_rc = self.had_s.take(stop_rc) - had_rc
            everything_c: IntArray = np.where(budget_rc > 0, all_rc, 0).sum(axis=0)
            return everything_c
        until_rc = self.spent_s.take(first_rc) + budget_rc
        # Places of no count cost nothing: they may stand behind a cluster's last.
        whole_rc = np.minimum(self.spent_s.searchsorted(until_rc, side="right") - 1, stop_rc)
        left_rc = (until_rc - self.spent_s.take(whole_rc)) // self.price_s.take(whole_rc)
        bought_rc = self.had_s.take(whole_rc) - had_rc
        bought_rc += left_rc * (whole_rc < stop_rc)
        bought_c: IntArray = bought_rc.sum(axis=0)
        return bought_c


def _prices(free_j: IntArray, fit_j: IntArray, amount: int) -> tuple[IntArray, IntArray]:
    """How much of a resource is to be taken of nodes that hold ``fit_j`` replicas, at least one,
    before they hold one less: for the first, and for each of the others.

    The first costs one more than what a node has beyond them, each further one a whole request.
    Where the first is dearer than the others, none is had without it: all cost the mean.
    """
    first_j = free_j - fit_j * amount + 1
    mean_j = (free_j - amount + 1) // fit_j
    is_dear_j = first_j > amount
    return np.where(is_dear_j, mean_j, first_j), np.where(is_dear_j, mean_j, amount)


def _sums(values: IntArray) -> IntArray:
    """The sums of all before each place, and of all."""
    sums = np.zeros(len(values) + 1, dtype=np.int64)
    np.cumsum(values, out=sums[1:])
    return sums
