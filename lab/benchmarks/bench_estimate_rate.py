"""How many shapes a second one process estimates through EstimateReplicas, codec included.

A shape answered over 100 clusters counts as one. Also how long one estimate takes after a change of
a larger fleet, while few or many bindings have something outstanding. Prints medians of CPU time;
must not judge them.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import count, product
from random import Random
from typing import Any

from federation.model.cluster import CapacityReport
from federation.model.estimate import EstimateOptions, Source
from federation.model.pools.building import build_pools
from federation.model.reported_pools import reported_pools
from federation.model.reservations import Share
from federation.model.workload import ReplicaRequirements as ModelRequirements
from federation.rpc.calls import call_as
from federation.rpc.estimates import EstimatesServicer
from federation.services.estimates.availability import Availability, answer
from federation.services.fleet.registry import FleetOwner
from federation.services.journal import BindingChanged, ClusterShares
from federation.services.values import Principal, PrincipalKind
from federation.v1.estimates_pb2 import (
    ESTIMATE_SOURCE_MODELS,
    ESTIMATE_SOURCE_POOLS,
    EstimateReplicasRequest,
    EstimateSource,
)
from federation.v1.resource_pb2 import ReplicaRequirements
from lab.benchmarks.bench_estimates import fleet
from lab.benchmarks.measuring import chosen
from lab.fleets import (
    MIXES,
    ClusterPlan,
    PackingStrategy,
    node_columns,
    packed_clusters,
    random_shapes,
)

CLUSTERS = 100
ROUNDS = chosen(7, quick=1)
# So many agents report to one control plane in the mixed load.
CLUSTERS_THAT_CHANGE = 300
SHAPES_PROMISED = 500


class Nothing:
    """Stands where no store, clock, agent or deadline is asked."""

    def now(self) -> float:
        return 0.0

    def time_remaining(self) -> None:
        return None


def fleet_of_pools(clusters: int) -> tuple[FleetOwner, list[CapacityReport]]:
    """Clusters of 500 nodes of every mix, 70 % full, with 256 cells each."""
    pools = [
        reported_pools(build_pools(node_columns(free_rn, 3), 256))
        for seed, mix in enumerate(MIXES)
        for packing in PackingStrategy
        for _, free_rn in packed_clusters(
            ClusterPlan(mix=mix, nodes=500, packing=packing, seed=seed, fills=(0.7,))
        )
    ]
    nothing: Any = Nothing()
    owner = FleetOwner(nothing)
    reports = []
    for position, state in enumerate(sorted(fleet(clusters), key=lambda each: each.cluster.name)):
        assert state.report is not None
        owner.put_cluster(state.cluster)
        reports.append(replace(state.report, pools=pools[position % len(pools)]))
        owner.put_report(state.cluster.name, reports[-1], 0.0)
    return owner, reports


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
    call_as(Principal(kind=PrincipalKind.ADMIN))
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


def print_after_changes(bindings: int) -> None:
    """What an estimate costs after a binding was placed in three clusters, and after a report."""
    (owner, reports), choices = fleet_of_pools(CLUSTERS_THAT_CHANGE), Random(1)
    shapes = [ModelRequirements(request=each) for each in random_shapes(SHAPES_PROMISED, seed=1)]
    names = owner.snapshot.names
    numbers = count(2)

    def place() -> None:
        share = Share(requirements=choices.choice(shapes), replicas=2)
        clusters = {
            name: ClusterShares(owner.version(name).version + 1, (share,))
            for name in choices.sample(names, 3)
        }
        change = BindingChanged(
            namespace="bench", name=f"web-{next(numbers)}", decision="d", clusters=clusters
        )
        owner.apply(change)

    def report() -> None:
        position = choices.randrange(len(names))
        newer = replace(reports[position], sequence=next(numbers), interest_version=1)
        owner.put_report(names[position], newer, 0.0)

    for _ in range(bindings):
        place()
    for change, source in product((place, report), (Source.MODELS, Source.POOLS)):
        millis = [
            estimate_millis(owner, change, source, 100 + next(numbers)) for _ in range(3 * ROUNDS)
        ]
        print(
            f"{CLUSTERS_THAT_CHANGE} clusters, {bindings:,} bindings outstanding, {source.name}, "
            f"never seen, after a {change.__name__:<6} {statistics.median(millis):>7.2f} ms"
        )


def estimate_millis(
    owner: FleetOwner, change: Callable[[], None], source: Source, cpu_millis: int
) -> float:
    change()
    snapshot = owner.snapshot
    asked = [ModelRequirements(request={"cpu": cpu_millis, "memory": 1 << 30})]
    start = time.process_time()
    answer(snapshot, owner.known_estimates, asked, None, EstimateOptions(highest=source), 0.0)
    return (time.process_time() - start) * 1000


async def measure() -> None:
    owner, _ = fleet_of_pools(CLUSTERS)
    models, pools = ESTIMATE_SOURCE_MODELS, ESTIMATE_SOURCE_POOLS
    await print_rate("models, shapes known", owner, models, shapes=1000, first=0, known=True)
    await print_rate("models, shapes never seen", owner, models, shapes=1000, first=10_000)
    await print_rate("pools, shapes known", owner, pools, shapes=1000, first=20_000, known=True)
    name = "pools, shapes never seen (LB+, UB)"
    await print_rate(name, owner, pools, shapes=200, first=30_000)
    for bindings in chosen((0, 3000), quick=(0, 300)):
        print_after_changes(bindings)


if __name__ == "__main__":
    asyncio.run(measure())
