"""Nothing is lost: neither what runs in a lost cluster, nor a decision that was not written."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from federation.client import Target
from federation.model.access import Role
from lab.control_planes import RunningControlPlane, running_control_plane
from lab.karmadas import Karmada, binding, bridging, member, new_karmada_server, placed, until
from lab.kubeapi.faults import bad_gateway

LOST = {"key": "cluster.karmada.io/not-ready", "effect": "NoSchedule"}
PATIENT = {
    "key": "cluster.karmada.io/not-ready",
    "operator": "Exists",
    "effect": "NoExecute",
    "tolerationSeconds": 86_400,
}


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


async def test_what_runs_in_a_lost_cluster_leaves_it_gracefully(
    karmada: Karmada, plane: RunningControlPlane, tmp_path: Path
) -> None:
    here = binding("web")["spec"]["placement"]
    karmada.put(member("m1", cpu="100"), binding("web"))
    karmada.put(binding("patient", placement={**here, "clusterTolerations": [PATIENT]}))
    async with bridging(karmada.kubeconfig(tmp_path), await target_of(plane), failover=True):
        await until(lambda: karmada.is_settled("web") and karmada.is_settled("patient"))
        karmada.put(member("m2", cpu="100"))
        karmada.edit_cluster("m1", spec={"taints": [LOST]})
        await until(lambda: karmada.targets("web") == {"m2": 4})
        await until(lambda: karmada.is_settled("web"))
        (task,) = karmada.binding("web")["spec"]["gracefulEvictionTasks"]
        assert (task["fromCluster"], task["producer"]) == ("m1", "fedsched")
        assert (task["reason"], task["replicas"]) == ("TaintUntolerated", 4)
        assert task["creationTimestamp"]
        # Karmada ends the task, and it is not made again.
        karmada.edit("web", gracefulEvictionTasks=None)
        await until(lambda: karmada.is_settled("web"))
        karmada.edit_cluster("m1", spec={"taints": None})
        karmada.put(binding("later"))
        await until(lambda: karmada.is_settled("later"))
        assert "gracefulEvictionTasks" not in karmada.binding("web")["spec"]
        assert karmada.targets("web") == {"m2": 4}
        # Karmada gives each policy such a toleration: with it there is time to come back.
        assert karmada.targets("patient") == {"m1": 4}


async def test_a_reschedule_whose_writing_fails_is_written_and_not_decided_again(
    karmada: Karmada, plane: RunningControlPlane, tmp_path: Path
) -> None:
    """Decided a second time it would be a binding that stays where it is."""
    web = placed("web", m1=4)
    web["spec"]["rescheduleTriggeredAt"] = "2026-03-01T13:00:00Z"
    web["metadata"]["generation"] = 2
    karmada.put(member("m1"), member("m2", cpu="30"), web)
    karmada.server.faults.add(bad_gateway(), resource="resourcebindings", verb="patch", times=2)
    async with bridging(karmada.kubeconfig(tmp_path), await target_of(plane)):
        await until(lambda: karmada.is_settled("web"))
    assert karmada.targets("web") == {"m1": 1, "m2": 3}
    assert karmada.binding("web")["status"]["lastScheduledTime"] > "2026-03-01T13:00:00Z"
