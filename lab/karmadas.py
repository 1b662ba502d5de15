"""A Karmada as the bridge sees it: its API server with clusters and bindings, and what is in it.

Must not decide or divide anything: bindings get their clusters from whoever patches them.
"""

from __future__ import annotations

import asyncio
import copy
import json
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from estimator.kube import lease
from federation.bridge.app import BridgeSettings, run
from federation.bridge.objects import APPLIED_PLACEMENT
from federation.client import Target
from federation.runtime.addresses import Address, parse_address
from lab.kubeapi.resources import (
    CLUSTER_RESOURCE_BINDINGS,
    CLUSTERS,
    EVENTS,
    RESOURCE_BINDINGS,
    Document,
)
from lab.kubeapi.server import ADMIN_TOKEN, KubeApiServer
from lab.kubeapi.state import Cluster
from lab.patience import PATIENCE_SECONDS
from lab.patience import until as until_asked

GIVE_UP_SECONDS = lease.GIVE_UP_SECONDS

POLL_SECONDS = 0.02
POLICY_LABEL = "propagationpolicy.karmada.io/permanent-id"
DYNAMIC = {
    "replicaSchedulingType": "Divided",
    "replicaDivisionPreference": "Weighted",
    "weightPreference": {"dynamicWeight": "AvailableReplicas"},
}
PLACEMENT: Document = {"replicaScheduling": DYNAMIC}
# A condition that Karmada's binding controller writes beside ours.
FULLY_APPLIED: Document = {
    "type": "FullyApplied",
    "status": "True",
    "reason": "FullyAppliedSuccess",
    "message": "All works have been successfully applied",
    "lastTransitionTime": "2026-03-01T11:00:00Z",
}
EVERYWHERE: Document = {"replicaScheduling": {"replicaSchedulingType": "Duplicated"}}


def namespace(name: str) -> Document:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def member(
    name: str, *, cpu: str = "10", pods: str = "440", uid: str = "", **spec: Any
) -> Document:
    """A Cluster that is Ready and reports totals, without grades."""
    return {
        "apiVersion": "cluster.karmada.io/v1alpha1",
        "kind": "Cluster",
        "metadata": {"name": name, "generation": 1, "uid": uid or f"uid-{name}", "labels": {}},
        "spec": {"id": uid or f"id-{name}", "syncMode": "Push", **spec},
        "status": {
            "kubernetesVersion": "v1.34.1",
            "conditions": [{"type": "Ready", "status": "True"}],
            "apiEnablements": [
                {
                    "groupVersion": "apps/v1",
                    "resources": [{"name": "deployments", "kind": "Deployment"}],
                }
            ],
            "nodeSummary": {"totalNum": 4, "readyNum": 4},
            "resourceSummary": {
                "allocatable": {"cpu": cpu, "memory": "64Gi", "pods": pods},
                "allocated": {"cpu": "0", "memory": "0", "pods": "0"},
            },
        },
    }


def binding(
    name: str, *, replicas: int = 4, kind: str = "ResourceBinding", **spec: Any
) -> Document:
    """A binding as Karmada's detector makes it for our scheduler."""
    namespaced = kind == "ResourceBinding"
    where = {"namespace": "default"} if namespaced else {}
    return {
        "apiVersion": "work.karmada.io/v1alpha2",
        "kind": kind,
        "metadata": {
            **where,
            "name": name,
            "uid": f"uid-{name}",
            "generation": 1,
            "labels": {POLICY_LABEL: "policy-1"},
        },
        "spec": {
            "resource": {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                **where,
                "name": name,
                "uid": f"uid-of-{name}",
            },
            "replicas": replicas,
            "replicaRequirements": {"resourceRequest": {"cpu": "1"}},
            "schedulerName": "fedsched",
            "placement": copy.deepcopy(PLACEMENT),
            **spec,
        },
    }


def scheduled_condition(found: Document) -> Document:
    conditions = found.get("status", {}).get("conditions", [])
    return next((each for each in conditions if each["type"] == "Scheduled"), {})


def is_settled(found: Document) -> bool:
    """Whether a binding is scheduled, and its newest generation was seen."""
    seen = found.get("status", {}).get("schedulerObservedGeneration")
    is_scheduled = scheduled_condition(found).get("status") == "True"
    return is_scheduled and bool(seen == found["metadata"]["generation"])


def targets_of(found: Document) -> dict[str, int]:
    """Replicas by cluster."""
    clusters = found["spec"].get("clusters") or []
    return {each["name"]: each.get("replicas", 0) for each in clusters}


def placed(name: str, **replicas: int) -> Document:
    """A binding that was scheduled long ago, and is at rest."""
    clusters = [{"name": cluster, "replicas": count} for cluster, count in replicas.items()]
    resting = binding(name, replicas=sum(replicas.values()), clusters=clusters)
    resting["metadata"]["annotations"] = {APPLIED_PLACEMENT: json.dumps(PLACEMENT)}
    resting["status"] = {
        "schedulerObservedGeneration": 1,
        "lastScheduledTime": "2026-03-01T12:00:00Z",
        "conditions": [
            {
                "type": "Scheduled",
                "status": "True",
                "reason": "Success",
                "message": "Binding has been scheduled successfully.",
                "lastTransitionTime": "2026-03-01T12:00:00Z",
            }
        ],
    }
    return resting


