"""The audit: its records, and the chain in which they are sealed.

Must not seal what is not committed yet, nor anything twice: the head is held meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec
from sqlalchemy import Interval, Row, Text, bindparam, delete, func, select, text, tuple_
from sqlalchemy.dialects.postgresql import insert as insert_or_leave
from sqlalchemy.ext.asyncio import AsyncConnection

from federation.model.audit import AuditHead, AuditRecord, sealed
from federation.services.ports import AuditFilter
from federation.store.access_tables import audit as table
from federation.store.access_tables import audit_head as head_table
from federation.store.decision_lists import microseconds_of, time_at
from federation.store.prepared import Prepared
from federation.store.statements import named

# One statement, however many there are: batches of decisions have one for each call.
ADD = Prepared(
    text("""
    INSERT /* fedsched:audit.add */
        INTO audit (actor, credential_id, address, method, objects, result, reason,
        request_sha256, unrecorded)
    SELECT * FROM json_to_recordset(CAST(:rows AS json)) AS given (
        actor text, credential_id text, address text, method text, objects text[], result text,
        reason text, request_sha256 text, unrecorded bigint
    )
""").bindparams(bindparam("rows", type_=Text))
)
PUT_SEALS = text("""
    UPDATE /* fedsched:audit.put_seals */ audit SET seal = given.seal, hash = given.hash
    FROM unnest(CAST(:ids AS bigint[]), CAST(:seals AS bigint[]), CAST(:hashes AS bytea[]))
        AS given (id, seal, hash)
    WHERE audit.id = given.id
""")


class AuditStatements:
    """Implements ``ports.Audit`` within one transaction."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def add(self, records: Sequence[AuditRecord]) -> None:
        rows = [
            {
                "actor": record.actor,
                "credential_id": record.credential_id,
                "address": record.address,
                "method": record.method,
                "objects": record.objects,
                "result": record.result,
                "reason": record.reason,
                "request_sha256": record.request_sha256,
                "unrecorded": record.unrecorded,
            }
            for record in records
        ]
        await ADD.execute(self._connection, {"rows": msgspec.json.encode(rows).decode()})

    async def page(
        self, query: AuditFilter, after: tuple[int, int] | None, limit: int
    ) -> Sequence[AuditRecord]:
        statement = select(table).order_by(table.c.at.desc(), table.c.id.desc()).limit(limit)
        if query.since is not None:
            statement = statement.where(table.c.at >= time_at(round(query.since * 1_000_000)))
        if query.until is not None:
            statement = statement.where(table.c.at < time_at(round(query.until * 1_000_000)))
        if query.credential_id:
            statement = statement.where(table.c.credential_id == query.credential_id)
        if after is not None:
            place = time_at(after[0]), after[1]
            statement = statement.where(tuple_(table.c.at, table.c.id) < place)
        return [
            _record(row) for row in await self._connection.execute(named("audit.page", statement))
        ]

    async def head(self) -> AuditHead:
        row = (
            await self._connection.execute(named("audit.head", select(head_table)))
        ).one_or_none()
        return AuditHead() if row is None else _head(row)

    async def chain(self, after: int, limit: int) -> Sequence[AuditRecord]:
        statement = select(table).where(table.c.seal > after).order_by(table.c.seal).limit(limit)
        return [
            _record(row) for row in await self._connection.execute(named("audit.chain", statement))
        ]

    async def seal(self, limit: int) -> int:
        head = await self._locked_head()
        unsealed = select(table).where(table.c.seal.is_(None)).order_by(table.c.id).limit(limit)
        rows = (await self._connection.execute(named("audit.seal", unsealed))).all()
        if not rows:
            return 0
        records, head = sealed(map(_record, rows), head)
        await self._connection.execute(
            PUT_SEALS,
            {
                "ids": [record.id for record in records],
                "seals": [record.seal for record in records],
                "hashes": [record.hash for record in records],
            },
        )
        await self._put_head(seal=head.seal, hash=head.hash)
        return len(records)

    async def prune(self, keep_seconds: float, limit: int) -> int:
        head = await self._locked_head()
        keep = bindparam(None, timedelta(seconds=keep_seconds), type_=Interval)
        first = select(table).where(table.c.seal > head.pruned_seal).order_by(table.c.seal)
        oldest = first.limit(limit).subquery()
        old = (
            select(oldest.c.seal, oldest.c.hash)
            .where(oldest.c.at < func.now() - keep)
            .order_by(oldest.c.seal.desc())
            .limit(1)
        )
        last = (await self._connection.execute(named("audit.oldest", old))).one_or_none()
        if last is None:
            return 0
        gone = delete(table).where(table.c.seal <= last.seal).returning(table.c.id)
        count = len((await self._connection.execute(named("audit.prune", gone))).all())
        await self._put_head(pruned_seal=last.seal, pruned_hash=last.hash)
        return count

    async def _locked_head(self) -> AuditHead:
        first = AuditHead()
        await self._connection.execute(
            named(
                "audit.begin_head",
                insert_or_leave(head_table)
                .values(
                    seal=first.seal,
                    hash=first.hash,
                    pruned_seal=first.pruned_seal,
                    pruned_hash=first.pruned_hash,
                )
                .on_conflict_do_nothing(),
            )
        )
        row = (
            await self._connection.execute(
                named("audit.lock_head", select(head_table).with_for_update())
            )
        ).one()
        return _head(row)

    async def _put_head(self, **columns: Any) -> None:
        await self._connection.execute(
            named("audit.put_head", head_table.update().values(**columns))
        )


def _head(row: Row[Any]) -> AuditHead:
    return AuditHead(
        seal=row.seal,
        hash=bytes(row.hash),
        pruned_seal=row.pruned_seal,
        pruned_hash=bytes(row.pruned_hash),
    )


def _record(row: Row[Any]) -> AuditRecord:
    return AuditRecord(
        id=row.id,
        at=microseconds_of(row.at),
        actor=row.actor,
        credential_id=row.credential_id,
        address=row.address,
        method=row.method,
        objects=tuple(row.objects),
        result=row.result,
        reason=row.reason,
        request_sha256=row.request_sha256,
        unrecorded=row.unrecorded,
        seal=row.seal or 0,
        hash=bytes(row.hash or b""),
    )
