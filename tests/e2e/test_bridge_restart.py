"""A bridge that takes over from another one: nothing that was at rest is forgotten."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from federation.client import Target
from federation.model.access import Role
from federation.v1.clusters_pb2 import ListClustersRequest
from federation.v1.scheduling_pb2 import GetBindingRequest
from lab.control_planes import RunningControlPlane, running_control_plane
from lab.karmadas import (
    EVERYWHERE,
    POLL_SECONDS,
    Karmada,
    binding,
    bridging,
    member,
    new_karmada_server,
    placed,
    until,
)
from lab.kubeapi.resources import CLUSTERS, Document


@pytest.fixture
def karmada() -> Iterator[Karmada]:
    with new_karmada_server() as server:
        yield Karmada(server)


@pytest.fixture
async def plane(database_url: str, tmp_path: Path) -> AsyncIterator[RunningControlPlane]:
    async with running_control_plane(database_url, tmp_path) as running:
        yield running


async def target_of(plane: RunningControlPlane) -> Target:
    token = await plane.token(Role.BRIDGE)
    return Target(endpoint=str(plane.plane.endpoint), token=token, plaintext=True)


def begin_deleting(karmada: Karmada, name: str) -> None:
    """Karmada keeps the cluster until no binding lists it."""
    cluster = karmada.cluster.get(CLUSTERS, "", name)
    assert cluster is not None
    cluster["metadata"].update(deletionTimestamp="2026-03-01T12:00:00Z", finalizers=["karmada"])
    karmada.put(cluster)


async def place(karmada: Karmada, plane: RunningControlPlane, folder: Path) -> None:
    """Have a bridge place a divided binding and one that goes everywhere, and end it."""
    karmada.put(
        member("m1", cpu="100"),
        member("m2", cpu="100"),
        binding("web"),
        binding("everywhere", replicas=2, placement=EVERYWHERE),
    )
    async with bridging(karmada.kubeconfig(folder), await target_of(plane)):
        await until(lambda: karmada.is_settled("web") and karmada.is_settled("everywhere"))
    assert karmada.targets("web") == {"m1": 2, "m2": 2}
    assert karmada.targets("everywhere") == {"m1": 2, "m2": 2}


@pytest.mark.parametrize("moment", ["while no bridge runs", "after the restart"])
async def test_clusters_that_come_and_go_concern_bindings_that_another_bridge_placed(
    karmada: Karmada, plane: RunningControlPlane, tmp_path: Path, moment: str
) -> None:
    await place(karmada, plane, tmp_path)
    if moment == "while no bridge runs":
        begin_deleting(karmada, "m2")
        karmada.put(member("m3", cpu="100"))
    async with bridging(karmada.kubeconfig(tmp_path), await target_of(plane)):
        if moment == "after the restart":
            karmada.put(binding("later"))
            await until(lambda: karmada.is_settled("later"))
            begin_deleting(karmada, "m2")
            karmada.put(member("m3", cpu="100"))
        await until(lambda: karmada.targets("everywhere") == {"m1": 2, "m3": 2})
        await until(lambda: "m2" not in karmada.targets("web"))
        await until(lambda: sum(karmada.targets("web").values()) == 4)
        await until(lambda: karmada.is_settled("web"))


async def test_nothing_is_written_by_a_restart_alone(
    karmada: Karmada, plane: RunningControlPlane, tmp_path: Path
) -> None:
    await place(karmada, plane, tmp_path)
    written = len(karmada.writes())
    async with bridging(karmada.kubeconfig(tmp_path), await target_of(plane)):
        karmada.put(binding("later"))
        await until(lambda: karmada.is_settled("later"))
    assert len(karmada.writes()) == written + len(karmada.writes("later"))


def running(cpu: str, pods: int) -> Document:
    """The totals of m1 with pods of web, as Karmada collects them."""
    return {
        "allocatable": {"cpu": "10", "memory": "64Gi", "pods": "440"},
        "allocated": {"cpu": cpu, "memory": "0", "pods": str(pods)},
    }


def ready(replicas: int) -> list[Document]:
    status = {"readyReplicas": replicas, "generation": 1, "observedGeneration": 1}
    return [{"clusterName": "m1", "applied": True, "status": status}]


async def outstanding(plane: RunningControlPlane) -> int:
    request = GetBindingRequest(namespace="default", name="web")
    answer = await plane.admin.call(plane.admin.scheduling.GetBinding, request)
    return sum(each.outstanding for each in answer.reservations)


async def promised(plane: RunningControlPlane) -> dict[str, int]:
    """What ``fedctl get reservations`` shows, by binding."""
    request = ListClustersRequest(include_packable=True)
    answer = await plane.admin.call(plane.admin.clusters.ListClusters, request)
    promises = [each for cluster in answer.clusters for each in cluster.status.packable.promises]
    return {each.binding: each.replicas for each in promises}


async def run_until_seen(karmada: Karmada, plane: RunningControlPlane, folder: Path) -> None:
    """Have a bridge place eight replicas, and work until their pods stand for the promise."""
    karmada.put(member("m1"), binding("web", replicas=8))
    async with bridging(karmada.kubeconfig(folder), await target_of(plane)):
        await until(lambda: karmada.is_settled("web"))
        karmada.edit_status("web", aggregatedStatus=ready(8))
        for pods in itertools.count(8):
            karmada.edit_cluster(
                "m1", part="status", status={"resourceSummary": running("8", pods)}
            )
            if not await outstanding(plane):
                return
            await asyncio.sleep(POLL_SECONDS)


@pytest.mark.parametrize("before", ["another bridge", "karmada-scheduler"])
async def test_what_runs_already_is_not_counted_a_second_time(
    karmada: Karmada, plane: RunningControlPlane, tmp_path: Path, before: str
) -> None:
    """Eight of ten cores are in use: two more replicas find room at once, and a third does not."""
    if before == "another bridge":
        await run_until_seen(karmada, plane, tmp_path)
    else:
        web = placed("web", m1=8)
        web["status"]["aggregatedStatus"] = ready(8)
        cluster = member("m1")
        cluster["status"]["resourceSummary"] = running("8", 8)
        karmada.put(cluster, web)
    async with bridging(karmada.kubeconfig(tmp_path), await target_of(plane)):
        karmada.put(binding("later", replicas=2))
        await until(lambda: karmada.is_settled("later"))
        # Placed when it was asked about first: nothing said that there was no room.
        assert len(karmada.writes("later")) == 2
        assert not await outstanding(plane)
        assert await promised(plane) == {"default/later": 2}
        karmada.put(binding("last", replicas=1))
        await until(lambda: karmada.is_unschedulable("last"))
