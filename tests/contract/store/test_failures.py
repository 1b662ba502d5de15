from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from sqlalchemy import make_url, text
from sqlalchemy.ext.asyncio import AsyncEngine

from federation.model.cluster import Cluster
from federation.model.errors import Conflict, Unavailable
from federation.services.agent_values import AgentFacts
from federation.store import engine as module
from federation.store import lost_peers
from federation.store.engine import OUTCOME_UNKNOWN, create_engine, driver_target
from federation.store.postgres import PostgresStore, PostgresTransaction
from lab.databases import Databases

IDLE = "idle_in_transaction_session_timeout"
OTHERS = text("""
    SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
""")


class ForgetfulWire:
    """Lies between us and the database, and can lose its connections as firewalls do: nobody is
    told, and what comes on one later is reset.
    """

    def __init__(self, url: str) -> None:
        self._url = make_url(url)
        self._known: set[asyncio.StreamWriter] = set()
        self._pumps: list[asyncio.Task[None]] = []

    @asynccontextmanager
    async def laid(self) -> AsyncIterator[str]:
        """The URL that leads over it."""
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        url = self._url.set(host=host, port=port, query={})
        yield url.render_as_string(hide_password=False)
        server.close()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    def forget_all(self) -> None:
        self._known.clear()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        folder, port = self._url.query.get("host"), self._url.query.get("port")
        if folder is not None:
            theirs = await asyncio.open_unix_connection(f"{folder}/.s.PGSQL.{port}")
        else:
            theirs = await asyncio.open_connection(self._url.host, self._url.port)
        self._known.add(writer)
        self._pumps.append(asyncio.create_task(self._pump(reader, theirs[1], writer)))
        self._pumps.append(asyncio.create_task(self._pump(theirs[0], writer, writer)))

    async def _pump(
        self,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        client: asyncio.StreamWriter,
    ) -> None:
        try:
            while (data := await source.read(65536)) and client in self._known:
                target.write(data)
            if data:
                client.transport.abort()
        finally:
            target.close()


async def end_other_connections(engine: AsyncEngine) -> None:
    async with engine.connect() as connection:
        await connection.execute(OTHERS)


async def names(store: PostgresStore) -> list[str]:
    async with store.reading() as read:
        return [each.cluster.name for each in await read.clusters.all()]


async def add(tx: PostgresTransaction, name: str) -> None:
    await tx.clusters.add(Cluster(name=name), AgentFacts())


async def test_a_refused_connection_is_unavailable() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # Bound and not listening: connecting is refused.
        engine = create_engine(f"postgresql://nobody@127.0.0.1:{bound.getsockname()[1]}/none")
        with pytest.raises(Unavailable):
            await names(PostgresStore(engine))
        await engine.dispose()


async def test_a_database_that_is_not_there_is_unavailable(databases: Databases) -> None:
    url = databases.create("dropped")
    databases.drop(url)
    engine = create_engine(url)
    with pytest.raises(Unavailable):
        await names(PostgresStore(engine))
    await engine.dispose()


async def test_a_connection_lost_between_transactions_is_not_noticed(
    store: PostgresStore, database_url: str
) -> None:
    breaker = create_engine(database_url)
    assert await names(store) == []
    await end_other_connections(breaker)
    assert await names(store) == []
    await breaker.dispose()


@pytest.mark.parametrize("idle_seconds", [0.0, 3600.0])
async def test_a_connection_that_was_lost_silently_is_noticed_only_after_a_while(
    database_url: str, monkeypatch: pytest.MonkeyPatch, idle_seconds: float
) -> None:
    monkeypatch.setattr(module, "UNASKED_SECONDS", idle_seconds)
    wire = ForgetfulWire(database_url)
    async with wire.laid() as url:
        engine = create_engine(url)
        store = PostgresStore(engine)
        assert await names(store) == []
        wire.forget_all()
        if idle_seconds:
            with pytest.raises(Unavailable):
                await names(store)
        assert await names(store) == []
        await engine.dispose()


