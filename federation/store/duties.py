"""Statements over background work that one replica does at a time.

Must not know what the work is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import Double, Text, bindparam, func, select, text, update
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.asyncio import AsyncConnection

from federation.services.journal_ports import DutyFailure
from federation.store.replica_tables import duty as table

NOBODY = ""
# In ascending order: two replicas that ask for the same wait for each other, and never in a circle.
HOLD = text("""
    INSERT INTO duty AS held (name, holder, token, expires_at)
    SELECT name, :replica, 1, now() + :seconds * interval '1 second'
    FROM unnest(:names) AS given (name) ORDER BY name
    ON CONFLICT (name) DO UPDATE
    SET holder = excluded.holder, token = held.token + (held.holder != excluded.holder)::int,
        expires_at = excluded.expires_at
    WHERE held.holder = excluded.holder OR held.expires_at <= now()
    RETURNING name, token
""").bindparams(
    bindparam("names", type_=ARRAY(Text)),
    bindparam("replica", type_=Text),
    bindparam("seconds", type_=Double),
)


class DutyStatements:
    """Implements ``journal_ports.Duties`` within one transaction."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def hold(
        self, duties: Collection[str], replica: str, seconds: float
    ) -> Mapping[str, int]:
        given = {"names": list(duties), "replica": replica, "seconds": seconds}
        rows = await self._connection.execute(HOLD, given)
        return {row.name: row.token for row in rows}

    async def check(self, duty: str, token: int) -> bool:
        statement = (
            select(table.c.name)
            .where(table.c.name == duty, table.c.token == token, table.c.holder != NOBODY)
            .with_for_update(read=True)
        )
        return (await self._connection.execute(statement)).one_or_none() is not None

    async def record_failure(self, duty: str, token: int, why: str) -> None:
        since = func.coalesce(table.c.failing_since, func.now()) if why else None
        statement = (
            update(table)
            .where(table.c.name == duty, table.c.token == token)
            .values(failure=why, failing_since=since)
        )
        await self._connection.execute(statement)

    async def failures(self) -> Sequence[DutyFailure]:
        statement = (
            select(table.c.name, table.c.failing_since, table.c.failure)
            .where(table.c.failing_since.is_not(None))
            .order_by(table.c.name)
        )
        rows = await self._connection.execute(statement)
        return [
            DutyFailure(duty=row.name, since=row.failing_since.timestamp(), why=row.failure)
            for row in rows
        ]

    async def leave(self, duty: str, replica: str) -> None:
        statement = (
            update(table)
            .where(table.c.name == duty, table.c.holder == replica)
            .values(holder=NOBODY, expires_at=func.now())
        )
        await self._connection.execute(statement)
