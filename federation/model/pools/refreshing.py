"""Cells between builds: the same partition with current amounts.

Pure. Must not use a partition that has worn out: it is built anew.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from federation.model.arrays import IntArray
from federation.model.pools.building import (
    BuiltPools,
    Partition,
    built,
    every_node,
    fit_of_cells,
    grouped,
    lost_share,
    partition_nodes,
    resources_of,
)
from federation.model.pools.fit_space import FloatArray, fit_space
from federation.model.pools.grid import group_keys
from federation.model.pools.grouping import Grouping, group_nodes
from federation.model.pools.values import Cells, NodeColumns, combined

_UNKNOWN: Final = -1
# A partition has worn out when it loses this many times what it did when it was built.
_WORN: Final = 1.2


def refresh_pools(nodes: NodeColumns, partition: Partition) -> BuiltPools:
    """Return the same cells with current amounts; nodes with new keys join where they cost least.

    Builds anew if that is cheap (nothing to merge), if there are other resources, or if the
    partition has worn out.
    """
    grouping = group_nodes(nodes, partition.label_keys, most_pools=len(nodes) + 1)
    node_cells = every_node(nodes, grouping, partition.resources)
    key_rn, first_b, group_n = grouped(node_cells, partition.grid)
    base = combined(node_cells, group_n, len(first_b))
    changed = (resources_of(nodes), grouping.label_keys) != (
        partition.resources,
        partition.label_keys,
    )
    if changed or len(base) <= partition.budget:
        return partition_nodes(nodes, partition.budget, partition.wanted_keys)
    known_b = _known_cells(
        partition, _pools_then(grouping, partition)[base.pool_k], key_rn[:, first_b]
    )
    fit_bs = fit_space(base)
    cell_b, fit_ks, count_k = _with_unknown(base, fit_bs, known_b)
    if lost_share(fit_bs, base.count_k, fit_ks, count_k) > _WORN * partition.lost:
        return partition_nodes(nodes, partition.budget, partition.wanted_keys)
    return built(grouping, base, cell_b, partition)


def _pools_then(grouping: Grouping, partition: Partition) -> npt.NDArray[np.int64]:
    """Return the position of each current pool in the partition; new ones come after."""
    then = {
        (pool.taints, *sorted(pool.labels.items())): i for i, pool in enumerate(partition.pools)
    }
    places = [
        then.setdefault((pool.taints, *sorted(pool.labels.items())), len(then))
        for pool in grouping.pools
    ]
    return np.array(places, dtype=np.int64)


def _known_cells(
    partition: Partition, pool_b: npt.NDArray[np.int64], key_rb: IntArray
) -> npt.NDArray[np.intp]:
    """Return the cell of nodes with these keys in the partition, _UNKNOWN for new keys."""
    then_cb = np.vstack([partition.pool_b, partition.key_rb])
    _, group_b = group_keys(np.hstack([then_cb, np.vstack([pool_b, key_rb])]))
    cell_g = np.full(int(group_b.max(initial=-1)) + 1, _UNKNOWN)
    cell_g[group_b[: then_cb.shape[1]]] = partition.cell_b
    return cell_g[group_b[then_cb.shape[1] :]]


def _with_unknown(
    base: Cells, fit_bs: FloatArray, known_b: npt.NDArray[np.intp]
) -> tuple[npt.NDArray[np.intp], FloatArray, IntArray]:
    """Return cells 0, 1... of all base cells, and the coordinates and node counts of these cells.

    Base cells of new keys go where merging loses least; a pool that had no nodes gets one cell.
    """
    has_cell_b = known_b != _UNKNOWN
    cell_b = np.full(len(base), _UNKNOWN)
    distinct, cell_b[has_cell_b] = np.unique(known_b[has_cell_b], return_inverse=True)
    fit_ks, count_k = fit_of_cells(fit_bs[has_cell_b], base.count_k[has_cell_b], cell_b[has_cell_b])
    pool_k = np.empty(len(distinct), dtype=np.int32)
    pool_k[cell_b[has_cell_b]] = base.pool_k[has_cell_b]
    held_k = count_k * fit_ks.sum(axis=1)
    new_pools = np.setdiff1d(base.pool_k, pool_k)
    if len(new_pools):
        # Cells without nodes: their first base cell sets their coordinates.
        nothing_ks = np.full((len(new_pools), fit_bs.shape[1]), np.inf, dtype=np.float32)
        fit_ks = np.vstack([fit_ks, nothing_ks])
        pool_k = np.append(pool_k, new_pools)
        count_k, held_k = (
            np.append(column_k, np.zeros_like(column_k, shape=len(new_pools)))
            for column_k in (count_k, held_k)
        )
    for unknown in np.flatnonzero(~has_cell_b):
        choice_k = np.flatnonzero(pool_k == base.pool_k[unknown])
        common_k = np.minimum(fit_ks[choice_k], fit_bs[unknown]).sum(axis=1)
        kept_k = (count_k[choice_k] + base.count_k[unknown]) * common_k
        place = np.argmin(held_k[choice_k] - kept_k)
        cell = cell_b[unknown] = choice_k[place]
        np.minimum(fit_ks[cell], fit_bs[unknown], out=fit_ks[cell])
        count_k[cell] += base.count_k[unknown]
        held_k[cell] = kept_k[place]
    return cell_b, fit_ks, count_k
