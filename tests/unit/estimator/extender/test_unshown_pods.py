"""Pods that kube-scheduler asks about and that the agent's watch never shows."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from estimator.extender.extender import Extender
from estimator.live import LiveSource
from lab.extenders import extender_of
from lab.kubeapi.documents import namespace, node, pod
from lab.kubeapi.server import KubeApiServer
from lab.kubeapi.state import Cluster
from tests.unit.estimator.test_live import followed, until


@pytest.fixture
def server() -> Iterator[KubeApiServer]:
    """One node of four cores."""
    cluster = Cluster(version=100)
    cluster.put(namespace("kube-system", uid="the-uid"))
    cluster.put(node("a"))
    with KubeApiServer(cluster) as running:
        yield running


def extender(source: LiveSource) -> Extender:
    # One instant: no time ends an assumption here.
    now = time.time()
    return extender_of(source.member, clock=lambda: now)


def as_sent(name: str, version: str | None) -> dict[str, Any]:
    """A pod of three cores as kube-scheduler sends it."""
    document = pod(name, cpu="3")
    if version is not None:
        document["metadata"]["resourceVersion"] = version
    return document


async def fits(asked: Extender, document: dict[str, Any]) -> bool:
    body = json.dumps({"Pod": document, "NodeNames": ["a"]}).encode()
    answer = json.loads(await asked.filter(body))
    return bool(answer.get("NodeNames"))


async def test_a_pod_that_was_deleted_before_the_list_takes_nothing(
    server: KubeApiServer, tmp_path: Path
) -> None:
    server.cluster.put(pod("short", cpu="3"))
    version = str(server.cluster.version)
    server.cluster.remove(pod("short"))
    async with followed(server.kubeconfig(tmp_path / "kubeconfig")) as source:
        asked = extender(source)
        assert await fits(asked, as_sent("short", version))
        assert await fits(asked, as_sent("next", None))


async def test_a_pod_is_forgotten_once_the_watch_is_past_it(
    server: KubeApiServer, tmp_path: Path
) -> None:
    """Its call came before the watch had reached its version, and the watch shows others then."""
    async with followed(server.kubeconfig(tmp_path / "kubeconfig")) as source:
        asked = extender(source)
        version = server.cluster.version + 1
        assert await fits(asked, as_sent("short", str(version)))
        assert not await fits(asked, as_sent("next", None))
        server.cluster.put(pod("elsewhere", cpu="1m"))
        assert server.cluster.version == version
        await until(lambda: source.member.cache.pod("uid-elsewhere") is not None)
        await until(lambda: not len(source.member.assumed))
        assert await fits(asked, as_sent("next", None))


async def test_a_pod_that_is_shown_late_is_not_forgotten(
    server: KubeApiServer, tmp_path: Path
) -> None:
    async with followed(server.kubeconfig(tmp_path / "kubeconfig")) as source:
        asked = extender(source)
        version = server.cluster.version + 1
        assert await fits(asked, as_sent("late", str(version)))
        server.cluster.put(pod("late", cpu="3"))
        server.cluster.put(pod("elsewhere", cpu="1m"))
        await until(lambda: source.member.cache.pod("uid-elsewhere") is not None)
        assert source.member.cache.pod("uid-late") is not None
        assert not await fits(asked, as_sent("next", None))


async def test_a_bookmark_is_progress_too(server: KubeApiServer, tmp_path: Path) -> None:
    async with followed(server.kubeconfig(tmp_path / "kubeconfig")) as source:
        asked = extender(source)
        server.wait_for_watches("pods")
        assert await fits(asked, as_sent("short", str(server.cluster.version + 1)))
        # A node's change moves the version of everything.
        server.cluster.put(node("a", labels={"zone": "1"}))
        server.send_bookmarks()
        await until(lambda: not len(source.member.assumed))
        assert await fits(asked, as_sent("next", None))
