"""Agents.Connect over real gRPC and a real database."""

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
from federation.v1.agents_pb2 import Echo, EchoShape, Heartbeat, Hello, PlaceReply
from federation.v1.clusters_pb2 import (
    GetClusterRequest,
    ReplaceClusterRequest,
    UpdateClusterRequest,
)
from federation.v1.resource_pb2 import (
    Cluster,
    ClusterSpec,
    ObjectMeta,
    ResourceModel,
    ResourceModelRange,
)
from lab.control_planes import (
    AgentStream,
    RunningControlPlane,
    graded,
    heartbeat,
    hello,
    report,
    running_control_plane,
)

TWO_GRADES = [
    ResourceModel(grade=0, ranges=[ResourceModelRange(name="cpu", min="0", max="2")]),
    ResourceModel(
        grade=1, ranges=[ResourceModelRange(name="cpu", min="2", max="9223372036854775807")]
    ),
]


async def status_of(running: RunningControlPlane, cluster: str) -> Any:
    answer = await running.admin.call(
        running.admin.clusters.GetCluster, GetClusterRequest(name=cluster)
    )
    return answer.cluster.status


async def test_a_hello_is_welcomed_with_the_model_and_the_beat(
    running: RunningControlPlane,
) -> None:
    async with AgentStream(await running.enrolled("member1"), "member1") as stream:
        await stream.say(hello=hello(epoch=5))
        welcome = await stream.hear("welcome")
        assert len(welcome.resource_models) == 9
        assert welcome.model_hash
        assert (welcome.heartbeat_seconds, welcome.report_seconds) == (10.0, 10.0)
        assert welcome.server_time.seconds > 1_700_000_000
        agent = (await status_of(running, "member1")).agent
        assert (agent.connected, agent.version, agent.placer) == (True, "0.1.0", "none")


async def test_a_report_is_stored_when_it_is_acknowledged(running: RunningControlPlane) -> None:
    async with AgentStream(await running.enrolled("member1"), "member1") as stream:
        await stream.say(hello=hello())
        welcome = await stream.hear("welcome")
        counts = {0: 1, 8: 3}
        await stream.say(report=graded(welcome.model_hash, counts, sequence=7, nodes=4))
        assert (await stream.hear("ack")).sequence == 7
        status = await status_of(running, "member1")
        assert status.agent.report_sequence == 7
        assert status.node_summary.graded_num == 4
        assert status.resource_summary.allocatable["cpu"] == "16"
        found = {each.grade: each.count for each in status.resource_summary.allocatable_modelings}
        assert {grade: count for grade, count in found.items() if count} == counts


async def test_hanging_up_ends_the_stream_well_and_answers_come_before_the_end(
    running: RunningControlPlane,
) -> None:
    async with running.connected("member1") as stream:
        await stream.say(report=report())
        await stream.hang_up()
        assert await stream.end() == (["ack"], None)
        assert not (await status_of(running, "member1")).agent.connected


async def test_the_first_message_must_be_hello(running: RunningControlPlane) -> None:
    async with AgentStream(await running.enrolled("member1"), "member1") as stream:
        await stream.say(report=report())
        kinds, refusal = await stream.end()
        assert kinds == []
        assert refusal is not None
        assert refusal.code is grpc.StatusCode.INVALID_ARGUMENT
        assert set(refusal.violations) == {"message"}


async def test_a_bad_hello_says_all_that_is_wrong(running: RunningControlPlane) -> None:
    async with AgentStream(await running.enrolled("member1"), "member1") as stream:
        await stream.say(hello=Hello(epoch=0, placer="human"))
        kinds, refusal = await stream.end()
        assert kinds == []
        assert refusal is not None
        assert set(refusal.violations) == {"hello.epoch", "hello.placer"}


@pytest.mark.parametrize("first", [True, False])
async def test_a_message_in_another_clusters_name_ends_the_stream_and_changes_nothing(
    running: RunningControlPlane, *, first: bool
) -> None:
    await running.enrolled("member2")
    async with AgentStream(await running.enrolled("member1"), "member1") as stream:
        if first:
            await stream.say(cluster="member2", hello=hello())
        else:
            await stream.say(hello=hello())
            await stream.hear("welcome")
            await stream.say(cluster="member2", report=report())
        kinds, refusal = await stream.end()
        assert kinds == ["goodbye"]
        assert refusal is not None
        assert refusal.code is grpc.StatusCode.PERMISSION_DENIED
        assert "'member1'" in refusal.message
        assert "'member2'" in refusal.message
    for cluster in ("member1", "member2"):
        status = await status_of(running, cluster)
        assert status.agent.report_sequence == 0
        assert not status.agent.connected


