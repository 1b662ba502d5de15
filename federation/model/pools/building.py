"""Pools and cells from the nodes of a cluster.

Pure and deterministic; the order of the nodes makes no difference. Must not keep any state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from federation.model.arrays import IntArray
from federation.model.errors import InvalidRequest
from federation.model.pools.fit_space import FloatArray, fit_space
from federation.model.pools.grid import GRIDS, MAX_BASE_CELLS, Grid, group_keys
from federation.model.pools.grouping import Grouping, group_nodes
from federation.model.pools.merging import merge_groups
from federation.model.pools.values import (
    DEFAULT_BUDGET,
    MAX_BUDGET,
    MIN_BUDGET,
    SCORED,
    Cells,
    NodeColumns,
    NodePool,
    Pools,
    cells_of_nodes,
    combined,
    in_groups,
    resource_order,
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Partition:
    """The cell of nodes by their keys (axis b): the base of the next refresh.

    ``lost`` is the share of the catalogue's replicas that the cells did not show when built.
    """

    budget: int
    wanted_keys: tuple[str, ...]
    label_keys: tuple[str, ...]
    pools: tuple[NodePool, ...]
    resources: tuple[str, ...]
    grid: Grid
    pool_b: npt.NDArray[np.int32]
    key_rb: IntArray
    cell_b: npt.NDArray[np.intp]
    lost: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BuiltPools:
    """A cluster's pools, and the partition by which they were made."""

    pools: Pools
    partition: Partition


def build_pools(
    nodes: NodeColumns, budget: int = DEFAULT_BUDGET, label_keys: Sequence[str] = ()
) -> Pools:
    """Return pools and at most ``budget`` cells; exact with at most so many distinct nodes.

    ``label_keys`` are ordered by use, the most used first; keys that would make more pools than
    half the budget are left out. There are more cells than the budget only if taints make more
    pools. Raises InvalidRequest for a budget outside MIN_BUDGET..MAX_BUDGET.
    """
    return partition_nodes(nodes, budget, label_keys).pools


def partition_nodes(nodes: NodeColumns, budget: int, label_keys: Sequence[str]) -> BuiltPools:
    """Return the result of ``build_pools`` with its partition, for ``refresh_pools``."""
    if not MIN_BUDGET <= budget <= MAX_BUDGET:
        rule = f"a budget of cells is {MIN_BUDGET}..{MAX_BUDGET}, not {budget}"
        raise InvalidRequest.of("budget", rule)
    grouping = group_nodes(nodes, label_keys, most_pools=budget // 2)
    node_cells = every_node(nodes, grouping, resources_of(nodes))
    grid, key_rb, base = _base_cells(node_cells, budget)
    fit_bs = fit_space(base)
    cell_b: npt.NDArray[np.intp] = np.arange(len(base))
    if len(base) > budget:
        cell_b = merge_groups(fit_bs, base.count_k, base.pool_k, budget)
    partition = Partition(
        budget=budget,
        wanted_keys=tuple(label_keys),
        label_keys=grouping.label_keys,
        pools=grouping.pools,
        resources=node_cells.resources,
        grid=grid,
        pool_b=base.pool_k,
        key_rb=key_rb,
        cell_b=cell_b,
        lost=lost_share(fit_bs, base.count_k, *fit_of_cells(fit_bs, base.count_k, cell_b)),
    )
    return built(grouping, base, cell_b, partition)


def resources_of(nodes: NodeColumns) -> tuple[str, ...]:
    """Return the resource axis: resources of which some node has a free amount."""
    free = {name: free_n for name, free_n in nodes.free.items() if free_n.max(initial=0) > 0}
    return resource_order(free)


def every_node(nodes: NodeColumns, grouping: Grouping, resources: tuple[str, ...]) -> Cells:
    """Return each node as a cell of its own."""
    nothing_n = np.zeros(len(nodes), dtype=np.int64)
    free_rn = np.stack([nodes.free.get(name, nothing_n) for name in resources])
    allocatable_rn = None
    if nodes.allocatable.keys() >= set(SCORED):
        allocatable_rn = np.stack([nodes.allocatable[name] for name in SCORED])
    return cells_of_nodes(resources, grouping.pool_n, np.maximum(free_rn, 0), allocatable_rn)


def _base_cells(node_cells: Cells, budget: int) -> tuple[Grid, IntArray, Cells]:
    """Return the finest grid with few enough base cells, their keys, and the cells in key order."""
    max_cells = max(MAX_BASE_CELLS, budget)
    grid, *coarser = GRIDS
    key_rn, first_b, group_n = grouped(node_cells, grid)
    while len(first_b) > max_cells and coarser:
        grid = coarser.pop(0)
        key_rn, first_b, group_n = grouped(node_cells, grid)
    return grid, key_rn[:, first_b], combined(node_cells, group_n, len(first_b))


def grouped(
    node_cells: Cells, grid: Grid
) -> tuple[IntArray, npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return each node's key, one node of each group of equal pool and key, and each node's
    group.
    """
    key_rn = grid.keys(node_cells.resources, node_cells.min_rk)
    return key_rn, *group_keys(np.vstack([node_cells.pool_k, key_rn]))


def lost_share(
    fit_bs: FloatArray, count_b: IntArray, fit_ks: FloatArray, count_k: IntArray
) -> float:
    """Return the share of the catalogue's replicas that base cells hold and their cells do not
    show.
    """
    if len(count_b) == 0:
        return 0.0
    held = float((fit_bs.sum(axis=1, dtype=np.float64) * count_b).sum())
    return held - float((fit_ks.sum(axis=1, dtype=np.float64) * count_k).sum())


def fit_of_cells(
    fit_bs: FloatArray, count_b: IntArray, cell_b: npt.NDArray[np.intp]
) -> tuple[FloatArray, IntArray]:
    """Return coordinates and node counts of cells 0, 1..., all of which have base cells."""
    order = in_groups(cell_b)
    first_k = np.flatnonzero(np.diff(cell_b[order], prepend=-1))
    fit_ks = np.minimum.reduceat(fit_bs[order], first_k, axis=0)
    return fit_ks, np.add.reduceat(count_b[order], first_k)


def built(
    grouping: Grouping, base: Cells, cell_b: npt.NDArray[np.intp], partition: Partition
) -> BuiltPools:
    cells = combined(base, cell_b, int(cell_b.max(initial=-1)) + 1)
    pools = Pools(label_keys=grouping.label_keys, pools=grouping.pools, cells=cells)
    return BuiltPools(pools=pools, partition=partition)
