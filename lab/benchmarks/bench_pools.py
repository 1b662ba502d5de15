"""What pools cost: cells of a cluster built and refreshed, and the bounds of a whole fleet.

Prints medians of CPU time; must not judge them.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import numpy as np

from federation.capacity.cells import Residues
from federation.capacity.fleet_cells import FleetCells
from federation.capacity.packing import pack
from federation.capacity.pool_estimates import answer_of, pool_bounds
from federation.model.pools.bounds import per_replica, tighter_lower_k, upper_k
from federation.model.pools.building import build_pools, partition_nodes
from federation.model.pools.refreshing import refresh_pools
from federation.model.pools.sets import sets_that_fit
from federation.model.pools.values import NodeColumns, Pools
from federation.model.workload import Component, ReplicaRequirements
from lab.benchmarks.measuring import chosen, median_millis
from lab.fleets import MIXES, ClusterPlan, PackingStrategy, node_columns, packed_clusters
from lab.packed_nodes import residues_of

GIB = 1 << 30
BUDGET = 256
NODES = chosen(5000, quick=300)
SHAPE = ReplicaRequirements(request={"cpu": 700, "memory": 3 * GIB})
ZONE = "topology.kubernetes.io/zone"


def show(name: str, millis: float) -> None:
    print(f"{name:<58} {millis:>9.2f} ms")


def clusters(size: int, fills: Sequence[float], zones: int) -> list[NodeColumns]:
    """Clusters of every mix and both packings at some fills."""
    return [
        node_columns(free_rn, zones)
        for seed, mix in enumerate(MIXES)
        for packing in PackingStrategy
        for _, free_rn in packed_clusters(
            ClusterPlan(mix=mix, nodes=size, packing=packing, seed=seed, fills=fills)
        )
    ]


def print_one_cluster() -> None:
    every = clusters(NODES, (0.7,), zones=0)
    partitions = [partition_nodes(nodes, BUDGET, ()).partition for nodes in every]
    builds = [median_millis(lambda n=nodes: build_pools(n, BUDGET), rounds=3) for nodes in every]
    refreshes = [
        median_millis(lambda n=nodes, p=partition: refresh_pools(n, p), rounds=5)
        for nodes, partition in zip(every, partitions, strict=True)
    ]
    show(
        f"build {BUDGET} cells of {NODES:,} nodes, median of {len(every)}",
        statistics.median(builds),
    )
    show("  the slowest of them", max(builds))
    show("refresh them, median", statistics.median(refreshes))
    pools = build_pools(every[3], BUDGET)
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


def print_fleet(pools: Sequence[Pools], size: int) -> None:
    """A fleet of so many clusters, a few kinds of them again and again."""
    fleet = FleetCells.of(pools[position % len(pools)] for position in range(size))
    cells = sum(len(block.cells) for block in fleet.blocks)
    demanded = per_replica(SHAPE.request)
    print(f"{size:,} clusters, {cells:,} cells, one shape")
    for name, bound in (("LB+", tighter_lower_k), ("UB", upper_k)):
        show(
            f"{name} of cells alone",
            median_millis(lambda b=bound: [b(block.cells, demanded) for block in fleet.blocks]),
        )
    show("the level: LB+, UB, bound", median_millis(lambda: answer_of(pool_bounds(fleet, SHAPE))))
    show("arrays of all", median_millis(lambda: FleetCells.of(fleet.pools), rounds=3))
    show("one report more", median_millis(lambda: fleet.with_clusters({size // 2: pools[0]})))


def main() -> None:
    print_one_cluster()
    some = clusters(600, (0.5, 0.8), zones=3)
    pools = [build_pools(nodes, BUDGET, [ZONE]) for nodes in some]
    for size in chosen((100, 1_000), quick=(100,)):
        print_fleet(pools, size)


if __name__ == "__main__":
    main()
