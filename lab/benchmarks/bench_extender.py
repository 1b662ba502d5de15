"""How long the extender takes for 5,000 node names, over HTTP on this machine.

Must not be read as kube-scheduler's latency: its own client is not in it.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import aiohttp

from estimator.cluster.claims import Claim
from estimator.estimation.capacity import NodeSet
from estimator.extender.server import ExtenderServer
from estimator.nodes import Node, Pod, PodState
from estimator.watched_cluster import WatchedCluster
from lab.benchmarks.measuring import chosen
from lab.extenders import extender_of
from lab.verdicts import Verdicts, at_most

NODES = 5_000
ROUNDS = chosen(60, quick=5)
LIMIT_MS = 5.0
GI = 2**30


def cluster() -> WatchedCluster:
    """Half of the nodes are full; one in ten holds a claim of another binding."""
    made = WatchedCluster(NodeSet.SCHEDULABLE)
    allocatable = {"cpu": 16_000, "memory": 64 * GI, "nvidia.com/gpu": 8, "pods": 110}
    names = [f"node-{number:04}.cluster.example" for number in range(NODES)]
    made.cache.replace_nodes([Node(name=name, allocatable=allocatable) for name in names])
    made.cache.replace_pods(
        Pod(
            uid=name,
            namespace="busy",
            name=name,
            node=name,
            state=PodState.BOUND,
            request={"cpu": 16_000 if row % 2 else 1_000 + row, "memory": 8 * GI},
            nonzero={"cpu": 16_000 if row % 2 else 1_000 + row, "memory": 8 * GI},
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
    names = [f"node-{number:04}.cluster.example" for number in range(NODES)]
    return json.dumps({"Pod": pod, "Nodes": None, "NodeNames": names}).encode()


async def measure() -> dict[str, float]:
    """Median milliseconds a call, by verb."""
    server = ExtenderServer(extender_of(cluster()), host="127.0.0.1", port=0, tls=None)
    await server.start()
    sent, medians = body(), {}
    async with aiohttp.ClientSession() as session:
        for verb in ("filter", "prioritize"):
            times = []
            for _ in range(ROUNDS):
                started = time.perf_counter()
                url = f"http://127.0.0.1:{server.port}/{verb}"
                async with session.post(url, data=sent) as response:
                    assert response.status == 200
                    await response.read()
                times.append((time.perf_counter() - started) * 1e3)
            medians[verb] = statistics.median(times)
    await server.stop()
    return medians


def main() -> None:
    figures, medians = Verdicts("bench_extender"), asyncio.run(measure())
    for verb, milliseconds in medians.items():
        figures.row(f"extender {verb}, {NODES} names", milliseconds, "ms", goal=at_most(LIMIT_MS))


if __name__ == "__main__":
    main()
