"""Conversion between pools and their reported form, both ways and without loss.

Pure. Must not check what was reported: the border does.
"""

from __future__ import annotations

import numpy as np

from federation.model.arrays import IntArray
from federation.model.cluster import ReportedPool, ReportedPools
from federation.model.pools.values import SCORED, Cells, NodePool, Pools
from federation.model.resources import MAX_AMOUNT


def reported_pools(pools: Pools) -> ReportedPools:
    """Return the pools as differences from the minimums, which are small numbers."""
    cells = pools.cells
    surplus_rk = np.maximum(cells.sum_rk - _totals(cells.min_rk, cells.count_k), 0)
    return ReportedPools(
        label_keys=pools.label_keys,
        pools=tuple(ReportedPool(taints=pool.taints, labels=pool.labels) for pool in pools.pools),
        resources=cells.resources,
        cell_pools=tuple(cells.pool_k.tolist()),
        counts=tuple(cells.count_k.tolist()),
        minimums=tuple(cells.min_rk.ravel().tolist()),
        spreads=tuple((cells.max_rk - cells.min_rk).ravel().tolist()),
        surpluses=tuple(surplus_rk.ravel().tolist()),
        open_cells=tuple(np.flatnonzero(~cells.sum_exact_k).tolist()),
        allocatables=(
            () if cells.allocatable_rk is None else tuple(cells.allocatable_rk.ravel().tolist())
        ),
        kubernetes_minor=pools.kubernetes_minor,
    )


def pools_of(reported: ReportedPools) -> Pools:
    """Return the pools that were reported."""
    shape = len(reported.resources), len(reported.counts)
    min_rk = _matrix(reported.minimums, shape)
    sum_exact_k = np.ones(shape[1], dtype=np.bool_)
    sum_exact_k[list(reported.open_cells)] = False
    count_k = np.array(reported.counts, dtype=np.int64)
    surplus_rk = _matrix(reported.surpluses, shape)
    total_rk = _totals(min_rk, count_k)
    cells = Cells(
        resources=reported.resources,
        pool_k=np.array(reported.cell_pools, dtype=np.int32),
        count_k=count_k,
        min_rk=min_rk,
        sum_rk=total_rk + np.minimum(surplus_rk, MAX_AMOUNT - total_rk),
        max_rk=min_rk + _matrix(reported.spreads, shape),
        sum_exact_k=sum_exact_k,
        allocatable_rk=(
            _matrix(reported.allocatables, (len(SCORED), shape[1]))
            if reported.allocatables
            else None
        ),
    )
    return Pools(
        label_keys=reported.label_keys,
        pools=tuple(NodePool(taints=pool.taints, labels=pool.labels) for pool in reported.pools),
        cells=cells,
        kubernetes_minor=reported.kubernetes_minor,
    )


def _totals(min_rk: IntArray, count_k: IntArray) -> IntArray:
    """Return counts times minimums, at most MAX_AMOUNT.

    Overflow is found by division, because floats cannot tell such large amounts apart.
    """
    too_large_rk = min_rk > MAX_AMOUNT // np.maximum(count_k, 1)
    return np.where(too_large_rk, np.int64(MAX_AMOUNT), count_k * min_rk)


def _matrix(values: tuple[int, ...], shape: tuple[int, int]) -> IntArray:
    return np.array(values, dtype=np.int64).reshape(shape)
