"""An agent that does not see its cluster counts as blind, everywhere, and as seeing when it does.

Real processes: ``estimator run`` beside an API server that can be made to fail in every way.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from federation.cli.__main__ import fedctl
from federation.v1.resource_pb2 import Cluster as ClusterMessage
from federation.v1.resource_pb2 import Condition, ReplicaRequirements
from federation.v1.scheduling_pb2 import OUTCOME_NO_FIT, OUTCOME_SCHEDULED
from lab.agents import cluster_where, estimator, flags, has_reported, join_token, scheduled
from lab.control_planes import RunningControlPlane, running_control_plane
from lab.kubeapi.documents import namespace, node
from lab.kubeapi.faults import Answer, Silence
from lab.kubeapi.server import ADMIN_TOKEN, KubeApiServer
from lab.kubeapi.state import Cluster
from lab.servers import http_status


@pytest.fixture
async def plane(database_url: str, tmp_path: Path) -> AsyncIterator[RunningControlPlane]:
    async with running_control_plane(
        database_url, tmp_path / "plane", heartbeat_seconds="2", report_seconds="0.5"
    ) as running:
        yield running


@pytest.fixture
def server() -> Iterator[KubeApiServer]:
    cluster = Cluster(version=100)
    cluster.put(namespace("kube-system", uid="the-uid"))
    for name in ("a", "b"):
        cluster.put(node(name))
    with KubeApiServer(cluster) as running:
        yield running


@pytest.fixture
def health_port() -> int:
    """One that nobody listens on, a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
    return port


@asynccontextmanager
async def following(
    plane: RunningControlPlane, server: KubeApiServer, tmp_path: Path, health_port: int
) -> AsyncIterator[None]:
    token = (await join_token(plane, "member1")).token
    async with estimator(
        *("run", *flags(plane, "member1", tmp_path), "--join-token", token),
        *("--kubeconfig", str(server.kubeconfig(tmp_path / "kubeconfig"))),
        *("--health-listen", f"127.0.0.1:{health_port}"),
    ) as agent:
        await cluster_where(plane, "member1", has_reported)
        yield
        assert agent.process.returncode is None


def ready(cluster: ClusterMessage) -> Condition:
    return next(each for each in cluster.status.conditions if each.type == "Ready")


def is_blind(cluster: ClusterMessage) -> bool:
    condition = ready(cluster)
    return (condition.status, condition.reason) == ("Unknown", "ApiServerUnreachable")


def is_seen(cluster: ClusterMessage) -> bool:
    return ready(cluster).status == "True"


def refuse_connections(server: KubeApiServer, kubeconfig: Path) -> None:
    server.stop()


def answer_nothing(server: KubeApiServer, kubeconfig: Path) -> None:
    server.faults.add(Silence())
    server.freeze_watches()


def forbid_pods(server: KubeApiServer, kubeconfig: Path) -> None:
    server.faults.add(Answer(status=403, body=b"{}"), resource="pods")
    server.end_watches()


def expire_credentials(server: KubeApiServer, kubeconfig: Path) -> None:
    server.tokens = {"second": server.tokens[ADMIN_TOKEN]}
    server.end_watches()
    assert kubeconfig.exists()


def list_for_ever(server: KubeApiServer, kubeconfig: Path) -> None:
    """What was watched from is too old, and the new list never comes."""
    server.cluster.skip_versions()
    server.cluster.forget_window()
    server.faults.add(
        Silence(), resource="nodes", applies=lambda asked: "resourceVersion" not in asked.query
    )
    server.end_watches()


def heal(server: KubeApiServer, kubeconfig: Path) -> None:
    server.faults.clear()
    server.kubeconfig(kubeconfig, next(iter(server.tokens)))
    server.stop()
    server.start()


FAILURES = (refuse_connections, answer_nothing, forbid_pods, list_for_ever, expire_credentials)


async def test_a_blind_agent_counts_as_blind(
    plane: RunningControlPlane, server: KubeApiServer, tmp_path: Path, health_port: int
) -> None:
    """In every way, one after the other: each time it sees again, and counts as seeing."""
    async with following(plane, server, tmp_path, health_port):
        for fail in FAILURES:
            await goes_blind_and_sees_again(
                plane, server, tmp_path / "kubeconfig", fail, health_port
            )


async def goes_blind_and_sees_again(
    plane: RunningControlPlane,
    server: KubeApiServer,
    kubeconfig: Path,
    fail: Callable[[KubeApiServer, Path], None],
    health_port: int,
) -> None:
    assert is_seen(await cluster_where(plane, "member1", is_seen))
    assert (await scheduled(plane, "member1", replicas=1)).outcome == OUTCOME_SCHEDULED
    assert await probes(health_port) == (200, 200)
    before = time.time()
    await asyncio.to_thread(server.wait_for_watches, "nodes", "pods")
    fail(server, kubeconfig)
    cluster = await cluster_where(plane, "member1", is_blind)
    blind_at = time.time()
    since = ready(cluster).last_transition_time.ToNanoseconds() / 1e9
    assert before - 30.0 <= since <= blind_at - 4.0
    assert cluster.status.agent.connected
    assert cluster.status.agent.last_report_time == ready(cluster).last_transition_time
    await everything_says_since_when(plane, since, another=fail.__name__.replace("_", "-"))
    assert await probes(health_port) == (200, 503)
    heal(server, kubeconfig)
    assert is_seen(await cluster_where(plane, "member1", is_seen))
    assert (await scheduled(plane, "member1", replicas=3)).outcome == OUTCOME_SCHEDULED
    assert await probes(health_port) == (200, 200)


async def probes(port: int) -> tuple[int, int]:
    urls = [f"http://127.0.0.1:{port}/{name}" for name in ("livez", "readyz")]
    live, is_ready = [await asyncio.to_thread(http_status, url) for url in urls]
    return live, is_ready


async def everything_says_since_when(
    plane: RunningControlPlane, since: float, *, another: str
) -> None:
    # What is there stays, and does not grow.
    grown = await scheduled(plane, "member1", replicas=2)
    assert [(each.name, each.replicas) for each in grown.clusters] == [("member1", 1)]
    decision = await scheduled(plane, "member1", replicas=2, name=another)
    assert decision.outcome == OUTCOME_NO_FIT
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(since))
    assert f"cannot be seen since {moment}: ApiServerUnreachable" in decision.reason
    explained = await fedctl_says(plane, "explain", decision.id)
    assert f"ClusterReady: cannot be seen since {moment}: ApiServerUnreachable" in explained
    shape = ReplicaRequirements(resource_request={"cpu": "500m"})
    estimates = await plane.admin.ask("EstimateReplicas", shapes=[shape])
    assert estimates.age_seconds[0] >= 4.0
    listed = await fedctl_says(plane, "get", "clusters")
    assert "Unknown,ApiServerUnreachable" in listed
    described = await fedctl_says(plane, "describe", "cluster", "member1")
    assert f"cannot be seen since {moment}" in described


async def fedctl_says(plane: RunningControlPlane, *arguments: str) -> str:
    common = (
        *("--insecure", "--endpoint", str(plane.plane.endpoint)),
        *("--token-file", str(plane.plane.admin_token_file)),
    )
    result = await asyncio.to_thread(CliRunner().invoke, fedctl, [*common, *arguments])
    assert result.exit_code == 0, result.output
    return result.output
