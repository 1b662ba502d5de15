"""Brings a database to the schema this release needs.

Must not run inside a transaction of others. Every call blocks: call from a thread when a loop
runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
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
from sqlalchemy import Connection, NullPool, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine

from federation.model.errors import PreconditionFailed, Unavailable
from federation.store.engine import (
    CONNECT_SECONDS,
    application_name,
    driver_target,
    translated,
)

T = TypeVar("T")

HEAD = "head"
NEXT = "+1"

# Two programs that start at once: the second waits for the first, and then finds nothing to do.
LOCK_NAME: Final = "fedsched migrations"
WAIT_FOR_OTHERS = "120s"
# Nobody else's statements may queue behind a migration that waits for a table.
LOCK_TIMEOUT: Final = "5s"
STATEMENT_TIMEOUT: Final = "300s"

# Settings and locks of a session get lost where a pooler gives each transaction another server
# process, and a lock is held there by nobody's session for ever. These end with the transaction.
_SET = text("SELECT /* fedsched:migrations.set */ set_config(:setting, :value, true)")
_LOCK = text(
    "SELECT /* fedsched:migrations.lock */ pg_advisory_xact_lock(hashtextextended(:name, 0))"
)
_HOLDERS = text("""
    SELECT /* fedsched:migrations.holders */
        pid, coalesce(usename, '?'), coalesce(nullif(application_name, ''), '?'),
        coalesce(host(client_addr), 'this machine')
    FROM pg_locks
    JOIN (SELECT hashtextextended(:name, 0) AS key) AS wanted
        ON (classid::bigint << 32 | objid::bigint) = key
    LEFT JOIN pg_stat_activity USING (pid)
    WHERE locktype = 'advisory' AND objsubid = 1 AND granted
        AND pg_locks.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    ORDER BY pid
""")
# Names of prepared statements of other clients are in the way on a server process of a pooler.
_UNSHARED_STATEMENTS: Final = {
    "statement_cache_size": 0,
    "prepared_statement_cache_size": 0,
    "prepared_statement_name_func": lambda: f"fedsched_{uuid4().hex}",
}
LOCK_NOT_AVAILABLE, QUERY_CANCELED = "55P03", "57014"

# Alembic keeps what it is doing in one place per process.
one_at_a_time = Lock()


def scripts_directory() -> Path:
    """Where the migrations lie: in an installed package beside this file, else in the checkout."""
    here = Path(__file__).resolve()
    installed = here.parent / "migrations"
    return installed if installed.is_dir() else here.parents[2] / "migrations"


def upgrade(url: str) -> None:
    """Run what is missing, each migration in a transaction of its own, under a lock that ends with
    it. Several programs may call it at once. Raises Unavailable.
    """

    def run(connection: Connection) -> None:
        while not _run_next(connection):
            pass

    with one_at_a_time:
        _on_connection(url, run)


def current(url: str) -> str | None:
    """The revision a database is at, None before the first. Raises Unavailable."""
    return _on_connection(url, _revision)


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


def _run_next(connection: Connection) -> bool:
    """Run the oldest migration that is missing; whether there was none."""
    _lock(connection)
    if _revision(connection) == _scripts().get_current_head():
        connection.rollback()
        return True
    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, NEXT)
    connection.commit()
    return False


def _lock(connection: Connection) -> None:
    """Let nobody else migrate until the transaction ends. Raises Unavailable, naming who does."""
    for setting in ("lock_timeout", "statement_timeout"):
        connection.execute(_SET, {"setting": setting, "value": WAIT_FOR_OTHERS})
    try:
        connection.execute(_LOCK, {"name": LOCK_NAME})
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", "") not in (LOCK_NOT_AVAILABLE, QUERY_CANCELED):
            raise
        connection.rollback()
        raise Unavailable(_held_by(connection)) from error
    for setting, value in (
        ("lock_timeout", LOCK_TIMEOUT),
        ("statement_timeout", STATEMENT_TIMEOUT),
    ):
        connection.execute(_SET, {"setting": setting, "value": value})


def _held_by(connection: Connection) -> str:
    holders = [
        f"server process {pid} of user {user}, application {application}, client {client}"
        for pid, user, application, client in connection.execute(_HOLDERS, {"name": LOCK_NAME})
    ]
    return (
        f"Another program has held the lock of migrations for {WAIT_FOR_OTHERS}: "
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


def _on_connection(url: str, act: Callable[[Connection], T]) -> T:
    """The result of ``act`` on a connection that is closed afterwards."""

    async def connected() -> T:
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
            async with translated(), engine.connect() as connection:
                return await connection.run_sync(act)
        finally:
            await engine.dispose()

    # A thread of its own, because the caller's may have a loop running.
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(asyncio.run, connected()).result()
