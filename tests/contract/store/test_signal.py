from __future__ import annotations

import asyncio

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from federation.services.journal import ClusterChanged
from federation.store.engine import create_engine
from federation.store.postgres import PostgresStore
from federation.store.signal import JournalSignal

LONG_SECONDS = 30.0
LISTENERS = text("""
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND query LIKE 'LISTEN%'
""")
END_LISTENERS = text("""
    SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
    WHERE datname = current_database() AND query LIKE 'LISTEN%'
""")


async def append(store: PostgresStore) -> None:
    async with store.transaction() as tx:
        await tx.journal.append([ClusterChanged(cluster="a")])


async def wake_up(signal: JournalSignal) -> None:
    """Fails unless it is woken long before its time."""
    async with asyncio.timeout(LONG_SECONDS):
        await signal.wait(100 * LONG_SECONDS)


async def test_it_wakes_up_for_every_append(store: PostgresStore, database_url: str) -> None:
    signal = JournalSignal(database_url)
    # The first time there may have been something before.
    await wake_up(signal)
    for _ in range(3):
        await append(store)
        await wake_up(signal)
    await signal.close()


async def test_what_was_told_while_nobody_waited_wakes_the_next(
    store: PostgresStore, database_url: str
) -> None:
    signal = JournalSignal(database_url)
    await wake_up(signal)
    waiting = asyncio.create_task(wake_up(signal))
    await append(store)
    await waiting
    await append(store)
    await append(store)
    await wake_up(signal)
    await signal.close()


async def test_without_an_append_it_returns_after_the_time(database_url: str) -> None:
    signal = JournalSignal(database_url)
    await wake_up(signal)
    await signal.wait(0.01)
    await signal.close()


async def test_it_listens_again_after_its_connection_was_lost(
    store: PostgresStore, engine: AsyncEngine, database_url: str
) -> None:
    signal = JournalSignal(database_url)
    await wake_up(signal)
    async with engine.connect() as connection:
        assert (await connection.execute(END_LISTENERS)).scalar_one() == 1
    # Listening again wakes up: something may have been appended meanwhile.
    await wake_up(signal)
    await append(store)
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
