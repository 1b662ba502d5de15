"""Nodes that are filled with pods on their way, pods of the fewest nodes first."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from federation.capacity.filled_nodes import DemandOnWay, ReportedNodes
from federation.model.arrays import FloatArray
from tests.pools import alike, cells_of

GIB = 1 << 30
CORES = 16_000
ON_FIRST_TWO, ON_LAST_TWO = b"\x01\x01\x00", b"\x00\x01\x01"


def reported(*nodes_by_pool: int) -> ReportedNodes:
    """Empty nodes of 16 cores: a cell of so many in each pool."""
    groups = [alike(1, (CORES, 64 * GIB, 110)) for _ in nodes_by_pool]
    totals = [(CORES, 64 * GIB)] * len(nodes_by_pool)
    cells = cells_of(groups, pool=range(len(nodes_by_pool)), allocatable=totals)
    return ReportedNodes.of(replace(cells, count_k=np.array(nodes_by_pool)))


def amounts(nodes: int) -> FloatArray:
    """Millicores, bytes and pods that so many nodes have."""
    return np.array([CORES, 64 * GIB, 110], dtype=np.float64) * nodes


def test_small_pods_that_may_be_on_the_fewest_nodes_come_first() -> None:
    # Two of the nodes are all that the first ones may be on; five remain for the others.
    demand = DemandOnWay({ON_LAST_TWO: amounts(4), ON_FIRST_TWO: amounts(2) * 0.99}, {})
    assert not reported(1, 1, 5).filled(demand, 1).late
    assert reported(1, 1, 5).filled(demand, 2).late


def test_a_cell_without_nodes_has_no_node_to_take() -> None:
    large_r = amounts(1) // 2
    for nodes, may_take in ((0, False), (1, True)):
        large = [(b"\x00\x01\x00", large_r)]
        assert (
            reported(1, nodes, 1).may_take_node_of(large, ON_LAST_TWO, large_r // 100) is may_take
        )
