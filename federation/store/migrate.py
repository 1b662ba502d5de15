"""Brings a database to the schema this release needs.

Must not run inside a transaction of others. Every call blocks: call from a thread when a loop
runs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Final, TypeVar
from uuid import uuid4

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.script.revision import ResolutionError
from sqlalchemy import Connection, NullPool, event, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from federation.model.errors import PreconditionFailed, Unavailable
from federation.store.engine import (
    CONNECT_SECONDS,
    TOO_SLOW,
    application_name,
    driver_target,
    translated,
)

T = TypeVar("T")

HEAD = "head"
NEXT = "+1"

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
    """The revision a database is at, None before the first. Raises Unavailable."""

    async def revision(engine: AsyncEngine) -> str | None:
        async with engine.connect() as connection:
            return await connection.run_sync(_revision)

    return _with_engine(url, revision)


def pending(url: str) -> list[str]:
    """The revisions ``upgrade`` would run, oldest first.

    Raises Unavailable, and PreconditionFailed when a newer release migrated the database.
    """
    at = current(url)
    try:
        missing = list(_scripts().iterate_revisions(HEAD, at or "base"))
    except ResolutionError as error:
        raise PreconditionFailed(
            f"The database is at revision {at}, which this release does not know: "
            "a newer release migrated it.",
            reason="SCHEMA_AHEAD",
        ) from error
    return [script.revision for script in missing][::-1]


def is_pooled(url: str) -> bool:
    """Tell whether a pooler between gives each transaction another server process.

    A session reads which process serves it, before and while another one holds a transaction open:
    a pooler gives away the process of a session that is idle. Raises Unavailable.
    """

    async def has_moved(engine: AsyncEngine) -> bool:
        async with engine.connect() as session, engine.connect() as holder:
            before = await session.scalar(_BACKEND)
            await session.rollback()
            await holder.scalar(_BACKEND)
            try:
                # A pooler of one process would have the session wait for it.
                async with asyncio.timeout(MAX_ANSWER_SECONDS):
                    return bool(before != await session.scalar(_BACKEND))
            except TimeoutError as error:
                raise Unavailable(TOO_SLOW) from error

    return _with_engine(url, has_moved)


def _run_next(connection: Connection) -> bool:
    """Run the oldest migration that is missing; return whether there was one."""
    is_missing = _revision(connection) != _scripts().get_current_head()
    connection.rollback()
    if is_missing:
        event.listen(connection, "begin", _limit)
        config = _config()
        config.attributes["connection"] = connection
        command.upgrade(config, NEXT)
        connection.rollback()
        event.remove(connection, "begin", _limit)
    return is_missing


def _limit(connection: Connection) -> None:
    """Let no transaction of a migration wait, or run, for long."""
    if connection.get_execution_options().get("isolation_level") == "AUTOCOMMIT":
        return
    for setting, value in (
        ("lock_timeout", LOCK_TIMEOUT),
        ("statement_timeout", STATEMENT_TIMEOUT),
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


def _revision(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


def _config() -> Config:
    config = Config()
    # The option is a template: a per cent sign in the path would start a placeholder.
    config.set_main_option("script_location", str(scripts_directory()).replace("%", "%%"))
    return config


def _scripts() -> ScriptDirectory:
    return ScriptDirectory.from_config(_config())


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
