"""Refusals behind their answers: few become rows, and of all others the audit says how many."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from federation.model.audit import AuditRecord
from federation.model.errors import Unavailable
from federation.services.access import audit as audit_module
from federation.services.access.audit import (
    MOST_WAITING,
    REFUSALS_AT_ONCE,
    SPARSE_AT_ONCE,
    SPARSE_PER_SECOND,
    AuditTrail,
)
from lab.patience import until

STRANGER = AuditRecord(actor="somebody unknown", method="Scheduling/Schedule")
KNOWN = AuditRecord(actor="token ci (tok-1)", method="Scheduling/Schedule")
DAY = 86_400


class Rows:
    """A store of nothing but the audit, which can be away, and counts what it is asked."""

    def __init__(self) -> None:
        self.written: list[AuditRecord] = []
        self.statements = 0
        self.is_away = False
        self.audit = self

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        if self.is_away:
            raise Unavailable
        yield self

    async def add(self, records: Sequence[AuditRecord]) -> None:
        self.statements += 1
        self.written += records


class Trail:
    """A trail on such rows, at a time that the test says."""

    def __init__(self) -> None:
        self.now = 0.0
        self.rows = Rows()
        store: Any = self.rows
        self.trail = AuditTrail(store, clock=lambda: self.now)

    def refuse(self, record: AuditRecord, times: int) -> None:
        for _ in range(times):
            self.trail.refused(record, sparingly=record is STRANGER)

    async def written(self) -> list[AuditRecord]:
        await self.trail.write()
        return self.rows.written

    def told(self) -> int:
        """How many refusals the rows tell of."""
        return sum(1 + record.unrecorded for record in self.rows.written)


@pytest.fixture
def made() -> Trail:
    return Trail()


async def test_a_flood_costs_few_rows_and_no_refusal_is_lost(made: Trail) -> None:
    made.refuse(STRANGER, 3_000)
    assert len(await made.written()) == SPARSE_AT_ONCE
    await made.trail.finish()
    assert (len(made.rows.written), made.told(), made.rows.statements) == (
        *(SPARSE_AT_ONCE + 1, 3_000),
        2,
    )


async def test_a_flood_that_lasts_is_tens_of_megabytes_a_day(made: Trail) -> None:
    for _ in range(DAY // 60):
        made.now += 60.0
        made.refuse(STRANGER, 100)
        await made.trail.write()
    await made.trail.finish()
    # As docs/access.md says, with bytes for each.
    assert 40_000 < len(made.rows.written) < 44_000
    assert made.told() == 100 * DAY // 60


async def test_strangers_do_not_hide_what_callers_who_are_known_were_refused(made: Trail) -> None:
    made.refuse(STRANGER, 10 * SPARSE_AT_ONCE)
    made.refuse(KNOWN, REFUSALS_AT_ONCE)
    rows = await made.written()
    assert sum(record.actor == KNOWN.actor for record in rows) == REFUSALS_AT_ONCE


async def test_what_is_counted_is_written_though_no_other_refusal_follows(made: Trail) -> None:
    made.refuse(STRANGER, SPARSE_AT_ONCE + 7)
    await made.written()
    assert made.told() == SPARSE_AT_ONCE
    made.now = 1.0 / SPARSE_PER_SECOND
    last = (await made.written())[-1]
    assert (last.unrecorded, made.told()) == (6, SPARSE_AT_ONCE + 7)
    made.now += 1_000.0
    assert len(await made.written()) == SPARSE_AT_ONCE + 1


async def test_it_is_written_by_itself(made: Trail, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_module, "COUNTED_SECONDS", 0.01)
    monkeypatch.setattr(audit_module, "GATHERED_SECONDS", 0.0)
    made.refuse(STRANGER, SPARSE_AT_ONCE + 1)
    writing = asyncio.create_task(made.trail.keep_writing())

    async def told() -> int:
        await asyncio.sleep(0)
        return made.told()

    try:
        await until(told, lambda count: count == SPARSE_AT_ONCE)
        made.now = 1.0 / SPARSE_PER_SECOND
        await until(told, lambda count: count == SPARSE_AT_ONCE + 1)
    finally:
        writing.cancel()


async def test_what_is_too_much_to_keep_while_the_database_is_away_is_counted(
    made: Trail,
) -> None:
    made.rows.is_away = True
    for _ in range(5):
        made.now += 1_000.0
        made.refuse(STRANGER, SPARSE_AT_ONCE)
        made.refuse(KNOWN, REFUSALS_AT_ONCE)
        with pytest.raises(Unavailable):
            await made.trail.write()
    made.rows.is_away = False
    await made.trail.finish()
    assert made.told() == 5 * MOST_WAITING
    # Those kept, and one that counts for each sort.
    assert len(made.rows.written) == MOST_WAITING + 2