class Karmada:
    """The API server and what is in it."""

    def __init__(self, server: KubeApiServer) -> None:
        self.server = server
        self.cluster = server.cluster
        for name in ("default", "fedsched", "karmada-system"):
            self.cluster.put(namespace(name))

    def kubeconfig(self, folder: Path, token: str = ADMIN_TOKEN) -> Path:
        return self.server.kubeconfig(folder / "karmada.config", token)

    def put(self, *documents: Document) -> None:
        for document in documents:
            self.cluster.put(document)

    def binding(self, name: str) -> Document:
        found = self.cluster.get(RESOURCE_BINDINGS, "default", name) or self.cluster.get(
            CLUSTER_RESOURCE_BINDINGS, "", name
        )
        assert found is not None, name
        return found

    def edit(self, name: str, **spec: Any) -> None:
        """As a user's change of the policy or the workload ends up in the binding's spec."""
        found = self.binding(name)
        where = found["metadata"].get("namespace", "")
        resource = RESOURCE_BINDINGS if where else CLUSTER_RESOURCE_BINDINGS
        self.server.writer.patch(resource, where, name, {"spec": spec})

    def edit_status(self, name: str, **status: Any) -> None:
        """As Karmada's controllers write the status of a binding."""
        self.server.writer.patch(
            RESOURCE_BINDINGS, "default", name, {"status": status}, part="status"
        )

    def edit_cluster(self, name: str, part: str = "", **patch: Any) -> None:
        self.server.writer.patch(CLUSTERS, "", name, patch, part=part)

    def targets(self, name: str) -> dict[str, int]:
        return targets_of(self.binding(name))

    def condition(self, name: str) -> Document:
        return scheduled_condition(self.binding(name))

    def is_unschedulable(self, name: str) -> bool:
        return bool(self.condition(name).get("reason") == "Unschedulable")

    def is_settled(self, name: str) -> bool:
        """Scheduled, and the newest generation was seen."""
        return is_settled(self.binding(name))

    def reasons(self) -> list[str]:
        return [each["reason"] for each in self.cluster.all(EVENTS)]

    def writes(self, name: str = "") -> list[Any]:
        """The patches of bindings, so far; of one binding, if named."""
        return [
            each
            for each in self.server.requests
            if each.verb == "patch"
            and each.resource.endswith("resourcebindings")
            and name in ("", each.name)
        ]


async def until(holds: Callable[[], bool]) -> None:
    """A bound on hanging only."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, "it never came to be"
        await asyncio.sleep(POLL_SECONDS)


ANY_PORT = Address(host="127.0.0.1", port=0)
HEALTH = re.compile(r"health and metrics at (\S+)")


async def health_address(log: Callable[[], str]) -> Address:
    """Where a bridge says in its log that it serves them."""
    await until(lambda: HEALTH.search(log()) is not None)
    said = HEALTH.search(log())
    assert said is not None
    return parse_address(said[1])


async def is_served(address: Address, path: str, text: str) -> None:
    """Wait until a page has this."""

    async def ask() -> str:
        try:
            return await page(address, path)
        except ConnectionError:
            # Who is not served in time is cut off, and a busy machine takes its time.
            return ""

    await until_asked(ask, lambda found: text in found)


async def page(address: Address, path: str) -> str:
    """What is served there: its status, and the body."""
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
    answer = (await reader.read()).decode()
    writer.close()
    return answer


def new_karmada_server() -> KubeApiServer:
    return KubeApiServer(Cluster())


@asynccontextmanager
async def bridging(
    kubeconfig: Path,
    target: Target,
    *,
    as_karmada: bool = False,
    failover: bool = False,
    health: Address | None = None,
    token_file: Path | None = None,
    ca: Path | None = None,
) -> AsyncIterator[None]:
    """A bridge in this process, until the end of the block."""
    settings = BridgeSettings(
        target=target,
        kubeconfig=kubeconfig,
        scheduler_name="fedsched",
        as_karmada=as_karmada,
        failover=failover,
        lease_name="fedsched-bridge",
        lease_namespace="fedsched",
        health=health,
        token_file=token_file,
        ca=ca,
    )
    stopping = asyncio.Event()
    # On a busy machine nobody may renew a lease for long, and nobody else wants this one.
    vars(lease)["GIVE_UP_SECONDS"] = PATIENCE_SECONDS
    running = asyncio.create_task(run(settings, stopping))
    try:
        yield
    finally:
        stopping.set()
        await running
        # What it was at first: another bridge may have begun meanwhile, and end later.
        vars(lease)["GIVE_UP_SECONDS"] = GIVE_UP_SECONDS
