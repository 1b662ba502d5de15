"""Agents.Connect: what is said on a stream, in which order, and how it ends."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from federation.agents import conversation
from federation.agents.conversation import MAX_REFUSED_IN_A_ROW, MAX_REPORT_BYTES
from federation.v1.agents_pb2 import Echo, EchoShape, Heartbeat, Hello, LostPlan, PlaceReply
from federation.v1.resource_pb2 import (
    ApiEnablement,
    ApiResource,
    ClusterSpec,
    ResourceModel,
    ResourceModelRange,
)
from lab.control_planes import (
    AgentStream,
    Plane,
    Refusal,
    graded,
    heartbeat,
    hello,
    refused,
    report,
    running_control_plane,
)

HOSTILE = "a\x1b[2J\nerror: forged"
ABORTED, PRECONDITION = grpc.StatusCode.ABORTED, grpc.StatusCode.FAILED_PRECONDITION
TWO_GRADES = [
    ResourceModel(grade=0, ranges=[ResourceModelRange(name="cpu", min="0", max="2")]),
    ResourceModel(
        grade=1, ranges=[ResourceModelRange(name="cpu", min="2", max="9223372036854775807")]
    ),
]


async def status_of(api: Plane, cluster: str = "member1") -> Any:
    return (await api.ask("GetCluster", name=cluster)).cluster.status


async def ended(stream: AgentStream, *kinds: str) -> Refusal:
    """How a stream ends that says these before."""
    heard, refusal = await stream.end()
    assert heard == list(kinds)
    assert refusal is not None
    return refusal


async def test_a_hello_is_welcomed_with_the_model_and_the_beat(fresh: Plane) -> None:
    async with AgentStream(await fresh.enrolled("member1"), "member1") as stream:
        said = hello(5, kubernetes_version="v1.33.1")
        said.api_enablements.add(group_version="apps/v1").resources.add(kind="Deployment")
        await stream.say(hello=said)
        welcome = await stream.hear("welcome")
        assert len(welcome.resource_models) == 9
        assert welcome.model_hash
        assert (welcome.heartbeat_seconds, welcome.report_seconds) == (10.0, 10.0)
        assert welcome.server_time.seconds > 1_700_000_000
        status = await status_of(fresh)
        agent = status.agent
        assert (agent.connected, agent.version, agent.placer) == (True, "0.1.0", "none")
        assert status.kubernetes_version == "v1.33.1"
        (enabled,) = status.api_enablements
        assert (enabled.group_version, enabled.resources[0].kind) == ("apps/v1", "Deployment")


async def test_a_report_is_stored_when_it_is_acknowledged(api: Plane) -> None:
    async with AgentStream(await api.enrolled("member1"), "member1") as stream:
        await stream.say(hello=hello())
        welcome = await stream.hear("welcome")
        counts = {0: 1, 8: 3}
        await stream.say(report=graded(welcome.model_hash, counts, sequence=7, nodes=4))
        assert (await stream.hear("ack")).sequence == 7
        status = await status_of(api)
        assert status.agent.report_sequence == 7
        assert status.node_summary.graded_num == 4
        assert status.resource_summary.allocatable["cpu"] == "16"
        found = {each.grade: each.count for each in status.resource_summary.allocatable_modelings}
        assert {grade: count for grade, count in found.items() if count} == counts


async def test_hanging_up_ends_the_stream_well_and_answers_come_before_the_end(
    api: Plane,
) -> None:
    async with api.connected("member1") as stream:
        await stream.say(report=report())
        await stream.hang_up()
        assert await stream.end() == (["ack"], None)
        assert not (await status_of(api)).agent.connected


MANY_KINDS = [ApiResource(name="x" * 100, kind="y" * 100)] * 10_000
BAD_HELLOS: list[tuple[dict[str, Any], set[str]]] = [
    ({}, {"message"}),
    ({"report": report()}, {"message"}),
    # Beyond what a list of clusters could tell.
    (
        {"hello": hello(api_enablements=[ApiEnablement(resources=MANY_KINDS)])},
        {"hello", "hello.apiEnablements[0].resources"},
    ),
    (
        {"hello": Hello(epoch=0, placer="human", acknowledged_sequence=-1)},
        {"hello.epoch", "hello.placer", "hello.acknowledgedSequence"},
    ),
    ({"hello": hello(kubernetes_version=HOSTILE)}, {"hello.kubernetesVersion"}),
    ({"hello": Hello(epoch=1, placer="none", agent_version=HOSTILE)}, {"hello.agentVersion"}),
    ({"hello": Hello(epoch=1, placer="none", agent_version="v" * 129)}, {"hello.agentVersion"}),
    (
        {"hello": hello(api_enablements=[ApiEnablement(group_version="\x1b")])},
        {"hello.apiEnablements[0].groupVersion"},
    ),
    (
        {"hello": hello(api_enablements=[ApiEnablement(resources=[ApiResource(kind="\x9b")])])},
        {"hello.apiEnablements[0].resources[0].kind"},
    ),
]


async def test_a_bad_hello_says_all_that_is_wrong(api: Plane) -> None:
    agent = await api.enrolled("member1")
    for message, violations in BAD_HELLOS:
        async with AgentStream(agent, "member1") as stream:
            await stream.say(**message)
            refusal = await ended(stream)
        assert refusal.code is grpc.StatusCode.INVALID_ARGUMENT
        assert set(refusal.violations) == violations
    async with api.connected("member2") as stream:
        await stream.say(hello=hello())
        assert set((await ended(stream)).violations) == {"hello"}


@pytest.mark.parametrize("first", [True, False])
async def test_a_message_in_another_clusters_name_ends_the_stream_and_changes_nothing(
    api: Plane, *, first: bool
) -> None:
    await api.enrolled("member2")
    async with AgentStream(await api.enrolled("member1"), "member1") as stream:
        if first:
            await stream.say(cluster="member2", hello=hello())
        else:
            await stream.say(hello=hello())
            await stream.hear("welcome")
            await stream.say(cluster="member2", report=report())
        refusal = await ended(stream, "goodbye")
        assert refusal.code is grpc.StatusCode.PERMISSION_DENIED
        assert "'member1'" in refusal.message
        assert "'member2'" in refusal.message
    for cluster in ("member1", "member2"):
        agent = (await status_of(api, cluster)).agent
        assert (agent.report_sequence, agent.connected) == (0, False)


BAD_REPORTS: dict[str, dict[str, Any]] = {
    "echoes[0].shape": {"echoes": [Echo(binding="shop/web")]},
    "report": {"allocatable": {f"example.com/{'x' * 50}-{n}": 1 for n in range(5000)}},
    "gradeCounts": {"model_hash": "m", "graded_nodes": 3},
    "gradeCounts[0].grade": {"model_hash": "m", "grade_counts": [{"grade": -1, "count": 4}]},
    "allocatable[cpu]": {"allocatable": {"cpu": -1}},
    "allocated[no name]": {"allocated": {"no name": 1}},
    "totalNodes": {"total_nodes": -1},
    "snapshotTime": {"snapshot_time": Timestamp(seconds=2**60)},
    "sequence": {"sequence": 0},
    "epoch": {"epoch": 2},
    "contentHash": {"content_hash": "h" * 129},
    "lostPlans[0].binding": {"lost_plans": [LostPlan(decision="d", reason="why")]},
    "lostPlans[0].decision": {"lost_plans": [LostPlan(binding="shop/cart", reason="why")]},
}


@pytest.mark.parametrize("field", BAD_REPORTS)
async def test_a_bad_report_is_refused_by_name_and_not_kept_and_the_stream_goes_on(
    api: Plane, field: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with api.connected("member1") as stream, api.connected("member2") as other:
        for _ in range(2):
            await stream.say(report=report(**BAD_REPORTS[field]))
            refusal = await stream.hear("refusal")
            assert refusal.kind == "report"
            assert f"{field}: " in refusal.reason
        assert (await status_of(api)).agent.report_sequence == 0
        # It harms no other agent either.
        for each in (stream, other):
            await each.say(report=report(sequence=2))
            assert (await each.hear("ack")).sequence == 2
    assert caplog.text.count("a message of the agent is wrong") == 1


async def test_thousands_of_echoes_are_taken(api: Plane) -> None:
    echoes = [Echo(binding=f"shop/workload-{n:06}", bound=1) for n in range(20_000)]
    full = report(interest_version=1, echo_shapes=[EchoShape(request={"cpu": 1})], echoes=echoes)
    assert full.ByteSize() > MAX_REPORT_BYTES
    async with api.connected("member1") as stream:
        await stream.say(report=full)
        assert (await stream.hear("ack")).sequence == full.sequence


async def test_a_repeated_report_is_refused_and_a_newer_one_asked_for(api: Plane) -> None:
    async with api.connected("member1", report=report(sequence=5)) as stream:
        for sequence in (5, 4):
            await stream.say(report=report(sequence=sequence, nodes=99))
            assert "not newer" in (await stream.hear("resync")).reason
        assert (await status_of(api)).node_summary.total_num == 4
        await stream.say(report=report(sequence=6, nodes=2))
        assert (await stream.hear("ack")).sequence == 6
        # Who only repeats itself is sent away.
        for _ in range(MAX_REFUSED_IN_A_ROW - 1):
            await stream.say(report=report(sequence=5))
            await stream.hear("resync")
        await stream.say(report=report(sequence=5))
        assert (await ended(stream, "goodbye")).code is ABORTED


async def test_a_heartbeat_in_step_is_silent_and_one_out_of_step_asks_for_a_report(
    api: Plane,
) -> None:
    async with api.connected("member1") as stream:
        await stream.say(heartbeat=heartbeat(0, ""))
        await stream.hear("resync")
        await stream.say(report=report(sequence=1))
        await stream.hear("ack")
        await stream.say(heartbeat=heartbeat(1, "hash-1-1"))
        for beat in (heartbeat(1, "another hash"), heartbeat(2, "hash-1-1")):
            await stream.say(heartbeat=beat)
            await stream.hear("resync")
        await stream.say(report=report(sequence=3))
        assert (await stream.hear("ack")).sequence == 3
        await stream.say(heartbeat=heartbeat(3, "hash-1-3"))
        await stream.hang_up()
        assert await stream.end() == ([], None)
    # A new session has to report before it is in step.
    async with AgentStream(stream.agent, "member1") as again:
        await again.say(hello=hello(2))
        await again.hear("welcome")
        await again.say(heartbeat=heartbeat(3, "hash-1-3"))
        await again.hear("resync")


async def test_a_bad_message_is_told_and_an_answer_nobody_asked_for_is_passed_over(
    api: Plane,
) -> None:
    async with api.connected("member1") as stream:
        beat = Heartbeat(agent_time=Timestamp(seconds=2**60), sequence=-1)
        await stream.say(heartbeat=beat)
        reason = (await stream.hear("refusal")).reason
        assert reason.startswith("heartbeat.agentTime: ")
        assert "heartbeat.sequence: " in reason
        await stream.say()
        assert (await stream.hear("refusal")).reason.startswith("message: ")
        await stream.say(place_reply=PlaceReply(request_id="1-99"))
        await stream.say(report=report())
        await stream.hear("ack")


async def test_an_agent_that_says_too_much_is_not_read(
    api: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversation, "SAID_AT_ONCE", 3.0)
    monkeypatch.setattr(conversation, "SAID_PER_SECOND", 1e-6)
    async with api.connected("talkative", report=report()) as stream:
        # This one is still read, and not paid for.
        await stream.say(heartbeat=heartbeat(1, "hash-1-1"))
        await stream.say(heartbeat=heartbeat(1, "hash-1-1"))
        await stream.say(report=report(sequence=2))
        # What is said next waits; others are served meanwhile.
        async with api.connected("member2", report=report()):
            pass
        assert (await status_of(api, "talkative")).agent.report_sequence == 1


async def test_an_agent_that_dials_too_often_has_to_wait(
    fresh: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversation, "STREAMS_AT_ONCE", 2.0)
    monkeypatch.setattr(conversation, "STREAMS_PER_SECOND", 1e-6)
    agent = await fresh.enrolled("member1")
    for _ in range(2):
        async with AgentStream(agent, "member1") as stream:
            await stream.say(hello=hello())
            await stream.hear("welcome")
    async with AgentStream(agent, "member1") as third:
        await third.say(hello=hello())
        welcome = asyncio.create_task(third.hear("welcome"))
        async with fresh.connected("member2"):
            assert not welcome.done()
        welcome.cancel()


@pytest.mark.parametrize("ahead_seconds", [3_600, 2**63], ids=["an hour", "for ever"])
async def test_an_epoch_of_the_future_is_refused_and_locks_nobody_out(
    api: Plane, ahead_seconds: int
) -> None:
    agent = await api.enrolled("member1")
    epoch = min(int(time.time() + ahead_seconds) * 1000, 2**63 - 1)
    async with AgentStream(agent, "member1") as stream:
        await stream.say(hello=hello(epoch))
        refusal = await ended(stream, "goodbye")
    assert (refusal.code, refusal.reason) == (PRECONDITION, "EPOCH_AHEAD")
    assert "clock is off" in refusal.message
    async with AgentStream(agent, "member1") as stream:
        await stream.say(hello=hello(int(time.time() * 1000)))
        await stream.hear("welcome")


async def test_a_replaced_cluster_begins_with_any_epoch(api: Plane) -> None:
    now = int(time.time() * 1000)
    async with api.connected("member1", epoch=now, report=report(epoch=now)):
        pass
    for uid in ("uid-of-another", "uid-of-member1"):
        await api.ask("ReplaceCluster", name="member1", cluster_uid=uid)
    async with api.connected("member1", epoch=1, report=report()):
        pass


@pytest.mark.parametrize(
    ("first", "second", "loses", "farewell", "reason"),
    [
        (1, 2, "first", ["goodbye"], "TAKEN_OVER"),
        (2, 1, "second", ["goodbye"], ""),
        # The same agent dials again: its broken stream ends without a goodbye.
        (1, 1, "first", [], ""),
    ],
)
async def test_of_two_streams_the_newer_epoch_stays(
    api: Plane, first: int, second: int, loses: str, farewell: list[str], reason: str
) -> None:
    agent = await api.enrolled("member1")
    async with AgentStream(agent, "member1") as one, AgentStream(agent, "member1") as two:
        await one.say(hello=hello(first))
        await one.hear("welcome")
        await two.say(hello=hello(second))
        if loses == "first":
            await two.hear("welcome")
        gone, stays = (one, two) if loses == "first" else (two, one)
        refusal = await ended(gone, *farewell)
        assert refusal.code is ABORTED
        assert not reason or refusal.reason == reason
        assert (await status_of(api)).agent.connected
        await stays.say(report=report(max(first, second)))
        await stays.hear("ack")
    # Nor does an older one come back later.
    if first != second:
        async with AgentStream(agent, "member1") as late:
            await late.say(hello=hello(1))
            assert "older" in (await ended(late, "goodbye")).message


async def test_a_silent_agent_counts_as_gone(database_url: str, tmp_path: Path) -> None:
    async with (
        running_control_plane(database_url, tmp_path, heartbeat_seconds="0.1") as plane,
        plane.connected("member1") as stream,
    ):
        refusal = await ended(stream)
        assert refusal.code is grpc.StatusCode.DEADLINE_EXCEEDED
        assert "silent" in refusal.message
        assert not (await status_of(plane)).agent.connected


async def test_another_model_is_told_at_once_and_nothing_else_is(api: Plane) -> None:
    async with api.connected("member1") as stream:

        async def describe(**spec: Any) -> None:
            cluster = {"metadata": {"name": "member1"}, "spec": ClusterSpec(**spec)}
            await api.ask("UpdateCluster", cluster=cluster)

        await describe(region="south")
        await describe(resource_models=TWO_GRADES)
        welcome = await stream.hear("welcome")
        assert [each.grade for each in welcome.resource_models] == [0, 1]
        await describe(resource_models=TWO_GRADES, resource_modeling_disabled=True)
        welcome = await stream.hear("welcome")
        assert (list(welcome.resource_models), welcome.model_hash) == ([], "")
        # Switched off, another model is not in force.
        await describe(resource_modeling_disabled=True)
        await stream.say(report=report())
        assert (await stream.hear("ack")).sequence == 1


async def test_the_end_of_the_control_plane_asks_agents_to_dial_again(fresh: Plane) -> None:
    async with fresh.connected("member1") as stream:
        stopping = asyncio.create_task(fresh.plane.stop())
        assert (await stream.hear("reconnect")).after_seconds == 1.0
        assert (await ended(stream)).code is grpc.StatusCode.UNAVAILABLE
        await stopping


async def test_a_credential_of_another_cluster_opens_no_stream(api: Plane) -> None:
    await api.enrolled("member1")
    foreign = await api.enrolled("member2")
    async with AgentStream(foreign, "member1") as stream:
        await stream.say(hello=hello(5))
        assert (await ended(stream, "goodbye")).code is grpc.StatusCode.PERMISSION_DENIED
    stranger = api.caller("0123456789abcdef.secret")
    refusal = await refused(stranger.agents.Connect(metadata=stranger.metadata).read())
    assert refusal.code is grpc.StatusCode.UNAUTHENTICATED
