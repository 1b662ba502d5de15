"""Brings a database to the schema this release needs.

Must not run inside a transaction of others. Every call blocks: call from a thread when a loop
runs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Final, TypeVar
from uuid import uuid4

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, NullPool, event, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from federation.model.errors import PreconditionFailed, Unavailable
from federation.store.engine import (
    CONNECT_SECONDS,
    SCHEMA,
    TOO_SLOW,
    application_name,
    driver_target,
    translated,
)
from federation.store.moved_tables import move_tables

T = TypeVar("T")

# The first revision of this release's schema, and those of earlier releases that lead to it. Those
# that were taken in by a later one are done again: its steps may run again.
BASELINE: Final = "1000"
NEWEST: Final = "fedsched@head"
NEWEST_EARLIER: Final = "earlier@head"
FIRST_READ: Final = "0019"
COMMIT_OF_FIRST: Final = "fe7cb724"
TAKEN_IN: Final = frozenset({f"00{number}" for number in range(20, 27)})

# Two programs that start at once: the second waits for the first, and then finds nothing to do.
LOCK_NAME: Final = "fedsched migrations"
MAX_WAIT_SECONDS: Final = 120.0
POLL_SECONDS: Final = 0.25
MAX_ANSWER_SECONDS: Final = 15.0
# Nobody else's statements may queue behind a migration that waits for a table.
LOCK_TIMEOUT: Final = "5s"
STATEMENT_TIMEOUT: Final = "300s"

# Settings and locks of a session get lost where a pooler gives each transaction another server
# process, and a lock is held there by nobody's session for ever. These end with the transaction.
# Other programs may have an alembic_version, too.
_SCHEMAS = text("""
    SELECT /* fedsched:migrations.schemas */ nspname
    FROM pg_namespace JOIN pg_class ON relnamespace = pg_namespace.oid
    WHERE relname = 'alembic_version' AND EXISTS (
        SELECT FROM pg_class AS other
        WHERE other.relnamespace = pg_namespace.oid AND other.relname = 'cluster_capacity'
    )
    ORDER BY nspname
""")
# Who may not make it finds it made, by somebody who may.
_MAKE_SCHEMA = text(f"""
    DO /* fedsched:migrations.make_schema */ $$ BEGIN
        IF to_regnamespace('{SCHEMA}') IS NULL THEN
            CREATE SCHEMA {SCHEMA};
        END IF;
    END $$
""")
_STAMP = text("UPDATE /* fedsched:migrations.stamp */ alembic_version SET version_num = :revision")
_SET = text("SELECT /* fedsched:migrations.set */ set_config(:setting, :value, true)")
# Tried and not waited for: CREATE INDEX CONCURRENTLY waits for statements that wait for its lock.
_LOCK = text(
    "SELECT /* fedsched:migrations.lock */ pg_try_advisory_xact_lock(hashtextextended(:name, 0))"
)
# The last statement of the transaction that holds the lock has to be one without a snapshot:
# that of a query stays until the next one, and an index that is built beside writers waits for it.
_KEEP = text("SET /* fedsched:migrations.keep */ LOCAL idle_in_transaction_session_timeout = 0")
_HOLDERS = text("""
    SELECT /* fedsched:migrations.holders */ pid, coalesce(usename, '?'),
        coalesce(nullif(application_name, ''), '?'), coalesce(host(client_addr), 'this machine')
    FROM pg_locks
    JOIN (SELECT hashtextextended(:name, 0) AS key) AS wanted
        ON (classid::bigint << 32 | objid::bigint) = key
    LEFT JOIN pg_stat_activity USING (pid)
    WHERE locktype = 'advisory' AND objsubid = 1 AND granted
        AND pg_locks.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    ORDER BY pid
