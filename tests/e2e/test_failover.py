"""Failover over real sockets: an agent's process is killed, its cluster is left, and comes back.

And the brake: many are killed at once, and nothing moves. Each command of the page is run.
"""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from federation.cli.__main__ import fedctl
from federation.v1.failover_pb2 import (
    FailoverStatus,
    FreezeFailoverRequest,
    GetFailoverRequest,
    ResumeFailoverRequest,
)
from federation.v1.failover_pb2_grpc import FailoverStub
from federation.v1.resource_pb2 import (
    ObjectMeta,
    ObjectReference,
    Placement,
    ReplicaRequirements,
    ReplicaSchedulingStrategy,
    ResourceBinding,
    ResourceBindingSpec,
)
from federation.v1.scheduling_pb2 import GetBindingRequest, ScheduleRequest
from lab.agents import (
    DUMPS,
    POLL_SECONDS,
    SECONDS,
    Process,
    cluster_where,
    estimator,
    flags,
    has_reported,
    join_token,
)
from lab.control_planes import RunningControlPlane, refused, running_control_plane

MEMBERS = ("member1", "member2", "member3")
COMMANDS = (
    "failover status",
    "failover freeze --reason 'network change until 14:00'",
    "failover resume",
    "failover freeze --region eu-west --reason 'network change until 14:00'",
    "failover resume --region eu-west",
)


class Fleet:
    """A control plane and the agents of three recorded clusters, in processes of their own."""

    def __init__(self, plane: RunningControlPlane, directory: Path) -> None:
        self.plane = plane
        self.directory = directory
        self.agents: dict[str, Process] = {}
        self._stack = AsyncExitStack()

    async def start(self, name: str) -> None:
        """A new process; it joins the first time."""
        arguments = ["run", *flags(self.plane, name, self.directory)]
        if name not in self.agents:
            arguments += ["--join-token", (await join_token(self.plane, name)).token]
        agent = estimator(*arguments, "--from", str(DUMPS / f"{name}.json"))
        self.agents[name] = await self._stack.enter_async_context(agent)
        await cluster_where(self.plane, name, has_reported)

    async def stop(self) -> None:
        await self._stack.aclose()

    def kill(self, name: str) -> None:
        self.agents[name].process.kill()

    async def failover(self, rpc: str = "GetFailover", request: Any = None) -> FailoverStatus:
        stub: Any = FailoverStub(self.plane.channel)
        answer = await self.plane.admin.call(getattr(stub, rpc), request or GetFailoverRequest())
        status: FailoverStatus = answer.status
        return status

    async def fedctl(self, *arguments: str, code: int = 0) -> str:
        """What it prints."""
        token = str(self.plane.plane.admin_token_file)
        to = ("--insecure", "--endpoint", str(self.plane.plane.endpoint), "--token-file", token)
        said = await asyncio.to_thread(CliRunner().invoke, fedctl, [*to, *arguments])
        assert said.exit_code == code, said.output
        return said.output

    async def schedule(self, name: str) -> Mapping[str, int]:
        binding = ResourceBinding(
            metadata=ObjectMeta(namespace="shop", name=name),
            spec=ResourceBindingSpec(
                resource=ObjectReference(api_version="apps/v1", kind="Deployment", name=name),
                replicas=9,
                replica_requirements=ReplicaRequirements(resource_request={"cpu": "100m"}),
                placement=Placement(replica_scheduling=DIVIDED),
            ),
        )
        request = ScheduleRequest(binding=binding)
        await self.plane.admin.call(self.plane.admin.scheduling.Schedule, request)
        return held(await self.binding(name))

    async def binding(self, name: str) -> ResourceBinding:
        request = GetBindingRequest(namespace="shop", name=name)
        answer = await self.plane.admin.call(self.plane.admin.scheduling.GetBinding, request)
        binding: ResourceBinding = answer.binding
        return binding

    async def binding_where(
        self, name: str, holds: Callable[[ResourceBinding], bool]
    ) -> ResourceBinding:
        async with asyncio.timeout(SECONDS):
            while True:
                if holds(found := await self.binding(name)):
                    return found
                await asyncio.sleep(POLL_SECONDS)

    async def status_where(self, holds: Callable[[FailoverStatus], bool]) -> FailoverStatus:
        async with asyncio.timeout(SECONDS):
            while True:
                if holds(found := await self.failover()):
                    return found
                await asyncio.sleep(POLL_SECONDS)


DIVIDED = ReplicaSchedulingStrategy(replica_scheduling_type="Divided")


def held(binding: ResourceBinding) -> Mapping[str, int]:
    return {each.name: each.replicas for each in binding.spec.clusters}


