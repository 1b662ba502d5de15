"""Rounds over open streams, with a store that is real and a clock that stands still."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from federation.agents.conversation import Conversations
from federation.agents.interests import Interests
from federation.agents.session import Session
from federation.agents.sessions import Sessions
from federation.agents.upkeep import OFFER_SECONDS, RENEWALS_PER_ROUND, Upkeep
from federation.model.cluster import Cluster
from federation.model.errors import Unauthenticated, Unavailable
from federation.model.node_plans import LostPlan
from federation.services.agent_values import AgentHello
from federation.services.fleet.registry import FleetOwner
from federation.services.members.join import Registration
from federation.services.members.renewal import Renewal
from federation.services.members.reports import Reporting
from federation.store.postgres import PostgresStore
from federation.v1.agents_pb2 import ConnectResponse
from lab.services import UnsteadyStore, join
from tests.stores import engine, fresh_engine, store

__all__ = ["engine", "fresh_engine", "store"]

MAX_AGE_SECONDS = 100_000.0


async def nothing_lost(cluster: str, lost: Sequence[LostPlan]) -> None:
    assert not lost


@dataclass
class StillClock:
    """Moves when told to. Implements ports.Clock."""

    time: float = 1_000_000.0

    def now(self) -> float:
        return self.time


class Streams:
    """Open streams of clusters that joined, and the upkeep that looks after them."""

    def __init__(self, store: PostgresStore) -> None:
        self.clock = StillClock()
        self.store = UnsteadyStore(store)
        self.fleet = FleetOwner(store)
        self.registration = Registration(store, self.fleet)
        self.reporting = Reporting(store, self.fleet, self.clock)
        self.sessions = Sessions()
        self.upkeep = Upkeep(
            self.sessions,
            Conversations(self.sessions, self.reporting, Interests(self.fleet), nothing_lost),
            self.reporting,
            Renewal(self.store, renew_seconds=86_400.0),
            self.clock,
            max_age_seconds=MAX_AGE_SECONDS,
        )

    async def opened(self, name: str) -> Session:
        credential = await join(self.registration, name)
        welcome = await self.reporting.connected(name, AgentHello(epoch=1), credential.id)
        session = Session(
            name,
            1,
            credential_id=credential.id,
            opened_at=self.clock.now(),
            heartbeat_seconds=welcome.heartbeat_seconds,
        )
        self.sessions.open(session)
        return session


@pytest.fixture
def streams(store: PostgresStore) -> Streams:
    return Streams(store)


async def age_credentials(engine: AsyncEngine) -> None:
    """Make all that there are a day old."""
    async with engine.begin() as connection:
        await connection.execute(
            text("UPDATE credential SET created_at = created_at - interval '1 day'")
        )


async def taken(session: Session) -> list[ConnectResponse]:
    """All that was sent, by ending the session if it has not ended."""
    written: list[ConnectResponse] = []

    async def write(message: ConnectResponse) -> None:
        written.append(message)

    session.end()
    await session.write_all(write)
    return written


def kinds(messages: list[ConnectResponse]) -> list[str]:
    return [message.WhichOneof("message") or "" for message in messages]


async def test_a_round_with_nothing_to_do_says_nothing(streams: Streams) -> None:
    await streams.upkeep.look()
    session = await streams.opened("a")
    await streams.upkeep.look()
    assert not session.ended.is_set()
    assert await taken(session) == []


async def test_an_old_credential_is_renewed_once_until_the_offer_is_old_too(
    streams: Streams, engine: AsyncEngine
) -> None:
    session = await streams.opened("a")
    await age_credentials(engine)
    await streams.upkeep.look()
    await streams.upkeep.look()
    first = session.offered
    assert first is not None
    streams.clock.time += OFFER_SECONDS - 1
    await streams.upkeep.look()
    assert session.offered is first
    streams.clock.time += 1
    await streams.upkeep.look()
    assert session.offered is not first
    assert kinds(await taken(session)) == ["new_credential", "new_credential"]


async def test_a_stored_credential_is_the_one_that_is_looked_after(
    streams: Streams, engine: AsyncEngine
) -> None:
    session = await streams.opened("a")
    await age_credentials(engine)
    await streams.upkeep.look()
    assert session.offered is not None
    offered = session.offered.credential_id
    session.confirm("another")
    assert session.credential_id != offered
    session.confirm(offered)
    assert (session.credential_id, session.offered) == (offered, None)
    await streams.upkeep.look()
    assert not session.ended.is_set()
    (message,) = await taken(session)
    assert message.new_credential.credential.startswith(f"{offered}.")
    await streams.reporting.connected("a", AgentHello(epoch=1), offered)


async def test_a_revoked_or_expired_credential_ends_its_stream_alone(
    streams: Streams, engine: AsyncEngine
) -> None:
    sessions = {name: await streams.opened(name) for name in ("expired", "fine", "revoked")}
    async with engine.begin() as connection:
        for column, name in (("expires_at", "expired"), ("revoked_at", "revoked")):
            await connection.execute(
                text(f"UPDATE credential SET {column} = now() WHERE id = :id"),
                {"id": sessions[name].credential_id},
            )
    await streams.upkeep.look()
    for name in ("expired", "revoked"):
        assert isinstance(sessions[name].error, Unauthenticated)
        assert kinds(await taken(sessions[name])) == ["goodbye"]
    assert not sessions["fine"].ended.is_set()


async def test_a_stream_of_age_is_asked_to_come_again(streams: Streams) -> None:
    session = await streams.opened("a")
    streams.clock.time += 0.8 * MAX_AGE_SECONDS - 1
    await streams.upkeep.look()
    assert not session.ended.is_set()
    streams.clock.time += 0.2 * MAX_AGE_SECONDS + 1
    await streams.upkeep.look()
    assert isinstance(session.error, Unavailable)
    (message,) = await taken(session)
    assert message.reconnect.after_seconds == 1.0


async def test_streams_that_came_together_do_not_leave_together(streams: Streams) -> None:
    for number in range(40):
        streams.sessions.open(Session(f"c{number}", 1, opened_at=streams.clock.now()))
    ended = []
    for _ in range(20):
        streams.clock.time += MAX_AGE_SECONDS / 20
        streams.upkeep.end_the_old()
        ended.append(sum(session.ended.is_set() for session in streams.sessions.all()))
    assert ended[15] == 0
    assert ended[19] == 40
    assert max(later - sooner for sooner, later in pairwise(ended)) < 25


async def test_a_grown_fleet_is_told_its_new_pace(streams: Streams) -> None:
    session = await streams.opened("a")
    for number in range(1000):
        streams.fleet.put_cluster(Cluster(name=f"c{number:04}"))
    await streams.upkeep.look()
    await streams.upkeep.look()
    (message,) = await taken(session)
    assert message.welcome.heartbeat_seconds == pytest.approx(20.0, rel=0.01)


async def test_a_store_that_is_away_ends_no_stream(streams: Streams) -> None:
    session = await streams.opened("a")
    streams.store.reachable = False
    with pytest.raises(Unavailable):
        await streams.upkeep.look()
    assert not session.ended.is_set()


async def test_a_fleet_that_is_due_together_is_renewed_in_portions(
    streams: Streams, engine: AsyncEngine
) -> None:
    sessions = [await streams.opened(f"c{number}") for number in range(RENEWALS_PER_ROUND + 5)]
    await age_credentials(engine)
    await streams.upkeep.look()
    assert sum(session.offered is not None for session in sessions) == RENEWALS_PER_ROUND
    await streams.upkeep.look()
    assert all(session.offered is not None for session in sessions)
