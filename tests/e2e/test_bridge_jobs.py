"""Jobs that run in several clusters: their completions are fixed, so their shares are."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from federation.client import Target
from federation.model.access import Role
from federation.v1.scheduling_pb2 import GetBindingRequest, RescheduleBindingRequest
from lab.control_planes import RunningControlPlane, running_control_plane
from lab.karmadas import Karmada, binding, bridging, member, new_karmada_server, until
from lab.kubeapi.resources import CLUSTERS, Document
from lab.patience import until as until_asked

JOB: Document = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "namespace": "default",
    "name": "scan",
    "uid": "uid-of-scan",
}


@pytest.fixture
def karmada() -> Iterator[Karmada]:
    with new_karmada_server() as server:
        yield Karmada(server)


@pytest.fixture
async def plane(database_url: str, tmp_path: Path) -> AsyncIterator[RunningControlPlane]:
    async with running_control_plane(database_url, tmp_path) as running:
        yield running


def cluster(name: str, cpu: str) -> Document:
    """One that knows Jobs."""
    made = member(name, cpu=cpu)
    made["status"]["apiEnablements"] = [
        {"groupVersion": "batch/v1", "resources": [{"name": "jobs", "kind": "Job"}]}
    ]
    return made


async def test_a_job_that_runs_is_not_divided_anew(
    karmada: Karmada, plane: RunningControlPlane, tmp_path: Path
) -> None:
    token = await plane.token(Role.BRIDGE)
    target = Target(endpoint=str(plane.plane.endpoint), token=token, plaintext=True)
    karmada.put(cluster("m1", "20"), cluster("m2", "20"), binding("scan", resource=JOB))
    async with bridging(karmada.kubeconfig(tmp_path), target):
        await until(lambda: karmada.is_settled("scan"))
        assert karmada.targets("scan") == {"m1": 2, "m2": 2}
        # Divided anew, most of it would go to m1.
        wide = {"allocatable": {"cpu": "900", "memory": "64Gi", "pods": "440"}}
        karmada.edit_cluster("m1", part="status", status={"resourceSummary": wide})
        await a_person_reschedules(plane)
        karmada.edit("scan", replicas=6)
        await until(lambda: karmada.is_settled("scan"))
        assert karmada.targets("scan") == {"m1": 2, "m2": 2}
        assert "spec.replicas is 6 and 4 stay" in karmada.condition("scan")["message"]
        # A share whose cluster is deleted goes whole to a cluster that has none.
        karmada.put(cluster("m3", "20"))
        m2 = karmada.cluster.get(CLUSTERS, "", "m2")
        assert m2 is not None
        m2["metadata"].update(deletionTimestamp="2026-03-01T12:00:00Z", finalizers=["karmada"])
        karmada.put(m2)
        await until(lambda: karmada.targets("scan") == {"m1": 2, "m3": 2})
        await until(lambda: karmada.is_settled("scan"))


async def a_person_reschedules(plane: RunningControlPlane) -> None:
    """Until the new totals are known and most of it goes to m1; and the bridge takes it back."""
    scheduling = plane.admin.scheduling

    async def moved() -> dict[str, int]:
        request = RescheduleBindingRequest(namespace="default", name="scan")
        answer = await plane.admin.call(scheduling.RescheduleBinding, request)
        return {each.name: each.replicas for each in answer.decision.clusters}

    await until_asked(moved, lambda targets: targets["m1"] > 2)

    async def stored() -> dict[str, int]:
        asked = GetBindingRequest(namespace="default", name="scan")
        found = await plane.admin.call(scheduling.GetBinding, asked)
        return {each.name: each.replicas for each in found.binding.spec.clusters}

    await until_asked(stored, lambda targets: targets == {"m1": 2, "m2": 2})
