"""Statements over background work that one replica does at a time.

Must not know what the work is.
"""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import Integer, cast, func, or_, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from federation.store.replica_tables import duty as table

NOBODY = ""


class DutyStatements:
    """Implements ``journal_ports.Duties`` within one transaction."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def hold(self, duty: str, replica: str, seconds: float) -> int | None:
        given = insert(table).values(
            name=duty,
            holder=replica,
            token=1,
            expires_at=func.now() + timedelta(seconds=seconds),
        )
        fresh = given.excluded
        changes_hands = table.c.holder != fresh.holder
        statement = given.on_conflict_do_update(
            index_elements=[table.c.name],
            set_={
                "holder": fresh.holder,
                "token": table.c.token + cast(changes_hands, Integer),
                "expires_at": fresh.expires_at,
            },
            where=or_(table.c.holder == fresh.holder, table.c.expires_at <= func.now()),
        ).returning(table.c.token)
        row = (await self._connection.execute(statement)).one_or_none()
        return None if row is None else row.token

    async def check(self, duty: str, token: int) -> bool:
        statement = (
            select(table.c.name)
            .where(table.c.name == duty, table.c.token == token, table.c.holder != NOBODY)
            .with_for_update(read=True)
        )
        return (await self._connection.execute(statement)).one_or_none() is not None

    async def leave(self, duty: str, replica: str) -> None:
        statement = (
            update(table)
            .where(table.c.name == duty, table.c.holder == replica)
            .values(holder=NOBODY, expires_at=func.now())
        )
        await self._connection.execute(statement)
