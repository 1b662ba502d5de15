"""Karmada's bindings decided through the bridge: a real control plane, and a fake Karmada API."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from functools import partial

import pytest

from federation.bridge.objects import APPLIED_PLACEMENT
from federation.bridge.writes import SCHEDULED_TEXT
from lab.control_planes import AgentStream, hello, report
from lab.karmadas import (
    ANY_PORT,
    EVERYWHERE,
    PLACEMENT,
    binding,
    health_address,
    is_served,
    member,
    placed,
    until,
)
from lab.kubeapi.access import User
from lab.kubeapi.faults import Answer, Asked, bad_gateway
from lab.kubeapi.resources import CLUSTERS, Document, Resource
from lab.kubeapi.statuses import Refused, failure
from lab.patience import until as until_asked
from tests.bridge.worlds import World, only
from tests.unit.deploy.manifests import BRIDGE
from tests.unit.deploy.test_rbac import allowed, asked, rules

PLACED = ("web", "everywhere", "config", "global", "later")
GOLD = {
    "clusterAffinity": {"labelSelector": {"matchLabels": {"tier": "gold"}}},
    "replicaScheduling": {"replicaSchedulingType": "Duplicated"},
}
WATCHED = ("clusters", "resourcebindings", "clusterresourcebindings")


async def follows_changes(world: World) -> None:
    """Of clusters, replicas, suspension, and what is deleted."""
    # Karmada waits with a cluster that is deleted until nobody lists it.
    world.begin_deleting("m2")
    # One of them is left without room, until another cluster comes.
    await until(lambda: any(map(world.is_unschedulable, PLACED)))
    world.cluster.put(member("m3"))
    await until(lambda: not any("m2" in world.targets(name) for name in PLACED))
    await until(lambda: sum(world.targets("web").values()) == 4)

    # What goes everywhere follows the labels.
    for number, name in enumerate(("m3", "m1"), start=1):
        world.edit_cluster(name, metadata={"labels": {"tier": "gold"}})

        def is_in_all(count: int = number) -> bool:
            return len(world.targets("gold")) == count

        await until(is_in_all)
    world.cluster.remove(world.binding("gold"))

    world.edit("web", replicas=6)
    await until(lambda: sum(world.targets("web").values()) == 6)
    world.edit("web", suspension={"scheduling": True})
    world.edit("web", replicas=2)
    world.cluster.remove(world.binding("later"))
    await world.is_stored(*(set(PLACED) - {"later"}))
    assert sum(world.targets("web").values()) == 6
    world.edit("web", suspension=None)
    await until(lambda: sum(world.targets("web").values()) == 2)
    await until(lambda: world.is_settled("web"))
    world.cluster.remove(world.binding("global"))
    # Another cluster takes the name of one whose deleting nobody saw.
    world.edit_cluster("m3", spec={"id": "another"})

    async def identity() -> str:
        return str((await world.plane.ask("GetCluster", name="m3")).cluster.metadata.uid)

    await until_asked(identity, lambda uid: uid == "another")
    await world.is_stored("web", "everywhere", "config")


async def test_bindings_are_decided_and_written_as_karmada_scheduler_writes(
    world: World,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="federation.bridge.metrics")
    names = ("web", "everywhere", "config", "global")
    world.put(
        member("m1", cpu="12"),
        member("m2", cpu="36"),
        binding("web"),
        binding("everywhere", replicas=2, placement=EVERYWHERE),
        binding("config", replicas=0, replicaRequirements=None, placement={}),
        binding("global", kind="ClusterResourceBinding"),
        binding("theirs", schedulerName="default-scheduler"),
        binding("gold", replicas=1, placement=GOLD),
    )
    world.server.tokens["bridge"] = User(name="bridge", rules=rules(within=BRIDGE))
    async with world.bridging("bridge", health=ANY_PORT):
        await until(lambda: all(map(world.is_settled, names)))
        await until(lambda: world.condition("gold").get("reason") == "NoClusterFit")
        assert world.targets("web") == {"m1": 1, "m2": 3}
        assert world.targets("everywhere") == {"m1": 2, "m2": 2}
        assert world.targets("config") == {"m1": 0, "m2": 0}
        web = world.binding("web")
        assert json.loads(web["metadata"]["annotations"][APPLIED_PLACEMENT]) == PLACEMENT
        assert world.condition("web")["message"] == SCHEDULED_TEXT
        assert web["status"]["lastScheduledTime"]
        assert all(len(world.writes(name)) == 2 for name in names)
        assert not world.writes("theirs")
        health = await health_address(lambda: caplog.text)
        await is_served(health, "/readyz", "200 OK")
        await is_served(health, "/metrics", "\nfedsched_bridge_working 1.0\n")
        # What was written is counted behind it.
        counted = '\nfedsched_bridge_decisions_total{result="placed"} 4.0\n'
        await is_served(health, "/metrics", counted)
        await until(lambda: "ScheduleBindingSucceed" in world.reasons())
        await world.is_stored(*names, "gold")

        # A change of what is no spec asks for nothing; a new binding comes behind it.
        written = len(world.writes())
        world.edit_status("web", aggregatedStatus=[])
        world.put(binding("later"))
        await until(lambda: world.is_settled("later"))
        assert len(world.writes()) == written + 2

        await follows_changes(world)
        # Watches that end quietly are asked about, by a list of one.
        world.server.end_watches()
        for resource in WATCHED:
            await asyncio.to_thread(
                world.server.wait_for_request, partial(is_list_of, resource), after=0
            )
    assert asked(world.server) == allowed(within=BRIDGE)


async def an_agent_takes_over(world: World) -> None:
    """The moment it joins under the name that Karmada gave its cluster."""
    agent = await world.plane.enrolled("m2", uid="id-m2")
    epoch = int(time.time() * 1000)
    async with AgentStream(agent, "m2") as stream:
        await stream.say(hello=hello(epoch))
        await stream.hear("welcome")
        await stream.say(report=report(epoch))
        await stream.hear("ack")
        here = only("m2")
        world.put(binding("seen", placement=here))
        await until(lambda: world.is_settled("seen"))
        assert await world.certificates("seen") == {"m2": "careful"}
        # Nobody speaks for it any more, whatever Karmada says of its totals.
        told = {"allocatable": {"cpu": "90", "memory": "64Gi", "pods": "440"}}
        world.edit_cluster("m2", part="status", status={"resourceSummary": told})
        world.put(binding("more", replicas=14, placement=here))
        await until(lambda: world.condition("more").get("reason") == "Unschedulable")


async def a_renamed_cluster_waits_for_the_old_name(world: World) -> None:
    """Two Clusters are one as long as both are there: the second is told of, and waits."""
    m1 = world.cluster.get(CLUSTERS, "", "m1")
    assert m1 is not None
    world.put(member("renamed", id="id-m1"))
    await until(lambda: "renamed" in world.told_of("ClusterNotBridged"))
    world.cluster.remove(m1)
    here = only("renamed")
    world.put(binding("after", placement=here))
    await until(lambda: world.is_settled("after"))
    assert world.targets("after") == {"renamed": 4}


def is_list_of(resource: str, asked: Asked) -> bool:
    return asked.verb == "list" and asked.resource == resource


def is_whole_list(resource: str, asked: Asked) -> bool:
    return asked.verb == "list" and asked.resource == resource and asked.query.get("limit") != "1"


@pytest.mark.expected_errors("are not in Karmada")
async def test_what_runs_is_adopted_and_a_list_that_lacks_it_empties_nothing(
    world: World,
    caplog: pytest.LogCaptureFixture,
) -> None:
    names = [f"web-{number}" for number in range(3)]
    world.put(*(placed(name, m1=3, m2=1) for name in names))
    world.put(member("m1"), member("m2"))
    world.server.faults.add(
        Answer(status=400, body=b"{}"), applies=lambda asked: "sendInitialEvents" in asked.query
    )
    async with world.bridging():
        await world.is_stored(*names)
        # Who looks sees that they have another scheduler now.
        await until(lambda: world.told_of("ScheduleBindingSucceed") >= set(names))
        # A server that forgot everything: its watches have expired, and its lists are empty.
        nothing = {"kind": "List", "metadata": {"resourceVersion": "900"}, "items": []}
        so_far = len(world.server.requests)
        faults = world.server.faults
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
        world.server.end_watches()
        for resource in ("clusters", "resourcebindings"):
            await asyncio.to_thread(
                world.server.wait_for_request,
                partial(is_whole_list, resource),
                after=so_far,
            )
        await until(lambda: "are not in Karmada" in caplog.text)
        await until(lambda: "clusters fewer" in caplog.text)
        world.server.faults.clear()
        world.put(binding("later"))
        await until(lambda: world.is_settled("later"))
        await world.is_stored(*names, "later")
        # What the control plane lost is adopted again.
        await world.plane.ask("DeleteBinding", namespace="default", name=names[0])
        await world.is_stored(*names, "later")
        # Another bridge stands by, and works when this one has gone.
        standby = world.bridging()
        await standby.__aenter__()
    try:
        world.put(binding("last"))
        await until(lambda: world.is_settled("last"))
        assert all(world.targets(name) == {"m1": 3, "m2": 1} for name in names)
        assert not any(map(world.writes, names))
    finally:
        await standby.__aexit__(None, None, None)


async def test_what_is_refused_or_finds_no_room_is_told_and_placed_later(world: World) -> None:
    allowed = asyncio.Event()

    def quota(resource: Resource, document: Document) -> None:
        if document["metadata"]["name"] == "dear" and not allowed.is_set():
            raise Refused(failure(403, "FederatedResourceQuota exceeded", "QuotaExceeded"))

    world.server.writer.webhooks.append(quota)
    small = only("m1")
    wrong = binding("wrong", replicaRequirements={"resourceRequest": {"cpu": "a lot"}})
    nowhere = only("m9")
    world.put(
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
        return str(world.condition(name).get("reason", ""))

    async with world.bridging():
        await until(lambda: reason("dear") == "QuotaExceeded")
        await until(lambda: reason("large") == "Unschedulable")
        await until(lambda: reason("wrong") == reason("huge") == "SchedulerError")
        await until(lambda: reason("nowhere") == "NoClusterFit")
        await until(lambda: world.told_of("ClusterNotBridged") >= {"odd", "vast"})
        assert world.targets("dear") == {}
        assert "FederatedResourceQuota exceeded" in world.condition("dear")["message"]
        assert "cpu" in world.condition("wrong")["message"]
        assert "memory" in world.condition("huge")["message"]
        assert "lastScheduledTime" not in world.binding("large").get("status", {})
        allowed.set()
        await until(lambda: world.is_settled("dear"))
        # Room in the cluster is seen by its next status, and nobody has to ask.
        summary = {"allocatable": {"cpu": "40", "memory": "64Gi", "pods": "440"}}
        world.edit_cluster("m1", part="status", status={"resourceSummary": summary})
        await until(lambda: world.is_settled("large"))
        assert world.targets("large") == {"m1": 4}
        assert await world.certificates("large") == {"m1": "summary-checked"}
        # What is ready is promised no more, once the totals are newer than what the binding says.
        status = {"readyReplicas": 3, "generation": 1, "observedGeneration": 1}
        told = [{"clusterName": "m1", "applied": True, "status": status}]
        world.edit_status("large", aggregatedStatus=told)
        await world.until_outstanding({"large": 1}, used="3")
        await an_agent_takes_over(world)
        await a_renamed_cluster_waits_for_the_old_name(world)
