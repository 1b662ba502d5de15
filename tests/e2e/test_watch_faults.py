"""The agent's picture of a cluster comes right again after everything that can go wrong.

Must not look into the agent: what it answers from its cache is compared with what is true.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from estimator.estimation.capacity import NodeSet
from estimator.kube.client import KubeClient
from estimator.kube.informer import Patience
from estimator.live import LiveSource
from federation.model.resources import CPU, PODS
from lab.kubeapi.documents import namespace
from lab.kubeapi.faults import (
    Action,
    Churn,
    Cut,
    Delay,
    Drop,
    NodePicture,
    Picture,
    Silence,
    bad_gateway,
    picture_of,
    server_error,
)
from lab.kubeapi.server import KubeApiServer
from lab.kubeapi.state import Cluster
from lab.patience import PATIENCE_SECONDS

# As in earnest, but in a hurry.
PATIENCE = Patience(connect=1.0, list_read=1.0, watch=1.0, watch_shift=0.0, grace=0.3)
CONVERGENCE_SECONDS = PATIENCE_SECONDS


@pytest.fixture
def server() -> Iterator[KubeApiServer]:
    cluster = Cluster(version=100)
    cluster.put(namespace("kube-system"))
    with KubeApiServer(cluster) as running:
        yield running


@pytest.fixture
def churn(server: KubeApiServer) -> Churn:
    made = Churn(server.cluster, seed=1)
    made.run(60)
    return made


@asynccontextmanager
async def following(server: KubeApiServer, tmp_path: Path) -> AsyncIterator[LiveSource]:
    """An agent that has listed everything, watches it, and tries again at once."""
    client = KubeClient(server.kubeconfig(tmp_path / "kubeconfig"))
    source = LiveSource(
        client,
        NodeSet.SCHEDULABLE,
        clock=time.monotonic,
        uniform=lambda ceiling: min(ceiling, 0.02),
        patience=PATIENCE,
    )
    task = asyncio.create_task(source.follow())
    try:
        async with asyncio.timeout(CONVERGENCE_SECONDS):
            await source.ready()
        await asyncio.to_thread(server.wait_for_watches, "nodes", "pods")
        yield source
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await client.close()


def seen_by(source: LiveSource) -> Picture:
    snapshot = source.member.cache.snapshot()
    nodes = {
        node.name: NodePicture(
            allocatable_cpu_millis=int(snapshot.allocatable_n(CPU)[row]),
            requested_cpu_millis=int(snapshot.requested_n(CPU)[row]),
            pods=int(snapshot.requested_n(PODS)[row]),
        )
        for row, node in enumerate(snapshot.table.nodes)
    }
    return Picture(nodes=nodes, waiting_cpu_millis=snapshot.waiting.get(CPU, 0))


async def in_step(source: LiveSource, server: KubeApiServer) -> None:
    """Wait until the agent knows the truth, and knows that it does."""
    await until(lambda: seen_by(source) == picture_of(server.cluster))
    await until(lambda: source.member.view().is_current)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(CONVERGENCE_SECONDS):
        while not holds():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.005)


async def test_the_api_server_is_killed_and_comes_back(
    server: KubeApiServer, churn: Churn, tmp_path: Path
) -> None:
    async with following(server, tmp_path) as source:
        for _ in range(3):
            server.stop()
            churn.run(40)
            await until(lambda: not source.member.view().is_current)
            server.start()
            await in_step(source, server)


async def test_watches_freeze(server: KubeApiServer, churn: Churn, tmp_path: Path) -> None:
    """No event, no end, no error: only the agent's own patience notices."""
    async with following(server, tmp_path) as source:
        server.freeze_watches()
        churn.run(40)
        await in_step(source, server)


MISHAPS: tuple[Action, ...] = (
    Cut(whole_lines=1),
    Delay(seconds=0.1),
    Drop(),
    Silence(),
    bad_gateway(),
    server_error(),
)


@pytest.mark.parametrize("seed", range(4))
async def test_one_mishap_after_another(
    server: KubeApiServer, churn: Churn, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    async with following(server, tmp_path) as source:
        for _ in range(12):
            server.faults.add(chance.choice(MISHAPS), times=1)
        chance.choice((server.freeze_watches, server.end_watches, server.cluster.forget_window))()
        churn.run(40)
        server.stop()
        churn.run(20)
        server.start()
        await in_step(source, server)
