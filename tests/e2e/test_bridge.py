"""Karmada's bindings decided through the bridge: a real control plane, and a fake Karmada API."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import time
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path

import pytest

from bridge.karmada import APPLIED_PLACEMENT
from bridge.patches import SCHEDULED_TEXT
from federation.client import Target
from federation.model.access import Role
from federation.v1.clusters_pb2 import GetClusterRequest
from federation.v1.scheduling_pb2 import (
    DeleteBindingRequest,
    GetBindingRequest,
    ListBindingsRequest,
)
from lab.control_planes import (
    AgentStream,
    RunningControlPlane,
    hello,
    report,
    running_control_plane,
)
from lab.karmadas import (
    ANY_PORT,
    DYNAMIC,
    EVERYWHERE,
    PLACEMENT,
    POLL_SECONDS,
    Karmada,
    binding,
    bridging,
    health_address,
    is_served,
    member,
    new_karmada_server,
    placed,
    until,
)
from lab.kubeapi.access import User
from lab.kubeapi.faults import Answer, Asked, bad_gateway
from lab.kubeapi.resources import CLUSTERS, EVENTS, RESOURCE_BINDINGS, Document, Resource
from lab.kubeapi.statuses import Refused, failure
from lab.patience import until as until_asked
from tests.unit.deploy.manifests import BRIDGE
from tests.unit.deploy.test_rbac import allowed, asked, rules

PLACED = ("web", "everywhere", "config", "global", "later")
GOLD = {
    "clusterAffinity": {"labelSelector": {"matchLabels": {"tier": "gold"}}},
    "replicaScheduling": {"replicaSchedulingType": "Duplicated"},
}
WATCHED = ("clusters", "resourcebindings", "clusterresourcebindings")


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


async def stored(plane: RunningControlPlane) -> set[str]:
    listed = await plane.admin.call(plane.admin.scheduling.ListBindings, ListBindingsRequest())
    return {each.metadata.name for each in listed.bindings}


async def is_stored(plane: RunningControlPlane, *names: str) -> None:
    async def ask() -> set[str]:
        return await stored(plane)

    await until_asked(ask, lambda found: found == set(names))


async def follows_changes(karmada: Karmada, plane: RunningControlPlane) -> None:
    """Of clusters, replicas, suspension, and what is deleted."""
    # Karmada waits with a cluster that is deleted until nobody lists it.
    m2 = karmada.cluster.get(CLUSTERS, "", "m2")
    assert m2 is not None
    m2["metadata"].update(deletionTimestamp="2026-03-01T12:00:00Z", finalizers=["karmada"])
    karmada.cluster.put(m2)
    # One of them is left without room, until another cluster comes.
    await until(lambda: any(map(karmada.is_unschedulable, PLACED)))
    karmada.cluster.put(member("m3"))
    await until(lambda: not any("m2" in karmada.targets(name) for name in PLACED))
    await until(lambda: sum(karmada.targets("web").values()) == 4)

    # What goes everywhere follows the labels.
    for number, name in enumerate(("m3", "m1"), start=1):
        karmada.edit_cluster(name, metadata={"labels": {"tier": "gold"}})

        def is_in_all(count: int = number) -> bool:
            return len(karmada.targets("gold")) == count

        await until(is_in_all)
    karmada.cluster.remove(karmada.binding("gold"))

    karmada.edit("web", replicas=6)
    await until(lambda: sum(karmada.targets("web").values()) == 6)
    karmada.edit("web", suspension={"scheduling": True})
    karmada.edit("web", replicas=2)
    karmada.cluster.remove(karmada.binding("later"))
    await is_stored(plane, *(set(PLACED) - {"later"}))
    assert sum(karmada.targets("web").values()) == 6
    karmada.edit("web", suspension=None)
    await until(lambda: sum(karmada.targets("web").values()) == 2)
    await until(lambda: karmada.is_settled("web"))
    karmada.cluster.remove(karmada.binding("global"))
    # Another cluster takes the name of one whose deleting nobody saw.
    karmada.edit_cluster("m3", spec={"id": "another"})

    async def identity() -> str:
        answer = await plane.admin.call(
            plane.admin.clusters.GetCluster, GetClusterRequest(name="m3")
        )
        return str(answer.cluster.metadata.uid)

    await until_asked(identity, lambda uid: uid == "another")
    await is_stored(plane, "web", "everywhere", "config")


async def test_bindings_are_decided_and_written_as_karmada_scheduler_writes(
    karmada: Karmada,
    plane: RunningControlPlane,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="bridge.health")
    names = ("web", "everywhere", "config", "global")
    karmada.put(
        member("m1", cpu="12"),
        member("m2", cpu="36"),
        binding("web"),
        binding("everywhere", replicas=2, placement=EVERYWHERE),
        binding("config", replicas=0, replicaRequirements=None, placement={}),
        binding("global", kind="ClusterResourceBinding"),
        binding("theirs", schedulerName="default-scheduler"),
        binding("gold", replicas=1, placement=GOLD),
    )
    karmada.server.tokens["bridge"] = User(name="bridge", rules=rules(within=BRIDGE))
    target = await target_of(plane)
    async with bridging(karmada.kubeconfig(tmp_path, "bridge"), target, health=ANY_PORT):
        await until(lambda: all(map(karmada.is_settled, names)))
        await until(lambda: karmada.condition("gold").get("reason") == "NoClusterFit")
        assert karmada.targets("web") == {"m1": 1, "m2": 3}
        assert karmada.targets("everywhere") == {"m1": 2, "m2": 2}
        assert karmada.targets("config") == {"m1": 0, "m2": 0}
        web = karmada.binding("web")
        assert json.loads(web["metadata"]["annotations"][APPLIED_PLACEMENT]) == PLACEMENT
        assert karmada.condition("web")["message"] == SCHEDULED_TEXT
        assert web["status"]["lastScheduledTime"]
        assert all(len(karmada.writes(name)) == 2 for name in names)
        assert not karmada.writes("theirs")
        health = await health_address(lambda: caplog.text)
        await is_served(health, "/readyz", "200 OK")
        await is_served(health, "/metrics", "\nfedsched_bridge_working 1.0\n")
        # What was written is counted behind it.
        counted = '\nfedsched_bridge_decisions_total{result="placed"} 4.0\n'
        await is_served(health, "/metrics", counted)
        await until(lambda: "ScheduleBindingSucceed" in karmada.reasons())
        await is_stored(plane, *names, "gold")

        # A change of what is no spec asks for nothing; a new binding comes behind it.
        written = len(karmada.writes())
        karmada.server.writer.patch(
            RESOURCE_BINDINGS, "default", "web", {"status": {"aggregatedStatus": []}}, part="status"
        )
        karmada.put(binding("later"))
        await until(lambda: karmada.is_settled("later"))
        assert len(karmada.writes()) == written + 2

        await follows_changes(karmada, plane)
        # Watches that end quietly are asked about, by a list of one.
        karmada.server.end_watches()
        for resource in WATCHED:
            await asyncio.to_thread(
                karmada.server.wait_for_request, partial(is_list_of, resource), after=0
            )
    assert asked(karmada.server) == allowed(within=BRIDGE)


async def what_is_ready_is_promised_no_more(karmada: Karmada, plane: RunningControlPlane) -> None:
    """Once the cluster's totals are newer than what its binding says."""
    request = GetBindingRequest(namespace="default", name="large")

    async def outstanding() -> int:
        answer = await plane.admin.call(plane.admin.scheduling.GetBinding, request)
        return sum(each.outstanding for each in answer.reservations)

    assert await outstanding() == 4
    assert await worth_of(plane, "large") == {"m1": "summary-checked"}
    status = {"readyReplicas": 3, "generation": 1, "observedGeneration": 1}
    told = [{"clusterName": "m1", "applied": True, "status": status}]
    writer = karmada.server.writer
    writer.patch(
        RESOURCE_BINDINGS, "default", "large", {"status": {"aggregatedStatus": told}}, part="status"
    )
    used = {
        "allocatable": {"cpu": "40", "memory": "64Gi", "pods": "440"},
        "allocated": {"cpu": "3"},
    }
    # Told again and again, as Karmada does: the first may come before the binding's status.
    for pods in itertools.count(1):
        used["allocated"]["pods"] = str(pods)
        karmada.edit_cluster("m1", part="status", status={"resourceSummary": used})
        if await outstanding() == 1:
            return
        await asyncio.sleep(POLL_SECONDS)