@pytest.fixture
async def fleet(
    database_url: str, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[Fleet]:
    async with running_control_plane(
        database_url,
        tmp_path / "plane",
        heartbeat_seconds="2",
        report_seconds="0.5",
        **request.param,
    ) as plane:
        found = Fleet(plane, tmp_path)
        try:
            for name in MEMBERS:
                await found.start(name)
            yield found
        finally:
            await found.stop()


@pytest.mark.parametrize("fleet", [{"lost_seconds": "8"}], indirect=True)
async def test_a_killed_agents_cluster_is_left_and_has_its_share_again_once_it_is_back(
    fleet: Fleet,
) -> None:
    before = {name: await fleet.schedule(name) for name in ("web", "api")}
    assert all("member1" in each for each in before.values())
    fleet.kill("member1")
    for name, shares in before.items():
        moved = await fleet.binding_where(name, lambda each: "member1" not in held(each))
        assert sum(held(moved).values()) == 9
        (task,) = moved.spec.graceful_eviction_tasks
        assert (task.from_cluster, task.replicas) == ("member1", shares["member1"])
        assert (task.reason, task.producer) == ("TaintUntolerated", "fedsched")
        assert set(task.clusters_before_failover) == shares.keys()
    lost = await cluster_where(fleet.plane, "member1", lambda each: bool(each.spec.taints))
    assert [each.key for each in lost.spec.taints] == ["fedsched.io/unreachable"]
    conditions = {each.type: each.status for each in lost.status.conditions}
    assert conditions["Lost"] == "True"
    for survivor in ("member2", "member3"):
        found = await cluster_where(fleet.plane, survivor, has_reported)
        assert "OverCommitted" not in {each.type for each in found.status.conditions}
    status = await fleet.failover()
    assert [each.name for each in status.silent] == ["member1"]
    assert status.silent[0].HasField("lost_since")
    assert [each.name for each in status.evacuated] == ["member1"]
    assert status.eviction_count == 2
    shown = await fleet.fedctl("failover", "status")
    kept = sum(shares["member1"] for shares in before.values())
    for words in (
        r"^Failover: +on$",
        r"^member1 +[\d.]+s +lost for [\d.]+s$",
        rf"^member1 +2 +{kept} +fedsched\.io/unreachable:NoExecute$",
        rf"^shop +web +member1 +{before['web']['member1']} .*untolerated taint fedsched\.io",
    ):
        assert re.search(words, shown, flags=re.MULTILINE), (words, shown)
    clusters = await fleet.fedctl("get", "clusters")
    assert re.search(r"^member1 +Unknown,AgentSilent,Lost +away ", clusters, flags=re.MULTILINE)
    await fleet.start("member1")
    for name, shares in before.items():
        back = await fleet.binding_where(name, lambda each: "member1" in held(each))
        assert held(back) == shares
        assert not back.spec.graceful_eviction_tasks
    ready = await cluster_where(fleet.plane, "member1", lambda each: not each.spec.taints)
    assert "Lost" not in {each.type for each in ready.status.conditions}


BRAKE = {"lost_seconds": "20", "breaker_clusters": "2", "breaker_percent": "50"}


@pytest.mark.expected_errors("clusters of one place fell silent", "failover is frozen")
@pytest.mark.parametrize("fleet", [BRAKE], indirect=True)
async def test_nothing_moves_when_many_are_killed_at_once_until_people_say_so(
    fleet: Fleet,
) -> None:
    before = await fleet.schedule("web")
    fleet.kill("member1")
    fleet.kill("member2")
    frozen = await fleet.status_where(lambda each: each.HasField("freeze"))
    assert frozen.freeze.by == "breaker"
    assert "2 of 3 clusters fell silent within a minute: member1, member2." in frozen.freeze.reason
    assert held(await fleet.binding("web")) == before
    assert not frozen.evacuated
    stub: Any = FailoverStub(fleet.plane.channel)
    shown = await fleet.fedctl("failover", "status")
    assert re.search(r"^Failover: +frozen: nothing moves$", shown, flags=re.MULTILINE), shown
    assert re.search(r"^member2 +[\d.]+s +stale, lost ", shown, flags=re.MULTILINE), shown
    why = FreezeFailoverRequest(reason="we look into it")
    assert (await fleet.failover("FreezeFailover", why)).freeze.by == "admin"
    again = await refused(fleet.plane.admin.call(stub.FreezeFailover, why))
    assert (again.code.name, again.reason) == ("FAILED_PRECONDITION", "ALREADY_FROZEN")
    nothing = await refused(fleet.plane.admin.call(stub.FreezeFailover, FreezeFailoverRequest()))
    assert (nothing.code.name, nothing.violations) == (
        "INVALID_ARGUMENT",
        {"reason": "is required"},
    )
    for place, field in (
        ({"region": "eu", "provider": "aws"}, "provider"),
        ({"region": "nowhere"}, "region"),
        ({"provider": "\x1b[1m"}, "provider"),
    ):
        wrong = FreezeFailoverRequest(reason="we look into it", **place)
        refusal = await refused(fleet.plane.admin.call(stub.FreezeFailover, wrong))
        assert (refusal.code.name, [*refusal.violations]) == ("INVALID_ARGUMENT", [field])
    await fleet.failover("ResumeFailover", ResumeFailoverRequest())
    moved = await fleet.binding_where("web", lambda each: set(held(each)) == {"member3"})
    assert sum(held(moved).values()) == 9


@pytest.mark.expected_errors("failover is frozen")
@pytest.mark.parametrize("fleet", [{"no_failover": "true"}], indirect=True)
async def test_where_it_is_off_it_says_so_and_can_be_frozen(fleet: Fleet, tmp_path: Path) -> None:
    spec = {
        "apiVersion": "cluster.karmada.io/v1alpha1",
        "kind": "Cluster",
        "metadata": {"name": "member1"},
        "spec": {"region": "eu-west"},
    }
    document = tmp_path / "member1.json"
    document.write_text(json.dumps(spec), encoding="utf-8")
    await fleet.fedctl("apply", "-f", str(document))
    for command in COMMANDS:
        said = await fleet.fedctl(*shlex.split(command))
        assert "off (--no-failover)" in said
        named = re.search(
            r"^Frozen in region eu-west: +by admin, .*until 14:00$", said, re.MULTILINE
        )
        assert bool(named) is ("freeze --region" in command)
    assert "Failover is not frozen." in await fleet.fedctl("failover", "resume", code=1)