BAD_REPORTS: dict[str, dict[str, Any]] = {
    "echoes[0].shape": {"echoes": [Echo(binding="shop/web")]},
    "report": {"allocatable": {f"example.com/{'x' * 50}-{n}": 1 for n in range(5000)}},
    "gradeCounts": {"model_hash": "m", "graded_nodes": 3},
    "allocatable[cpu]": {"allocatable": {"cpu": -1}},
    "allocated[no name]": {"allocated": {"no name": 1}},
    "totalNodes": {"total_nodes": -1},
    "snapshotTime": {"snapshot_time": Timestamp(seconds=2**60)},
    "sequence": {"sequence": 0},
    "epoch": {"epoch": 2},
    "contentHash": {"content_hash": "h" * 129},
}


async def test_thousands_of_echoes_are_taken(running: RunningControlPlane) -> None:
    echoes = [Echo(binding=f"shop/workload-{n:06}", bound=1) for n in range(20_000)]
    full = report(interest_version=1, echo_shapes=[EchoShape(request={"cpu": 1})], echoes=echoes)
    assert full.ByteSize() > MAX_REPORT_BYTES
    async with running.connected("member1") as stream:
        await stream.say(report=full)
        assert (await stream.hear("ack")).sequence == full.sequence


@pytest.mark.parametrize("field", BAD_REPORTS)
async def test_a_bad_report_is_refused_by_name_and_not_kept_and_the_stream_goes_on(
    running: RunningControlPlane, field: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with running.connected("member1") as stream:
        for _ in range(2):
            await stream.say(report=report(**BAD_REPORTS[field]))
            refusal = await stream.hear("refusal")
            assert refusal.kind == "report"
            assert f"{field}: " in refusal.reason
        assert (await status_of(running, "member1")).agent.report_sequence == 0
        await stream.say(report=report(sequence=2))
        assert (await stream.hear("ack")).sequence == 2
    assert caplog.text.count("a message of the agent is wrong") == 1


async def test_one_bad_agent_harms_only_itself(running: RunningControlPlane) -> None:
    async with running.connected("good") as good, running.connected("bad") as bad:
        await bad.say(report=report(allocatable={"cpu": -1}))
        await bad.hear("refusal")
        await good.say(report=report())
        assert (await good.hear("ack")).sequence == 1


async def test_a_repeated_report_is_refused_and_a_newer_one_asked_for(
    running: RunningControlPlane,
) -> None:
    async with running.connected("member1", report=report(sequence=5)) as stream:
        for sequence in (5, 4):
            await stream.say(report=report(sequence=sequence, nodes=99))
            assert "not newer" in (await stream.hear("resync")).reason
        assert (await status_of(running, "member1")).node_summary.total_num == 4
        await stream.say(report=report(sequence=6, nodes=2))
        assert (await stream.hear("ack")).sequence == 6


async def test_an_agent_that_only_repeats_itself_is_sent_away(
    running: RunningControlPlane,
) -> None:
    async with running.connected("member1", report=report(sequence=5)) as stream:
        for _ in range(MAX_REFUSED_IN_A_ROW - 1):
            await stream.say(report=report(sequence=5))
            await stream.hear("resync")
        await stream.say(report=report(sequence=5))
        kinds, refusal = await stream.end()
        assert kinds == ["goodbye"]
        assert refusal is not None
        assert refusal.code is grpc.StatusCode.ABORTED


async def test_a_heartbeat_in_step_is_silent_and_one_out_of_step_asks_for_a_report(
    running: RunningControlPlane,
) -> None:
    async with running.connected("member1", report=report(sequence=1)) as stream:
        await stream.say(heartbeat=heartbeat(1, "hash-1-1"))
        await stream.say(heartbeat=heartbeat(1, "another hash"))
        await stream.hear("resync")
        await stream.say(heartbeat=heartbeat(2, "hash-1-1"))
        await stream.hear("resync")
        await stream.say(report=report(sequence=3))
        assert (await stream.hear("ack")).sequence == 3
        await stream.say(heartbeat=heartbeat(3, "hash-1-3"))
        await stream.hang_up()
        assert await stream.end() == ([], None)


async def test_a_heartbeat_before_the_first_report_asks_for_it(
    running: RunningControlPlane,
) -> None:
    async with running.connected("member1") as stream:
        await stream.say(heartbeat=heartbeat(0, ""))
        await stream.hear("resync")


async def test_a_heartbeat_outside_of_time_is_a_bad_message(running: RunningControlPlane) -> None:
    async with running.connected("member1") as stream:
        await stream.say(heartbeat=Heartbeat(agent_time=Timestamp(seconds=2**60)))
        assert (await stream.hear("refusal")).reason.startswith("heartbeat.agentTime: ")


async def test_the_newer_epoch_takes_over(running: RunningControlPlane) -> None:
    agent = await running.enrolled("member1")
    async with AgentStream(agent, "member1") as older, AgentStream(agent, "member1") as newer:
        await older.say(hello=hello(epoch=1))
        await older.hear("welcome")
        await newer.say(hello=hello(epoch=2))
        await newer.hear("welcome")
        kinds, refusal = await older.end()
        assert kinds == ["goodbye"]
        assert refusal is not None
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.ABORTED, "TAKEN_OVER")
        assert (await status_of(running, "member1")).agent.connected
        await newer.say(report=report(epoch=2))
        await newer.hear("ack")


