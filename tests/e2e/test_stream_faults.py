"""Agents' streams under faults, over real sockets: one at a time, and nobody else is harmed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from click.testing import CliRunner
from google.protobuf.timestamp_pb2 import Timestamp

from federation.agents.conversation import SAID_AT_ONCE
from federation.cli.__main__ import fedctl
from federation.model.cluster import CapacityReport
from federation.services.members.reports import Reporting
from federation.v1.agents_pb2 import CredentialStored
from federation.v1.clusters_pb2 import GetClusterRequest, RevokeClusterRequest
from federation.v1.resource_pb2 import Cluster
from lab.control_planes import (
    AgentStream,
    Caller,
    RunningControlPlane,
    heartbeat,
    hello,
    report,
    running_control_plane,
)
from lab.patience import PATIENCE_SECONDS

BEAT_SECONDS = 0.5
SECONDS = PATIENCE_SECONDS
MEBIBYTE = 1024 * 1024
BEATS = {"heartbeat_seconds": str(BEAT_SECONDS)}


@pytest.fixture
async def running(database_url: str, tmp_path: Path) -> AsyncIterator[RunningControlPlane]:
    async with running_control_plane(database_url, tmp_path) as plane:
        yield plane


async def cluster_of(running: RunningControlPlane, name: str) -> Cluster:
    answer = await running.admin.call(
        running.admin.clusters.GetCluster, GetClusterRequest(name=name)
    )
    cluster: Cluster = answer.cluster
    return cluster


async def until_away(running: RunningControlPlane, name: str) -> Cluster:
    async with asyncio.timeout(SECONDS):
        while True:
            cluster = await cluster_of(running, name)
            if not cluster.status.agent.connected:
                return cluster
            await asyncio.sleep(0.02)


async def until_stale(running: RunningControlPlane, name: str) -> None:
    async with asyncio.timeout(SECONDS):
        while True:
            (ready,) = (await cluster_of(running, name)).status.conditions
            if ready.status == "Unknown":
                assert ready.reason == "AgentSilent"
                return
            await asyncio.sleep(0.02)


class Wire:
    """A TCP connection between an agent and a control plane that may fall silent without ending."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._whole = asyncio.Event()
        self._whole.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []
        self.endpoint = ""

    def cut(self) -> None:
        """From now on nothing arrives on either side, and neither is told."""
        self._whole.clear()

    async def carry(
        self, near_reader: asyncio.StreamReader, near_writer: asyncio.StreamWriter
    ) -> None:
        far_reader, far_writer = await asyncio.open_connection(*self._target)
        self._writers += [near_writer, far_writer]
        for ends in ((near_reader, far_writer), (far_reader, near_writer)):
            task = asyncio.create_task(self._pass_on(*ends))
            self._tasks.add(task)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(65_536):
            await self._whole.wait()
            writer.write(chunk)
            await writer.drain()
        writer.close()

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()


@asynccontextmanager
async def wire_to(running: RunningControlPlane) -> AsyncIterator[Wire]:
    wire = Wire(running.plane.endpoint.host, running.plane.endpoint.port)
    server = await asyncio.start_server(wire.carry, "127.0.0.1", 0)
    wire.endpoint = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield wire
    finally:
        server.close()
        await wire.end()


async def test_a_half_open_connection_is_noticed_and_the_agent_may_come_another_way(
    database_url: str, tmp_path: Path
) -> None:
    async with (
        running_control_plane(database_url, tmp_path, **BEATS) as running,
        wire_to(running) as wire,
        grpc.aio.insecure_channel(wire.endpoint) as channel,
    ):
        agent = await running.enrolled("member1")
        through_wire = Caller(channel, agent.metadata[0][1].removeprefix("Bearer "))
        async with AgentStream(through_wire, "member1") as silent:
            await silent.say(hello=hello())
            await silent.hear("welcome")
            await silent.say(report=report())
            await silent.hear("ack")
            wire.cut()
            cluster = await until_away(running, "member1")
            assert cluster.status.agent.report_sequence == 1
            await until_stale(running, "member1")
            async with AgentStream(agent, "member1") as again:
                await again.say(hello=hello())
                await again.hear("welcome")
                await again.say(report=report(sequence=2))
                await again.hear("ack")
                assert (await cluster_of(running, "member1")).status.conditions[0].status == "True"


