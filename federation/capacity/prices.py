"""Price lists: how much of a resource must be taken of nodes before they hold a replica less.

Pure, whole-array. Must not know which promises take it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from federation.capacity.some_clusters import SomeClusters
from federation.model.arrays import BoolArray, IntArray

# Sums of prices fit in int64 below this; otherwise any amount taken counts as all.
_SAFE: Final = 2.0**62
# Bits of an int64 without its sign.
_BITS: Final = 63


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PriceLists:
    """Prices by resource (axis r) and cluster (axis c): one list for each pair.

    The prices (axis s) of list q begin at ``first_q[q]``, the cheapest first; the lists of a
    resource are neighbours. All prices before place s cost ``spent_s[s]`` and buy ``had_s[s]``
    replicas; both have one place more than the prices.
    """

    size: int
    first_q: IntArray
    price_s: IntArray
    spent_s: IntArray
    had_s: IntArray
    is_safe: bool

    @classmethod
    def of(
        cls, some: SomeClusters, demanded: Mapping[str, int], fits_k: IntArray, listed_c: BoolArray
    ) -> PriceLists:
        """List the prices of replicas that take what is ``demanded``, in the clusters ``listed_c``.

        Each node of a cell holds ``fits_k`` replicas.
        """
        cells, room_k = some.cells, fits_k * some.cells.count_k
        (j,) = np.nonzero(room_k * listed_c.take(some.cluster_k))
        lists = _Lists.of(some.cluster_k.take(j))
        room_j, fits_j, count_j = room_k.take(j), fits_k.take(j), cells.count_k.take(j)
        # A resource that no cluster has is not among the rows.
        rows = demanded.items() if len(j) else ()
        price_rs, count_rs = np.empty((2, len(rows), len(lists)), dtype=np.int64)
        for row, (name, amount) in enumerate(rows):
            free_j = cells.min_rk[cells.resources.index(name)].take(j)
            price_j, is_dear_j = _prices(free_j, fits_j, amount)
            priced_j = np.where(is_dear_j, room_j, count_j)
            # Behind the cells of each cluster: the price of a whole request, in all of them.
            price_n = lists.with_last(price_j, amount)
            count_n = lists.with_last(priced_j, np.add.reduceat(room_j - priced_j, lists.first_p))
            order_n = lists.order(price_n)
            price_n.take(order_n, out=price_rs[row], mode="clip")
            count_n.take(order_n, out=count_rs[row], mode="clip")
        length_c = np.zeros(len(some), dtype=np.int64)
        length_c[lists.cluster_p] = lists.length_p
        price_s, count_s = price_rs.ravel(), count_rs.ravel()
        return cls(
            size=len(some),
            first_q=_sums(np.tile(length_c, len(demanded))),
            price_s=np.append(price_s, 1),
            spent_s=_sums(price_s * count_s),
            had_s=_sums(count_s),
            is_safe=float(price_s.astype(np.float64) @ count_s.astype(np.float64)) < _SAFE,
        )

    def bought(self, budget_rc: IntArray, cluster_c: IntArray) -> IntArray:
        """Return how many replicas the amounts buy in some clusters, the cheapest first.

        The replicas of all resources are added.
        """
        list_rc = cluster_c + np.arange(len(budget_rc))[:, np.newaxis] * self.size
        first_rc, stop_rc = self.first_q.take(list_rc), self.first_q.take(list_rc + 1)
        had_rc = self.had_s.take(first_rc)
        if not self.is_safe:
            all_rc = self.had_s.take(stop_rc) - had_rc
            all_c: IntArray = np.where(budget_rc > 0, all_rc, 0).sum(axis=0)
            return all_c
        until_rc = self.spent_s.take(first_rc) + budget_rc
        # Places with a count of 0 cost nothing, so they may stand behind a cluster's last one.
        whole_rc = np.minimum(self.spent_s.searchsorted(until_rc, side="right") - 1, stop_rc)
        left_rc = (until_rc - self.spent_s.take(whole_rc)) // self.price_s.take(whole_rc)
        bought_rc = self.had_s.take(whole_rc) - had_rc
        bought_rc += left_rc * (whole_rc < stop_rc)
        bought_c: IntArray = bought_rc.sum(axis=0)
        return bought_c


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Lists:
    """Places of the lists of clusters (axis p), all lists one after the other (axis n).

    A list has a place for each cell (axis j) of its cluster, and one place more. The cells of list
    p begin at ``first_p``, and cell j is at ``place_j``. The last place is at ``last_p``.
    ``list_n`` is the list of each place, ``within_n`` its position in the list.
    """

    cluster_p: IntArray
    first_p: IntArray
    length_p: IntArray
    place_j: IntArray
    last_p: IntArray
    list_n: IntArray
    within_n: IntArray

    @classmethod
    def of(cls, cluster_j: IntArray) -> Self:
        """Make lists of cells that belong to these clusters, in ascending order."""
        is_first_j = np.ones(len(cluster_j), dtype=np.bool_)
        np.not_equal(cluster_j[1:], cluster_j[:-1], out=is_first_j[1:])
        first_p = np.flatnonzero(is_first_j)
        length_p = np.diff(first_p, append=len(cluster_j)) + 1
        stop_p = np.cumsum(length_p)
        place_j = np.cumsum(is_first_j, dtype=np.int64)
        place_j += np.arange(-1, len(cluster_j) - 1)
        within_n = np.arange(len(cluster_j) + len(first_p))
        within_n -= (stop_p - length_p).repeat(length_p)
        return cls(
            cluster_p=cluster_j.take(first_p),
            first_p=first_p,
            length_p=length_p,
            place_j=place_j,
            last_p=stop_p - 1,
            list_n=np.arange(len(first_p)).repeat(length_p),
            within_n=within_n,
        )

    def with_last(self, value_j: IntArray, last_p: IntArray | int) -> IntArray:
        """Put values of cells, and of the last place of each list, in places."""
        value_n = np.empty(len(self), dtype=np.int64)
        value_n[self.place_j] = value_j
        value_n[self.last_p] = last_p
        return value_n

    def order(self, price_n: IntArray) -> IntArray:
        """Return the order in which each list is sorted by price."""
        price_bits = int(price_n.max(initial=0)).bit_length()
        place_bits = int(self.length_p.max(initial=0)).bit_length()
        if len(self.length_p).bit_length() + price_bits + place_bits > _BITS:
            return np.lexsort((price_n, self.list_n))
        # Three times as fast, because plain integers are sorted instead of indices.
        key_n = self.list_n << price_bits
        key_n |= price_n
        key_n <<= place_bits
        key_n |= self.within_n
        key_n.sort()
        key_n &= (1 << place_bits) - 1
        key_n += np.arange(len(self)) - self.within_n
        return key_n

    def __len__(self) -> int:
        return len(self.within_n)


def _prices(free_j: IntArray, fits_j: IntArray, amount: int) -> tuple[IntArray, BoolArray]:
    """Return the price of a replica by cell, and whether it holds for all its replicas.

    Nodes hold ``fits_j`` replicas, at least one. The first costs what a node has beyond them, and
    one more; each further one costs a whole request. Where the first is dearer than the others,
    none can be bought without it, so all cost the mean.
    """
    first_j = free_j - fits_j * amount
    first_j += 1
    is_dear_j = first_j > amount
    # Unsigned division is faster, because it does not round towards minus infinity.
    mean_j = (free_j - (amount - 1)).view(np.uint64) // fits_j.view(np.uint64)
    np.copyto(first_j, mean_j.view(np.int64), where=is_dear_j)
    return first_j, is_dear_j


def _sums(values: IntArray) -> IntArray:
    """Return the sum before each place, and the sum of all."""
    sums = np.zeros(len(values) + 1, dtype=np.int64)
    np.cumsum(values, out=sums[1:])
    return sums