async def test_busy_connections_are_not_asked_whether_they_live(
    store: PostgresStore, engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(_: object) -> bool:
        raise AssertionError

    monkeypatch.setattr(engine.dialect, "do_ping", ask)
    for _ in range(3):
        assert await names(store) == []


@pytest.mark.parametrize("is_committing", [False, True])
async def test_a_connection_lost_within_a_transaction_is_unavailable_and_leaves_nothing(
    store: PostgresStore, database_url: str, *, is_committing: bool
) -> None:
    """Before the commit is answered the outcome is unknown, and that is said."""
    breaker = create_engine(database_url)

    async def lose_it() -> None:
        async with store.transaction() as tx:
            await add(tx, "a")
            await end_other_connections(breaker)
            if not is_committing:
                await add(tx, "b")

    with pytest.raises(Unavailable) as raised:
        await lose_it()
    assert (raised.value.message == OUTCOME_UNKNOWN) is is_committing
    assert await names(store) == []
    await breaker.dispose()


async def test_who_waits_too_long_for_a_lock_is_told_to_try_again(
    store: PostgresStore, database_url: str
) -> None:
    impatient = create_engine(database_url)

    async def wait_for_it() -> None:
        async with impatient.connect() as connection:
            await connection.execute(text("SET lock_timeout = '50ms'"))
            await connection.commit()
        async with PostgresStore(impatient).transaction() as tx:
            await tx.clusters.lock("a")

    async with store.transaction() as tx:
        await add(tx, "a")
    async with store.transaction() as tx:
        await tx.clusters.lock("a")
        with pytest.raises(Conflict):
            await wait_for_it()
    await impatient.dispose()


async def test_who_stands_still_in_a_transaction_holds_its_locks_no_longer(
    store: PostgresStore, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a connection of before: a busy machine may stand still for so long itself.
    async with store.transaction() as tx:
        await add(tx, "a")
    monkeypatch.setitem(module.SERVER_SETTINGS, IDLE, "100ms")
    still = create_engine(database_url)

    async def stand_still() -> None:
        async with PostgresStore(still).transaction() as tx:
            await tx.clusters.lock("a")
            async with store.transaction() as other:
                await other.clusters.lock("a")
            await tx.clusters.lock("a")

    with pytest.raises(Unavailable):
        await stand_still()
    await still.dispose()


def test_a_transaction_that_stands_still_is_ended_within_seconds() -> None:
    assert lost_peers.SERVER_SETTINGS[IDLE] == "3s"


async def test_a_statement_that_takes_too_long_is_unavailable(engine: AsyncEngine) -> None:
    store = PostgresStore(engine)

    async def dawdle() -> None:
        async with engine.connect() as connection:
            await connection.execute(text("SET statement_timeout = '50ms'"))
            await connection.commit()
        async with store.transaction() as tx:
            await tx.clusters._connection.execute(text("SELECT pg_sleep(10)"))

    with pytest.raises(Unavailable):
        await dawdle()


async def test_deadlocks_are_conflicts_and_one_of_two_gets_through(store: PostgresStore) -> None:
    async with store.transaction() as tx:
        await add(tx, "a")
        await add(tx, "b")
    both_hold_one = asyncio.Barrier(2)

    async def lock(first: str, second: str) -> bool:
        try:
            async with store.transaction() as tx:
                await tx.clusters.lock(first)
                await both_hold_one.wait()
                await tx.clusters.lock(second)
        except Conflict:
            return False
        return True

    assert sorted(await asyncio.gather(lock("a", "b"), lock("b", "a"))) == [False, True]


async def test_what_a_cancelled_caller_did_is_undone(store: PostgresStore) -> None:
    reached = asyncio.Event()

    async def never_ends() -> None:
        async with store.transaction() as tx:
            await add(tx, "a")
            reached.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(never_ends())
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await names(store) == []


async def test_commits_wait_for_the_disk_and_statements_have_deadlines(
    engine: AsyncEngine,
) -> None:
    """Whatever the server's defaults are."""
    async with engine.connect() as connection:
        settings = {
            name: (await connection.execute(text(f"SHOW {name}"))).scalar_one()
            for name in ("synchronous_commit", "statement_timeout", "lock_timeout")
        }
    assert settings["synchronous_commit"] == "on"
    assert "0" not in (settings["statement_timeout"], settings["lock_timeout"])


def test_sslmode_goes_where_the_driver_looks_for_it() -> None:
    url, options = driver_target("postgres://u:p@db.example/fed?sslmode=require&host=db2")
    assert url.render_as_string(hide_password=False) == (
        "postgresql+asyncpg://u:p@db.example/fed?host=db2"
    )
    assert options == {"ssl": "require"}
