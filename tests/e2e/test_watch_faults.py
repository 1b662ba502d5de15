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
from estimator.kube.reading import PAGE_SIZE, Patience
from estimator.live import LiveSource
from federation.model.resources import CPU, PODS
from lab.kubeapi.documents import namespace, pods
from lab.kubeapi.faults import (
    Action,
    Answer,
    Asked,
    Churn,
    Cut,
    Delay,
    Drop,
    First,
    NodePicture,
    Picture,
    Silence,
    bad_gateway,
    picture_of,
    server_error,
    throttled,
)
from lab.kubeapi.server import ADMIN_TOKEN, KubeApiServer
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
    source = LiveSource(
        server.kubeconfig(tmp_path / "kubeconfig"),
        NodeSet.SCHEDULABLE,
        clock=time.monotonic,
        uniform=lambda ceiling: min(ceiling, 0.02),
        patience=PATIENCE,
    )
    task = asyncio.create_task(source.follow())
    try:
        async with asyncio.timeout(CONVERGENCE_SECONDS):
            await source.ready()
        server.wait_for_watches("nodes", "pods")
        yield source
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


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


def from_a_version(asked: Asked) -> bool:
    return "resourceVersion" in asked.query


async def test_changes_arrive(server: KubeApiServer, churn: Churn, tmp_path: Path) -> None:
    async with following(server, tmp_path) as source:
        await in_step(source, server)
        churn.run(100)
        await in_step(source, server)


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


async def test_the_connection_is_half_open(
    server: KubeApiServer, churn: Churn, tmp_path: Path
) -> None:
    """Requests are taken and nothing is answered, to lists and watches alike."""
    async with following(server, tmp_path) as source:
        server.freeze_watches()
        server.faults.add(Silence(), times=6)
        churn.run(40)
        await in_step(source, server)


async def test_every_version_is_too_old_for_a_while(
    server: KubeApiServer, churn: Churn, tmp_path: Path
) -> None:
    def restart_elsewhere() -> None:
        churn.run(5)
        server.cluster.forget_window()

    async with following(server, tmp_path) as source:
        server.faults.add(First(act=restart_elsewhere), times=15, applies=from_a_version)
        server.end_watches()
        await until(lambda: server.faults.are_spent)
        await in_step(source, server)
        lists = [asked for asked in server.requests if "sendInitialEvents" in asked.query]
        assert len(lists) >= 15


async def test_pages_expire_before_they_are_read(
    server: KubeApiServer, churn: Churn, tmp_path: Path
) -> None:
    for each in pods(3 * PAGE_SIZE, on="n1"):
        server.cluster.put(each)

    def is_watch_list(asked: Asked) -> bool:
        return "sendInitialEvents" in asked.query

    def is_later_page(asked: Asked) -> bool:
        return "continue" in asked.query

    def compact() -> None:
        churn.run(3)
        server.cluster.compact()

    server.faults.add(
        Answer(status=422, body=b"{}"), times=1, resource="pods", applies=is_watch_list
    )
    server.faults.add(First(act=compact), times=4, applies=is_later_page)
    async with following(server, tmp_path) as source:
        assert server.faults.are_spent
        await in_step(source, server)


async def test_the_token_is_revoked_and_renewed(
    server: KubeApiServer, churn: Churn, tmp_path: Path
) -> None:
    async with following(server, tmp_path) as source:
        server.tokens = {"second": server.tokens[ADMIN_TOKEN]}
        server.end_watches()
        churn.run(40)
        await until(lambda: not source.member.view().is_current)
        server.kubeconfig(tmp_path / "kubeconfig", "second")
        await in_step(source, server)


async def test_throttling_is_obeyed(server: KubeApiServer, churn: Churn, tmp_path: Path) -> None:
    async with following(server, tmp_path) as source:
        asked_before = len(server.requests)
        for seconds in (1, 2):
            server.faults.add(throttled(seconds), times=1, resource="pods")
        server.end_watches()
        churn.run(40)
        await in_step(source, server)
        server.wait_for_watches("pods")
    first, second, third = [
        asked.at_seconds for asked in server.requests[asked_before:] if asked.resource == "pods"
    ][:3]
    assert second - first >= 1.0
    assert third - second >= 2.0


async def test_connections_break_in_the_middle_of_events(
    server: KubeApiServer, churn: Churn, tmp_path: Path
) -> None:
    async with following(server, tmp_path) as source:
        for whole_lines in range(20):
            server.faults.add(Cut(whole_lines=whole_lines % 5), times=1)
        server.end_watches()
        while not server.faults.are_spent:
            churn.run(5)
            await asyncio.sleep(0.01)
        await in_step(source, server)


async def test_the_server_is_slow_and_answers_in_crumbs(
    server: KubeApiServer, churn: Churn, tmp_path: Path
) -> None:
    server.fragment_bytes = 50
    server.faults.add(Delay(seconds=0.3))
    async with following(server, tmp_path) as source:
        churn.run(40)
        await in_step(source, server)


async def test_etcd_is_restored_from_a_backup(
    server: KubeApiServer, churn: Churn, tmp_path: Path
) -> None:
    """The version counter goes back: the old version is of another history."""
    async with following(server, tmp_path) as source:
        older = Cluster(version=100)
        Churn(older, seed=2).run(30)
        with KubeApiServer(older) as restored:
            assert older.version < server.cluster.version
            restored.kubeconfig(tmp_path / "kubeconfig")
            server.tokens.clear()
            server.end_watches()
            await in_step(source, restored)


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
