"""Statements over idempotency keys and the answers given under them.

Must not compare requests: who asks gets the known hash.
"""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import delete, func, select, tuple_
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from federation.services.journal_ports import KnownRequest
from federation.store.journal_tables import request as table
from federation.store.statements import named

KEPT = timedelta(hours=24)
# Whoever met a key a moment before it expired still finds it.
FORGOTTEN = KEPT + timedelta(hours=1)


class RequestStatements:
    """Implements ``journal_ports.Requests`` within one transaction."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def add(
        self, caller: str, key: str, body_hash: bytes, answer: bytes
    ) -> KnownRequest | None:
        given = insert(table).values(caller=caller, key=key, body_hash=body_hash, answer=answer)
        fresh = given.excluded
        # Waits for a transaction that is adding the key; then its answer is known, or it is ours.
        statement = given.on_conflict_do_update(
            index_elements=[table.c.caller, table.c.key],
            set_={
                "body_hash": fresh.body_hash,
                "answer": fresh.answer,
                "created_at": func.now(),
            },
            where=table.c.created_at <= func.now() - KEPT,
        ).returning(table.c.key)
        added = (await self._connection.execute(named("requests.add", statement))).one_or_none()
        return None if added is not None else await self.get(caller, key)

    async def get(self, caller: str, key: str) -> KnownRequest | None:
        statement = select(table.c.body_hash, table.c.answer).where(
            table.c.caller == caller,
            table.c.key == key,
            table.c.created_at > func.now() - KEPT,
        )
        row = (await self._connection.execute(named("requests.get", statement))).one_or_none()
        return None if row is None else KnownRequest(body_hash=row.body_hash, answer=row.answer)

    async def prune(self, limit: int) -> int:
        oldest = (
            select(table.c.caller, table.c.key)
            .where(table.c.created_at <= func.now() - FORGOTTEN)
            .order_by(table.c.created_at)
            .limit(limit)
            .with_for_update(skip_locked=True)
        )
        gone = (
            delete(table)
            .where(tuple_(table.c.caller, table.c.key).in_(oldest))
            .returning(table.c.key)
        )
        return len((await self._connection.execute(named("requests.prune", gone))).all())
