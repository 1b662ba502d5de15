"""What a database server says of itself: its settings, its connections, its clock.

Must not judge any of it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from federation.services.journal_ports import OpenTransaction
from federation.store.engine import PROGRAM, SERVER_SETTINGS, application_name
from federation.store.floors import HeldFloors
from federation.store.journal import JournalStatements

# An ordinary role sees of others' processes which database, role and program they are of, and of
# standbys that they are there; the server hides what kind and state these have.
_SETTINGS = text("""
    SELECT /* fedsched:server.settings */
        current_setting('server_version_num')::int AS version,
        current_setting('server_version') AS version_text,
        pg_is_in_recovery() AS is_standby,
        current_setting('fsync')::boolean AS has_fsync,
        current_setting('full_page_writes')::boolean AS has_full_page_writes,
        current_setting('synchronous_standby_names') AS synchronous_standbys,
        current_setting('synchronous_commit') AS synchronous_commit,
        (SELECT source FROM pg_settings WHERE name = 'synchronous_commit') AS commit_source,
        quote_ident(current_user) AS role,
        pg_has_role(current_user, 'pg_read_all_stats', 'usage') AS sees_standbys,
        (SELECT count(*) FROM pg_stat_replication) AS standbys,
        (SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum'))
            AS standbys_in_sync,
        current_setting('max_connections')::int
            - current_setting('superuser_reserved_connections')::int
            - coalesce(current_setting('reserved_connections', true)::int, 0) AS connections,
        others.*,
        coalesce((SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()), false) AS is_encrypted,
        coalesce(host(inet_server_addr()), '') AS address,
        pg_database_size(current_database()) AS size
    FROM (
        SELECT
            count(*) AS others_connections,
            count(*) FILTER (WHERE backend_type IS NULL) AS hidden_connections
        FROM pg_stat_activity
        WHERE split_part(application_name, '/', 1) <> :ours
            AND coalesce(
                backend_type = 'client backend', datid IS NOT NULL AND usesysid IS NOT NULL
            )
    ) AS others
""")
# Not those that somebody else set alike, nor those of TCP over a unix socket, where they are 0.
_LOST_SETTINGS = text("""
    SELECT /* fedsched:server.lost_settings */ wanted.name
    FROM unnest(CAST(:names AS text[]), CAST(:settings AS text[])) AS wanted (name, setting)
    JOIN pg_settings ON lower(pg_settings.name) = wanted.name
    WHERE source NOT IN ('client', 'session')
        AND current_setting(wanted.name) <> wanted.setting
        AND (inet_server_addr() IS NOT NULL OR wanted.name NOT LIKE 'tcp%')
    ORDER BY 1
""")
_DURABILITY = text("""
    SELECT /* fedsched:server.durability */
        current_setting('fsync')::boolean AND current_setting('full_page_writes')::boolean,
        current_setting('synchronous_commit'),
        current_setting('synchronous_standby_names') <> '',
        (SELECT count(*) FROM pg_stat_replication)
""")
_CLOCK = text("SELECT /* fedsched:server.clock */ extract(epoch FROM clock_timestamp())::float8")
_FLEET = text("""
    SELECT /* fedsched:server.fleet */
        (SELECT count(*) FROM replica WHERE heard_at > now() - interval '15 seconds') AS planes,
        (SELECT count(*) FROM cluster) AS clusters,
        ARRAY(SELECT name || ' ' || (facts ->> 'agent_version') FROM cluster
              WHERE facts ->> 'agent_version' <> '' ORDER BY 1) AS agents,
        ARRAY(SELECT name FROM cluster WHERE (spec ->> 'held')::boolean ORDER BY 1) AS held,
        ARRAY(SELECT name || ' since ' || to_char(failing_since AT TIME ZONE 'UTC',
                                                  'YYYY-MM-DD"T"HH24:MI:SS"Z"') || ', ' || failure
              FROM duty WHERE failing_since IS NOT NULL ORDER BY 1) AS failing_duties
""")


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseCondition:
    """``version`` as PostgreSQL numbers it, 150004 for 15.4; ``size`` in bytes.

    ``synchronous_commit`` is what is in force where control planes write, and ``commit_source``
    what set it, in PostgreSQL's words; ``lost_settings`` are those that our sessions ask for and do
    not get. ``standbys_in_sync`` says nothing unless ``role``, quoted where it must be,
    ``sees_standbys``. ``connections`` are those that there may be, ``others_connections`` those of
    other programs at most: ``hidden_connections`` of them may be workers of the server, which do
    not count. ``trip_seconds`` is how long the quickest of some answers took;
    ``clock_ahead_seconds`` is how far its clock is ahead of ours. ``journal_holder`` is the
    transaction that keeps the journal from being read to its end. ``planes`` run now. ``agents``
    are clusters, each with its agent's version, and ``held`` those that wait to be accepted.
    ``failing_duties`` hold a name, a time and a reason each.
    """

    version: int
    version_text: str
    is_standby: bool
    has_fsync: bool
    has_full_page_writes: bool
    synchronous_standbys: str
    synchronous_commit: str
    commit_source: str
    lost_settings: Sequence[str]
    role: str
    sees_standbys: bool
    standbys: int
    standbys_in_sync: int
    connections: int
    others_connections: int
    hidden_connections: int
    is_encrypted: bool
    address: str
    size: int
    journal_holder: OpenTransaction | None
    trip_seconds: float
    clock_ahead_seconds: float
    planes: int
    clusters: int
    agents: Sequence[str]
    held: Sequence[str]
    failing_duties: Sequence[str]


async def condition_of(engine: AsyncEngine, part: str = "") -> DatabaseCondition:
    """``engine`` is one of control planes: its sessions are theirs. Raises what the driver does.

    ``part`` is the one that the engine was created with.
    """
    settings = {**SERVER_SETTINGS, "application_name": application_name(part)}
    parameters = {"names": list(settings), "settings": list(settings.values())}
    ours = {"ours": PROGRAM}
    async with engine.connect() as connection:
        server = (await connection.execute(_SETTINGS, ours)).mappings().one()
        lost = (await connection.execute(_LOST_SETTINGS, parameters)).scalars().all()
        fleet = (await connection.execute(_FLEET)).mappings().one()
        await connection.commit()
        journal = JournalStatements(connection, HeldFloors())
        bounds = await journal.bounds()
        await connection.commit()
        trip_seconds, ahead_seconds = min([await _clock(connection) for _ in range(5)])
        await connection.commit()
        holder = None
        if bounds.settled < bounds.newest and await journal.position() == bounds.settled:
            holder = await journal.holder_of(bounds.settled)
    return DatabaseCondition(
        **server,
        **fleet,
        lost_settings=lost,
        journal_holder=holder,
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
        is_durable, commit, waits, standbys = (await connection.execute(_DURABILITY)).one()
    if not is_durable:
        return "fsync or full_page_writes is off: a crash of its machine may lose or damage all"
    if commit == "off":
        return (
            "synchronous_commit is off: a crash of the server may lose what was acknowledged last"
        )
    if waits and commit == "local":
        return "synchronous_commit is local: a failover may lose what was acknowledged last"
    if standbys and not waits:
        return (
            f"{standbys} standbys follow later: a failover may lose what was acknowledged last; "
            "set synchronous_standby_names"
        )
    return ""
