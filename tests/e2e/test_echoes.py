"""Promises shrink as pods come: a control plane, an agent, and an API server that tests own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from federation.v1.resource_pb2 import (
    ClusterAffinity,
    ObjectMeta,
    ObjectReference,
    Placement,
    ReplicaRequirements,
    ResourceBinding,
    ResourceBindingSpec,
)
from federation.v1.scheduling_pb2 import GetBindingRequest, ScheduleRequest
from lab.agents import (
    POLL_SECONDS,
    SECONDS,
    cluster_where,
    estimator,
    flags,
    has_reported,
    join_token,
)
from lab.binders import cluster_of
from lab.control_planes import RunningControlPlane, running_control_plane
from lab.kubeapi.documents import node, pod
from lab.kubeapi.resources import Document
from lab.kubeapi.server import KubeApiServer
from tests.e2e.test_scorers import free_port

UID = "6f1e0c5a-web"


@pytest.fixture
async def plane(database_url: str, tmp_path: Path) -> AsyncIterator[RunningControlPlane]:
    async with running_control_plane(
        database_url, tmp_path / "plane", heartbeat_seconds="10", report_seconds="0.2"
    ) as running:
        yield running


@pytest.fixture
def server() -> Iterator[KubeApiServer]:
    with KubeApiServer(cluster_of(node("a"), node("b"))) as running:
        yield running


@asynccontextmanager
async def running_agent(
    plane: RunningControlPlane, server: KubeApiServer, tmp_path: Path, *scorers: str
) -> AsyncIterator[None]:
    kubeconfig = server.kubeconfig(tmp_path / "kubeconfig")
    token = (await join_token(plane, "member1")).token
    async with estimator(
        *("run", *flags(plane, "member1", tmp_path), "--kubeconfig", str(kubeconfig)),
        *("--join-token", token, *scorers),
    ):
        await cluster_where(
            plane, "member1", lambda each: has_reported(each) and each.status.agent.connected
        )
        yield


async def schedule(plane: RunningControlPlane, replicas: int, certificate: str = "") -> Any:
    binding = ResourceBinding(
        metadata=ObjectMeta(namespace="shop", name="web", uid=UID),
        spec=ResourceBindingSpec(
            resource=ObjectReference(
                api_version="apps/v1", kind="Deployment", namespace="shop", name="web"
            ),
            replicas=replicas,
            replica_requirements=ReplicaRequirements(resource_request={"cpu": "500m"}),
            placement=Placement(cluster_affinity=ClusterAffinity(cluster_names=["member1"])),
            certificate=certificate,
        ),
    )
    request = ScheduleRequest(binding=binding, node_timeout_seconds=60.0)
    return await plane.admin.call(plane.admin.scheduling.Schedule, request)


async def promised(plane: RunningControlPlane, **numbers: int) -> Any:
    """The binding's only reservation, as soon as it has these numbers."""
    async with asyncio.timeout(SECONDS):
        while True:
            answer = await plane.admin.call(
                plane.admin.scheduling.GetBinding, GetBindingRequest(namespace="shop", name="web")
            )
            (reservation,) = answer.reservations
            if all(getattr(reservation, name) == number for name, number in numbers.items()):
                return reservation
            await asyncio.sleep(POLL_SECONDS)


def owned(name: str, on: str = "") -> Document:
    """A pod of the Deployment shop/web."""
    document = pod(name, on=on)
    document["metadata"] |= {
        "labels": {"pod-template-hash": "5d4f"},
        "ownerReferences": [
            {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "name": "web-5d4f",
                "uid": "uid-web-5d4f",
                "controller": True,
            }
        ],
    }
    return document


def labelled(name: str, on: str) -> Document:
    document = pod(name, on=on)
    document["metadata"]["labels"] = {"fedsched.io/binding": UID}
    return document


async def test_a_promise_shrinks_by_the_pods_that_come(
    plane: RunningControlPlane, server: KubeApiServer, tmp_path: Path
) -> None:
    async with running_agent(plane, server, tmp_path):
        await schedule(plane, 4)
        await promised(plane, replicas=4, outstanding=4, bound=0, unbound=0)
        server.cluster.put(owned("web-1"))
        await promised(plane, outstanding=4, unbound=1)
        server.cluster.put(owned("web-1", on="a"))
        server.cluster.put(labelled("web-2", on="b"))
        server.cluster.put(pod("other", on="b"))
        await promised(plane, outstanding=2, bound=2, unbound=0)
        server.cluster.remove(owned("web-1"))
        await promised(plane, outstanding=3, bound=1)


async def test_pods_that_run_before_their_binding_is_known_are_echoed(
    plane: RunningControlPlane, server: KubeApiServer, tmp_path: Path
) -> None:
    server.cluster.put(owned("web-1", on="a"))
    server.cluster.put(owned("web-2", on="b"))
    async with running_agent(plane, server, tmp_path):
        await schedule(plane, 2)
        await promised(plane, outstanding=0, bound=2)


async def test_an_agent_that_starts_anew_counts_what_was_promised_before(
    plane: RunningControlPlane, server: KubeApiServer, tmp_path: Path
) -> None:
    async with running_agent(plane, server, tmp_path):
        await schedule(plane, 3)
        server.cluster.put(owned("web-1", on="a"))
        await promised(plane, outstanding=2, bound=1)
    server.cluster.put(owned("web-2", on="b"))
    async with running_agent(plane, server, tmp_path):
        await promised(plane, outstanding=1, bound=2)


async def test_nodes_kept_for_a_plan_count_as_bound_and_again_after_a_restart(
    plane: RunningControlPlane, server: KubeApiServer, tmp_path: Path
) -> None:
    extender = ("--extender-listen", f"127.0.0.1:{free_port()}")
    async with running_agent(plane, server, tmp_path, *extender):
        answer = await schedule(plane, 3, certificate="planned")
        (placement,) = answer.decision.node_placements
        assert sum(each.replicas for each in placement.nodes) == 3
        await promised(plane, certificate="planned", outstanding=0, bound=3)
        server.cluster.put(owned("web-1", on="a"))
        await cluster_where(
            plane, "member1", lambda each: each.status.resource_summary.allocated["pods"] == "3"
        )
        await promised(plane, outstanding=0, bound=3)
    async with running_agent(plane, server, tmp_path, *extender):
        await promised(plane, outstanding=0, bound=3)
