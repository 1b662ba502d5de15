"""What an agent does for others: nodes scored and filled, its extender, and Karmada's protocol.

Prints medians; must not judge them. What kube-scheduler's own client takes is not in them.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
import grpc.aio
import numpy as np

from estimator.binpack.arrays import NodeArrays, ReplicaRequest
from estimator.binpack.balanced_allocation import BalancedAllocation
from estimator.binpack.fit_strategies.least_allocated import LeastAllocated
from estimator.binpack.fit_strategies.most_allocated import MostAllocated
from estimator.binpack.fit_strategies.requested_to_capacity_ratio import RequestedToCapacityRatio
from estimator.binpack.place import PlacementRequest, place
from estimator.binpack.strategy import ResourceWeight, ShapePoint, Strategy
from estimator.binpack.volcano import VolcanoBinpack
from estimator.cluster.holds import Claim
from estimator.estimation.capacity import NodeSet
from estimator.estimation.exact import ExactEstimates
from estimator.karmada.estimator_pb2 import (
    Component,
    ComponentReplicaRequirements,
    MaxAvailableComponentSetsRequest,
    MaxAvailableReplicasRequest,
    NodeClaim,
    Quantity,
    ReplicaRequirements,
    Toleration,
)
from estimator.karmada.estimator_pb2_grpc import EstimatorStub
from estimator.nodes import Node, Pod, PodState
from estimator.servers.extender_http import ExtenderServer
from estimator.servers.karmada import KarmadaEstimator
from estimator.watched_cluster import WatchedCluster
from federation.model.workload import NodeClaim as ModelClaim
from federation.model.workload import ReplicaRequirements as Requirements
from lab.benchmarks.measuring import chosen, median_millis, millis, run_named
from lab.extenders import extender_of
from lab.verdicts import Verdicts, at_most

SCORED_NODES = 5_000
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
        size=SCORED_NODES,
        allocatable={name: np.full(SCORED_NODES, amount) for name, amount in most.items()},
        requested={
            name: np.zeros(SCORED_NODES, np.int64)
            if alike
            else random.integers(0, amount, SCORED_NODES)
            for name, amount in used.items()
        },
    )


def bench_binpack() -> None:
    figures = Verdicts("bench_binpack")
    feasible_n = np.ones(SCORED_NODES, dtype=np.bool_)
    demand = PlacementRequest(request=REQUEST, replicas=REPLICAS)
    for alike in (True, False):
        arrays = nodes(alike=alike)
        kind = "alike" if alike else "different"
        figures.section(f"{SCORED_NODES} {kind} nodes x {len(WEIGHTS)} resources")
        for strategy in STRATEGIES:

            def score(strategy: Strategy = strategy, arrays: NodeArrays = arrays) -> object:
                return strategy.score(arrays, REQUEST)

            def fill(strategy: Strategy = strategy, arrays: NodeArrays = arrays) -> object:
                return place(arrays, demand, strategy, feasible_n)

            figures.row(f"{strategy.name}, score", median_millis(score), "ms")
            figures.row(f"{strategy.name}, place {REPLICAS}", median_millis(fill), "ms")


sys.path.insert(0, str(Path(__file__).resolve().parents[2]))


NAMED_NODES = 5_000
CALLS = chosen(60, quick=5)
LIMIT_MS = 5.0


def cluster() -> WatchedCluster:
    """Half of the nodes are full; one in ten holds a claim of another binding."""
    made = WatchedCluster(NodeSet.SCHEDULABLE)
    allocatable = {"cpu": 16_000, "memory": 64 * GIB, "nvidia.com/gpu": 8, "pods": 110}
    names = [f"node-{number:04}.cluster.example" for number in range(NAMED_NODES)]
    made.cache.replace_nodes([Node(name=name, allocatable=allocatable) for name in names])
    made.cache.replace_pods(
        Pod(
            uid=name,
            namespace="busy",
            name=name,
            node=name,
            state=PodState.BOUND,
            request={"cpu": 16_000 if row % 2 else 1_000 + row, "memory": 8 * GIB},
            nonzero={"cpu": 16_000 if row % 2 else 1_000 + row, "memory": 8 * GIB},
        )
        for row, name in enumerate(names)
    )
    claims = [
        Claim(node=name, replicas=1, request={"cpu": 500}, nonzero={"cpu": 500})
        for name in names[::10]
    ]
    made.claims.hold("shop/web", claims, now=0.0)
    return made


def body() -> bytes:
    requests = {"cpu": "2", "memory": "4Gi", "nvidia.com/gpu": "1"}
    containers = [{"name": "main", "resources": {"requests": requests}}]
    pod = {
        "metadata": {"name": "p", "namespace": "d", "uid": "u"},
        "spec": {"containers": containers},
    }
    names = [f"node-{number:04}.cluster.example" for number in range(NAMED_NODES)]
    return json.dumps({"Pod": pod, "Nodes": None, "NodeNames": names}).encode()


async def measure() -> dict[str, float]:
    """Median milliseconds a call, by verb."""
    server = ExtenderServer(extender_of(cluster()), host="127.0.0.1", port=0, tls=None)
    await server.start()
    sent, medians = body(), {}
    async with aiohttp.ClientSession() as session:
        for verb in ("filter", "prioritize"):
            times = []
            for _ in range(CALLS):
                started = time.perf_counter()
                url = f"http://127.0.0.1:{server.port}/{verb}"
                async with session.post(url, data=sent) as response:
                    assert response.status == 200
                    await response.read()
                times.append((time.perf_counter() - started) * 1e3)
            medians[verb] = statistics.median(times)
    await server.stop()
    return medians


def bench_extender() -> None:
    figures, medians = Verdicts("bench_extender"), asyncio.run(measure())
    for verb, milliseconds in medians.items():
        figures.row(
            f"extender {verb}, {NAMED_NODES} names", milliseconds, "ms", goal=at_most(LIMIT_MS)
        )


NODES = chosen(5_000, quick=500)
PODS_A_NODE = 20
WIRE_REQUEST = {"cpu": 1_000, "memory": 2 * GIB}
SELECTOR = {"disk": "ssd"}

FIGURES = Verdicts("bench_karmada_wire")


def member() -> WatchedCluster:
    """Nodes of 64 cores and 256 GiB, more or less full."""
    random = np.random.default_rng(8)
    cluster = WatchedCluster(NodeSet.SCHEDULABLE)
    cluster.cache.replace_nodes(
        Node(
            name=f"node-{number:04}",
            labels={"disk": "ssd" if number % 2 else "hdd", "kubernetes.io/hostname": str(number)},
            allocatable={"cpu": 64_000, "memory": 256 * GIB, "pods": 110},
        )
        for number in range(NODES)
    )
    cpu_np = random.integers(100, 3_000, (NODES, PODS_A_NODE)).tolist()
    memory_np = random.integers(GIB // 8, 12 * GIB, (NODES, PODS_A_NODE)).tolist()
    cluster.cache.replace_pods(
        Pod(
            uid=f"{number}-{place}",
            namespace="load",
            name=f"{number}-{place}",
            node=f"node-{number:04}",
            state=PodState.BOUND,
            request={"cpu": cpu_np[number][place], "memory": memory_np[number][place]},
        )
        for number in range(NODES)
        for place in range(PODS_A_NODE)
    )
    return cluster


def median_wall_millis(call: Callable[[], object]) -> float:
    return statistics.median(millis(call, 100, time.perf_counter))


def print_engine(cluster: WatchedCluster) -> None:
    plain = Requirements(request=WIRE_REQUEST)
    selective = Requirements(request=WIRE_REQUEST, node_claim=ModelClaim(node_selector=SELECTOR))
    exact = cluster.exact()

    def after_a_node_changed() -> ExactEstimates:
        """As cold as it gets: no label of the nodes has been looked at."""
        exact.snapshot.table._labels.clear()
        return exact

    warm = median_wall_millis(lambda: exact.replicas(plain))
    warm_selector = median_wall_millis(lambda: exact.replicas(selective))
    cold = median_wall_millis(lambda: after_a_node_changed().replicas(selective))
    FIGURES.section(f"exact answers, {NODES} nodes")
    FIGURES.row("plain", warm, "ms")
    FIGURES.row("with a selector", warm_selector, "ms")
    FIGURES.row("with a selector, after a node changed", cold, "ms")


async def print_wire(cluster: WatchedCluster) -> None:
    FIGURES.section(f"Karmada's wire, {NODES} nodes")
    server = grpc.aio.server()
    estimator = KarmadaEstimator("member1", cluster, clock=time.time)
    server.add_generic_rpc_handlers((estimator.handler(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = EstimatorStub(channel)
        amounts = {
            name: Quantity(string=text).SerializeToString()
            for name, text in {"cpu": "1", "memory": "2Gi"}.items()
        }
        tolerating = Toleration(key="dedicated", operator="Exists").SerializeToString()
        claim = NodeClaim(nodeSelector=SELECTOR, tolerationsBytes=[tolerating])
        questions = {
            "plain": ReplicaRequirements(resourceRequestBytes=amounts),
            "selector and toleration": ReplicaRequirements(
                resourceRequestBytes=amounts, nodeClaim=claim
            ),
        }
        for name, requirements in questions.items():
            asked = MaxAvailableReplicasRequest(cluster="member1", replicaRequirements=requirements)
            await print_calls(name, lambda asked=asked: stub.MaxAvailableReplicas(asked), 500)
        needs = ComponentReplicaRequirements(resourceRequestBytes=amounts)
        smaller = ComponentReplicaRequirements(
            resourceRequestBytes={"cpu": Quantity(string="500m").SerializeToString()}
        )
        for name, manager in (("alike", needs), ("different", smaller)):
            sets = MaxAvailableComponentSetsRequest(
                cluster="member1",
                components=[
                    Component(name="manager", replicas=1, replicaRequirements=manager),
                    Component(name="worker", replicas=3, replicaRequirements=needs),
                ],
            )
            await print_calls(
                f"sets of 1 and 3, {name}",
                lambda sets=sets: stub.MaxAvailableComponentSets(sets),
                20,
            )
    await server.stop(None)


async def print_calls(name: str, call: Callable[[], Awaitable[object]], rounds: int) -> None:
    await call()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        await call()
        times.append(time.perf_counter() - start)
    percentiles = statistics.quantiles(times, n=100)
    median, last = percentiles[49] * 1000, percentiles[98] * 1000
    FIGURES.row(f"{name}, p50", median, "ms", detail=f"p99 {last:.2f} ms")


def bench_karmada_wire() -> None:
    cluster = member()
    print_engine(cluster)
    asyncio.run(print_wire(cluster))


if __name__ == "__main__":
    run_named(globals())