async def worth_of(plane: RunningControlPlane, name: str) -> dict[str, str]:
    """What the newest decision's promises are worth, by cluster."""
    request = GetBindingRequest(namespace="default", name=name)
    answer = await plane.admin.call(plane.admin.scheduling.GetBinding, request)
    return {each.cluster: each.certificate for each in answer.decision.promises}


async def an_agent_takes_over(karmada: Karmada, plane: RunningControlPlane) -> None:
    """The moment it joins under the name that Karmada gave its cluster."""
    agent = await plane.enrolled("m2", uid="id-m2")
    epoch = int(time.time() * 1000)
    async with AgentStream(agent, "m2") as stream:
        await stream.say(hello=hello(epoch))
        await stream.hear("welcome")
        await stream.say(report=report(epoch))
        await stream.hear("ack")
        here = {"clusterAffinity": {"clusterNames": ["m2"]}, "replicaScheduling": DYNAMIC}
        karmada.put(binding("seen", placement=here))
        await until(lambda: karmada.is_settled("seen"))
        assert await worth_of(plane, "seen") == {"m2": "careful"}
        # Nobody speaks for it any more, whatever Karmada says of its totals.
        told = {"allocatable": {"cpu": "90", "memory": "64Gi", "pods": "440"}}
        karmada.edit_cluster("m2", part="status", status={"resourceSummary": told})
        karmada.put(binding("more", replicas=14, placement=here))
        await until(lambda: karmada.condition("more").get("reason") == "Unschedulable")


