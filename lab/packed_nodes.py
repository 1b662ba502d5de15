"""What packing leaves, node by node, in the order in which the next replicas are placed.

Reads the tables that packing makes; shares no arithmetic with it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from federation.capacity.cells import (
    AMOUNTS,
    COUNT,
    POOL,
    SIZE,
    FreeCells,
    View,
    unpacked_cells,
)
from federation.model.pools.bounds import per_replica
from federation.model.pools.values import Pools
from federation.model.resources import is_extended
from lab.slow_packer import Node


def residues_of(pools: Pools) -> FreeCells:
    """The cells of one cluster before anything is packed; each of its pools is a kind."""
    return unpacked_cells([pools.cells], [np.arange(max(len(pools.pools), 1))])


def nodes_in_turn(free_cells: FreeCells, view: View, request: Mapping[str, int]) -> list[Node]:
    """The nodes of the only cluster: in FILLED the smallest first, those with devices that nobody
    asks for last, in SPREAD the other way round.
    """
    start = int(free_cells.first_s[view])
    columns_xk = free_cells.table_xk[:, start : start + int(free_cells.used_s[view])]
    weight_r = free_cells.weight_rc[:, 0]
    demanded = per_replica(request)

    def rank(k: int) -> tuple[bool, float]:
        free_r = columns_xk[AMOUNTS:, k]
        has_spare = any(
            free and name not in demanded and is_extended(name)
            for name, free in zip(free_cells.resources, free_r.tolist(), strict=True)
        )
        size = float(np.float32((free_r * weight_r).sum()))
        assert columns_xk[SIZE, k] == np.float32(size).view(np.int32)
        return has_spare, size

    in_turn = sorted(range(columns_xk.shape[1]), key=rank)
    nodes: list[Node] = [
        (int(columns_xk[POOL, k]), tuple(columns_xk[AMOUNTS:, k].tolist()))
        for k in in_turn
        for _ in range(int(columns_xk[COUNT, k]))
    ]
    return nodes if view is View.FILLED else nodes[::-1]
