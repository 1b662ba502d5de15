"""Streams are looked after: credentials renewed or ended, streams ended of age, the pace told."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from itertools import pairwise
from typing import Any

import grpc
import pytest

from federation import app
from federation.agents import upkeep
from federation.agents.upkeep import OFFER_SECONDS
from federation.services.members import reports
from federation.services.members.join import CREDENTIAL_SECONDS
from federation.v1.agents_pb2 import CredentialStored
from lab.commanded_stores import CommandedStore
from lab.control_planes import AgentStream, Caller, Plane, hello, report
from lab.held_clocks import HeldClock
from lab.patience import until

DAY_SECONDS, MAX_AGE_SECONDS = 86_400, 100_000.0
AGE = """
    UPDATE credential SET created_at = created_at - make_interval(secs => $1),
        expires_at = expires_at - make_interval(secs => $1) WHERE kind = 'agent'
"""


@pytest.fixture(scope="module", autouse=True)
def _rounds() -> Iterator[None]:
    """Many a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(app, "UPKEEP_SECONDS", 0.05)
        yield


@pytest.fixture(scope="module")
def flags(_rounds: None) -> dict[str, str]:
    return {
        "renew_credentials_seconds": str(DAY_SECONDS),
        "max_stream_seconds": str(MAX_AGE_SECONDS),
    }


async def age(api: Plane, seconds: float) -> None:
    await api.sql(AGE, float(seconds))


async def offered(stream: AgentStream) -> Caller:
    """The next credential that is handed out."""
    made = await stream.hear("new_credential")
    return Caller(stream.agent.channel, made.credential)


def id_of(caller: Caller) -> str:
    return str(caller.metadata[0][1]).removeprefix("Bearer ").split(".")[0]


async def stored(stream: AgentStream, credential: str) -> None:
    await stream.say(credential_stored=CredentialStored(credential_id=credential))


async def opens(agent: Caller) -> bool:
    """Whether the agent of member1 is let in; it dials again where its stream just ends."""

    async def outcome() -> bool | None:
        async with AgentStream(agent, "member1") as stream:
            await stream.say(hello=hello())
            try:
                while (message := await stream.next()) is not None:
                    if message.HasField("welcome"):
                        return True
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNAUTHENTICATED:
                    raise
                return False
        return None

    return bool(await until(outcome, lambda found: found is not None))


async def rounds(commanded: CommandedStore, count: int = 3) -> None:
    """Return when so many rounds have begun."""
    target = commanded.statements["credentials.ages"] + count

    async def done() -> int:
        await asyncio.sleep(0.01)
        return commanded.statements["credentials.ages"]

    await until(done, lambda number: number >= target)


async def heard_nothing(stream: AgentStream) -> None:
    """Return when the stream has ended, of which nothing was to be heard."""
    await stream.hang_up()
    assert await stream.end() == ([], None)


async def test_an_old_credential_is_renewed_once_until_the_offer_is_old_too(
    api: Plane, clock: HeldClock, commanded: CommandedStore
) -> None:
    async with api.connected("member1") as stream:
        await rounds(commanded)
        # It is due within the last third of its time, and not at its end.
        await age(api, 0.69 * DAY_SECONDS)
        await rounds(commanded)
        await age(api, 0.27 * DAY_SECONDS)
        first = await offered(stream)
        clock.advance(OFFER_SECONDS - 1)
        await rounds(commanded)
        clock.advance(1)
        second = await offered(stream)
        assert id_of(first) != id_of(second)
        await stored(stream, "another")
        await stored(stream, id_of(second))
        await rounds(commanded)
        await heard_nothing(stream)
    # A round that meets a stream with the old one would renew it again, and end the second one.
    await age(api, -DAY_SECONDS)
    # The old one is good until the new one is used, and of those that got lost only the newest.
    for caller, is_good in (
        *((stream.agent, True), (first, False), (stream.agent, True)),
        *((second, True), (stream.agent, False), (second, True)),
    ):
        assert await opens(caller) is is_good


async def test_new_ones_that_got_lost_do_not_lock_the_agent_out(
    api: Plane, clock: HeldClock
) -> None:
    async with api.connected("member1") as stream:
        await age(api, DAY_SECONDS)
        lost = []
        for _ in range(3):
            lost.append(await offered(stream))
            clock.advance(OFFER_SECONDS)
    assert await opens(stream.agent)
    valid = await api.sql("SELECT id FROM credential WHERE kind = 'agent' AND revoked_at IS NULL")
    assert {id_of(stream.agent)} < {row[0] for row in valid}
    assert len(valid) <= 2