async def test_the_same_agent_takes_over_from_its_half_open_connection_at_once(
    running: RunningControlPlane,
) -> None:
    async with (
        wire_to(running) as wire,
        grpc.aio.insecure_channel(wire.endpoint) as channel,
    ):
        agent = await running.enrolled("member1")
        through_wire = Caller(channel, agent.metadata[0][1].removeprefix("Bearer "))
        async with AgentStream(through_wire, "member1") as silent:
            await silent.say(hello=hello())
            await silent.hear("welcome")
            wire.cut()
            async with AgentStream(agent, "member1") as again:
                await again.say(hello=hello())
                await again.hear("welcome")
                await again.say(report=report())
                await again.hear("ack")


async def test_a_flood_of_reports_keeps_the_newest_and_holds_nobody_up(
    running: RunningControlPlane,
) -> None:
    # More than an agent may say at once: the rest is read at its pace.
    last = 200
    async with (
        running.connected("flooding") as flooding,
        running.connected("quiet") as quiet,
    ):

        async def flood() -> None:
            for sequence in range(1, last + 1):
                await flooding.say(report=report(sequence=sequence))

        acknowledged: list[int] = []

        async def listen() -> None:
            while not acknowledged or acknowledged[-1] < last:
                acknowledged.append((await flooding.hear("ack")).sequence)

        flooded = asyncio.gather(flood(), listen())
        sequence = 0
        while not flooded.done():
            sequence += 1
            await quiet.say(report=report(sequence=sequence))
            assert (await quiet.hear("ack")).sequence == sequence
        await flooded
        assert acknowledged == sorted(acknowledged)
        # The other one was heard again and again meanwhile.
        assert sequence > 1
        assert (await cluster_of(running, "flooding")).status.agent.report_sequence == last


