"""Control planes tell each other whom they hear: an agent is connected to one, and known to all."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest

from federation.model.errors import Conflict
from federation.services.members import event_loop_lag
from federation.services.members.reports import MISSED_BEATS
from federation.v1.agents_pb2 import Sight
from lab.commanded_stores import CommandedStore
from lab.control_planes import AgentStream, Plane, hello, report, running_control_plane
from lab.held_clocks import HeldClock
from lab.patience import until
from tests.api.calls import binding, scheduled
from tests.api.pairs import (
    FLAGS,
    HEARTBEAT_SECONDS,
    LOST_SECONDS,
    ROUND_SECONDS,
    Pair,
    agent_at,
    at,
    beat,
    pair,
    ready_at,
    shares_often,
    started_pair,
    stream_at,
    until_connected,
    until_ready,
)

__all__ = ["pair", "shares_often", "started_pair"]

SILENCE_SECONDS = MISSED_BEATS * HEARTBEAT_SECONDS
HOUR_SECONDS = 3600
AGE_WORDS = "UPDATE presence SET heard_at = heard_at - make_interval(secs => $1)"
AGE_REPORTS = "UPDATE cluster_capacity SET received_at = received_at - make_interval(secs => $1)"


async def heard(pair: Pair) -> None:
    """Return when both know that the agent was heard now, each by its own clock."""
    for plane, clock in zip(pair.planes, pair.clocks, strict=True):
        now = int(clock.now())
        await until(partial(heard_at, plane), now.__eq__)


async def heard_at(plane: Plane) -> int:
    return int((await agent_at(plane)).last_heartbeat_time.seconds)


async def rows(plane: Plane) -> list[Any]:
    return [dict(row) for row in await plane.sql("SELECT * FROM presence")]


async def rounds(store: CommandedStore, count: int = 3) -> None:
    """Return when so many rounds have begun and ended."""
    target = store.statements["presences.all"] + count

    async def done() -> int:
        await asyncio.sleep(ROUND_SECONDS)
        return store.statements["presences.all"]

    await until(done, lambda number: number > target)


async def turns(clock: HeldClock, count: int = 4) -> None:
    """Return when all loops of a control plane have done so many rounds, or failed at them."""
    for _ in range(count):
        await clock.turn(ROUND_SECONDS)


async def why_nothing_at(plane: Plane) -> str:
    """What a preview there says."""
    return str((await scheduled(plane, binding(), preview=True)).decision)


async def test_an_agent_at_one_is_heard_by_all_until_it_falls_silent(pair: Pair) -> None:
    agent = await pair.a.enrolled("member1")
    ahead = {"agent_time": {"seconds": int(pair.clocks[0].now()) + 3}}
    async with stream_at(pair.a, agent, 5, sequence=1, **ahead) as stream:
        await until_ready(pair.b)
        for _ in range(6):
            await pair.pass_time(HEARTBEAT_SECONDS)
            await stream.say(heartbeat=beat(5))
            await heard(pair)
            for plane in pair.planes:
                await until_connected(plane)
                seen = await agent_at(plane)
                assert seen.report_epoch == 5
                assert seen.clock_offset_seconds == pytest.approx(3, abs=1)
                assert await ready_at(plane) == ("True", "")
        await pair.pass_time(SILENCE_SECONDS + 2 * ROUND_SECONDS + 0.1)
        for plane in pair.planes:
            await pair.until_silent(plane)
        await stream.say(heartbeat=beat(5))
        for plane in pair.planes:
            await until_ready(plane)


async def test_a_report_that_the_agent_stands_by_is_fresh_for_all(pair: Pair) -> None:
    async def age_at(plane: Plane) -> float:
        decision = (await scheduled(plane, binding(), preview=True)).decision
        return float(decision.trace.clusters[0].report_age_seconds)

    agent = await pair.a.enrolled("member1")
    async with stream_at(pair.a, agent, sequence=1) as stream:
        await until_ready(pair.b)
        await pair.b.follow()
        for content_hash, age in (("hash-1-1", 0.0), ("of another picture", HEARTBEAT_SECONDS)):
            await pair.pass_time(HEARTBEAT_SECONDS)
            await stream.say(heartbeat=beat(content_hash=content_hash))
            await heard(pair)
            for plane in pair.planes:
                assert await age_at(plane) == pytest.approx(age, abs=1)
        # A report is as old as its picture was, also after a restart.
        await stream.say(report=report(sequence=2, sight=Sight(picture_age_seconds=70.0)))
        await stream.hear("ack")
        await pair.b.follow()
        async with pair.third() as (third, _):
            for plane in (pair.a, third):
                assert await age_at(plane) >= 70


async def test_a_blind_agent_is_blind_for_all_since_the_same_time(pair: Pair) -> None:
    agent = await pair.a.enrolled("member1")
    async with stream_at(pair.a, agent, sequence=1) as stream:
        await until_ready(pair.b)
        for age in (20.0, 20.0 + HEARTBEAT_SECONDS):
            await pair.pass_time(HEARTBEAT_SECONDS)
            sight = Sight(picture_age_seconds=age, blind=True, message="gone", skipped_objects=2)
            await stream.say(heartbeat=beat(sight=sight))
            for plane, clock in zip(pair.planes, pair.clocks, strict=True):
                await until_ready(plane, "Unknown", "ApiServerUnreachable")
                await heard(pair)
                assert (await agent_at(plane)).skipped_objects == 2
                since = datetime.fromtimestamp(clock.now() - age, UTC)
                said = f"cannot be seen since {since:%Y-%m-%dT%H:%M:%SZ}"
                assert said in await why_nothing_at(plane)
        # One that starts now knows it before the agent is heard again.
        async with pair.third() as (third, _):
            assert await ready_at(third) == ("Unknown", "ApiServerUnreachable")
            await pair.pass_time(1)
            await stream.say(heartbeat=beat())
            for plane in (*pair.planes, third):
                await until_ready(plane)


async def test_a_control_plane_that_dies_takes_its_agents_along_in_time(pair: Pair) -> None:
    agent = await pair.a.enrolled("member1")
    async with stream_at(pair.a, agent, sequence=1):
        await until_connected(pair.b)
        pair.stores[0].is_reachable = False
        await pair.a.sql("DELETE FROM replica WHERE endpoint = $1", str(pair.a.plane.endpoint))
        await until_connected(pair.b, is_connected=False)
        assert await ready_at(pair.b) == ("True", "")
        # It counts only while it reads what others tell.
        for _ in range(MISSED_BEATS + 2):
            await pair.pass_time(HEARTBEAT_SECONDS, pair.clocks[1])
            await rounds(pair.stores[1], 1)
        await pair.until_silent(pair.b, pair.clocks[1])


async def test_a_stream_that_ended_is_told_once(pair: Pair) -> None:
    agent = await pair.a.enrolled("member1")
    async with stream_at(pair.a, agent, 5):
        pass
    for plane in pair.planes:
        await until_ready(plane)
        await until_connected(plane, is_connected=False)

    async def holder() -> str:
        return str((await rows(pair.a))[0]["replica"])

    await until(holder, lambda replica: replica == "")
    before = await rows(pair.a)
    await rounds(pair.stores[0])
    assert await rows(pair.a) == before
    await pair.pass_time(SILENCE_SECONDS + 1)
    for plane in pair.planes:
        await pair.until_silent(plane)


async def test_only_what_was_heard_is_written(pair: Pair) -> None:
    agent = await pair.a.enrolled("member1")
    async with stream_at(pair.a, agent, sequence=1) as stream:
        await until_connected(pair.b)
        before = await rows(pair.a)
        await rounds(pair.stores[0])
        assert await rows(pair.a) == before
        await pair.pass_time(1)
        await stream.say(heartbeat=beat())
        await until(lambda: rows(pair.a), lambda found: found != before)
        # A clock of the database that was ahead hides nobody for long.
        await pair.a.sql("UPDATE presence SET heard_at = now() + interval '1 hour'")
        await rounds(pair.stores[1])
        await pair.pass_time(HEARTBEAT_SECONDS)
        await stream.say(heartbeat=beat())
        await heard(pair)


async def test_the_newer_session_wins_wherever_it_is(pair: Pair) -> None:
    agent = await pair.a.enrolled("member1")
    async with stream_at(pair.a, agent, 1) as old:
        await until_connected(pair.b)
        async with stream_at(pair.b, agent, 2) as new:
            kinds, refusal = await old.end()
            assert kinds == ["goodbye"]
            assert refusal is not None
            assert refusal.reason == "TAKEN_OVER"
            await until_connected(pair.a)
            # An older one elsewhere ends as soon as its control plane learns.
            async with AgentStream(at(pair.a, agent), "member1") as late:
                await late.say(hello=hello(1))
                kinds, refusal = await late.end()
                assert refusal is not None
                assert refusal.code is grpc.StatusCode.ABORTED
            await new.say(report=report(2))
            await new.hear("ack")


async def test_of_one_session_at_two_the_one_that_is_heard_wins(pair: Pair) -> None:
    agent = await pair.a.enrolled("member1")
    async with stream_at(pair.a, agent) as broken, stream_at(pair.b, agent) as alive:
        # Both were heard just now: neither yields to its like.
        for store in pair.stores:
            await rounds(store)
        await pair.pass_time(HEARTBEAT_SECONDS)
        await alive.say(heartbeat=beat())
        _, refusal = await broken.end()
        assert refusal is not None
        assert refusal.code is grpc.StatusCode.UNAVAILABLE
        assert "connected to another control plane" in refusal.message
        await alive.hear("resync")
        await alive.say(report=report())
        await alive.hear("ack")
        await until_ready(pair.a)


async def test_one_that_starts_late_gives_agents_time_and_knows_their_sessions(pair: Pair) -> None:
    agent = await pair.a.enrolled("member1")
    async with AsyncExitStack() as stack:
        stream = await stack.enter_async_context(stream_at(pair.a, agent, 7, sequence=1))
        await until_connected(pair.b)
        late, clock = await stack.enter_async_context(pair.third())
        seen = await agent_at(late)
        assert seen.connected
        assert not seen.HasField("last_heartbeat_time")
        async with AgentStream(at(late, agent), "member1") as older:
            await older.say(hello=hello(6))
            _, refusal = await older.end()
            assert refusal is not None
            assert "older than 7" in refusal.message
        await pair.pass_time(SILENCE_SECONDS, clock)
        assert await ready_at(late) == ("True", "")
        await pair.pass_time(31, clock)
        await pair.until_silent(late, clock)
        await pair.pass_time(1)
        await stream.say(heartbeat=beat(7))
        await until_ready(late)


async def test_a_cluster_that_joined_and_reported_elsewhere_is_ready_at_once(pair: Pair) -> None:
    """Also before its peer tells of it."""
    is_held, is_told = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        is_held.set()
        await is_told.wait()

    # Before it has written anything, which would hold the journal back.
    pair.stores[1].before("replicas.put", hold)
    # A round that is further would read of the agent still.
    await is_held.wait()
    agent = await pair.a.enrolled("member1")
    async with stream_at(pair.a, agent, sequence=1):
        try:
            await until_ready(pair.b)
            assert not (await agent_at(pair.b)).connected
        finally:
            is_told.set()
        await until_connected(pair.b)


async def test_a_cluster_that_is_deleted_meanwhile_is_no_trouble(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    async def lose() -> None:
        raise Conflict("a cluster was deleted meanwhile")

    agent = await pair.a.enrolled("member1")
    pair.stores[0].before("presences.put", lose)
    async with stream_at(pair.a, agent):
        await until_connected(pair.b)
    assert "presences not shared" not in caplog.text


@pytest.mark.parametrize("hangs", [True, False])
async def test_who_can_read_nothing_calls_nobody_silent(pair: Pair, *, hangs: bool) -> None:
    agent = await pair.a.enrolled("member1")
    async with stream_at(pair.a, agent, sequence=1):
        await until_connected(pair.b)
        store, clock = pair.stores[1], pair.clocks[1]
        store.is_reachable = hangs
        if hangs:
            store.stall()
        for _ in range(10):
            await pair.pass_time(HEARTBEAT_SECONDS, clock)
            await asyncio.sleep(ROUND_SECONDS)
        store.is_reachable = True
        store.go_on()
        await rounds(store)
        await until_ready(pair.b)
        # Who is silent while it is listened to is not forgiven.
        for _ in range(5):
            await pair.pass_time(HEARTBEAT_SECONDS, clock)
            await rounds(store, 1)
        await pair.until_silent(pair.b, clock)


async def test_who_can_tell_nobody_of_its_agents_sends_them_to_its_peers(pair: Pair) -> None:
    agent = await pair.a.enrolled("member1")
    async with stream_at(pair.a, agent) as stream:
        await until_connected(pair.b)
        # Each knows the other.
        for store in reversed(pair.stores):
            await rounds(store)
        pair.stores[0].is_reachable = False
        end = asyncio.create_task(stream.hear("reconnect"))
        pair.clocks[0].advance(LOST_SECONDS / 2 - 4 * ROUND_SECONDS - 1)
        await turns(pair.clocks[0])
        assert not end.done()
        pair.clocks[0].advance(1 + ROUND_SECONDS)
        assert "dial another" in (await end).reason


@pytest.mark.usefixtures("shares_often")
async def test_who_has_no_peers_keeps_its_agents(database_url: str, tmp_path: Path) -> None:
    clock, store = HeldClock(), CommandedStore()
    async with (
        running_control_plane(database_url, tmp_path, clock=clock, store=store, **FLAGS) as alone,
        alone.connected("member1") as stream,
    ):
        store.is_reachable = False
        end = asyncio.create_task(stream.end())
        clock.advance(10 * LOST_SECONDS)
        await turns(clock)
        assert not end.done()
        end.cancel()


@asynccontextmanager
async def started_after(pair: Pair, seconds: float) -> AsyncIterator[tuple[Plane, HeldClock]]:
    """A control plane that starts so long after agents were heard last, and its clock."""
    for statement in (AGE_WORDS, AGE_REPORTS):
        await pair.a.sql(statement, float(seconds))
    async with pair.third() as started:
        yield started


async def left(pair: Pair) -> Any:
    """The agent of member1, which reported, with the hash hash-1-1, and hung up."""
    agent = await pair.a.enrolled("member1")
    async with stream_at(pair.a, agent, sequence=1):
        await until_connected(pair.b)
    await until_connected(pair.b, is_connected=False)
    return agent


AWAITED = ("Unknown", "AgentAwaited")


async def test_nothing_is_promised_until_an_agent_that_nobody_heard_stands_by_its_report(
    pair: Pair,
) -> None:
    """The database may be a restored one."""
    agent = await left(pair)
    async with started_after(pair, HOUR_SECONDS) as (plane, _):
        assert await ready_at(plane) == AWAITED
        # To be connected is not enough, nor to stand by another picture, nor by one unseen.
        async with stream_at(plane, agent, sight=Sight()) as stream:
            assert await ready_at(plane) == AWAITED
            await stream.say(heartbeat=beat(content_hash="another"))
            await stream.hear("resync")
            assert await ready_at(plane) == AWAITED
            await stream.say(heartbeat=beat(sight=Sight(blind=True, picture_age_seconds=1)))
            await stream.say(heartbeat=beat(content_hash="another"))
            await stream.hear("resync")
            assert await ready_at(plane) == AWAITED
            # One that has run all the while has seen all that was promised, whoever awaits it.
            await rounds(pair.stores[0])
            assert (await ready_at(pair.a))[1] != "AgentAwaited"
            await stream.say(heartbeat=beat())
            await until_ready(plane)


@pytest.mark.parametrize("reports", [True, False])
async def test_what_ends_the_wait_at_one_ends_it_at_others(pair: Pair, *, reports: bool) -> None:
    agent = await left(pair)
    async with (
        started_after(pair, HOUR_SECONDS) as (one, clock),
        started_after(pair, 0) as (other, _),
    ):
        assert await ready_at(other) == AWAITED
        async with stream_at(one, agent, 2 if reports else 1, sequence=int(reports)) as stream:
            if not reports:
                clock.advance(1)
                await stream.say(heartbeat=beat())
            for plane in (one, other):
                await until_ready(plane)


@pytest.mark.parametrize(
    ("word", "report_age", "told", "is_awaited"),
    [
        (SILENCE_SECONDS - 20, SILENCE_SECONDS - 20, True, False),
        (SILENCE_SECONDS + 1, SILENCE_SECONDS + 1, True, True),
        # A report that was stored just now is a word of its agent, where nobody told of one.
        (0, 0, False, False),
        (0, HOUR_SECONDS, False, True),
        (0, HOUR_SECONDS, True, False),
    ],
)
async def test_who_starts_soon_after_counts_on_what_is_stored(
    pair: Pair, word: float, report_age: float, *, told: bool, is_awaited: bool
) -> None:
    await left(pair)
    await pair.a.sql(AGE_WORDS, float(word))
    await pair.a.sql(AGE_REPORTS, float(report_age))
    if not told:
        await pair.a.sql("DELETE FROM presence")
    async with pair.third() as (plane, _):
        assert (await ready_at(plane) == AWAITED) is is_awaited


async def test_agents_are_forgiven_the_time_that_the_loop_stood_still(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    agent = await pair.a.enrolled("member1")
    async with stream_at(pair.a, agent, sequence=1) as stream:
        await stream.hang_up()
        await pair.pass_time(SILENCE_SECONDS, pair.clocks[0])
        stood_still = event_loop_lag.TICK_SECONDS + 2 * event_loop_lag.TOLERATED_SECONDS
        caplog.clear()
        time.sleep(stood_still)  # noqa: ASYNC251 - it is to stand still
        pair.clocks[0].advance(event_loop_lag.TOLERATED_SECONDS)

        async def told() -> str:
            return caplog.text

        await until(told, lambda text: "the event loop stood still" in text)
        assert await ready_at(pair.a) == ("True", "")

        await pair.pass_time(60, pair.clocks[0])
        await pair.until_silent(pair.a, pair.clocks[0])


@pytest.mark.parametrize("level", [logging.DEBUG, logging.INFO])
async def test_short_stops_are_told_to_who_looks_for_them(
    pair: Pair, caplog: pytest.LogCaptureFixture, level: int
) -> None:
    with caplog.at_level(level, logger=event_loop_lag.__name__):
        async with pair.third():
            time.sleep(event_loop_lag.TOLERATED_SECONDS)  # noqa: ASYNC251 - it is to stand still
            # The next tick is due before this, however late both are.
            await asyncio.sleep(2 * event_loop_lag.FINE_TICK_SECONDS)
    late = [
        vars(each)["fields"]["ms"] for each in caplog.records if "loop was late" in each.message
    ]
    assert any(millis >= 100 for millis in late) is (level == logging.DEBUG)
