"""The live source as the agent uses it, against an API server on a loopback port."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from estimator.control_plane.enrolment import ClusterIdentity
from estimator.estimation.capacity import Capacity, NodeSet
from estimator.live import LiveSource
from estimator.watched_cluster import WatchedCluster
from federation.model.errors import PreconditionFailed, Unavailable
from federation.model.grades import DEFAULT_MODEL
from federation.model.node_plans import NodePlan, PlaceOrder, ShareOrder
from federation.model.resources import CPU, PODS
from federation.model.workload import ReplicaRequirements
from lab.kubeapi.documents import namespace, node, pod
from lab.kubeapi.faults import Answer
from lab.kubeapi.server import ADMIN_TOKEN, KubeApiServer
from lab.kubeapi.state import Cluster
from lab.patience import PATIENCE_SECONDS

ALIVE_AT = 5.0


@pytest.fixture
def server() -> Iterator[KubeApiServer]:
    cluster = Cluster(version=100)
    cluster.put(namespace("kube-system", uid="the-uid"))
    with KubeApiServer(cluster) as running:
        yield running


@asynccontextmanager
async def followed(
    kubeconfig: Path,
    node_set: NodeSet = NodeSet.SCHEDULABLE,
    clock: Callable[[], float] = time.monotonic,
) -> AsyncIterator[LiveSource]:
    source = LiveSource(kubeconfig, node_set, clock=clock, uniform=lambda _ceiling: 0.0)
    following = asyncio.create_task(source.follow())
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await source.ready()
            yield source
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def until(holds: Callable[[], bool]) -> None:
    """Let the loop run until it is so: what the threads saw arrives by itself."""
    while not holds():  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(0.001)


def capacity(source: LiveSource) -> Capacity:
    return source.member.capacity(DEFAULT_MODEL)


async def test_a_cluster_is_followed(server: KubeApiServer, tmp_path: Path) -> None:
    labels = {"topology.kubernetes.io/region": "eu-1", "topology.kubernetes.io/zone": "eu-1a"}
    server.cluster.put(node("a", labels=labels))
    server.cluster.put(pod("p", on="a"))
    async with followed(server.kubeconfig(tmp_path / "kubeconfig")) as source:
        assert await source.identity() == ClusterIdentity(
            uid="the-uid",
            kubernetes_version="v1.36.2",
            provider="aws",
            region="eu-1",
            zones=("eu-1a",),
        )
        assert capacity(source).summary.allocated == {CPU: 500, PODS: 1}
        server.cluster.put(pod("q", cpu="250m"))
        await until(lambda: capacity(source).summary.allocating == {CPU: 250, PODS: 1})
        server.cluster.remove(node("a"))
        await until(lambda: capacity(source).nodes.total == 0)


async def test_lost_contact_is_dated_and_found_again(server: KubeApiServer, tmp_path: Path) -> None:
    now = [ALIVE_AT]
    kubeconfig = server.kubeconfig(tmp_path / "kubeconfig")
    async with followed(kubeconfig, clock=lambda: now[0]) as source:
        member = source.member
        await until(lambda: member.view().is_current)
        server.wait_for_watches("nodes", "pods", "resourcequotas")
        server.tokens = {"second": server.tokens[ADMIN_TOKEN]}
        server.end_watches()
        await until(lambda: not member.view().is_current)
        now[0] += 30.0
        assert member.view().age_seconds == 30.0
        assert member.view().is_blind
        for question in (member.exact, lambda: member.unclaimed(0.0), lambda: place(member)):
            with pytest.raises(Unavailable, match=r"not seen its cluster for 30 s.*401"):
                question()
        server.kubeconfig(tmp_path / "kubeconfig", "second")

        def sees() -> bool:
            now[0] += 0.1
            return member.view().is_current

        await until(sees)
        assert place(member).message == "1 of 1 replicas found no node: the cluster has no nodes"


def place(member: WatchedCluster) -> NodePlan:
    share = ShareOrder(replicas=1, requirements=ReplicaRequirements(request={CPU: 500}))
    return member.place(PlaceOrder(binding_key="shop/web", shares=(share,)), 0.0)


async def test_karmadas_node_set_sees_pods_that_ended(
    server: KubeApiServer, tmp_path: Path
) -> None:
    ended = pod("p")
    ended["status"]["phase"] = "Failed"
    server.cluster.put(ended)
    async with followed(server.kubeconfig(tmp_path / "kubeconfig"), NodeSet.EVERY) as source:
        assert capacity(source).summary.allocating == {CPU: 500, PODS: 1}


def quota(cpu: str) -> dict[str, Any]:
    return {
        "kind": "ResourceQuota",
        "apiVersion": "v1",
        "metadata": {"name": "q", "namespace": "shop", "uid": "uid-q"},
        "spec": {"hard": {"cpu": cpu}},
    }


async def test_quotas_are_followed(server: KubeApiServer, tmp_path: Path) -> None:
    server.cluster.put(node("a"))
    server.cluster.put(quota("2"))
    asked = ReplicaRequirements(request={CPU: 500}, namespace="shop")
    async with followed(server.kubeconfig(tmp_path / "kubeconfig")) as source:
        assert source.member.exact().replicas(asked) == 4
        server.cluster.put(quota("1"))
        await until(lambda: source.member.exact().replicas(asked) == 2)
        server.cluster.remove(quota("1"))
        await until(lambda: source.member.exact().replicas(asked) == 8)


async def test_without_leave_to_read_quotas_the_rest_is_current(
    server: KubeApiServer, tmp_path: Path
) -> None:
    forbidden = Answer(status=403, body=b"{}")
    server.faults.add(forbidden, resource="resourcequotas")
    server.cluster.put(node("a"))
    asked = ReplicaRequirements(request={CPU: 500}, namespace="shop")
    async with followed(server.kubeconfig(tmp_path / "kubeconfig")) as source:
        assert source.member.exact().replicas(asked) == 8
        await until(lambda: source.member.view().is_current)


async def test_a_refusal_says_what_is_needed(server: KubeApiServer, tmp_path: Path) -> None:
    server.tokens.clear()
    with pytest.raises(PreconditionFailed, match=r"401 .*list and watch nodes and pods"):
        async with followed(server.kubeconfig(tmp_path / "kubeconfig")):
            pass


async def test_no_kubeconfig_is_named(tmp_path: Path) -> None:
    with pytest.raises(PreconditionFailed, match="nowhere"):
        async with followed(tmp_path / "nowhere"):
            pass
