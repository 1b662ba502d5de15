"""Replicas taken from cells as a placer takes them that prefers the emptiest nodes.

Pure; closed form, never a loop over replicas. Must not be what a promise shows for itself: it is a
second opinion on what is left, for clusters whose placer follows no plan of ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from federation.model.pools.bounds import fit_k, per_replica
from federation.model.pools.packing import smallest_first
from federation.model.pools.values import BoolArray, Cells, Int64Array


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Spreading:
    """Replicas ``placed``, and the cells that are ``left``: only their minimums mean anything."""

    placed: int
    left: Cells


def spread(
    cells: Cells, suiting_p: BoolArray, request: Mapping[str, int], replicas: int
) -> Spreading:
    """Place up to ``replicas`` of a shape, round after round one on every node that has room.

    The largest cells come first in each round, so that the last, partial one goes to them.
    """
    demanded = per_replica(request)
    fits_k = np.where(suiting_p[cells.pool_k], fit_k(cells, demanded), 0)
    placed = min(replicas, int((fits_k * cells.count_k).sum()))
    if placed == 0:
        return Spreading(placed=0, left=cells)
    rounds = _whole_rounds(fits_k, cells.count_k, placed)
    a_node_k = np.minimum(fits_k, rounds)
    order = smallest_first(cells, demanded)[::-1]
    room_k = np.where(fits_k > rounds, cells.count_k, 0)[order]
    rest = placed - int((a_node_k * cells.count_k).sum())
    one_more_k = np.zeros_like(room_k)
    one_more_k[order] = np.clip(rest - (np.cumsum(room_k) - room_k), 0, room_k)
    return Spreading(placed=placed, left=_taken(cells, demanded, a_node_k, one_more_k))


def _whole_rounds(fits_k: Int64Array, count_k: Int64Array, replicas: int) -> int:
    """The most rounds that do not place more than ``replicas``."""
    low, high = 0, int(fits_k.max())
    while low < high:
        middle = (low + high + 1) // 2
        if int((np.minimum(fits_k, middle) * count_k).sum()) <= replicas:
            low = middle
        else:
            high = middle - 1
    return low


def _taken(
    cells: Cells, demanded: Mapping[str, int], a_node_k: Int64Array, one_more_k: Int64Array
) -> Cells:
    """Cells with so many replicas on each node, and on some of the nodes one more.

    Sums and maximums stay what is still true of them: at least the minimums, at most what was.
    """
    is_split_k = (one_more_k > 0) & (one_more_k < cells.count_k)
    (split_j,) = np.nonzero(is_split_k)
    used_k = a_node_k + np.where(is_split_k, 0, one_more_k > 0)
    source_k = np.concatenate([np.arange(len(cells)), split_j])
    used_k = np.concatenate([used_k, a_node_k[split_j] + 1])
    count_k = np.concatenate(
        [cells.count_k - np.where(is_split_k, one_more_k, 0), one_more_k[split_j]]
    )
    min_rk = cells.min_rk[:, source_k]
    for name, amount in demanded.items():
        min_rk[cells.resources.index(name)] -= used_k * amount
    return replace(
        cells,
        pool_k=cells.pool_k[source_k],
        count_k=count_k,
        min_rk=min_rk,
        sum_rk=min_rk.copy(),
        max_rk=cells.max_rk[:, source_k],
        sum_exact_k=np.zeros(len(count_k), dtype=np.bool_),
    )
