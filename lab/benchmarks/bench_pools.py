"""What pools cost: cells of a cluster built and refreshed, and the bounds of a whole fleet.

Prints medians of CPU time; must not judge them.
"""

from __future__ import annotations

import statistics
from functools import partial

import numpy as np

from estimator.estimation.capacity import NodeSet, counted_nodes
from estimator.estimation.pooling import USUAL_LABEL_KEYS, node_columns
from federation.capacity.cells import Residues
from federation.capacity.fleet_cells import FleetCells
from federation.capacity.packing import pack
from federation.capacity.pool_estimates import answer_of, pool_bounds
from federation.model.pools.bounds import per_replica, tighter_lower_k, upper_k
from federation.model.pools.building import build_pools, partition_nodes
from federation.model.pools.refreshing import refresh_pools
from federation.model.pools.sets import sets_that_fit
from federation.model.pools.values import NodeColumns
from federation.model.workload import Component, ReplicaRequirements
from lab.benchmarks.measuring import chosen, median_millis
from lab.benchmarks.members import PLAN
from lab.fleet import FleetPlan, ReportingCluster, dumped, stored_pools
from lab.packed_nodes import residues_of
from lab.verdicts import Verdicts

GIB = 1 << 30
BUDGET = 256
NODES = chosen(5000, quick=300)
FLEETS = chosen((100, 1000), quick=(100,), full=(100, 1000, 10_000))
SHAPE = ReplicaRequirements(request={"cpu": 700, "memory": 3 * GIB})
# Clusters that are built and refreshed, by how much of their nodes is taken.
FILLS = (0.1, 0.3, 0.5)

FIGURES = Verdicts("bench_pools")


def clusters() -> list[NodeColumns]:
    """The nodes of a few clusters as the agent makes its pools from them."""
    columns = []
    for number, fill in enumerate(FILLS):
        plan = FleetPlan(nodes=NODES, fill=fill)
        snapshot = ReportingCluster.of(dumped(plan, number)).member.cache.snapshot()
        counted_n = counted_nodes(snapshot, NodeSet.SCHEDULABLE)
        columns.append(node_columns(snapshot, counted_n, USUAL_LABEL_KEYS))
    return columns


def print_one_cluster() -> None:
    every, keys = clusters(), USUAL_LABEL_KEYS
    partitions = [partition_nodes(nodes, BUDGET, keys).partition for nodes in every]
    builds = [median_millis(partial(build_pools, nodes, BUDGET, keys), rounds=3) for nodes in every]
    refreshes = [
        median_millis(partial(refresh_pools, nodes, partition), rounds=5)
        for nodes, partition in zip(every, partitions, strict=True)
    ]
    FIGURES.section(f"{BUDGET} cells of one cluster of {NODES:,} nodes")
    show(f"build them, median of {len(every)}", statistics.median(builds))
    show("build them, the slowest", max(builds))
    show("refresh them, median", statistics.median(refreshes))
    pools = build_pools(every[-1], BUDGET, keys)
    random = np.random.default_rng(7)
    shapes = [{"cpu": int(cpu), "memory": 2 * GIB} for cpu in random.integers(100, 4000, 100)]

    def pack_each() -> Residues:
        residues = residues_of(pools)
        for shape in shapes:
            residues = pack(residues, shape, np.array([10])).left
        return residues

    show("pack 100 reservations of as many shapes", median_millis(pack_each))
    parts = [
        Component(
            name="manager", replicas=1, requirements=ReplicaRequirements(request={"cpu": 1000})
        ),
        Component(name="worker", replicas=4, requirements=SHAPE),
    ]
    show("count whole sets of 1 + 4", median_millis(lambda: sets_that_fit(pools, parts), rounds=3))


def print_fleet(size: int) -> None:
    """A fleet of so many clusters as agents report them."""
    pools = [stored_pools(number, PLAN) for number in range(PLAN.distinct)]
    fleet = FleetCells.of(pools[position % len(pools)] for position in range(size))
    cells = sum(len(block.cells) for block in fleet.blocks)
    demanded = per_replica(SHAPE.request)
    FIGURES.section(f"{size:,} clusters, {cells:,} cells, one size")
    for name, bound in (("LB+", tighter_lower_k), ("UB", upper_k)):
        show(
            f"{name} of cells alone",
            median_millis(lambda b=bound: [b(block.cells, demanded) for block in fleet.blocks]),
        )
    show("the level: LB+, UB, bound", median_millis(lambda: answer_of(pool_bounds(fleet, SHAPE))))
    show("arrays of all", median_millis(lambda: FleetCells.of(fleet.pools), rounds=3))
    show("one report more", median_millis(lambda: fleet.with_clusters({size // 2: pools[0]})))


def show(name: str, millis: float) -> None:
    FIGURES.row(name, millis, "ms")


def main() -> None:
    print_one_cluster()
    for size in FLEETS:
        print_fleet(size)


if __name__ == "__main__":
    main()
