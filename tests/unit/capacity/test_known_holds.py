"""What is kept for strict promises is bounded, and the same as if nothing were kept."""

from __future__ import annotations

import numpy as np

from federation.capacity import strict_bounds
from federation.capacity.fleet_cells import FleetCells
from federation.capacity.promise_sums import OutstandingByKind
from federation.capacity.strict_bounds import MAX_FORMER_BLOCKS, StrictHolds, max_strict_c
from federation.model.arrays import IntArray
from federation.model.reported_pools import pools_of
from federation.model.workload import ReplicaRequirements
from lab.reports import nodes

CLUSTERS = 3


def asked(cells: FleetCells, known: StrictHolds, cpu: int) -> IntArray:
    requirements = ReplicaRequirements(request={"cpu": cpu, "pods": 1})
    limit_c = np.full(CLUSTERS, 100, dtype=np.int64)
    none = OutstandingByKind.of(CLUSTERS, {})
    return max_strict_c(cells, known, none, requirements, np.ones(CLUSTERS, np.bool_), limit_c)


def fleet(free: int) -> FleetCells:
    return FleetCells.of([pools_of(nodes(4, cpu=free + number)) for number in range(CLUSTERS)])


def test_blocks_that_reports_replaced_are_forgotten() -> None:
    known = StrictHolds()
    for free in range(1000, 1000 + 5 * MAX_FORMER_BLOCKS):
        most_c = asked(fleet(free), known, 100)
        assert most_c.tolist() == asked(fleet(free), StrictHolds(), 100).tolist()
        assert known.blocks <= len(fleet(free).blocks) + MAX_FORMER_BLOCKS + 1
    assert known.bytes > 0


def test_kinds_asked_about_longest_ago_are_forgotten() -> None:
    cells = fleet(4000)
    one = StrictHolds()
    asked(cells, one, 100)
    known = StrictHolds(3 * one.bytes)
    for cpu in range(100, 120):
        assert asked(cells, known, cpu).tolist() == asked(cells, StrictHolds(), cpu).tolist()
        assert known.bytes <= 3 * one.bytes
    assert 3 * one.bytes <= strict_bounds.MAX_HOLD_BYTES
