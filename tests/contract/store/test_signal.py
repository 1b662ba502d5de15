from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from federation.services.journal import ClusterChanged
from federation.store.engine import create_engine
from federation.store.postgres import PostgresStore
from federation.store.signal import CHANNEL, JournalSignal
from lab.databases import connect
from lab.patience import PATIENCE_SECONDS

LONG_SECONDS = PATIENCE_SECONDS
LISTENERS = text("""
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND query LIKE 'LISTEN%'
""")
END_LISTENERS = text("""
    SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
    WHERE datname = current_database() AND query LIKE 'LISTEN%'
""")


@pytest.fixture
async def announcing(engine: AsyncEngine, database_url: str) -> AsyncIterator[PostgresStore]:
    """The store of another control plane, which tells of what it appends."""
    told = JournalSignal(database_url)
    await wake_up(told)
    yield PostgresStore(engine, told.announce)
    await told.close()


async def append(store: PostgresStore) -> None:
    async with store.transaction() as tx:
        await tx.journal.append([ClusterChanged(cluster="a")])


async def wake_up(signal: JournalSignal) -> None:
    """Fails unless it is woken long before its time."""
    async with asyncio.timeout(LONG_SECONDS):
        await signal.wait(100 * LONG_SECONDS)


async def test_it_wakes_up_for_every_append(announcing: PostgresStore, database_url: str) -> None:
    signal = JournalSignal(database_url)
    # The first time there may have been something before.
    await wake_up(signal)
    for _ in range(3):
        await append(announcing)
        await wake_up(signal)
    await signal.close()


async def test_it_wakes_up_for_an_append_of_its_own_process(
    engine: AsyncEngine, database_url: str
) -> None:
    signal = JournalSignal(database_url)
    await wake_up(signal)
    await append(PostgresStore(engine, signal.announce))
    await wake_up(signal)
    await signal.close()


async def test_what_is_rolled_back_is_not_announced(engine: AsyncEngine) -> None:
    announced: list[str] = []
    store = PostgresStore(engine, lambda: announced.append("append"))
    with suppress(RuntimeError):
        async with store.transaction() as tx:
            await tx.journal.append([ClusterChanged(cluster="a")])
            raise RuntimeError
    async with store.transaction() as tx:
        assert await tx.journal.append([]) == ()
    assert announced == []
    await append(store)
    assert announced == ["append"]


async def test_a_transaction_that_appends_notifies_nobody_itself(
    store: PostgresStore, database_url: str
) -> None:
    """PostgreSQL lets only one transaction that notifies commit at a time."""
    listener = await connect(database_url)
    heard: list[object] = []
    await listener.add_listener(CHANNEL, lambda *told: heard.append(told))
    await append(store)
    # What comes later on the same connection would come behind a notification.
    await listener.execute("SELECT 1")
    assert heard == []
    await listener.execute("SELECT pg_notify($1, '')", CHANNEL)
    await listener.execute("SELECT 1")
    assert len(heard) == 1
    await listener.close()


async def test_what_was_told_while_nobody_waited_wakes_the_next(
    announcing: PostgresStore, database_url: str
) -> None:
    signal = JournalSignal(database_url)
    await wake_up(signal)
    waiting = asyncio.create_task(wake_up(signal))
    await append(announcing)
    await waiting
    await append(announcing)
    await append(announcing)
    await wake_up(signal)
    await signal.close()


async def test_without_an_append_it_returns_after_the_time(database_url: str) -> None:
    signal = JournalSignal(database_url)
    await wake_up(signal)
    await signal.wait(0.01)
    await signal.close()


async def test_it_listens_again_after_its_connection_was_lost(
    announcing: PostgresStore, engine: AsyncEngine, database_url: str
) -> None:
    signal = JournalSignal(database_url)
    await wake_up(signal)
    async with engine.connect() as connection:
        assert (await connection.execute(END_LISTENERS)).scalar_one() == 2
    # Listening again wakes up: something may have been appended meanwhile.
    await wake_up(signal)
    await append(announcing)
    await wake_up(signal)
    await signal.close()


async def test_a_database_that_cannot_be_reached_is_waited_for() -> None:
    nowhere = JournalSignal("postgresql://nobody@127.0.0.1:1/none")
    await nowhere.wait(0.01)
    await nowhere.close()


async def test_closed_it_leaves_no_connection(database_url: str) -> None:
    signal = JournalSignal(database_url)
    await signal.close()
    await wake_up(signal)
    await signal.close()
    engine = create_engine(database_url)
    async with asyncio.timeout(LONG_SECONDS), engine.connect() as connection:
        while (await connection.execute(LISTENERS)).scalar_one():
            await connection.rollback()
    await engine.dispose()
