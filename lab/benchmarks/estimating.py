"""Estimates of a fleet in memory by models and pools, and what the pools themselves cost.

Prints medians of CPU time; must not judge them.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count, product
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np

from estimator.estimation.capacity import NodeSet, counted_nodes
from estimator.estimation.pooling import USUAL_LABEL_KEYS, node_columns
from federation.capacity.cells import FreeCells
from federation.capacity.fleet_cells import FleetCells
from federation.capacity.fleet_reports import FleetCapacity
from federation.capacity.packing import pack
from federation.capacity.pool_estimates import answer_of, pool_bounds
from federation.capacity.summary_estimates import estimate_replicas
from federation.model.cluster import Cluster, ClusterState
from federation.model.estimate import EstimateOptions, Estimates, ModelRule, Source
from federation.model.pod_request import ContainerRequest, PodResources, pod_request
from federation.model.pools.bounds import per_replica, tighter_lower_k, upper_k
from federation.model.pools.building import build_pools, partition_nodes
from federation.model.pools.refreshing import refresh_pools
from federation.model.pools.sets import sets_that_fit
from federation.model.pools.values import NodeColumns
from federation.model.workload import Component, ReplicaRequirements
from federation.operations.estimates import estimate_replicas as estimated
from federation.operations.table import OperationCall
from federation.services.estimates.availability import Availability, answer
from federation.services.fleet.registry import FleetOwner
from federation.services.values import Principal, PrincipalKind
from federation.v1.estimates_pb2 import (
    ESTIMATE_SOURCE_MODELS,
    ESTIMATE_SOURCE_POOLS,
    EstimateReplicasRequest,
    EstimateSource,
)
from federation.v1.resource_pb2 import ReplicaRequirements as WireRequirements
from lab.benchmarks.measuring import chosen, median_micros, median_millis, run_named
from lab.benchmarks.members import PLAN, capacity_report
from lab.benchmarks.owned_fleets import NOTHING, owned_fleet, place
from lab.fleet import FleetPlan, ReportingCluster, cluster_name, dumped, stored_pools
from lab.packed_nodes import residues_of
from lab.verdicts import Verdicts

GIB = 1 << 30
ESTIMATES = Verdicts("bench_estimates")
REQUIREMENTS = ReplicaRequirements(request={"cpu": 3_000, "memory": 20 * GIB})
WITH_STORAGE = ReplicaRequirements(
    request={"cpu": 3_000, "memory": 20 * GIB, "ephemeral-storage": GIB}
)


def fleet(clusters: int) -> list[ClusterState]:
    """Clusters of 500 nodes as agents report them, graded by the default model."""
    return [
        ClusterState(
            cluster=Cluster(name=cluster_name(number)),
            report=capacity_report(number),
            as_of=0.0,
        )
        for number in range(clusters)
    ]


def print_estimates(clusters: int) -> None:
    ESTIMATES.section(f"estimates of {clusters:,} clusters")
    states = fleet(clusters)
    capacity = FleetCapacity.of(states)

    def estimate(
        capacity: FleetCapacity,
        requirements: ReplicaRequirements,
        highest: Source,
        rule: ModelRule = ModelRule.DOCUMENTED,
    ) -> Callable[[], Estimates]:
        options = EstimateOptions(model_rule=rule, highest=highest)
        return lambda: estimate_replicas(capacity, requirements, options)

    rows = {
        f"models, {rule.value}": estimate(capacity, REQUIREMENTS, Source.MODELS, rule)
        for rule in ModelRule
    }
    rows["summary, 3 resources"] = estimate(capacity, WITH_STORAGE, Source.SUMMARY)
    rows["models, every cluster falls back"] = estimate(capacity, WITH_STORAGE, Source.MODELS)
    for name, call in rows.items():
        ESTIMATES.row(name, median_micros(call, repeat=50), "us")
    build = median_micros(lambda: FleetCapacity.of(states), rounds=3)
    change = median_micros(lambda: capacity.with_clusters({0: states[0]}), rounds=5, repeat=5)
    ESTIMATES.row("build the arrays", build, "us")
    ESTIMATES.row("replace one cluster", change, "us")


def print_pod_requests() -> None:
    pod = PodResources(
        containers=(
            ContainerRequest(requests={"cpu": "500m", "memory": "1Gi"}),
            ContainerRequest(requests={"cpu": "50m", "memory": "64Mi"}),
        ),
        init_containers=(ContainerRequest(requests={"cpu": "1"}),),
    )
    micros = median_micros(lambda: pod_request(pod), repeat=50)
    ESTIMATES.section("a pod of 2 containers and 1 init container")
    ESTIMATES.row("its request", micros, "us")


def bench_estimates() -> None:
    for clusters in chosen((100, 1_000, 10_000), quick=(100,)):
        print_estimates(clusters)
    print_pod_requests()


FLEETS = chosen((100, 1000), quick=(100,), full=(100, 1000, 10_000))
ROUNDS = chosen(7, quick=1)
# So many agents report to one control plane in the mixed load.
CLUSTERS_THAT_CHANGE = chosen(300, quick=100)
FEW, MANY = chosen((200, 1000), quick=(50, 200))

RATES = Verdicts("bench_estimate_rate")


def request_of(shapes: int, first: int, source: EstimateSource.ValueType) -> bytes:
    """So many different shapes, as they come over the wire."""
    asked = [
        WireRequirements(
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
    availability = Availability(owner, NOTHING, NOTHING)
    services: Any = SimpleNamespace(availability=availability, estimating=None)
    call = OperationCall(caller=Principal(kind=PrincipalKind.ADMIN), services=services)
    times = []
    for turn in range(ROUNDS + 1):
        content = request_of(shapes, first if known else first + turn * shapes, source)
        start = time.process_time()
        asked = EstimateReplicasRequest.FromString(content)
        answer = await estimated(call, asked)
        answer.SerializeToString()
        times.append(time.process_time() - start)
    # The first round is for warming up, and for making shapes known.
    rate = shapes / statistics.median(times[1:])
    RATES.row(name, rate, "/s")


def print_after_changes(bindings: int) -> None:
    """What an estimate costs after a binding was placed in three clusters, and after a report."""
    owner, choices, numbers = owned_fleet(CLUSTERS_THAT_CHANGE), Random(1), count(2)
    names = owner.snapshot.names

    def promise() -> None:
        place(owner, next(numbers), choices)

    def report() -> None:
        position = choices.randrange(len(names))
        newer = replace(capacity_report(position + 1, next(numbers)), interest_version=1)
        owner.put_report(names[position], newer, 0.0)

    for _ in range(bindings):
        promise()
    RATES.section(f"{CLUSTERS_THAT_CHANGE} clusters, {bindings:,} bindings outstanding")
    for change, source in product((promise, report), (Source.MODELS, Source.POOLS)):
        millis = [
            estimate_millis(owner, change, source, 100 + next(numbers)) for _ in range(3 * ROUNDS)
        ]
        name = f"{source.name}, a size never seen, after a {change.__name__}"
        RATES.row(name, statistics.median(millis), "ms")


def estimate_millis(
    owner: FleetOwner, change: Callable[[], None], source: Source, cpu_millis: int
) -> float:
    change()
    snapshot = owner.snapshot
    asked = [ReplicaRequirements(request={"cpu": cpu_millis, "memory": 1 << 30})]
    start = time.process_time()
    answer(snapshot, owner.known_estimates, asked, None, EstimateOptions(highest=source), 0.0)
    return (time.process_time() - start) * 1000


async def measure(clusters: int) -> None:
    owner = owned_fleet(clusters)
    RATES.section(f"sizes answered over {clusters:,} clusters, messages included")
    models, pools = ESTIMATE_SOURCE_MODELS, ESTIMATE_SOURCE_POOLS
    await print_rate("models, known", owner, models, shapes=MANY, first=0, known=True)
    await print_rate("models, never seen", owner, models, shapes=MANY, first=10_000)
    await print_rate("pools, known", owner, pools, shapes=MANY, first=20_000, known=True)
    name = "pools, never seen (LB+, UB)"
    await print_rate(name, owner, pools, shapes=FEW, first=30_000)


def bench_estimate_rate() -> None:
    for clusters in FLEETS:
        asyncio.run(measure(clusters))
    for bindings in chosen((0, 3000), quick=(0, 300)):
        print_after_changes(bindings)


BUDGET = 256
NODES = chosen(5000, quick=300)
SHAPE = ReplicaRequirements(request={"cpu": 700, "memory": 3 * GIB})
# Clusters that are built and refreshed, by how much of their nodes is taken.
FILLS = (0.1, 0.3, 0.5)

POOLS = Verdicts("bench_pools")


def pooled_clusters() -> list[NodeColumns]:
    """The nodes of a few clusters as the agent makes its pools from them."""
    columns = []
    for number, fill in enumerate(FILLS):
        plan = FleetPlan(nodes=NODES, fill=fill)
        snapshot = ReportingCluster.of(dumped(plan, number)).member.cache.snapshot()
        counted_n = counted_nodes(snapshot, NodeSet.SCHEDULABLE)
        columns.append(node_columns(snapshot, counted_n, USUAL_LABEL_KEYS))
    return columns


def print_one_cluster() -> None:
    every, keys = pooled_clusters(), USUAL_LABEL_KEYS
    partitions = [partition_nodes(nodes, BUDGET, keys).partition for nodes in every]
    builds = [median_millis(partial(build_pools, nodes, BUDGET, keys), rounds=3) for nodes in every]
    refreshes = [
        median_millis(partial(refresh_pools, nodes, partition), rounds=5)
        for nodes, partition in zip(every, partitions, strict=True)
    ]
    POOLS.section(f"{BUDGET} cells of one cluster of {NODES:,} nodes")
    show(f"build them, median of {len(every)}", statistics.median(builds))
    show("build them, the slowest", max(builds))
    show("refresh them, median", statistics.median(refreshes))
    pools = build_pools(every[-1], BUDGET, keys)
    random = np.random.default_rng(7)
    shapes = [{"cpu": int(cpu), "memory": 2 * GIB} for cpu in random.integers(100, 4000, 100)]

    def pack_each() -> FreeCells:
        free_cells = residues_of(pools)
        for shape in shapes:
            free_cells = pack(free_cells, shape, np.array([10])).free_cells
        return free_cells

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
    POOLS.section(f"{size:,} clusters, {cells:,} cells, one size")
    for name, bound in (("LB+", tighter_lower_k), ("UB", upper_k)):
        show(
            f"{name} of cells alone",
            median_millis(lambda b=bound: [b(block.cells, demanded) for block in fleet.blocks]),
        )
    show("the level: LB+, UB, bound", median_millis(lambda: answer_of(pool_bounds(fleet, SHAPE))))
    show("arrays of all", median_millis(lambda: FleetCells.of(fleet.pools), rounds=3))
    show("one report more", median_millis(lambda: fleet.with_clusters({size // 2: pools[0]})))


def show(name: str, millis: float) -> None:
    POOLS.row(name, millis, "ms")


def bench_pools() -> None:
    print_one_cluster()
    for size in FLEETS:
        print_fleet(size)


if __name__ == "__main__":
    run_named(globals())
