"""Agents' streams under faults: one agent at a time, and nobody else is harmed."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from federation.agents.conversation import SAID_AT_ONCE
from lab.commanded_stores import CommandedStore
from lab.control_planes import AgentStream, Plane, heartbeat, hello, report
from lab.held_clocks import HeldClock
from tests.unit.cli.test_reservations import run

MEBIBYTE = 1 << 20


async def sequence_of(api: Plane, name: str) -> int:
    cluster = (await api.ask("GetCluster", name=name)).cluster
    return int(cluster.status.agent.report_sequence)


async def test_a_flood_of_reports_keeps_the_newest_and_holds_nobody_up(api: Plane) -> None:
    # More than an agent may say at once: the rest is read at its pace.
    last = 200
    async with api.connected("flooding") as flooding, api.connected("quiet") as quiet:

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
        assert await sequence_of(api, "flooding") == last


async def test_of_reports_that_wait_while_one_is_written_the_newest_is_written_next(
    api: Plane, commanded: CommandedStore
) -> None:
    # As many as an agent may say at once, hello and what follows them included.
    last = int(SAID_AT_ONCE) - 5
    goes_on = asyncio.Event()

    async def wait() -> None:
        await goes_on.wait()

    async with api.connected("member1") as stream:
        commanded.before("reports.advance", wait)
        for sequence in (*range(1, last - 1), last, last - 1):
            await stream.say(report=report(sequence=sequence))
        # What breaks a rule is told at once: all before it has been read by then.
        await stream.say(heartbeat=heartbeat(-1, ""))
        await stream.hear("refusal")
        goes_on.set()
        acknowledged = [(await stream.hear("ack")).sequence]
        while acknowledged[-1] < last:
            acknowledged.append((await stream.hear("ack")).sequence)
    assert len(acknowledged) <= 2


async def test_a_report_of_100_megabytes_is_refused_and_nothing_of_it_is_kept(api: Plane) -> None:
    async with (
        api.connected("bloated", report=report()) as bloated,
        api.connected("quiet") as quiet,
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
        assert await sequence_of(api, "bloated") == 1


async def test_replayed_and_reordered_reports_leave_the_newest(api: Plane) -> None:
    async with api.connected("member1") as stream:
        for sequence in (3, 1, 2, 3, 5, 4, 3):
            await stream.say(report=report(sequence=sequence, nodes=sequence))
        await stream.hang_up()
        kinds, refusal = await stream.end()
        assert refusal is None
        assert set(kinds) <= {"ack", "resync"}
    status = (await api.ask("GetCluster", name="member1")).cluster.status
    assert (status.agent.report_sequence, status.node_summary.total_num) == (5, 5)


@pytest.mark.parametrize("ahead_seconds", [-10 * 365 * 86_400, 86_400])
async def test_a_wrong_clock_is_shown_and_ages_nothing(
    api: Plane, clock: HeldClock, caplog: pytest.LogCaptureFixture, ahead_seconds: int
) -> None:
    async with AgentStream(await api.enrolled("member1"), "member1") as stream:
        theirs = Timestamp(seconds=int(clock.now()) + ahead_seconds)
        await stream.say(hello=hello(agent_time=theirs))
        await stream.hear("welcome")
        for sequence in (1, 2):
            await stream.say(report=report(sequence=sequence, snapshot_time=theirs))
            await stream.hear("ack")
        agent = (await api.ask("GetCluster", name="member1")).cluster.status.agent
        described = (await run(api, "describe", "cluster", "member1")).output
    assert f"{'behind' if ahead_seconds < 0 else 'ahead'}: check which one is wrong" in described
    assert agent.clock_offset_seconds == pytest.approx(ahead_seconds, abs=1)
    assert agent.last_heartbeat_time.seconds == int(clock.now())
    assert abs(agent.last_report_time.seconds - clock.now()) < 86_400 / 2
    assert "the agent's clock is off" in caplog.text
