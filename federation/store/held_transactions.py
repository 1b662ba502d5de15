"""Statements over the oldest transaction of the whole server that may still commit.

Must not judge how long it may take.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Text, bindparam, text
from sqlalchemy.ext.asyncio import AsyncConnection

from federation.services.journal_ports import OpenTransaction

# Transactions of all databases count: they have one sequence of ids. The oldest id of a snapshot is
# one that runs, or the next to be given; the ids of sessions have fewer bits than it.
OLDEST: Final = text("""
    SELECT /* fedsched:transactions.oldest */ oldest FROM (
        SELECT pg_snapshot_xmin(taken)::text::bigint AS oldest,
            pg_snapshot_xmax(taken)::text::bigint AS next
        FROM pg_current_snapshot() AS now (taken)
    ) AS ids
    WHERE oldest < next
        OR EXISTS (
            SELECT FROM pg_stat_activity WHERE backend_xid::text::bigint = oldest % 4294967296
        )
        OR EXISTS (
            SELECT FROM pg_prepared_xacts WHERE transaction::text::bigint = oldest % 4294967296
        )
""")
# Who it is, an ordinary role sees of sessions of others, too; since when, it does not.
HOLDER: Final = text("""
    SELECT /* fedsched:transactions.holder */
        pid, coalesce(datname, ''), coalesce(usename, ''), coalesce(application_name, ''),
        extract(epoch FROM clock_timestamp() - xact_start)::float8
    FROM pg_stat_activity WHERE backend_xid = CAST(:xid AS xid)
    UNION ALL
    SELECT 0, database, owner, 'prepared transaction ' || gid,
        extract(epoch FROM clock_timestamp() - prepared)::float8
    FROM pg_prepared_xacts WHERE transaction = CAST(:xid AS xid)
    LIMIT 1
""").bindparams(bindparam("xid", type_=Text))
XIDS: Final = 1 << 32


async def oldest_running(connection: AsyncConnection) -> int | None:
    """The id of the oldest transaction that runs, None where none that has an id does."""
    oldest: int | None = (await connection.execute(OLDEST)).scalar_one_or_none()
    return oldest


async def holder_of(connection: AsyncConnection, xid: int) -> OpenTransaction | None:
    """Who has this transaction open, None where it has ended."""
    row = (await connection.execute(HOLDER, {"xid": str(xid % XIDS)})).one_or_none()
    return None if row is None else OpenTransaction(*row)