async def a_renamed_cluster_waits_for_the_old_name(
    karmada: Karmada, plane: RunningControlPlane
) -> None:
    """Two Clusters are one as long as both are there: the second is told of, and waits."""
    m1 = karmada.cluster.get(CLUSTERS, "", "m1")
    assert m1 is not None
    karmada.put(member("renamed", id="id-m1"))
    await until(lambda: "renamed" in not_bridged(karmada))
    karmada.cluster.remove(m1)
    here = {"clusterAffinity": {"clusterNames": ["renamed"]}, "replicaScheduling": DYNAMIC}
    karmada.put(binding("after", placement=here))
    await until(lambda: karmada.is_settled("after"))
    assert karmada.targets("after") == {"renamed": 4}


def not_bridged(karmada: Karmada) -> set[str]:
    """The clusters with an event that says so."""
    return told_of(karmada, "ClusterNotBridged")


def told_of(karmada: Karmada, reason: str) -> set[str]:
    """The objects with an event of that reason."""
    return {
        each["involvedObject"]["name"]
        for each in karmada.cluster.all(EVENTS)
        if each["reason"] == reason
    }


def is_list_of(resource: str, asked: Asked) -> bool:
    return asked.verb == "list" and asked.resource == resource


def is_whole_list(resource: str, asked: Asked) -> bool:
    return asked.verb == "list" and asked.resource == resource and asked.query.get("limit") != "1"


