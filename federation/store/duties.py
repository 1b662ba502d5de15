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
from federation.store.statements import named

NOBODY = ""
# A holder renews under a lock that its own work, which holds FOR KEY SHARE, does not hinder.
# A replica that takes over needs FOR UPDATE, which that work does hinder: a row in use is passed
# over, so that no replica waits for another one's work.
HOLD = text("""
    WITH /* fedsched:duties.hold */ renewed AS (
        UPDATE duty SET expires_at = now() + :seconds * interval '1 second'
        WHERE name = ANY (:names) AND holder = :replica
        RETURNING name, token
    ), free AS (
        SELECT name FROM duty
        WHERE name = ANY (:names) AND holder != :replica AND expires_at <= now()
        ORDER BY name FOR UPDATE SKIP LOCKED
    ), taken AS (
        UPDATE duty
        SET holder = :replica, token = duty.token + 1,
            expires_at = now() + :seconds * interval '1 second'
        FROM free WHERE duty.name = free.name
        RETURNING duty.name, duty.token
    ), begun AS (
        INSERT INTO duty (name, holder, token, expires_at)
        SELECT name, :replica, 1, now() + :seconds * interval '1 second'
        FROM unnest(:names) AS given (name) ORDER BY name
        ON CONFLICT (name) DO NOTHING
        RETURNING name, token
    )
    SELECT name, token FROM renewed
    UNION ALL SELECT name, token FROM taken
    UNION ALL SELECT name, token FROM begun
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
            .with_for_update(read=True, key_share=True)
        )
        return (
            await self._connection.execute(named("duties.check", statement))
        ).one_or_none() is not None

    async def record_failure(self, duty: str, token: int, why: str) -> None:
        since = func.coalesce(table.c.failing_since, func.now()) if why else None
        statement = (
            update(table)
            .where(table.c.name == duty, table.c.token == token)
            .values(failure=why, failing_since=since)
        )
        await self._connection.execute(named("duties.record_failure", statement))

    async def failures(self) -> Sequence[DutyFailure]:
        statement = (
            select(table.c.name, table.c.failing_since, table.c.failure)
            .where(table.c.failing_since.is_not(None))
            .order_by(table.c.name)
        )
        rows = await self._connection.execute(named("duties.failures", statement))
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
        await self._connection.execute(named("duties.leave", statement))
