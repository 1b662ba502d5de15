"""The connection pool, its deadlines, and what the driver's errors mean.

Must not know any table.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import msgspec
from sqlalchemy import URL, event, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError, InvalidatePoolError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry

from federation.model.errors import Conflict, FederationError, InvalidRequest, Unavailable
from federation.store import lost_peers

POOL_SIZE = 16
POOL_WAIT_SECONDS = 5.0
CONNECT_SECONDS = 5.0
# A server that ends says so at once; what lies between may forget a connection without a word,
# but hardly one that was just used.
UNASKED_SECONDS = 5.0
# Ends a statement on our side when the server does not even answer that it gave up.
COMMAND_SECONDS = 15.0
SERVER_SETTINGS = {
    "application_name": "fedsched",
    "statement_timeout": "10s",
    "lock_timeout": "3s",
    # A decision that was acknowledged is never lost.
    "synchronous_commit": "on",
    "timezone": "UTC",
    **lost_peers.SERVER_SETTINGS,
}

UNREACHABLE = "The database cannot be reached now; try again later."
TOO_SLOW = "The database did not answer in time; try again later."
HELD = "Somebody else holds what this would change; try again."
OUTCOME_UNKNOWN = (
    "The connection to the database was lost while committing: whether this was done is unknown. "
    "Read before trying again."
)

# What the driver raises where it cannot connect, or a connection ends: the last one when that
# happens between two messages of one statement.
CONNECTION_ERRORS = (
    OSError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)

# Classes and codes of SQLSTATE, most specific first.
MEANINGS: tuple[tuple[str, type[Conflict | Unavailable], str], ...] = (
    ("40", Conflict, HELD),  # Serialization failure, deadlock.
    ("55P03", Conflict, HELD),  # Lock not available in time.
    ("57014", Unavailable, TOO_SLOW),  # Statement timeout.
    ("57P", Unavailable, UNREACHABLE),  # Shutdown, crash, starting up.
    ("08", Unavailable, UNREACHABLE),  # Connection exceptions.
    ("53", Unavailable, UNREACHABLE),  # Out of connections, memory or disk.
    ("25006", Unavailable, UNREACHABLE),  # Read-only: a standby.
    ("25P03", Unavailable, TOO_SLOW),  # Idle in transaction for too long.
    ("28", Unavailable, UNREACHABLE),  # The server refuses our role.
    ("3D000", Unavailable, UNREACHABLE),  # No such database (yet).
)
DATA_EXCEPTION = "22"


def create_engine(url: str) -> AsyncEngine:
    """A pool for a ``postgresql://`` URL, whatever driver it names; connects on first use."""
    target, options = driver_target(url)
    engine = create_async_engine(
        target,
        pool_size=POOL_SIZE,
        max_overflow=0,
        pool_timeout=POOL_WAIT_SECONDS,
        # The same few connections do most, with their statements prepared.
        pool_use_lifo=True,
        connect_args={
            "timeout": CONNECT_SECONDS,
            "command_timeout": COMMAND_SECONDS,
            "server_settings": SERVER_SETTINGS,
            **options,
        },
        json_serializer=_json_text,
        json_deserializer=msgspec.json.decode,
    )
    _leave_out_the_dead(engine)
    event.listen(engine.sync_engine.pool, "connect", _connected)
    return engine


def _connected(connection: Any, _: ConnectionPoolEntry) -> None:
    connection.run_async(lost_peers.notice_lost_server)


def _leave_out_the_dead(engine: AsyncEngine) -> None:
    """Hand out no connection that has ended: those that ended by what the driver has seen, those
    that lay idle by asking the server, three trips that busy ones are spared.
    """
    dialect, pool = engine.dialect, engine.sync_engine.pool

    def returned(_: DBAPIConnection | None, entry: ConnectionPoolEntry) -> None:
        entry.info["returned_at"] = time.monotonic()

    def handed_out(connection: DBAPIConnection, entry: ConnectionPoolEntry, _: object) -> None:
        returned_at = entry.info.get("returned_at")
        if returned_at is None or not entry.driver_connection:
            return
        # Whatever ended one mostly ended the others too: then all are made anew.
        if entry.driver_connection.is_closed():
            raise InvalidatePoolError
        if time.monotonic() - returned_at > UNASKED_SECONDS:
            try:
                dialect.do_ping(connection)
            except (dialect.loaded_dbapi.Error, OSError) as error:
                raise InvalidatePoolError from error

    event.listen(pool, "checkin", returned)
    event.listen(pool, "checkout", handed_out)


def driver_target(url: str) -> tuple[URL, Mapping[str, Any]]:
    """The URL for asyncpg, with libpq's ``sslmode`` moved to where asyncpg looks for it."""
    target = make_url(url).set(drivername="postgresql+asyncpg")
    sslmode = target.query.get("sslmode")
    if sslmode is None:
        return target, {}
    return target.difference_update_query(["sslmode"]), {"ssl": sslmode}


@asynccontextmanager
async def translated() -> AsyncIterator[None]:
    """Raises the model's errors in place of the driver's."""
    try:
        yield
    except DBAPIError as error:
        meaning = meaning_of(error)
        if meaning is None:
            raise
        raise meaning from error
    except PoolTimeout as error:
        raise Unavailable(TOO_SLOW) from error
    except CONNECTION_ERRORS as error:
        # From connecting, where SQLAlchemy passes the driver's errors through.
        raise Unavailable(UNREACHABLE) from error


def meaning_of(error: DBAPIError) -> FederationError | None:
    """What callers can be told; None for faults of ours."""
    if error.connection_invalidated:
        return Unavailable(UNREACHABLE)
    sqlstate = str(getattr(error.orig, "sqlstate", None) or "")
    for prefix, kind, message in MEANINGS:
        if sqlstate.startswith(prefix):
            return kind(message)
    cause = _driver_error(error)
    if isinstance(cause, asyncpg.InternalClientError):
        return Unavailable(UNREACHABLE)
    # Without a SQLSTATE it is the driver that refused an argument, before anything was sent.
    refused = not sqlstate and isinstance(cause, asyncpg.DataError)
    if refused or sqlstate.startswith(DATA_EXCEPTION):
        return InvalidRequest.of("", "holds a value that cannot be stored")
    return None


def _driver_error(error: DBAPIError) -> BaseException | None:
    return error.orig.__cause__ if error.orig else None


def _json_text(value: object) -> str:
    return msgspec.json.encode(value).decode()
