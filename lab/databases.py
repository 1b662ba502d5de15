"""Databases for tests: a template made once, clones of it, and a fast way back to its content.

Must not know the schema: what is truncated and what is put back is read from the catalog.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from threading import Thread
from typing import Any, TypeVar

import asyncpg
from sqlalchemy import URL, make_url
from sqlalchemy.dialects.postgresql.asyncpg import dialect

from federation.store.engine import SCHEMA
from lab.patience import PATIENCE_SECONDS

T = TypeVar("T")
LOCK_TIMEOUT = "60s"  # A test that left a transaction open is reported, not waited for.
KEPT = "alembic_version"
TABLES = f"""
    SELECT format('%I.%I', schemaname, tablename)
    FROM pg_tables
    WHERE schemaname NOT IN ('pg_catalog', 'information_schema') AND tablename <> '{KEPT}'
    ORDER BY 1
"""
# Few tables hold anything after a test, and to truncate one costs more than to delete a few rows.
EMPTY = f"""
    DO $$
    DECLARE
        one text;
        is_used boolean;
    BEGIN
        FOR one IN {TABLES} LOOP
            EXECUTE format('LOCK TABLE %s', one);
            EXECUTE format('SELECT EXISTS (SELECT FROM %s)', one) INTO is_used;
            IF is_used THEN
                EXECUTE format('DELETE FROM %s', one);
            END IF;
        END LOOP;
        PERFORM setval(format('%I.%I', schemaname, sequencename)::regclass, start_value, false)
        FROM pg_sequences
        WHERE last_value IS NOT NULL;
    END $$
"""
CUT_OFF = """
    SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
    WHERE datname = $1 AND pid <> pg_backend_pid()
"""

# Raised where a connection has ended.
LOST = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError)

Rows = dict[str, list[asyncpg.Record]]


class Databases:
    """The databases that a test session makes on one server, and removes at its end."""

    def __init__(self, server_url: str, *, prefix: str) -> None:
        self._server = make_url(server_url)
        self._prefix = prefix
        self._made: list[str] = []
        self._seeds: dict[str, Rows] = {}
        self._connections = KeptConnections()

    def close(self) -> None:
        """Close the connections that were kept."""
        self._connections.close()

    def create(self, name: str, *, template: str | None = None) -> str:
        """Make a database, empty or as a copy; its URL."""
        database = f"{self._prefix}_{name}"
        source = f' TEMPLATE "{make_url(template).database}" STRATEGY file_copy' if template else ""
        self._on_server(lambda server: server.execute(f'CREATE DATABASE "{database}"{source}'))
        self._made.append(database)
        return self._server.set(database=database).render_as_string(hide_password=False)

    def drop(self, url: str) -> None:
        database = str(make_url(url).database)
        self._on_server(
            lambda server: server.execute(f'DROP DATABASE IF EXISTS "{database}" WITH (FORCE)')
        )
        self._made.remove(database)

    def copy(self, name: str, url: str) -> str:
        """A copy of a database as it is now; who is connected to it is cut off."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            self._on_server(lambda server: server.execute(CUT_OFF, make_url(url).database))
            try:
                return self.create(name, template=url)
            except asyncpg.ObjectInUseError:
                # Somebody was about to connect.
                if time.monotonic() > deadline:
                    raise

    def put_back(self, url: str, copy_url: str) -> None:
        """A copy in place of the database that it is of, and of all connections to it."""
        database, copy = make_url(url).database, make_url(copy_url).database

        async def put_back(server: asyncpg.Connection) -> None:
            await server.execute(f'DROP DATABASE "{database}" WITH (FORCE)')
            await server.execute(f'ALTER DATABASE "{copy}" RENAME TO "{database}"')

        self._on_server(put_back)
        self._made.remove(str(copy))

    def drop_all(self) -> None:
        for database in reversed(self._made[:]):
            self.drop(self._server.set(database=database).render_as_string(hide_password=False))

    def remember(self, url: str) -> None:
        """Keep what the migrations put into the tables, for ``reset`` to put back."""
        self._seeds[url] = self._connections.run(make_url(url), _read_rows)

    def reset(self, url: str) -> None:
        """Back to the remembered content, sequences included."""
        seeds = self._seeds[url]
        self._connections.run(make_url(url), lambda connection: _reset(connection, seeds))

    def _on_server(self, statement: Callable[[asyncpg.Connection], Awaitable[Any]]) -> None:
        self._connections.run(self._server, statement)


class KeptConnections:
    """One connection to each database, on a loop in a thread of their own.

    A new connection begins with reading the catalog: that takes longer than to empty a database.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="databases", daemon=True)
        self._thread.start()
        self._kept: dict[URL, asyncpg.Connection] = {}

    def run(self, url: URL, act: Callable[[asyncpg.Connection], Awaitable[T]]) -> T:
        """The result of what is done with the connection to a database."""

        async def acted() -> T:
            return await act(await self._connection(url))

        return self._awaited(acted())

    def close(self) -> None:
        self._awaited(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _awaited(self, work: Coroutine[None, None, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _connection(self, url: URL) -> asyncpg.Connection:
        """The one that was kept, unless somebody has ended it."""
        connection = self._kept.get(url)
        with suppress(*LOST):
            if connection is not None:
                await connection.execute("SELECT")
                return connection
        self._kept[url] = await connect(url)
        return self._kept[url]

    async def _close(self) -> None:
        for connection in self._kept.values():
            with suppress(*LOST):
                await connection.close(timeout=PATIENCE_SECONDS)


def run(work: Awaitable[T]) -> T:
    """The result of ``work`` on a loop of its own, so that the test's loop is left alone."""

    async def awaited() -> T:
        return await work

    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(asyncio.run, awaited()).result()


async def connect(url: str | URL) -> asyncpg.Connection:
    """A plain asyncpg connection to what a SQLAlchemy URL names."""
    _, options = dialect().create_connect_args(make_url(url))
    return await asyncpg.connect(**options, server_settings={"search_path": f"{SCHEMA}, public"})


@asynccontextmanager
async def connected(url: str | URL) -> AsyncIterator[asyncpg.Connection]:
    """A connection as long as the block lasts."""
    connection = await connect(url)
    try:
        yield connection
    finally:
        await connection.close(timeout=PATIENCE_SECONDS)


async def _read_rows(connection: asyncpg.Connection) -> Rows:
    tables = [record[0] for record in await connection.fetch(TABLES)]
    rows = {table: await connection.fetch(f"SELECT * FROM {table}") for table in tables}
    return {table: found for table, found in rows.items() if found}


async def _reset(connection: asyncpg.Connection, seeds: Rows) -> None:
    async with connection.transaction():
        await connection.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'")
        # Rows may point at each other in any order.
        await connection.execute("SET LOCAL session_replication_role = replica")
        await connection.execute(EMPTY)
        for table, rows in seeds.items():
            schema, name = table.split(".")
            await connection.copy_records_to_table(
                name.strip('"'),
                schema_name=schema.strip('"'),
                records=rows,
                columns=[*rows[0].keys()],
            )