async def test_an_agent_that_says_too_much_is_not_read(
    running: RunningControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversation, "SAID_AT_ONCE", 3.0)
    monkeypatch.setattr(conversation, "SAID_PER_SECOND", 1e-6)
    async with running.connected("member1", report=report()) as stream:
        # This one is still read, and not paid for.
        await stream.say(heartbeat=heartbeat(1, "hash-1-1"))
        await stream.say(heartbeat=heartbeat(1, "hash-1-1"))
        await stream.say(report=report(sequence=2))
        # What is said next waits; others are served meanwhile.
        async with running.connected("member2", report=report()):
            pass
        listed = await running.admin.call(
            running.admin.clusters.GetCluster, GetClusterRequest(name="member1")
        )
    assert listed.cluster.status.HasField("resource_summary")
    assert running.plane.parts.fleet.view("member1").state.report.sequence == 1


async def test_an_agent_that_dials_too_often_has_to_wait(
    running: RunningControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversation, "STREAMS_AT_ONCE", 2.0)
    monkeypatch.setattr(conversation, "STREAMS_PER_SECOND", 1e-6)
    agent = await running.enrolled("member1")
    for _ in range(2):
        async with AgentStream(agent, "member1") as stream:
            await stream.say(hello=hello())
            await stream.hear("welcome")
    async with AgentStream(agent, "member1") as third:
        await third.say(hello=hello())
        welcome = asyncio.create_task(third.hear("welcome"))
        async with running.connected("member2"):
            assert not welcome.done()
        welcome.cancel()


@pytest.mark.parametrize("ahead_seconds", [3_600, 2**63], ids=["an hour", "for ever"])
async def test_an_epoch_of_the_future_is_refused_and_locks_nobody_out(
    running: RunningControlPlane, ahead_seconds: int
) -> None:
    agent = await running.enrolled("member1")
    epoch = min(int(time.time() + ahead_seconds) * 1000, 2**63 - 1)
    async with AgentStream(agent, "member1") as stream:
        await stream.say(hello=hello(epoch=epoch))
        kinds, refusal = await stream.end()
    assert kinds == ["goodbye"]
    assert refusal is not None
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "EPOCH_AHEAD")
    assert "clock is off" in refusal.message
    async with AgentStream(agent, "member1") as stream:
        await stream.say(hello=hello(epoch=int(time.time() * 1000)))
        await stream.hear("welcome")


