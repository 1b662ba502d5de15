"""``federation bridge --failover``: what runs in a cluster that Karmada lost is moved by us."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from federation.client import Target
from federation.model.access import Role
from tests.control_planes import RunningControlPlane, running_control_plane
from tests.karmadas import Karmada, binding, bridging, member, new_karmada_server, until

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


async def test_what_runs_in_a_lost_cluster_leaves_it_gracefully(
    karmada: Karmada, plane: RunningControlPlane, tmp_path: Path
) -> None:
    here = binding("web")["spec"]["placement"]
    karmada.put(member("m1", cpu="100"), binding("web"))
    karmada.put(binding("patient", placement={**here, "clusterTolerations": [PATIENT]}))
    token = await plane.token(Role.BRIDGE)
    target = Target(endpoint=str(plane.plane.endpoint), token=token, plaintext=True)
    async with bridging(karmada.kubeconfig(tmp_path), target, failover=True):
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