async def test_of_reports_that_wait_while_one_is_written_the_newest_is_written_next(
    running: RunningControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As many as an agent may say at once, hello and what follows them included.
    last = int(SAID_AT_ONCE) - 5
    accept, may_write = Reporting.accept, asyncio.Event()

    async def accepted(reporting: Reporting, cluster: str, told: CapacityReport) -> None:
        await may_write.wait()
        await accept(reporting, cluster, told)

    monkeypatch.setattr(Reporting, "accept", accepted)
    async with AgentStream(await running.enrolled("member1"), "member1") as stream:
        await stream.say(hello=hello())
        await stream.hear("welcome")
        for sequence in range(1, last + 1):
            await stream.say(report=report(sequence=sequence))
        # What breaks a rule is told at once: all before it has been read by then.
        await stream.say(heartbeat=heartbeat(-1, ""))
        await stream.hear("refusal")
        may_write.set()
        acknowledged = [(await stream.hear("ack")).sequence]
        while acknowledged[-1] < last:
            acknowledged.append((await stream.hear("ack")).sequence)
    assert len(acknowledged) <= 2


async def test_a_report_of_100_megabytes_is_refused_and_nothing_of_it_is_kept(
    running: RunningControlPlane,
) -> None:
    async with (
        running.connected("bloated", report=report(sequence=1)) as bloated,
        running.connected("quiet") as quiet,
    ):
        huge = report(sequence=2, content_hash="h" * (100 * MEBIBYTE))
        # The end may come while it is still being sent.
        await asyncio.gather(bloated.say(report=huge), return_exceptions=True)
        kinds, refusal = await bloated.end()
        assert kinds == []
        assert refusal is not None
        assert refusal.code is grpc.StatusCode.RESOURCE_EXHAUSTED
        await quiet.say(report=report())
        await quiet.hear("ack")
        assert (await cluster_of(running, "bloated")).status.agent.report_sequence == 1


async def test_replayed_and_reordered_reports_leave_the_newest(
    running: RunningControlPlane,
) -> None:
    async with running.connected("member1") as stream:
        for sequence in (3, 1, 2, 3, 5, 4, 3):
            await stream.say(report=report(sequence=sequence, nodes=sequence))
        await stream.hang_up()
        kinds, refusal = await stream.end()
        assert refusal is None
        assert set(kinds) <= {"ack", "resync"}
    status = (await cluster_of(running, "member1")).status
    assert (status.agent.report_sequence, status.node_summary.total_num) == (5, 5)


@pytest.mark.parametrize("ahead_seconds", [-10 * 365 * 86_400, 86_400])
async def test_a_wrong_clock_is_shown_and_ages_nothing(
    running: RunningControlPlane, caplog: pytest.LogCaptureFixture, ahead_seconds: int
) -> None:
    async with AgentStream(await running.enrolled("member1"), "member1") as stream:
        theirs = Timestamp(seconds=int(time.time()) + ahead_seconds)
        await stream.say(hello=hello(agent_time=theirs))
        await stream.hear("welcome")
        await stream.say(report=report(snapshot_time=theirs))
        await stream.hear("ack")
        await stream.say(heartbeat=heartbeat(1, "hash-1-1"))
        await stream.say(report=report(sequence=2, snapshot_time=theirs))
        await stream.hear("ack")
        agent = (await cluster_of(running, "member1")).status.agent
        described = await fedctl_says(running, "describe", "cluster", "member1")
    assert f"{'behind' if ahead_seconds < 0 else 'ahead'}: check which one is wrong" in described
    assert agent.clock_offset_seconds == pytest.approx(ahead_seconds, abs=SECONDS)
    for moment in (agent.last_report_time, agent.last_heartbeat_time):
        assert moment.seconds == pytest.approx(time.time(), abs=SECONDS)
    assert "the agent's clock is off" in caplog.text


async def fedctl_says(running: RunningControlPlane, *arguments: str) -> str:
    common = (
        *("--insecure", "--endpoint", str(running.plane.endpoint)),
        *("--token-file", str(running.plane.admin_token_file)),
    )
    result = await asyncio.to_thread(CliRunner().invoke, fedctl, [*common, *arguments])
    assert result.exit_code == 0, result.output
    return result.output


async def test_a_revoked_agent_is_sent_away_at_once_and_nobody_else_is(
    running: RunningControlPlane,
) -> None:
    async with (
        running.connected("member1", report=report()) as revoked,
        running.connected("member2") as other,
    ):
        answer = await running.admin.call(
            running.admin.clusters.RevokeCluster, RevokeClusterRequest(name="member1")
        )
        assert answer.credentials == 1
        kinds, refusal = await revoked.end()
        assert kinds == ["goodbye"]
        assert refusal is not None
        assert refusal.code is grpc.StatusCode.UNAUTHENTICATED
        async with AgentStream(revoked.agent, "member1") as again:
            await again.say(hello=hello(epoch=9))
            _, refusal = await again.end()
            assert refusal is not None
            assert refusal.code is grpc.StatusCode.UNAUTHENTICATED
        await other.say(report=report())
        await other.hear("ack")
    # A re-joined agent is not held up by what the revoked one tried.
    async with running.connected("member1", epoch=2, report=report(epoch=2)):
        pass


async def test_credentials_are_renewed_on_the_stream(database_url: str, tmp_path: Path) -> None:
    fast = {"heartbeat_seconds": "1", "renew_credentials_seconds": "1"}
    async with running_control_plane(database_url, tmp_path, **fast) as running:
        old = await running.enrolled("member1")
        async with AgentStream(old, "member1") as stream:
            await stream.say(hello=hello())
            await stream.hear("welcome")
            offered = await until_offered(stream)
            await stream.say(
                credential_stored=CredentialStored(credential_id=offered.split(".")[0])
            )
            newest = await until_offered(stream)
        # Stored last was the first that was offered; the one after it got lost.
        assert newest != offered
        async with AgentStream(running.caller(offered), "member1") as stream:
            await stream.say(hello=hello())
            await stream.hear("welcome")
        async with AgentStream(old, "member1") as stream:
            await stream.say(hello=hello())
            _, refusal = await stream.end()
            assert refusal is not None
            assert refusal.code is grpc.StatusCode.UNAUTHENTICATED


async def until_offered(stream: AgentStream) -> str:
    """The next credential that is handed out; keeps the stream alive meanwhile."""
    while True:
        await stream.say(heartbeat=heartbeat(0, ""))
        message: Any = await stream.next()
        assert message is not None
        if message.WhichOneof("message") == "new_credential":
            return str(message.new_credential.credential)
        await asyncio.sleep(0.1)
