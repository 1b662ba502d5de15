"""The audit: its records by day, and the chain in which they are sealed in batches.

Must not seal what may still be preceded by a late commit, nor anything twice: the head is locked
meanwhile. Records are never updated. A batch outlives its records.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import date
from itertools import accumulate, chain
from operator import attrgetter
from typing import Any

import msgspec
from sqlalchemy import Row, Text, TextClause, bindparam, select, text, tuple_
from sqlalchemy.dialects.postgresql import insert as insert_or_leave
from sqlalchemy.ext.asyncio import AsyncConnection

from federation.model.audit import AuditHead, AuditRecord, sealed
from federation.services.ports import AuditFilter
from federation.store.access_tables import audit as table
from federation.store.access_tables import audit_batch as batch_table
from federation.store.access_tables import audit_head as head_table
from federation.store.decision_lists import microseconds_of, time_at
from federation.store.floors import AUDIT, HeldFloors
from federation.store.lists import is_one_of
from federation.store.partitions import drop_partition, oldest_partition
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
TAKE_FLOOR = Prepared(text(f"SELECT /* fedsched:audit.take_floor */ ({AUDIT.take})"))
BOUNDS = Prepared(text(f"WITH /* fedsched:audit.bounds */ {AUDIT.bounds}"))
BATCH = batch_table.c
_id_of = attrgetter("id")
# Records of before there were batches carry a seal and a hash of their own.
LAST_OF = """
    SELECT /* fedsched:audit.last_of_day */
        coalesce((SELECT max(id) FROM {partition}), 0) AS id,
        coalesce(last.seal, 0) AS seal, last.hash
    FROM (VALUES (1)) AS one LEFT JOIN LATERAL (
        (SELECT seal, hash FROM {partition} WHERE seal IS NOT NULL ORDER BY seal DESC LIMIT 1)
        UNION ALL (
            SELECT last_seal, hash FROM audit_batch
            WHERE day <= to_date(right('{partition}', 8), 'YYYYMMDD')
            ORDER BY day DESC, last_seal DESC LIMIT 1
        ) ORDER BY seal DESC LIMIT 1
    ) AS last ON true
"""


class AuditStatements:
    """Implements ``ports.Audit`` within one transaction."""

    def __init__(self, connection: AsyncConnection, floors: HeldFloors) -> None:
        self._connection = connection
        self._floors = floors

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
        if not self._floors.has_audit:
            await TAKE_FLOOR.execute(self._connection, {})
            self._floors.has_audit = True
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
        chained = select(table).where(table.c.seal > after).order_by(table.c.seal).limit(limit)
        rows = (await self._connection.execute(named("audit.chain", chained))).all()
        if rows:
            return [*map(_record, rows)]
        later = select(batch_table).where(BATCH.last_seal > after).order_by(BATCH.last_seal)
        candidates = (
            await self._connection.execute(named("audit.batches", later.limit(limit)))
        ).all()
        sizes = accumulate(batch.records for batch in candidates)
        batches = candidates[: 1 + bisect_left(list(sizes), limit)]
        records = [record for record in await self._sealed_in(batches) if record.seal > after]
        return records[:limit]

    async def _sealed_in(self, batches: Sequence[Row[Any]]) -> Iterable[AuditRecord]:
        """Return the records of batches that follow each other, with their seals and hashes."""
        if not batches:
            return ()
        first, last = min(batch.first_id for batch in batches), max(b.last_id for b in batches)
        days = is_one_of(table.c.day, sorted({batch.day for batch in batches}))
        within = table.c.id.between(first, last), days, table.c.seal.is_(None)
        statement = select(table).where(*within).order_by(table.c.id)
        rows_by_day = defaultdict[date, list[Row[Any]]](list)
        for row in await self._connection.execute(named("audit.of_batches", statement)):
            rows_by_day[row.day].append(row)
        return chain.from_iterable(
            _sealed_again(batch, rows_by_day[batch.day]) for batch in batches
        )

    async def seal(self, limit: int) -> int:
        head = await self._locked_head()
        settled, _ = (await BOUNDS.execute(self._connection, {})).one()
        within = table.c.id > head.sealed_id, table.c.id <= settled, table.c.seal.is_(None)
        unsealed = select(table).where(*within).order_by(table.c.id).limit(limit)
        rows = (await self._connection.execute(named("audit.seal", unsealed))).all()
        if not rows:
            return 0
        by_day = defaultdict[date, list[AuditRecord]](list)
        for row in rows:
            by_day[row.day].append(_record(row))
        batches, reached = [], _head(head)
        for day, records in sorted(by_day.items()):
            previous = reached
            _, reached = sealed(records, previous)
            batches.append(
                {
                    "last_seal": reached.seal,
                    "day": day,
                    "first_id": records[0].id,
                    "last_id": records[-1].id,
                    "records": len(records),
                    "previous_hash": previous.hash,
                    "hash": reached.hash,
                }
            )
        await self._connection.execute(
            named("audit.put_batches", batch_table.insert().values(batches))
        )
        await self._put_head(seal=reached.seal, hash=reached.hash, sealed_id=rows[-1].id)
        return len(rows)

    async def prune(self, keep_seconds: float) -> int:
        head = await self._locked_head()
        partition = await oldest_partition(self._connection, "audit", keep_seconds)
        if partition is None:
            return 0
        last = (await self._connection.execute(_last_of(partition))).one()
        if last.id > head.sealed_id:
            return 0
        if last.seal > head.pruned_seal:
            await self._put_head(pruned_seal=last.seal, pruned_hash=last.hash)
        await drop_partition(self._connection, partition)
        return 1

    async def _locked_head(self) -> Row[Any]:
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
                    sealed_id=0,
                )
                .on_conflict_do_nothing(),
            )
        )
        locked = named("audit.lock_head", select(head_table).with_for_update())
        return (await self._connection.execute(locked)).one()

    async def _put_head(self, **columns: Any) -> None:
        await self._connection.execute(
            named("audit.put_head", head_table.update().values(**columns))
        )


def _sealed_again(batch: Row[Any], rows: Sequence[Row[Any]]) -> Sequence[AuditRecord]:
    """Return the records of a batch among the rows of its day, with the hashes in between.

    The last one has the hash that was stored. It does not follow from records that were altered, or
    where one was removed.
    """
    begin = bisect_left(rows, batch.first_id, key=_id_of)
    end = bisect_right(rows, batch.last_id, key=_id_of)
    predecessor = AuditHead(seal=batch.last_seal - batch.records, hash=bytes(batch.previous_hash))
    records, _ = sealed(map(_record, rows[begin:end]), predecessor)
    if records:
        records[-1] = replace(records[-1], seal=batch.last_seal, hash=bytes(batch.hash))
    return records


def _last_of(partition: str) -> TextClause:
    """Return a query for the last record of a day, and for its last seal, with the hash."""
    return text(LAST_OF.format(partition=partition))


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
