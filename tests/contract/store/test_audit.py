"""The audit as rows: sealed once in the order of their numbers, and forgotten day by day."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from federation.model.audit import AuditHead, AuditRecord, sealed
from federation.services.ports import AuditFilter
from federation.store.postgres import PostgresStore

RECORD = AuditRecord(
    actor="token ci (tok-1)",
    credential_id="tok-1",
    address="10.0.0.1",
    method="Scheduling/Schedule",
    objects=("shop/web", 'ba"nk/ü'),
    result="NOT_FOUND",
    reason="There is none.",
    request_sha256="00" * 32,
    unrecorded=3,
)


async def fill(store: PostgresStore, count: int) -> None:
    async with store.transaction() as tx:
        await tx.audit.add([replace(RECORD, reason=str(number)) for number in range(count)])


async def seal(store: PostgresStore, limit: int = 100) -> int:
    async with store.transaction() as tx:
        return await tx.audit.seal(limit)


async def test_a_record_comes_back_as_it_was(store: PostgresStore) -> None:
    async with store.transaction() as tx:
        await tx.audit.add([RECORD])
    async with store.reading() as read:
        (kept,) = await read.audit.page(AuditFilter(), None, 10)
        assert await read.audit.page(AuditFilter(credential_id="tok-2"), None, 10) == []
        assert not await read.audit.chain(0, 10)
        assert await read.audit.head() == AuditHead()
    assert kept == replace(RECORD, id=kept.id, at=kept.at)


async def chain_of(store: PostgresStore) -> tuple[list[AuditRecord], AuditHead]:
    """Return what the chain has, read in small parts, and its head."""
    records: list[AuditRecord] = []
    async with store.reading() as read:
        head = await read.audit.head()
        reached = head.pruned_seal
        while part := await read.audit.chain(reached, 3):
            records += part
            reached = part[-1].seal
    return records, head


def reckoned(chain: Sequence[AuditRecord], begin: AuditHead) -> tuple[list[AuditRecord], AuditHead]:
    """Return the same records, sealed anew behind a head."""
    return sealed([replace(record, seal=0, hash=b"") for record in chain], begin)


async def test_each_is_sealed_once_whoever_seals(store: PostgresStore) -> None:
    await fill(store, 20)
    counts = await asyncio.gather(*(seal(store, 7) for _ in range(4)))
    assert sorted(counts) == [0, 6, 7, 7] or sum(counts) == 20
    while await seal(store):
        pass
    chain, head = await chain_of(store)
    assert [record.seal for record in chain] == list(range(1, 21))
    assert reckoned(chain, AuditHead()) == (chain, head)


async def test_what_may_still_be_committed_is_sealed_later(store: PostgresStore) -> None:
    await fill(store, 1)
    async with store.transaction() as slow:
        await slow.audit.add([replace(RECORD, reason="slow")])
        await fill(store, 2)
        assert (await seal(store), await seal(store)) == (1, 0)
    assert await seal(store) == 3
    chain, head = await chain_of(store)
    assert [record.reason for record in chain] == ["0", "slow", "0", "1"]
    assert reckoned(chain, AuditHead()) == (chain, head)


async def test_whole_days_are_forgotten_and_their_batches_stay(
    store: PostgresStore, engine: AsyncEngine
) -> None:
    yesterday = datetime.now(UTC).date() - timedelta(days=2)
    async with engine.begin() as connection:
        await connection.execute(
            text(
                f"CREATE TABLE audit_{yesterday:%Y%m%d} PARTITION OF audit"
                f" FOR VALUES FROM ('{yesterday}') TO ('{yesterday + timedelta(days=1)}')"
            )
        )
    await fill(store, 4)
    async with engine.begin() as connection:
        # Records of both days, in between each other.
        await connection.execute(
            text("UPDATE audit SET day = :day WHERE id % 2 = 1"), {"day": yesterday}
        )
    async with store.transaction() as tx:
        assert await tx.audit.prune(86_400) == 0
    assert await seal(store) == 4
    chain, head = await chain_of(store)
    assert reckoned(chain, AuditHead()) == (chain, head)
    assert [record.reason for record in chain] == ["0", "2", "1", "3"]
    async with store.transaction() as tx:
        assert await tx.audit.prune(3 * 86_400) == 0
        assert await tx.audit.prune(86_400) == 1
        assert await tx.audit.prune(86_400) == 0
    rest, head = await chain_of(store)
    assert [record.seal for record in rest] == [3, 4]
    begin = AuditHead(seal=head.pruned_seal, hash=head.pruned_hash)
    assert begin == AuditHead(seal=2, hash=chain[1].hash)
    assert [record.hash for record in reckoned(rest, begin)[0]] == [record.hash for record in rest]
    async with engine.begin() as connection:
        batches = (await connection.execute(text("SELECT * FROM audit_batch ORDER BY 1"))).all()
    # An export of the forgotten day follows from its batch, and leads to the next one.
    (gone, stored_batch) = batches
    assert (gone.day, gone.records) == (yesterday, 2)
    assert reckoned(chain[:2], AuditHead(hash=gone.previous_hash))[1].hash == gone.hash
    assert stored_batch.previous_hash == gone.hash


async def test_records_that_were_sealed_one_by_one_stand_before_the_batches(
    store: PostgresStore, engine: AsyncEngine
) -> None:
    """Audit of migration 0036: the last old hash is the first batch's predecessor."""
    await fill(store, 5)
    async with store.reading() as read:
        records = (await read.audit.page(AuditFilter(), None, 10))[::-1]
    # A late commit was sealed after a record with a higher number.
    old, head = sealed([records[0], records[2], records[1]], AuditHead())
    async with engine.begin() as connection:
        for record in old:
            await connection.execute(
                text("UPDATE audit SET seal = :seal, hash = :hash WHERE id = :id"),
                {"seal": record.seal, "hash": record.hash, "id": record.id},
            )
        await connection.execute(
            text("INSERT INTO audit_head VALUES (true, 3, :hash, 0, :none, :id)"),
            {"hash": head.hash, "none": AuditHead().hash, "id": records[2].id},
        )
    assert await seal(store) == 2
    chain, head = await chain_of(store)
    assert [record.id for record in chain] == [records[at].id for at in (0, 2, 1, 3, 4)]
    assert reckoned(chain, AuditHead()) == (chain, head)
