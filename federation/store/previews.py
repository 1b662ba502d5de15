"""Statements over previews of decisions.

Must not decide whether a preview may still be committed, but by its time.
"""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from federation.services.ports import NewPreview, StoredPreview
from federation.store.rows import preview_of
from federation.store.tables import preview as table


class PreviewStatements:
    """Implements ``ports.Previews`` within one transaction."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def add(self, preview: NewPreview, ttl_seconds: int) -> float:
        await self._connection.execute(delete(table).where(table.c.expires_at < func.now()))
        statement = (
            insert(table)
            .values(
                id=preview.id,
                secret_hash=preview.secret_hash,
                binding_id=preview.base.id if preview.base else None,
                binding_generation=preview.base.binding.generation if preview.base else None,
                body=preview.body,
                expires_at=func.now() + timedelta(seconds=ttl_seconds),
            )
            .returning(table.c.expires_at)
        )
        expires_at = (await self._connection.execute(statement)).scalar_one()
        return float(expires_at.timestamp())

    async def lock(self, preview_id: str) -> StoredPreview | None:
        statement = (
            select(table)
            .where(table.c.id == preview_id, table.c.expires_at > func.now())
            .with_for_update()
        )
        row = (await self._connection.execute(statement)).one_or_none()
        return None if row is None else preview_of(row)

    async def settle(self, preview_id: str, decision_id: str) -> None:
        statement = update(table).where(table.c.id == preview_id)
        await self._connection.execute(statement.values(decision_id=UUID(decision_id)))
