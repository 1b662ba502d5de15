from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine

from federation.history.bodies import deflated
from federation.history.packed_inputs import Packed
from federation.services.binding_ports import StoredBinding
from federation.services.decision_ports import NewPreview, StoredPreview
from federation.services.packed_traces import packed_preview
from federation.services.values import ReportEvidence, Verdict
from federation.store.decisions import UNREAD
from federation.store.postgres import PostgresStore
from lab.decisions import make_decision
from tests.contract.store.test_bindings import FULL, add
from tests.stores import new_decision

VERDICT = Verdict(
    decision=make_decision(("a", 4), ("b", 2)),
    evidence=ReportEvidence(sequences=(7, 0, 3), age_seconds=(0.25, 0.0, 1.5)),
)
BINDING = replace(FULL, generation=4, fresh=True)


def preview(preview_id: str = "p", *, base: StoredBinding | None = None) -> NewPreview:
    return NewPreview(
        id=preview_id,
        secret_hash=b"s" * 32,
        base=base,
        body=packed_preview(BINDING, VERDICT, wait=False),
    )


async def keep(store: PostgresStore, new: NewPreview, *, ttl_seconds: int = 60) -> float:
    async with store.transaction() as tx:
        return await tx.previews.add(new, ttl_seconds)


async def found(store: PostgresStore, preview_id: str = "p") -> StoredPreview | None:
    async with store.transaction() as tx:
        return await tx.previews.lock(preview_id)


async def test_a_preview_comes_back_as_it_was_put(store: PostgresStore) -> None:
    base = await add(store, replace(FULL, generation=3))
    assert base is not None
    await keep(store, preview(base=base))
    kept = await found(store)
    assert kept is not None
    assert kept.binding == BINDING
    assert kept.wait is False
    assert kept.verdict.decision.to_plain() == VERDICT.decision.to_plain()
    assert kept.verdict.evidence == VERDICT.evidence
    assert (kept.binding_id, kept.binding_generation) == (base.id, 3)
    assert (kept.secret_hash, kept.decision_id) == (b"s" * 32, "")


async def test_it_expires_and_is_swept_away_by_the_next(
    store: PostgresStore, engine: AsyncEngine
) -> None:
    soon = await keep(store, preview("old"), ttl_seconds=0)
    assert await found(store, "old") is None
    later = await keep(store, preview("new"), ttl_seconds=60)
    assert 59 < later - soon < 120
    async with engine.connect() as connection:
        kept = await connection.execute(text("SELECT id FROM preview"))
        assert [row.id for row in kept] == ["new"]


async def test_one_of_a_newer_version_counts_as_expired(
    store: PostgresStore, caplog: pytest.LogCaptureFixture
) -> None:
    await keep(store, replace(preview(), body=Packed(deflated(b'{"v": 2}'))))
    assert await found(store) is None
    assert "previews of version 2" in str([each.__dict__ for each in caplog.records])


async def test_a_decision_whose_trace_is_of_a_newer_version_is_told_without_it(
    store: PostgresStore, caplog: pytest.LogCaptureFixture
) -> None:
    base = await add(store, FULL)
    assert base is not None
    newer = deflated(msgspec.msgpack.encode({"v": 2}))
    new = replace(new_decision(FULL, VERDICT, binding_id=base.id), trace=Packed(newer))
    async with store.transaction() as tx:
        await tx.decisions.add_all([new])
        stored = await tx.decisions.get(new.id)
    assert stored is not None
    record = stored.unpacked()
    assert record.decision.clusters == VERDICT.decision.clusters
    assert record.decision.trace.warnings == (UNREAD,)
    assert record.promises == ()
    assert "traces of version 2" in str([each.__dict__ for each in caplog.records])


async def test_a_secret_is_kept_as_a_hash_only(store: PostgresStore) -> None:
    with pytest.raises(IntegrityError, match="secret_hash_sha256"):
        await keep(store, replace(preview(), secret_hash=b"short"))
