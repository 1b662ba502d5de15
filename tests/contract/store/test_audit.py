"""The audit as rows: sealed once in the order of their ids, and forgotten from the first on."""

from __future__ import annotations

import asyncio
from dataclasses import replace

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
        assert await read.audit.chain(0, 10) == []
        assert await read.audit.head() == AuditHead()
    assert kept == replace(RECORD, id=kept.id, at=kept.at)


async def test_each_is_sealed_once_whoever_seals(store: PostgresStore) -> None:
    await fill(store, 20)
    counts = await asyncio.gather(*(seal(store, 7) for _ in range(4)))
    assert sorted(counts) == [0, 6, 7, 7] or sum(counts) == 20
    while await seal(store):
        pass
    async with store.reading() as read:
        chain, head = await read.audit.chain(0, 100), await read.audit.head()
    assert [record.seal for record in chain] == list(range(1, 21))
    unsealed = [replace(record, seal=0, hash=b"") for record in chain]
    assert sealed(unsealed, AuditHead()) == (chain, head)


async def test_what_is_old_is_forgotten_from_the_first_on(
    store: PostgresStore, engine: AsyncEngine
) -> None:
    await fill(store, 6)
    await seal(store)
    await fill(store, 1)
    async with engine.begin() as connection:
        await connection.execute(
            text("UPDATE audit SET at = at - interval '2 days' WHERE seal <= 4 OR seal IS NULL")
        )
    async with store.transaction() as tx:
        assert await tx.audit.prune(86_400, 3) == 3
        assert await tx.audit.prune(86_400, 3) == 1
        assert await tx.audit.prune(86_400, 3) == 0
        chain, head = await tx.audit.chain(0, 10), await tx.audit.head()
    assert [record.seal for record in chain] == [5, 6]
    assert head.pruned_seal == 4
    rest = [replace(record, seal=0, hash=b"") for record in chain]
    behind = AuditHead(seal=head.pruned_seal, hash=head.pruned_hash)
    assert [record.hash for record in sealed(rest, behind)[0]] == [record.hash for record in chain]