@pytest.mark.expected_errors("are not in Karmada")
async def test_what_runs_is_adopted_and_a_list_that_lacks_it_empties_nothing(
    karmada: Karmada,
    plane: RunningControlPlane,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    names = [f"web-{number}" for number in range(3)]
    karmada.put(*(placed(name, m1=3, m2=1) for name in names))
    karmada.put(member("m1"), member("m2"))
    karmada.server.faults.add(
        Answer(status=400, body=b"{}"), applies=lambda asked: "sendInitialEvents" in asked.query
    )
    async with bridging(karmada.kubeconfig(tmp_path), await target_of(plane)):
        await is_stored(plane, *names)
        # Who looks sees that they have another scheduler now.
        await until(lambda: told_of(karmada, "ScheduleBindingSucceed") >= set(names))
        # A server that forgot everything: its watches have expired, and its lists are empty.
        nothing = {"kind": "List", "metadata": {"resourceVersion": "900"}, "items": []}
        so_far = len(karmada.server.requests)
        faults = karmada.server.faults
        half = {"kind": "List", "metadata": {"resourceVersion": "900", "continue": "more"}}
        page = Answer(status=200, body=json.dumps({**half, "items": []}).encode())
        for resource in ("clusters", "resourcebindings"):
            # First it is away; then it begins a list, and is away for the rest.
            faults.add(bad_gateway(), resource=resource, verb="list", times=1)
            faults.add(page, resource=resource, verb="list", times=1)
            faults.add(bad_gateway(), resource=resource, verb="list", times=1)
            empty = Answer(status=200, body=json.dumps(nothing).encode())
            faults.add(Answer(status=410, body=b"{}"), resource=resource, verb="watch")
            faults.add(empty, resource=resource, verb="list")
        karmada.server.end_watches()
        for resource in ("clusters", "resourcebindings"):
            await asyncio.to_thread(
                karmada.server.wait_for_request,
                partial(is_whole_list, resource),
                after=so_far,
            )
        await until(lambda: "are not in Karmada" in caplog.text)
        await until(lambda: "clusters fewer" in caplog.text)
        karmada.server.faults.clear()
        karmada.put(binding("later"))
        await until(lambda: karmada.is_settled("later"))
        await is_stored(plane, *names, "later")
        # What the control plane lost is adopted again.
        await plane.admin.call(
            plane.admin.scheduling.DeleteBinding,
            DeleteBindingRequest(namespace="default", name=names[0]),
        )
        await is_stored(plane, *names, "later")
        # Another bridge stands by, and works when this one has gone.
        standby = bridging(karmada.kubeconfig(tmp_path), await target_of(plane))
        await standby.__aenter__()
    try:
        karmada.put(binding("last"))
        await until(lambda: karmada.is_settled("last"))
        assert all(karmada.targets(name) == {"m1": 3, "m2": 1} for name in names)
        assert not any(map(karmada.writes, names))
    finally:
        await standby.__aexit__(None, None, None)


async def test_what_is_refused_or_finds_no_room_is_told_and_placed_later(
    karmada: Karmada, plane: RunningControlPlane, tmp_path: Path
) -> None:
    allowed = asyncio.Event()

    def quota(resource: Resource, document: Document) -> None:
        if document["metadata"]["name"] == "dear" and not allowed.is_set():
            raise Refused(failure(403, "FederatedResourceQuota exceeded", "QuotaExceeded"))

    karmada.server.writer.webhooks.append(quota)
    small = {"clusterAffinity": {"clusterNames": ["m1"]}, "replicaScheduling": DYNAMIC}
    wrong = binding("wrong", replicaRequirements={"resourceRequest": {"cpu": "a lot"}})
    nowhere = {"clusterAffinity": {"clusterNames": ["m9"]}, "replicaScheduling": DYNAMIC}
    karmada.put(
        member("m1", cpu="2"),
        member("m2"),
        member("odd", resourceModels="none"),
        member("vast", cpu="1e40"),
        binding("large", placement=small),
        binding("dear"),
        binding("nowhere", placement=nowhere),
        wrong,
        binding("huge", replicaRequirements={"resourceRequest": {"memory": "1e40"}}),
    )

    def reason(name: str) -> str:
        return str(karmada.condition(name).get("reason", ""))

    async with bridging(karmada.kubeconfig(tmp_path), await target_of(plane)):
        await until(lambda: reason("dear") == "QuotaExceeded")
        await until(lambda: reason("large") == "Unschedulable")
        await until(lambda: reason("wrong") == reason("huge") == "SchedulerError")
        await until(lambda: reason("nowhere") == "NoClusterFit")
        await until(lambda: not_bridged(karmada) >= {"odd", "vast"})
        assert karmada.targets("dear") == {}
        assert "FederatedResourceQuota exceeded" in karmada.condition("dear")["message"]
        assert "cpu" in karmada.condition("wrong")["message"]
        assert "memory" in karmada.condition("huge")["message"]
        assert "lastScheduledTime" not in karmada.binding("large").get("status", {})
        allowed.set()
        await until(lambda: karmada.is_settled("dear"))
        # Room in the cluster is seen by its next status, and nobody has to ask.
        summary = {"allocatable": {"cpu": "40", "memory": "64Gi", "pods": "440"}}
        karmada.edit_cluster("m1", part="status", status={"resourceSummary": summary})
        await until(lambda: karmada.is_settled("large"))
        assert karmada.targets("large") == {"m1": 4}
        await what_is_ready_is_promised_no_more(karmada, plane)
        await an_agent_takes_over(karmada, plane)
        await a_renamed_cluster_waits_for_the_old_name(karmada, plane)
