"""A database that can be reached and is of no use: what is said of it, and how often."""

from __future__ import annotations

import logging

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from federation.model.errors import Unavailable
from federation.services.journal import ClusterChanged
from federation.store.engine import (
    FAILING,
    FULL,
    IMPAIRED,
    NO_DATABASE,
    NO_TABLES,
    READ_ONLY,
    create_engine,
)
from federation.store.histories import EMPTIED
from federation.store.postgres import PostgresStore
from lab.databases import Databases

CHANGE = ClusterChanged(cluster="a")


@pytest.fixture
def fresh_store(fresh_engine: AsyncEngine) -> PostgresStore:
    return PostgresStore(fresh_engine)


async def execute(engine: AsyncEngine, *statements: str) -> None:
    async with engine.begin() as connection:
        for each in statements:
            await connection.execute(text(each))


async def fail_writes(engine: AsyncEngine, sqlstate: str) -> None:
    """As the server does when it finds no room for a row, or cannot write it."""
    await execute(
        engine,
        f"""
        CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            RAISE EXCEPTION 'could not extend file' USING ERRCODE = '{sqlstate}';
        END $$
        """,
        "CREATE TRIGGER fail BEFORE INSERT ON journal EXECUTE FUNCTION fail()",
    )


async def append(store: PostgresStore) -> None:
    async with store.transaction() as tx:
        await tx.journal.append([CHANGE])


@pytest.mark.parametrize(
    ("sqlstate", "why"),
    [("53100", FULL), ("58030", FAILING), ("XX001", FAILING), ("25006", READ_ONLY)],
)
async def test_what_cannot_be_written_is_told_as_what_it_is(
    fresh_engine: AsyncEngine,
    fresh_store: PostgresStore,
    sqlstate: str,
    why: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "federation")
    await fresh_store.check()
    await fail_writes(fresh_engine, sqlstate)
    for _ in range(3):
        with pytest.raises(Unavailable) as caught:
            await append(fresh_store)
        assert (caught.value.message, caught.value.reason) == (why, IMPAIRED)
        # Reading works: only by writing is it known whether that works again.
        with pytest.raises(Unavailable, match=why):
            await fresh_store.check()
    await execute(fresh_engine, "DROP TRIGGER fail ON journal")
    await fresh_store.check()
    assert caplog.messages == ["the database cannot be used", "the database can be used again"]
    async with fresh_store.reading() as read:
        assert await read.histories.bookmark(await read.journal.position()) is None


async def test_a_commit_shows_that_there_is_room_again(
    fresh_engine: AsyncEngine, fresh_store: PostgresStore
) -> None:
    await fail_writes(fresh_engine, "53100")
    with pytest.raises(Unavailable, match=FULL):
        await append(fresh_store)
    await execute(fresh_engine, "DROP TRIGGER fail ON journal")
    await append(fresh_store)
    assert not fresh_store.impairment.why


async def test_a_commit_that_the_server_refuses_is_known_not_to_be_done(
    fresh_engine: AsyncEngine, fresh_store: PostgresStore
) -> None:
    await fail_writes(fresh_engine, "53100")
    await execute(
        fresh_engine,
        "DROP TRIGGER fail ON journal",
        "CREATE CONSTRAINT TRIGGER fail AFTER INSERT ON journal DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION fail()",
    )
    with pytest.raises(Unavailable, match=FULL):
        await append(fresh_store)


async def test_tables_that_are_gone_are_told(
    fresh_engine: AsyncEngine, fresh_store: PostgresStore, caplog: pytest.LogCaptureFixture
) -> None:
    await fresh_store.check()
    await execute(fresh_engine, "DROP SCHEMA fedsched CASCADE")
    for _ in range(3):
        with pytest.raises(Unavailable, match=NO_TABLES):
            await append(fresh_store)
        with pytest.raises(Unavailable, match=NO_TABLES):
            await fresh_store.check()
    assert caplog.messages == ["the database cannot be used"]


async def test_a_table_that_was_emptied_is_told(
    fresh_engine: AsyncEngine, fresh_store: PostgresStore
) -> None:
    await execute(fresh_engine, "TRUNCATE database_incarnation")
    with pytest.raises(Unavailable, match=EMPTIED):
        await fresh_store.check()
    async with fresh_store.reading() as read:
        with pytest.raises(Unavailable, match=EMPTIED):
            await read.histories.check()


async def test_a_column_that_came_just_now_costs_a_try(
    fresh_engine: AsyncEngine, fresh_store: PostgresStore
) -> None:
    for _ in range(10):
        async with fresh_store.reading() as read:
            await read.clusters.all()
    await execute(fresh_engine, "ALTER TABLE cluster ALTER COLUMN uid TYPE varchar(99)")
    for _ in range(20):
        try:
            async with fresh_store.reading() as read:
                await read.clusters.all()
        except Unavailable:
            continue
        break
    else:
        pytest.fail("never works again")


async def test_a_database_that_was_dropped_is_told(databases: Databases, template_url: str) -> None:
    url = databases.create("dropped_later", template=template_url)
    engine = create_engine(url)
    store = PostgresStore(engine)
    await store.check()
    databases.drop(url)
    # The first one only finds its connection closed.
    with pytest.raises(Unavailable):
        await store.check()
    with pytest.raises(Unavailable, match=NO_DATABASE):
        await store.check()
    await engine.dispose()