async def test_a_replaced_cluster_begins_with_any_epoch(running: RunningControlPlane) -> None:
    now = int(time.time() * 1000)
    async with running.connected("member1", epoch=now, report=report(epoch=now)):
        pass
    for uid in ("uid-of-another", "uid-of-member1"):
        await running.admin.call(
            running.admin.clusters.ReplaceCluster,
            ReplaceClusterRequest(name="member1", cluster_uid=uid),
        )
    async with running.connected("member1", epoch=1, report=report()):
        pass


async def test_an_older_epoch_is_turned_away_and_the_newer_one_stays(
    running: RunningControlPlane,
) -> None:
    agent = await running.enrolled("member1")
    async with AgentStream(agent, "member1") as newer, AgentStream(agent, "member1") as older:
        await newer.say(hello=hello(epoch=2))
        await newer.hear("welcome")
        await older.say(hello=hello(epoch=1))
        kinds, refusal = await older.end()
        assert kinds == ["goodbye"]
        assert refusal is not None
        assert refusal.code is grpc.StatusCode.ABORTED
        await newer.say(report=report(epoch=2))
        await newer.hear("ack")


async def test_the_same_agent_may_dial_again_without_a_goodbye(
    running: RunningControlPlane,
) -> None:
    agent = await running.enrolled("member1")
    async with AgentStream(agent, "member1") as broken, AgentStream(agent, "member1") as again:
        await broken.say(hello=hello(epoch=1))
        await broken.hear("welcome")
        await again.say(hello=hello(epoch=1))
        await again.hear("welcome")
        kinds, refusal = await broken.end()
        assert kinds == []
        assert refusal is not None
        assert refusal.code is grpc.StatusCode.ABORTED
        assert (await status_of(running, "member1")).agent.connected


async def test_a_second_hello_is_a_bad_message(running: RunningControlPlane) -> None:
    async with running.connected("member1") as stream:
        await stream.say(hello=hello())
        _, refusal = await stream.end()
        assert refusal is not None
        assert set(refusal.violations) == {"hello"}


async def test_an_empty_message_is_a_bad_message(running: RunningControlPlane) -> None:
    async with running.connected("member1") as stream:
        await stream.say()
        assert (await stream.hear("refusal")).reason.startswith("message: ")


async def test_a_silent_agent_counts_as_gone(database_url: str, tmp_path: Path) -> None:
    async with (
        running_control_plane(database_url, tmp_path, heartbeat_seconds="0.1") as running,
        running.connected("member1") as stream,
    ):
        kinds, refusal = await stream.end()
        assert kinds == []
        assert refusal is not None
        assert refusal.code is grpc.StatusCode.DEADLINE_EXCEEDED
        assert "silent" in refusal.message
        assert not (await status_of(running, "member1")).agent.connected


async def test_another_model_is_told_at_once(running: RunningControlPlane) -> None:
    async with running.connected("member1") as stream:
        await running.admin.call(
            running.admin.clusters.UpdateCluster,
            UpdateClusterRequest(
                cluster=Cluster(
                    metadata=ObjectMeta(name="member1"),
                    spec=ClusterSpec(resource_models=TWO_GRADES),
                )
            ),
        )
        welcome = await stream.hear("welcome")
        assert [each.grade for each in welcome.resource_models] == [0, 1]
        await running.admin.call(
            running.admin.clusters.UpdateCluster,
            UpdateClusterRequest(
                cluster=Cluster(
                    metadata=ObjectMeta(name="member1"),
                    spec=ClusterSpec(resource_modeling_disabled=True),
                )
            ),
        )
        welcome = await stream.hear("welcome")
        assert (list(welcome.resource_models), welcome.model_hash) == ([], "")


async def test_an_answer_nobody_asked_for_is_passed_over(running: RunningControlPlane) -> None:
    async with running.connected("member1") as stream:
        await stream.say(place_reply=PlaceReply(request_id="1-99"))
        await stream.say(report=report())
        await stream.hear("ack")


async def test_the_end_of_the_control_plane_asks_agents_to_dial_again(
    running: RunningControlPlane,
) -> None:
    async with running.connected("member1") as stream:
        stopping = asyncio.create_task(running.plane.stop())
        assert (await stream.hear("reconnect")).after_seconds == 1.0
        kinds, refusal = await stream.end()
        assert kinds == []
        assert refusal is not None
        assert refusal.code is grpc.StatusCode.UNAVAILABLE
        await stopping
