"""What a database server says of itself: its settings, its connections, its clock.

Must not judge any of it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

_SETTINGS = text("""
    SELECT
        current_setting('server_version_num')::int AS version,
        current_setting('server_version') AS version_text,
        pg_is_in_recovery() AS is_standby,
        current_setting('fsync')::boolean AS has_fsync,
        current_setting('full_page_writes')::boolean AS has_full_page_writes,
        current_setting('synchronous_standby_names') AS synchronous_standbys,
        (SELECT count(*) FROM pg_stat_replication) AS standbys,
        (SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum'))
            AS standbys_in_sync,
        current_setting('max_connections')::int
            - current_setting('superuser_reserved_connections')::int AS connections,
        (SELECT count(*) FROM pg_stat_activity
         WHERE backend_type = 'client backend' AND application_name <> :ours) AS others_connections,
        coalesce((SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()), false) AS is_encrypted,
        coalesce(host(inet_server_addr()), '') AS address,
        pg_database_size(current_database()) AS size
""")
_DURABILITY = text("""
    SELECT
        current_setting('fsync')::boolean AND current_setting('full_page_writes')::boolean,
        CASE WHEN current_setting('synchronous_standby_names') = ''
            THEN (SELECT count(*) FROM pg_stat_replication) ELSE 0 END
""")
_BACKEND = text("SELECT pg_backend_pid()")
_CLOCK = text("SELECT extract(epoch FROM clock_timestamp())::float8")
_FLEET = text("""
    SELECT
        (SELECT count(*) FROM replica WHERE heard_at > now() - interval '15 seconds') AS planes,
        (SELECT count(*) FROM cluster) AS clusters,
        ARRAY(SELECT name || ' ' || (facts ->> 'agent_version') FROM cluster
              WHERE facts ->> 'agent_version' <> '' ORDER BY 1) AS agents,
        ARRAY(SELECT name FROM cluster WHERE (spec ->> 'held')::boolean ORDER BY 1) AS held
""")


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseCondition:
    """``version`` as PostgreSQL numbers it, 150004 for 15.4; ``size`` in bytes.

    ``connections`` are those that there may be, ``others_connections`` those of other programs.
    ``trip_seconds`` is how long the quickest of some answers took; ``clock_ahead_seconds`` is how
    far its clock is ahead of ours. ``is_pooled``: something between gives each transaction another
    server process. ``planes`` run now. ``agents`` are clusters, each with its agent's version, and
    ``held`` those that wait to be accepted.
    """

    version: int
    version_text: str
    is_standby: bool
    has_fsync: bool
    has_full_page_writes: bool
    synchronous_standbys: str
    standbys: int
    standbys_in_sync: int
    connections: int
    others_connections: int
    is_encrypted: bool
    address: str
    size: int
    is_pooled: bool
    trip_seconds: float
    clock_ahead_seconds: float
    planes: int
    clusters: int
    agents: Sequence[str]
    held: Sequence[str]


async def condition_of(engine: AsyncEngine, ours: str) -> DatabaseCondition:
    """``ours`` is the application name of control planes. Raises what the driver does."""
    async with engine.connect() as connection:
        settings = (await connection.execute(_SETTINGS, {"ours": ours})).mappings().one()
        fleet = (await connection.execute(_FLEET)).mappings().one()
        await connection.commit()
        backends = set()
        for _ in range(3):
            backends.add(await connection.scalar(_BACKEND))
            await connection.commit()
        trip_seconds, ahead_seconds = min([await _clock(connection) for _ in range(5)])
    return DatabaseCondition(
        **settings,
        **fleet,
        is_pooled=len(backends) > 1,
        trip_seconds=trip_seconds,
        clock_ahead_seconds=ahead_seconds,
    )


async def _clock(connection: AsyncConnection) -> tuple[float, float]:
    """How long the question took, and how far the answer is ahead of the middle of that."""
    asked_at, started = time.time(), time.perf_counter()
    answer = await connection.scalar(_CLOCK)
    seconds = time.perf_counter() - started
    return seconds, float(answer or 0.0) - (asked_at + seconds / 2)


async def losses_of(engine: AsyncEngine) -> str:
    """What a failure of the server may cost of what was acknowledged; empty: nothing that standbys
    could keep.
    """
    async with engine.connect() as connection:
        is_durable, behind = (await connection.execute(_DURABILITY)).one()
    if not is_durable:
        return "fsync or full_page_writes is off: a crash of its machine may lose or damage all"
    if behind:
        return (
            f"{behind} standbys follow later: a failover may lose what was acknowledged last; "
            "set synchronous_standby_names"
        )
    return ""
