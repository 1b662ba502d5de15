"""The database of one control plane: the user's own, or an embedded one; reachable and up to date.

Must not keep connections: the store has the pool. Every function but ``keep_running`` blocks.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from federation.embedded_postgres.binaries import find_binaries
from federation.embedded_postgres.running import running_url
from federation.embedded_postgres.server import EmbeddedPostgres
from federation.model.errors import PreconditionFailed, Unavailable
from federation.runtime.backoff import Backoff
from federation.runtime.database_url import masked_url
from federation.runtime.files import make_private_directory
from federation.runtime.settings import LoadedSettings, Settings
from federation.services.troubles import Trouble
from federation.store.engine import IMPAIRED
from federation.store.migrate import is_pooled, pending, upgrade

FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 3.0
WATCH_SECONDS = 0.5

POOLED = (
    "a pooler gives each transaction another server process: settings, prepared statements and "
    "wake-ups of a session get lost"
)
UNPOOLED = "connect directly, or pool sessions (pgbouncer: pool_mode = session)"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """Where it is, for programs and for people, and who keeps it running when we do."""

    url: str
    description: str
    embedded: EmbeddedPostgres | None = None


@contextmanager
def opened_database(settings: Settings, search_path: str) -> Iterator[Database]:
    """The database of the settings; an embedded one runs within this context.

    ``search_path`` is looked through for PostgreSQL's programs, as $PATH. Raises Unavailable or
    PreconditionFailed, saying what to do.
    """
    if settings.database_url:
        yield Database(url=settings.database_url, description=masked_url(settings.database_url))
        return
    binaries = find_binaries(settings.postgres_bin, search_path)
    # The database of root belongs to another user, who has to get to it.
    make_private_directory(settings.data_dir, mode=0o711 if os.geteuid() == 0 else 0o700)
    with EmbeddedPostgres(binaries, settings.data_dir / "postgres") as embedded:
        description = f"embedded PostgreSQL {binaries.version} in {embedded.data_directory}"
        if not embedded.data_directory.is_relative_to(settings.data_dir.resolve()):
            fields = {"data_dir": settings.data_dir, "database": embedded.data_directory}
            logger.warning(
                "the database is outside of the data directory", extra={"fields": fields}
            )
        yield Database(url=embedded.url, description=description, embedded=embedded)


@contextmanager
def looked_at_database(settings: Settings, search_path: str) -> Iterator[Database]:
    """The same for a program that only reads: an embedded server that runs already is asked as it
    runs.
    """
    directory = settings.data_dir / "postgres"
    url = None if settings.database_url else running_url(directory)
    if url is not None:
        yield Database(url=url, description=f"embedded PostgreSQL of {directory}, which runs")
        return
    with opened_database(settings, search_path) as database:
        yield database


def bring_up_to_date(database: Database, loaded: LoadedSettings) -> list[str]:
    """Migrate a database that is ours to migrate; the revisions that were run.

    Waits for the database. Raises Unavailable when it cannot be reached within the time set, and
    PreconditionFailed when its schema is behind and somebody else's to migrate, or when a pooler of
    transactions stands before it.
    """
    missing = pending_migrations(database, loaded)
    if database.embedded is None and is_pooled(database.url):
        raise PreconditionFailed(
            f"between this program and {database.description} {POOLED}: {UNPOOLED}",
            reason="TRANSACTION_POOLER",
        )
    if not missing:
        return []
    if database.embedded is None and not loaded.settings.migrate:
        raise PreconditionFailed(
            f"the schema of {database.description} is {len(missing)} migrations behind "
            f"({', '.join(missing)}): run `federation migrate`, or start with --migrate",
            reason="SCHEMA_BEHIND",
        )
    upgrade(database.url)
    return missing


def pending_migrations(database: Database, loaded: LoadedSettings) -> list[str]:
    """What is missing in the schema, asked until the database answers or the time is up."""
    seconds = loaded.settings.database_wait_seconds
    deadline = time.monotonic() + seconds
    backoff = Backoff(first_seconds=FIRST_PAUSE_SECONDS, cap_seconds=LONGEST_PAUSE_SECONDS)
    while True:
        try:
            return pending(database.url)
        except Unavailable as error:
            if error.reason == IMPAIRED:
                # It answers, and refuses until somebody changes it or the setting.
                raise _refusing(database, loaded, error) from error
            pause = backoff.next_seconds()
            if time.monotonic() + pause > deadline:
                raise _unreachable(database, loaded, error) from error
            fields = {"database": database.description, "reason": _cause(error)}
            logger.warning("waiting for the database", extra={"fields": fields})
        time.sleep(pause)


async def keep_running(embedded: EmbeddedPostgres) -> None:
    """Start an embedded server again whenever it ended; runs until cancelled."""
    trouble = Trouble(logger, "embedded database does not start")
    while True:
        await asyncio.sleep(WATCH_SECONDS)
        try:
            if not embedded.is_alive():
                await asyncio.to_thread(embedded.ensure_running)
                trouble.over()
        except Exception as error:  # noqa: BLE001 - told; nothing works before it runs
            trouble.met(error)
            await asyncio.sleep(LONGEST_PAUSE_SECONDS)


def _unreachable(database: Database, loaded: LoadedSettings, error: Unavailable) -> Unavailable:
    setting = loaded.name_of("database_url")
    seconds = loaded.settings.database_wait_seconds
    return Unavailable(
        f"the database {database.description} cannot be reached: {_cause(error)}. Waited "
        f"{seconds:g} s; check {setting} and that the server runs, or wait longer with "
        "--database-wait-seconds"
    )


def _refusing(database: Database, loaded: LoadedSettings, error: Unavailable) -> Unavailable:
    """What is wrong with a server that can be reached."""
    return Unavailable(
        f"the database {database.description} refuses this program: {_cause(error)}. Check "
        f"{loaded.name_of('database_url')}, or make there what is missing",
        reason=IMPAIRED,
    )


def _cause(error: Unavailable) -> str:
    """The driver's words where there are any: they name the host, or say what was refused."""
    return str(error.__cause__ or error).strip() or type(error.__cause__).__name__
