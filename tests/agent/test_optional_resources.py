"""An agent that may read nodes and pods alone, and objects of a newer Kubernetes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from federation.model.errors import PreconditionFailed
from federation.v1.resource_pb2 import ReplicaRequirements
from lab.binders import nodes_of, pending, until
from lab.kubeapi.documents import node, pod
from lab.kubeapi.faults import Answer, Asked
from lab.kubeapi.resources import Document
from tests.agent.agents import Member, ended, joined, joining, running_agent

ONE_CPU = ReplicaRequirements(resource_request={"cpu": "1"}, namespace="shop")
SEEN = ("nodes", "pods")
LONG_AGO = "2026-03-01T12:00:00.123456789Z"


def at(*paths: str) -> Callable[[Asked], bool]:
    return lambda request: request.path.rstrip("/") in paths


def of(resource: str) -> Callable[[Asked], bool]:
    return lambda request: request.resource == resource


OPTIONAL: dict[str, Callable[[Asked], bool]] = {
    "kube-system": of("namespaces"),
    "version": at("/version"),
    "discovery": at("/api", "/apis"),
    "quotas": of("resourcequotas"),
    "leases": of("leases"),
    "events": of("events"),
    "all": lambda request: request.resource not in SEEN,
}


async def is_whole(member: Member) -> None:
    """Wait for a report of a current picture, and for an exact answer by it."""
    await member.tell(whole=True)
    report = await member.report(lambda latest: latest.total_nodes == 1)
    assert not report.sight.blind
    assert not report.sight.picture_age_seconds
    reply = await member.estimate(shapes=[ONE_CPU])
    assert not reply.message
    assert list(reply.replicas) == [3]


@pytest.mark.parametrize("status", [403, 404])
@pytest.mark.parametrize("refused", OPTIONAL)
async def test_only_nodes_and_pods_are_needed_to_see_a_cluster(
    tmp_path: Path, refused: str, status: int
) -> None:
    """While it runs, and when it begins with a credential that it has."""
    documents = (node("a"), pod("p", on="a", cpu="1"))
    async with joined(tmp_path, *documents, binder="true") as member:
        await is_whole(member)
        fault = Answer(status=status, body=b"{}")
        member.server.faults.add(fault, applies=OPTIONAL[refused])
        member.server.end_watches()
        await is_whole(member)
        member.stopping.set()
        member.hang_up()
        await ended(member.agent)
        flags = {
            "kubeconfig": str(tmp_path / "kubeconfig"),
            "endpoint": (member.plane.endpoint,),
            "insecure": "true",
        }
        async with running_agent(tmp_path, member.clock, **flags):
            await member.welcome()
            await is_whole(member)
            member.hang_up()


async def test_joining_says_that_it_needs_the_uid_of_the_cluster(tmp_path: Path) -> None:
    async with joining(tmp_path, node("a"), endpoint=("127.0.0.1:1",)) as member:
        member.server.faults.add(Answer(status=403, body=b"{}"), resource="namespaces")
        with pytest.raises(PreconditionFailed, match="uid of the namespace kube-system"):
            await ended(member.agent)


def newer_node() -> Document:
    """A node as the API server of Kubernetes 1.37 stores it."""
    document = node("a")
    document["metadata"] |= {"managedFields": [], "generation": 1}
    document["spec"] |= {"taints": [{"key": "tier", "value": "3", "effect": "PreferNoSchedule"}]}
    document["status"] |= {
        "declaredFeatures": ["InPlacePodLevelResourcesVerticalScaling"],
        "features": {"supplementalGroupsPolicy": True},
        "runtimeHandlers": [{"name": "", "features": {"userNamespaces": True}}],
        "nodeInfo": {"kubeletVersion": "v1.37.0", "swap": {"capacity": 0}},
    }
    return document


def in_group(name: str, *, on: str = "", cpu: str = "500m") -> Document:
    """A pod of a PodGroup, with the fields that Kubernetes 1.37 adds to pods."""
    document = pod(name, on=on, cpu=cpu)
    document["metadata"] |= {"creationTimestamp": LONG_AGO, "generation": 2}
    document["spec"] |= {
        "schedulingGroup": {"podGroupName": "workers"},
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}],
        "tolerations": [{"key": "tier", "operator": "Gt", "value": "2", "effect": "NoSchedule"}],
        "hostnameOverride": "worker",
    }
    document["status"] |= {
        "observedGeneration": 2,
        "conditions": [
            {
                "type": "PodScheduled",
                "status": "True" if on else "False",
                "reason": None if on else "SchedulingGroupNotReady",
                "observedGeneration": 2,
                "lastTransitionTime": LONG_AGO,
            }
        ],
        "nodeAllocatableResourceClaimStatuses": [{"resourceClaimName": "gpu", "resources": {}}],
    }
    return document


def resizing(name: str, *, is_feasible: bool) -> Document:
    """A pod with one core that asks for two."""
    document = in_group(name, on="a", cpu="2")
    container: Document = {"name": "main", "allocatedResources": {"cpu": "1"}}
    container["resources"] = {"requests": {"cpu": "1"}}
    condition = {
        "type": "PodResizePending",
        "status": "True",
        "reason": "Deferred" if is_feasible else "Infeasible",
        "lastProbeTime": None,
    }
    document["status"] |= {
        "resize": "Proposed",
        "containerStatuses": [container],
        "conditions": [condition],
    }
    return document


async def test_objects_of_a_newer_kubernetes_are_counted_as_they_are(tmp_path: Path) -> None:
    nominated, strange = in_group("nominated"), in_group("strange")
    nominated["status"]["nominatedNodeName"] = "a"
    strange["status"]["nominatedNodeName"] = "not-there"
    bound = (in_group("bound", on="a"), resizing("grows", is_feasible=True))
    documents = (newer_node(), *bound, nominated, strange)
    async with joined(tmp_path, *documents) as member:
        # A resize that waits takes what it asks for, and nominated pods hold their node.
        seen = await member.report(lambda latest: latest.allocated["cpu"] == 2500)
        assert seen.allocating["cpu"] == 1000
        assert (seen.total_nodes, seen.ready_nodes, seen.sight.skipped_objects) == (1, 1, 0)
        assert list((await member.estimate(shapes=[ONE_CPU])).replicas) == [1]
        member.put(resizing("grows", is_feasible=False))
        await member.report(lambda latest: latest.allocated["cpu"] == 1500)
        assert list((await member.estimate(shapes=[ONE_CPU])).replicas) == [2]


async def test_a_pod_of_a_group_gets_a_node_from_our_binder(tmp_path: Path) -> None:
    waiting = pending("p")
    waiting["spec"] |= {"schedulingGroup": {"podGroupName": "workers"}, "enableServiceLinks": None}
    async with joined(tmp_path, newer_node(), waiting, binder="true") as member:
        await until(member.server, lambda: nodes_of(member.server) == {"p": "a"})
