"""A transaction of a stranger, in another database of the server, that holds the journal back."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import asyncpg
import pytest

from federation.services.fleet.held_back import HELD_SECONDS, JournalHold
from federation.services.journal_ports import OpenTransaction
from federation.store.postgres import PostgresStore
from lab.databases import Databases, connect
from tests.unit.services.fleet.planes import Plane


@dataclass
class Time:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def elsewhere(databases: Databases) -> Iterator[str]:
    url = databases.create("elsewhere")
    yield url
    databases.drop(url)


@asynccontextmanager
async def stranger(url: str) -> AsyncIterator[asyncpg.Connection]:
    """Has a transaction with an id open until the end."""
    connection = await connect(url)
    await connection.execute("SET application_name = 'wiki'")
    await connection.execute("BEGIN; SELECT pg_current_xact_id()")
    try:
        yield connection
    finally:
        await connection.close()


async def look(store: PostgresStore, hold: JournalHold) -> OpenTransaction | None:
    async with store.reading() as read:
        await hold.look(read)
    return hold.held.holder if hold.held else None


async def test_a_transaction_that_stays_open_is_named_and_told_once(
    store: PostgresStore, elsewhere: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    time = Time()
    hold = JournalHold(time)
    async with stranger(elsewhere) as connection:
        assert await look(store, hold) is None
        time.now += HELD_SECONDS
        holder = await look(store, hold)
        assert holder is not None
        assert holder.pid == connection.get_server_pid()
        assert holder.database == elsewhere.rpartition("/")[2].partition("?")[0]
        assert holder.application == "wiki"
        assert holder.user
        assert holder.seconds is not None
        assert hold.held is not None
        assert f"pg_terminate_backend({holder.pid})" in hold.held.message
        time.now += 2.0
        assert await look(store, hold) == holder
        assert hold.seconds == HELD_SECONDS + 2.0
    time.now += 2.0
    assert await look(store, hold) is None
    assert hold.seconds == 0.0
    begun, over = (each for each in caplog.records if "others" in each.message)
    assert begun.levelno == logging.WARNING
    assert begun.__dict__["fields"]["pid"] == holder.pid
    assert "seen again" in over.message


async def test_what_ends_in_time_is_not_told(store: PostgresStore, elsewhere: str) -> None:
    time = Time()
    hold = JournalHold(time)
    for _ in range(3):
        async with stranger(elsewhere):
            assert await look(store, hold) is None
            time.now += HELD_SECONDS - 1.0
            assert await look(store, hold) is None
        time.now += 2.0


async def test_a_prepared_transaction_is_named_by_its_id() -> None:
    holder = OpenTransaction(0, "wiki", "ann", "prepared transaction move", 9.0)
    assert "'prepared transaction move'" in holder.text
    assert "ROLLBACK PREPARED" in holder.remedy


async def test_who_cannot_read_to_the_end_is_not_ready(
    planes: tuple[Plane, Plane], elsewhere: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("federation.services.fleet.held_back.LOOK_SECONDS", 0.0)
    monkeypatch.setattr("federation.services.fleet.held_back.HELD_SECONDS", 0.0)
    one, other = planes
    async with stranger(elsewhere) as connection:
        await one.membership.cordon("a", cordoned=True)
        await other.following.follow()
        assert not other.fleet.known("a").cluster.cordoned
        for following in (one.following, other.following):
            await following.follow()
            assert f"server process {connection.get_server_pid()}" in str(following.why_not_ready)
            assert min(following.age_seconds, following.held_seconds) > 0
    await other.following.follow()
    assert other.fleet.known("a").cluster.cordoned
    assert other.following.held_back is None
