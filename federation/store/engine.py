"""The connection pool, its deadlines, and what the driver's errors mean.

Must not know any table.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import asyncpg
import msgspec
from sqlalchemy import URL, event, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError, InvalidatePoolError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry

from federation.model.errors import Conflict, FederationError, InvalidRequest, Unavailable
from federation.services.ports import CONNECTION_LOST
from federation.store import lost_peers

POOL_SIZE = 16
POOL_WAIT_SECONDS = 5.0
CONNECT_SECONDS = 5.0
# A server that ends says so at once; what lies between may forget a connection without a word,
# but hardly one that was just used.
UNASKED_SECONDS = 1.0
# Ends a statement on our side when the server does not even answer that it gave up.
COMMAND_SECONDS = 15.0
PROGRAM = "fedsched"
# All tables lie in a schema of our own, and statements name them without it.
SCHEMA = "fedsched"
SERVER_SETTINGS = {
    "search_path": SCHEMA,
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

FULL = "The disk of the database is full: nothing can be written until there is room."
FAILING = "The database cannot read or write its files: look at its log."
READ_ONLY = "The database only reads: it is a standby, or was made read-only."
NO_TABLES = (
    "The database lacks tables of this release: run `federation migrate`, or restore it from a "
    "backup."
)
NO_DATABASE = (
    "There is no such database: create it and run `federation migrate`, or restore it from a "
    "backup."
)
REFUSED = "The database refuses the role or password of this control plane."
NOT_ALLOWED = (
    "The role of this control plane may not use the tables of the database: name their owner, or "
    "grant it what the owner may."
)
CHANGED = "The tables of the database were changed just now; try again."
NO_PARTITION = (
    "A table has no partition for today: the duty “make partitions” makes them two weeks ahead; "
    "`federation doctor` says why it fails."
)
# A schema that is not there yet is made by `federation migrate`.
SEARCH_PATH = """
    SELECT /* fedsched:connection.search_path */ CASE WHEN to_regnamespace($1) IS NULL THEN true
        ELSE has_schema_privilege(to_regnamespace($1), 'USAGE') END
    FROM set_config('search_path', $1, false)
"""
CROWDED = "The database is out of connections or memory; try again later."

# Beside UNAVAILABLE: the server works, but not for us, until somebody does something.
IMPAIRED = "DATABASE_IMPAIRED"
UNAVAILABLE = Unavailable.reason
CONFLICT = Conflict.reason


class _Meaning(NamedTuple):
    """Of a class or code of SQLSTATE."""

    sqlstate: str
    kind: type[Conflict | Unavailable]
    message: str
    reason: str


# The most specific first.
MEANINGS: tuple[_Meaning, ...] = (
    _Meaning("40", Conflict, HELD, CONFLICT),  # Serialization failure, deadlock.
    _Meaning("55P03", Conflict, HELD, CONFLICT),  # Lock not available in time.
    _Meaning("0A000", Unavailable, CHANGED, UNAVAILABLE),  # A statement prepared before.
    _Meaning("57014", Unavailable, TOO_SLOW, UNAVAILABLE),  # Statement timeout.
    _Meaning("57P04", Unavailable, NO_DATABASE, IMPAIRED),  # Dropped under us.
    _Meaning("57P", Unavailable, UNREACHABLE, UNAVAILABLE),  # Shutdown, crash, starting up.
    _Meaning("08", Unavailable, UNREACHABLE, UNAVAILABLE),  # Connection exceptions.
    _Meaning("53100", Unavailable, FULL, IMPAIRED),
    _Meaning("53", Unavailable, CROWDED, UNAVAILABLE),  # Out of connections or memory.
    _Meaning("58", Unavailable, FAILING, IMPAIRED),  # Input and output, files that are gone.
    _Meaning("XX001", Unavailable, FAILING, IMPAIRED),  # Damaged data.
    _Meaning("XX002", Unavailable, FAILING, IMPAIRED),  # A damaged index.
    _Meaning("25006", Unavailable, READ_ONLY, IMPAIRED),
    _Meaning("25P03", Unavailable, TOO_SLOW, UNAVAILABLE),  # Idle in transaction for too long.
    _Meaning("28", Unavailable, REFUSED, IMPAIRED),
    _Meaning("42501", Unavailable, NOT_ALLOWED, IMPAIRED),
    _Meaning("3D000", Unavailable, NO_DATABASE, IMPAIRED),
    _Meaning("3F000", Unavailable, NO_TABLES, IMPAIRED),  # Not even the schema.
    _Meaning("42P01", Unavailable, NO_TABLES, IMPAIRED),
    _Meaning("42703", Unavailable, NO_TABLES, IMPAIRED),  # A column of another release.
)
DATA_EXCEPTION = "22"
CHECK_VIOLATION = "23514"


def application_name(part: str = "") -> str:
    """Return the name of our sessions in the server's lists; ``part`` is a replica or a verb."""
    return f"{PROGRAM}/{part}" if part else PROGRAM


def create_engine(url: str, part: str = "") -> AsyncEngine:
    """A pool for a ``postgresql://`` URL, whatever driver it names; connects on first use.

    ``part`` tells the sessions of one control plane from those of others.
    """
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
            "server_settings": {**SERVER_SETTINGS, "application_name": application_name(part)},
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
    connection.run_async(_set_search_path)


async def _set_search_path(connection: Any) -> None:
    """Set it again: a pooler drops the settings that a session begins with.

    Raises Unavailable if the role may not use the schema: its tables would seem to be missing.
    """
    if not await connection.fetchval(SEARCH_PATH, SCHEMA):
        raise Unavailable(f"permission denied for schema {SCHEMA}. {NOT_ALLOWED}", reason=IMPAIRED)


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
        raise _told_by(_sqlstate(error)) or Unavailable(UNREACHABLE) from error


def meaning_of(error: DBAPIError) -> FederationError | None:
    """What callers can be told; None for faults of ours."""
    if error.connection_invalidated:
        return Unavailable(UNREACHABLE, reason=CONNECTION_LOST)
    cause = _driver_error(error)
    sqlstate = _sqlstate(error.orig) or _sqlstate(cause)
    if (told := _told_by(sqlstate)) is not None:
        return told
    # A check of ours has a name; that of the partitions of a table has none.
    if sqlstate == CHECK_VIOLATION and not getattr(cause, "constraint_name", None):
        return Unavailable(NO_PARTITION, reason="NO_PARTITION")
    if isinstance(cause, asyncpg.InternalClientError):
        return Unavailable(UNREACHABLE)
    # Not from the server: the driver refused an argument, before anything was sent.
    refused = not _sqlstate(error.orig) and isinstance(cause, asyncpg.DataError)
    if refused or sqlstate.startswith(DATA_EXCEPTION):
        return InvalidRequest.of("", "holds a value that cannot be stored")
    return None


def _sqlstate(error: BaseException | None) -> str:
    return str(getattr(error, "sqlstate", None) or "")


def _told_by(sqlstate: str) -> FederationError | None:
    for prefix, kind, message, reason in MEANINGS:
        if sqlstate.startswith(prefix):
            return kind(message, reason=reason)
    return None


def _driver_error(error: DBAPIError) -> BaseException | None:
    return error.orig.__cause__ if error.orig else None


def _json_text(value: object) -> str:
    return msgspec.json.encode(value).decode()
