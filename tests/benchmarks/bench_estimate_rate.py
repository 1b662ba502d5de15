"""How many shapes a second one process estimates through EstimateReplicas, codec included.

A shape answered over 100 clusters counts as one. Prints medians of CPU time; must not judge them.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from dataclasses import replace
from typing import Any

from federation.model.pools.building import build_pools
from federation.model.reported_pools import reported_pools
from federation.rpc.estimates import EstimatesServicer
from federation.services.estimates.availability import Availability
from federation.services.fleet.registry import FleetOwner
from federation.v1.estimates_pb2 import (
    ESTIMATE_SOURCE_MODELS,
    ESTIMATE_SOURCE_POOLS,
    EstimateReplicasRequest,
    EstimateSource,
)
from federation.v1.resource_pb2 import ReplicaRequirements
from tests.benchmarks.bench_estimates import fleet
from tests.fleets import MIXES, ClusterPlan, PackingStrategy, node_columns, packed_clusters

CLUSTERS = 100
ROUNDS = 7


class Nothing:
    """Stands where no store, clock, agent or deadline is asked."""

    def now(self) -> float:
        return 0.0

    def time_remaining(self) -> None:
        return None


def fleet_of_pools() -> FleetOwner:
    """Clusters of 500 nodes of every mix, 70 % full, with 256 cells each."""
    reports = [
        reported_pools(build_pools(node_columns(free_rn, 3), 256))
        for seed, mix in enumerate(MIXES)
        for packing in PackingStrategy
        for _, free_rn in packed_clusters(
            ClusterPlan(mix=mix, nodes=500, packing=packing, seed=seed, fills=(0.7,))
        )
    ]
    nothing: Any = Nothing()
    owner = FleetOwner(nothing)
    for position, state in enumerate(fleet(CLUSTERS)):
        assert state.report is not None
        owner.put_cluster(state.cluster)
        report = replace(state.report, pools=reports[position % len(reports)])
        owner.put_report(state.cluster.name, report, 0.0)
    return owner


def request(shapes: int, first: int, source: EstimateSource.ValueType) -> bytes:
    """So many different shapes, as they come over the wire."""
    asked = [
        ReplicaRequirements(
            resource_request={"cpu": f"{100 + first + place}m", "memory": f"{place % 50 + 1}Gi"}
        )
        for place in range(shapes)
    ]
    return EstimateReplicasRequest(shapes=asked, highest_source=source).SerializeToString()


async def print_rate(
    name: str,
    owner: FleetOwner,
    source: EstimateSource.ValueType,
    *,
    shapes: int,
    first: int,
    known: bool = False,
) -> None:
    """``first`` keeps the shapes of one measurement from being known to the next."""
    nothing: Any = Nothing()
    servicer = EstimatesServicer(Availability(owner, nothing, nothing))
    times = []
    for turn in range(ROUNDS + 1):
        content = request(shapes, first if known else first + turn * shapes, source)
        start = time.process_time()
        asked = EstimateReplicasRequest.FromString(content)
        answer = await servicer.EstimateReplicas(asked, nothing)
        answer.SerializeToString()
        times.append(time.process_time() - start)
    # The first round is for warming up, and for making shapes known.
    rate = shapes / statistics.median(times[1:])
    print(f"{CLUSTERS} clusters, {name:<32} {rate:>10,.0f} shapes/s")


async def measure() -> None:
    owner = fleet_of_pools()
    models, pools = ESTIMATE_SOURCE_MODELS, ESTIMATE_SOURCE_POOLS
    await print_rate("models, shapes known", owner, models, shapes=1000, first=0, known=True)
    await print_rate("models, shapes never seen", owner, models, shapes=1000, first=10_000)
    await print_rate("pools, shapes known", owner, pools, shapes=1000, first=20_000, known=True)
    name = "pools, shapes never seen (LB+, UB)"
    await print_rate(name, owner, pools, shapes=200, first=30_000)


if __name__ == "__main__":
    asyncio.run(measure())