async def test_an_agent_that_was_away_for_29_days_comes_back(api: Plane) -> None:
    agent = await api.enrolled("member1")
    # The oldest that a credential gets while its agent is connected.
    await age(api, 0.95 * DAY_SECONDS)
    await age(api, CREDENTIAL_SECONDS - DAY_SECONDS)
    assert await opens(agent)
    await age(api, DAY_SECONDS)
    assert not await opens(agent)


@pytest.mark.parametrize("column", ["expires_at", "revoked_at"])
async def test_a_credential_that_ended_ends_its_stream_alone(
    api: Plane, commanded: CommandedStore, column: str
) -> None:
    async with api.connected("member1") as ended, api.connected("member2") as fine:
        credential = id_of(ended.agent)
        await api.sql(f"UPDATE credential SET {column} = now() WHERE id = $1", credential)
        kinds, refusal = await ended.end()
        assert kinds == ["goodbye"]
        assert refusal is not None
        assert refusal.code is grpc.StatusCode.UNAUTHENTICATED
        await rounds(commanded)
        await heard_nothing(fine)


async def test_who_was_revoked_gets_no_new_one(api: Plane, commanded: CommandedStore) -> None:
    async def revoke() -> None:
        await api.sql("UPDATE credential SET revoked_at = now() WHERE id = $1", id_of(stream.agent))

    async with api.connected("member1") as stream:
        commanded.before("clusters.lock", revoke)
        await age(api, DAY_SECONDS)
        kinds, _ = await stream.end()
        assert kinds == ["goodbye"]


async def test_a_fleet_that_is_due_together_is_renewed_in_portions(
    api: Plane, commanded: CommandedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "RENEWALS_PER_ROUND", 2)
    async with AsyncExitStack() as stack:
        streams = [
            await stack.enter_async_context(api.connected(f"member{number}"))
            for number in range(1, 6)
        ]
        before = commanded.statements["credentials.ages"]
        await age(api, DAY_SECONDS)
        for stream in streams:
            await offered(stream)
        # A look of the round, and one of each renewal.
        assert commanded.statements["credentials.ages"] - before >= len(streams) + 3


async def test_streams_of_age_are_asked_to_come_again_and_not_together(
    api: Plane, clock: HeldClock, commanded: CommandedStore
) -> None:
    async with AsyncExitStack() as stack:
        streams = [
            await stack.enter_async_context(api.connected(f"member{number}"))
            for number in range(20)
        ]
        ends = [asyncio.create_task(stream.hear("reconnect")) for stream in streams]
        clock.advance(0.8 * MAX_AGE_SECONDS - 1)
        await rounds(commanded)
        ended = [sum(end.done() for end in ends)]
        assert ended == [0]
        for number in range(4):
            clock.advance(0.05 * MAX_AGE_SECONDS + 1)
            # One that is young is still looked after.
            async with api.connected(f"young{number}"):
                await rounds(commanded)
            ended.append(sum(end.done() for end in ends))
        assert max(later - sooner for sooner, later in pairwise(ended)) < 15
        assert {(await end).after_seconds for end in ends} == {1.0}


async def test_a_grown_fleet_is_told_its_new_pace(
    api: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with api.connected("member1") as stream:
        monkeypatch.setattr(reports, "BEATS_PER_SECOND", 1e-4)
        welcome = await stream.hear("welcome")
        assert welcome.heartbeat_seconds == pytest.approx(1e4)
        assert welcome.report_seconds == pytest.approx(1e4)
        async with api.connected("member2"):
            assert (await stream.hear("welcome")).heartbeat_seconds == pytest.approx(2e4)


async def test_a_store_that_is_away_ends_no_stream(
    api: Plane, commanded: CommandedStore, caplog: pytest.LogCaptureFixture
) -> None:
    async def told() -> list[str]:
        return [each.message for each in caplog.records]

    async with api.connected("member1", report=report()) as stream:
        commanded.is_reachable = False
        await until(told, lambda messages: "streams not looked after" in messages)
        commanded.is_reachable = True
        for _ in range(2):
            commanded.fail_at("credentials.ages")
        await rounds(commanded)
        await heard_nothing(stream)


async def test_a_remembered_credential_expires_and_a_revoked_one_is_refused_in_time(
    api: Plane, clock: HeldClock
) -> None:
    made: Any = await api.ask("CreateToken", name="ci", role=1, ttl_seconds=3600)
    caller = api.caller(made.secret)
    clock.advance(3590)
    await caller.ask("WhoAmI")
    await api.sql(
        "UPDATE access_token SET created_at = created_at - interval '1 day', expires_at = now() "
        "WHERE id = $1",
        made.token.id,
    )
    clock.advance(20)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await caller.ask("WhoAmI")
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
