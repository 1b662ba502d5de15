"""How long Karmada's scheduler waits for this agent, and how much of that is estimating.

Prints medians; must not judge them. 5,000 nodes that are all different, 100,000 pods' worth of
requests, over a real connection.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable

import grpc.aio
import numpy as np

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
from estimator.karmada.server import KarmadaEstimator
from estimator.nodes import Node, Pod, PodState
from estimator.watched_cluster import WatchedCluster
from federation.model.workload import NodeClaim as Claim
from federation.model.workload import ReplicaRequirements as Requirements
from lab.benchmarks.measuring import chosen, millis
from lab.verdicts import Verdicts

NODES = chosen(5_000, quick=500)
PODS_A_NODE = 20
GIB = 1 << 30
REQUEST = {"cpu": 1_000, "memory": 2 * GIB}
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


def median_millis(call: Callable[[], object]) -> float:
    return statistics.median(millis(call, 100, time.perf_counter))


def print_engine(cluster: WatchedCluster) -> None:
    plain = Requirements(request=REQUEST)
    selective = Requirements(request=REQUEST, node_claim=Claim(node_selector=SELECTOR))
    exact = cluster.exact()

    def after_a_node_changed() -> ExactEstimates:
        """As cold as it gets: no label of the nodes has been looked at."""
        exact.snapshot.table._labels.clear()
        return exact

    warm = median_millis(lambda: exact.replicas(plain))
    warm_selector = median_millis(lambda: exact.replicas(selective))
    cold = median_millis(lambda: after_a_node_changed().replicas(selective))
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


def main() -> None:
    cluster = member()
    print_engine(cluster)
    asyncio.run(print_wire(cluster))


if __name__ == "__main__":
    main()