""")
_BACKEND = text("SELECT /* fedsched:migrations.backend */ pg_backend_pid()")
# Names of prepared statements of other clients are in the way on a server process of a pooler.
_UNSHARED_STATEMENTS: Final = {
    "statement_cache_size": 0,
    "prepared_statement_cache_size": 0,
    "prepared_statement_name_func": lambda: f"fedsched_{uuid4().hex}",
}

# Alembic keeps what it is doing in one place per process.
one_at_a_time = Lock()


def scripts_directory() -> Path:
    """Where the migrations lie: in an installed package beside this file, else in the checkout."""
    here = Path(__file__).resolve()
    installed = here.parent / "migrations"
    return installed if installed.is_dir() else here.parents[2] / "migrations"


def upgrade(url: str) -> None:
    """Run what is missing, each migration in transactions of its own, under a lock.

    The lock is one of a transaction that another connection holds open meanwhile. Several programs
    may call it at once. Raises Unavailable.
    """

    async def run(engine: AsyncEngine) -> None:
        async with engine.connect() as holder, engine.connect() as connection:
            await _lock(holder)
            while await connection.run_sync(_run_next):
                # A lock that is lost lets others migrate: the next one is not begun.
                await holder.execute(_KEEP)

    with one_at_a_time:
        _with_engine(url, run)


def current(url: str) -> str | None:
    """The revision a database is at, None before the first.

    Raises Unavailable, and PreconditionFailed where tables of ours are in several schemas.
    """
    place = _with_engine(url, _on_connection(_place))
    return place.revision if place else None


def pending(url: str) -> list[str]:
    """The revisions ``upgrade`` would run, oldest first.

    Raises Unavailable, and PreconditionFailed when a newer release migrated the database, or one
    that is too old.
    """
    return _missing(_with_engine(url, _on_connection(_place)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """The schema that the tables of a database are in, and their revision."""

    schema: str
    revision: str


def _place(connection: Connection) -> _Place | None:
    """Find the tables wherever they are: no second, empty set is made. None: there are none."""
    schemas = connection.scalars(_SCHEMAS).all()
    if len(schemas) > 1:
        raise PreconditionFailed(
            f"The database has tables of ours in the schemas {', '.join(schemas)}: which of them "
            "are in use is not known. Rename or drop the others."
        )
    for schema in schemas:
        options = {"version_table_schema": schema}
        revision = MigrationContext.configure(connection, opts=options).get_current_revision()
        return _Place(schema=schema, revision=revision or "")
    return None


def _missing(place: _Place | None) -> list[str]:
    """Return the revisions from a place to the newest one. Raises PreconditionFailed."""
    new = _revisions(NEWEST, "base")
    if place is None:
        return new
    if place.revision in new:
        return new[new.index(place.revision) + 1 :]
    earlier = _revisions(NEWEST_EARLIER, "base")
    if place.revision in TAKEN_IN:
        return [*earlier[1:], *new]
    if place.revision in earlier:
        return [*earlier[earlier.index(place.revision) + 1 :], *new]
    if place.revision < FIRST_READ:
        raise PreconditionFailed(
            f"The database is at revision {place.revision}, which is older than this release "
            f"reads: first run `federation migrate` of commit {COMMIT_OF_FIRST}.",
            reason="SCHEMA_TOO_OLD",
        )
    raise PreconditionFailed(
        f"The database is at revision {place.revision}, which this release does not know: "
        "a newer release migrated it.",
        reason="SCHEMA_AHEAD",
    )


def _revisions(newest: str, oldest: str) -> list[str]:
    scripts = ScriptDirectory.from_config(_config()).iterate_revisions(newest, oldest)
    return [script.revision for script in scripts][::-1]


def is_pooled(url: str) -> bool:
    """Tell whether a pooler between gives each transaction another server process.

    A session reads which process serves it, before and while another one holds a transaction open:
    a pooler gives away the process of a session that is idle. Raises Unavailable.
    """

    async def has_moved(engine: AsyncEngine) -> bool:
        async with engine.connect() as session, engine.connect() as holder:
            first_process = await session.scalar(_BACKEND)
            await session.rollback()
            await holder.scalar(_BACKEND)
            try:
                # A pooler of one process would have the session wait for it.
                async with asyncio.timeout(MAX_ANSWER_SECONDS):
                    return bool(first_process != await session.scalar(_BACKEND))
            except TimeoutError as error:
                raise Unavailable(TOO_SLOW) from error

    return _with_engine(url, has_moved)


def _run_next(connection: Connection) -> bool:
    """Run the oldest migration that is missing; return whether there was one."""
    place = _place(connection)
    missing = _missing(place)
    connection.rollback()
    if not missing:
        return False
    is_first = missing[0] == BASELINE
    schema = SCHEMA if place is None or is_first else place.schema

    def begun(connection: Connection) -> None:
        _limit(connection, schema)

    event.listen(connection, "begin", begun)
    if is_first:
        connection.execute(_MAKE_SCHEMA)
    if is_first and place is not None:
        move_tables(connection, place.schema)
        _stamp(connection, BASELINE)
    elif place is not None and place.revision in TAKEN_IN:
        _stamp(connection, FIRST_READ)
    connection.commit()
    if place is None or not is_first:
        config = _config()
        config.attributes.update(connection=connection, schema=schema)
        command.upgrade(config, missing[0])
    connection.rollback()
    event.remove(connection, "begin", begun)
    return True


def _stamp(connection: Connection, revision: str) -> None:
    connection.execute(_STAMP, {"revision": revision})


def _limit(connection: Connection, schema: str) -> None:
    """Let no transaction of a migration wait, or run, for long; its tables are in the schema."""
    if connection.get_execution_options().get("isolation_level") == "AUTOCOMMIT":
        return
    for setting, value in (
        ("lock_timeout", LOCK_TIMEOUT),
        ("statement_timeout", STATEMENT_TIMEOUT),
        ("search_path", schema),
    ):
        connection.execute(_SET, {"setting": setting, "value": value})


async def _lock(holder: AsyncConnection) -> None:
    """Let nobody else migrate until the transaction ends. Raises Unavailable, naming who does."""
    deadline = time.monotonic() + MAX_WAIT_SECONDS
    while True:
        if await holder.scalar(_LOCK, {"name": LOCK_NAME}):
            await holder.execute(_KEEP)
            return
        if time.monotonic() > deadline:
            raise Unavailable(await _held_by(holder))
        await holder.rollback()
        await asyncio.sleep(POLL_SECONDS)


async def _held_by(connection: AsyncConnection) -> str:
    rows = await connection.execute(_HOLDERS, {"name": LOCK_NAME})
    holders = [
        f"server process {pid} of user {user}, application {application}, client {client}"
        for pid, user, application, client in rows
    ]
    return (
        f"Another program has held the lock of migrations for {MAX_WAIT_SECONDS:g} s: "
        f"{'; '.join(holders) or 'it has just ended'}. Wait until it is done. A process that no "
        "program uses was left by a transaction pooler: end it by pg_terminate_backend(pid)."
    )


def _config() -> Config:
    config = Config()
    # The option is a template: a per cent sign in the path would start a placeholder.
    config.set_main_option("script_location", str(scripts_directory()).replace("%", "%%"))
    return config


def _on_connection(act: Callable[[Connection], T]) -> Callable[[AsyncEngine], Awaitable[T]]:
    async def acted(engine: AsyncEngine) -> T:
        async with engine.connect() as connection:
            return await connection.run_sync(act)

    return acted


def _with_engine(url: str, act: Callable[[AsyncEngine], Awaitable[T]]) -> T:
    """Return the result of ``act``; its connections are closed afterwards."""

    async def acted() -> T:
        target, options = driver_target(url)
        engine = create_async_engine(
            target,
            poolclass=NullPool,
            connect_args={
                "timeout": CONNECT_SECONDS,
                "server_settings": {"application_name": application_name("migrate")},
                **_UNSHARED_STATEMENTS,
                **options,
            },
        )
        try:
            async with translated():
                return await act(engine)
        finally:
            await engine.dispose()

    # A thread of its own, because the caller's may have a loop running.
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(asyncio.run, acted()).result()
