"""What is to be taken of the nodes of cells before they hold so many replicas less.

Pure, whole-array. Must not know who takes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from federation.capacity.fleet_cells import ClusterCells
from federation.model.arrays import BoolArray, IntArray

# Sums of prices stay below this, else anything taken counts as all: int64 holds twice as much.
_SAFE: Final = 2.0**62
# Of an int64, but for its sign.
_BITS: Final = 63


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
        cls, block: ClusterCells, demanded: Mapping[str, int], fits_k: IntArray, sold_c: BoolArray
    ) -> PriceLists:
        """The prices where a replica takes what is ``demanded``, and each node of a cell holds
        ``fits_k``; only of the clusters that are sold.
        """
        size, cells = len(block), block.cells
        room_k = fits_k * cells.count_k
        (j,) = np.nonzero(room_k * sold_c[block.cluster_k])
        cluster_j, room_j = block.cluster_k[j], room_k[j]
        # What nobody has is not among the resources.
        rows = [cells.resources.index(name) for name in demanded] if len(j) else []
        amount_r1 = np.array([[each] for each in demanded.values()], dtype=np.int64)[: len(rows)]
        price_rj, is_dear_rj = _prices(cells.min_rk[rows][:, j], fits_k[j], amount_r1)
        count_rj = np.where(is_dear_rj, room_j, cells.count_k[j])
        # After the cells of each cluster comes what a whole request buys, in all of them.
        first_p = np.flatnonzero(np.diff(cluster_j, prepend=-1))
        length_p = np.diff(first_p, append=len(j)) + 1
        last_p = np.cumsum(length_p) - 1
        cell_n = np.ones(len(j) + len(last_p), dtype=np.bool_)
        cell_n[last_p] = False
        price_rn, count_rn = np.empty((2, len(rows), len(cell_n)), dtype=np.int64)
        price_rn[:, cell_n], price_rn[:, last_p] = price_rj, amount_r1
        count_rn[:, cell_n] = count_rj
        if len(j):
            count_rn[:, last_p] = np.add.reduceat(room_j - count_rj, first_p, axis=1)
        order = _order(np.tile(length_p, len(rows)), price_rn.ravel())
        price_s, count_s = price_rn.ravel()[order], count_rn.ravel()[order]
        length_c = np.zeros(size, dtype=np.int64)
        length_c[cluster_j[first_p]] = length_p
        return cls(
            size=size,
            first_q=_sums(np.tile(length_c, len(demanded))),
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


def _prices(free_rj: IntArray, fit_j: IntArray, amount_r1: IntArray) -> tuple[IntArray, BoolArray]:
    """How much of a resource is to be taken of nodes that hold ``fit_j`` replicas, at least one,
    before they hold one less; and whether that is so of all their replicas.

    The first costs one more than what a node has beyond them, each further one a whole request.
    Where the first is dearer than the others, none is had without it: all cost the mean.
    """
    first_rj = free_rj - fit_j * amount_r1 + 1
    is_dear_rj = first_rj > amount_r1
    # Unsigned division is faster: it need not round towards minus infinity.
    mean_rj = (free_rj - amount_r1 + 1).view(np.uint64) // fit_j.view(np.uint64)
    return np.where(is_dear_rj, mean_rj.view(np.int64), first_rj), is_dear_rj


def _order(length_q: IntArray, price_n: IntArray) -> IntArray:
    """Where the prices of lists of those lengths, one list after the other, come from once each
    list is sorted.
    """
    list_n = np.arange(len(length_q)).repeat(length_q)
    first_n = (np.cumsum(length_q) - length_q).repeat(length_q)
    price_bits = int(price_n.max(initial=0)).bit_length()
    place_bits = int(length_q.max(initial=0)).bit_length()
    if len(length_q).bit_length() + price_bits + place_bits > _BITS:
        return np.lexsort((price_n, list_n))
    # Three times as fast: whole numbers are sorted without being looked up.
    key_n = ((list_n << price_bits | price_n) << place_bits) + np.arange(len(price_n)) - first_n
    key_n.sort()
    order_n: IntArray = (key_n & ((1 << place_bits) - 1)) + first_n
    return order_n


def _sums(values: IntArray) -> IntArray:
    """The sums of all before each place, and of all."""
    sums = np.zeros(len(values) + 1, dtype=np.int64)
    np.cumsum(values, out=sums[1:])
    return sums
