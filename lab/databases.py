"""Databases for tests: a template made once, clones of it, and a fast way back to its content.

Must not know the schema: what is truncated and what is put back is read from the catalog.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import asyncpg
from sqlalchemy import URL, make_url
from sqlalchemy.dialects.postgresql.asyncpg import dialect

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

Rows = dict[str, list[asyncpg.Record]]


class Databases:
    """The databases that a test session makes on one server, and removes at its end."""

    def __init__(self, server_url: str, *, prefix: str) -> None:
        self._server = make_url(server_url)
        self._prefix = prefix
        self._made: list[str] = []
        self._seeds: dict[str, Rows] = {}

    def create(self, name: str, *, template: str | None = None) -> str:
        """Make a database, empty or as a copy; its URL."""
        database = f"{self._prefix}_{name}"
        source = f' TEMPLATE "{make_url(template).database}"' if template else ""
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
        self._seeds[url] = run(_connected(make_url(url), _read_rows))

    def reset(self, url: str) -> None:
        """Back to the remembered content, sequences included."""
        run(_connected(make_url(url), lambda connection: _reset(connection, self._seeds[url])))

    def _on_server(self, statement: Callable[[asyncpg.Connection], Awaitable[Any]]) -> None:
        run(_connected(self._server, statement))


def run(work: Awaitable[T]) -> T:
    """The result of ``work`` on a loop of its own, so that the test's loop is left alone."""

    async def awaited() -> T:
        return await work

    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(asyncio.run, awaited()).result()


async def connect(url: str | URL) -> asyncpg.Connection:
    """A plain asyncpg connection to what a SQLAlchemy URL names."""
    _, options = dialect().create_connect_args(make_url(url))
    return await asyncpg.connect(**options)


@asynccontextmanager
async def connected(url: str | URL) -> AsyncIterator[asyncpg.Connection]:
    """A connection as long as the block lasts."""
    connection = await connect(url)
    try:
        yield connection
    finally:
        await connection.close(timeout=PATIENCE_SECONDS)


async def _connected(url: URL, act: Callable[[asyncpg.Connection], Awaitable[T]]) -> T:
    async with connected(url) as connection:
        return await act(connection)


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
