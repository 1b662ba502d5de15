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
from typing import TypeVar

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.script.revision import ResolutionError
from sqlalchemy import Connection, NullPool
from sqlalchemy.ext.asyncio import create_async_engine

from federation.model.errors import PreconditionFailed
from federation.store.engine import CONNECT_SECONDS, driver_target, translated

T = TypeVar("T")

HEAD = "head"

# Alembic keeps what it is doing in one place per process.
one_at_a_time = Lock()


def scripts_directory() -> Path:
    """Where the migrations lie: in an installed package beside this file, else in the checkout."""
    here = Path(__file__).resolve()
    installed = here.parent / "migrations"
    return installed if installed.is_dir() else here.parents[2] / "migrations"


def upgrade(url: str) -> None:
    """Runs what is missing; safe to call by several programs at once. Raises Unavailable."""

    def run(connection: Connection) -> None:
        config = _config()
        config.attributes["connection"] = connection
        command.upgrade(config, HEAD)

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
            target, poolclass=NullPool, connect_args={"timeout": CONNECT_SECONDS, **options}
        )
        try:
            async with translated(), engine.connect() as connection:
                return await connection.run_sync(act)
        finally:
            await engine.dispose()

    # A thread of its own, because the caller's may have a loop running.
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(asyncio.run, connected()).result()
