"""How much CPU it takes to score and to place on 5,000 nodes, whose arrays stand ready.

Prints medians; must not judge them.
"""

from __future__ import annotations

import numpy as np

from estimator.binpack.arrays import NodeArrays, ReplicaRequest
from estimator.binpack.balanced_allocation import BalancedAllocation
from estimator.binpack.fit_strategies.least_allocated import LeastAllocated
from estimator.binpack.fit_strategies.most_allocated import MostAllocated
from estimator.binpack.fit_strategies.requested_to_capacity_ratio import RequestedToCapacityRatio
from estimator.binpack.place import PlacementRequest, place
from estimator.binpack.shape import ShapePoint
from estimator.binpack.strategy import ResourceWeight, Strategy
from estimator.binpack.volcano import VolcanoBinpack
from lab.benchmarks.measuring import median_millis
from lab.verdicts import Verdicts

NODES = 5_000
REPLICAS = 1_000
GIB = 1 << 30
GPU = "nvidia.com/gpu"

WEIGHTS = tuple(
    ResourceWeight(resource=resource, weight=weight)
    for resource, weight in (("cpu", 1), ("memory", 1), (GPU, 3))
)
SHAPE = (ShapePoint(utilization=0, score=0), ShapePoint(utilization=100, score=10))
STRATEGIES: tuple[Strategy, ...] = (
    MostAllocated(weights=WEIGHTS),
    LeastAllocated(weights=WEIGHTS),
    RequestedToCapacityRatio(weights=WEIGHTS, shape=SHAPE),
    BalancedAllocation(weights=WEIGHTS),
    VolcanoBinpack(weight=10, weights=WEIGHTS),
)
REQUEST = ReplicaRequest.of({"cpu": 500, "memory": 2 * GIB, GPU: 1})


def nodes(*, alike: bool) -> NodeArrays:
    random = np.random.default_rng(7)
    most = {"cpu": 64_000, "memory": 512 * GIB, GPU: 16, "pods": 110}
    used = {"cpu": 48_000, "memory": 256 * GIB, GPU: 8, "pods": 60}
    return NodeArrays(
        size=NODES,
        allocatable={name: np.full(NODES, amount) for name, amount in most.items()},
        requested={
            name: np.zeros(NODES, np.int64) if alike else random.integers(0, amount, NODES)
            for name, amount in used.items()
        },
    )


def main() -> None:
    figures = Verdicts("bench_binpack")
    feasible_n = np.ones(NODES, dtype=np.bool_)
    demand = PlacementRequest(request=REQUEST, replicas=REPLICAS)
    for alike in (True, False):
        arrays = nodes(alike=alike)
        kind = "alike" if alike else "different"
        figures.section(f"{NODES} {kind} nodes x {len(WEIGHTS)} resources")
        for strategy in STRATEGIES:

            def score(strategy: Strategy = strategy, arrays: NodeArrays = arrays) -> object:
                return strategy.score(arrays, REQUEST)

            def fill(strategy: Strategy = strategy, arrays: NodeArrays = arrays) -> object:
                return place(arrays, demand, strategy, feasible_n)

            figures.row(f"{strategy.name}, score", median_millis(score), "ms")
            figures.row(f"{strategy.name}, place {REPLICAS}", median_millis(fill), "ms")


if __name__ == "__main__":
    main()
