"""The audit: refusals are recorded, records are sealed in a chain, forgotten, and listed.

Must not record changes: the transactions that make them do.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from federation.model.audit import AuditHead, AuditRecord
from federation.services.pace import Pace
from federation.services.ports import AuditFilter, Store
from federation.services.troubles import Trouble

# Of refusals of callers who are known that a control plane records: what is beyond is counted.
REFUSALS_AT_ONCE: Final = 200
REFUSALS_PER_SECOND: Final = 20.0
# Of those that anybody can cause, in any number, and that are kept for months: 43,000 a day.
SPARSE_AT_ONCE: Final = 300
SPARSE_PER_SECOND: Final = 0.5
# While the database is away no more than these are kept.
MAX_WAITING: Final = REFUSALS_AT_ONCE + SPARSE_AT_ONCE
# Refusals within this time are written together.
GATHERED_SECONDS: Final = 0.2
# What is counted is written within this time and the pace, also where no other refusal follows.
COUNTED_SECONDS: Final = 5.0
TROUBLE_SECONDS: Final = 1.0

logger = logging.getLogger(__name__)


class PacedRefusals:
    """Which refusals become records; of the others the next record says how many there were."""

    def __init__(self, *, at_once: int, per_second: float, now: float) -> None:
        self._pace = Pace(at_once=at_once, per_second=per_second, now=now)
        self._counted = 0
        self._last: AuditRecord | None = None

    def paced(self, record: AuditRecord, now: float) -> AuditRecord | None:
        """The record to be written; None where it is only counted."""
        if self._pace.left_at(now) < 1.0:
            self.count(record)
            return None
        self._pace.spend(1.0, now)
        counted, self._counted, self._last = self._counted, 0, None
        return replace(record, unrecorded=counted)

    def count(self, record: AuditRecord) -> None:
        self._counted += 1 + record.unrecorded
        self._last = record

    def due(self, now: float) -> AuditRecord | None:
        """The last that was counted, once the pace allows it: it says what came before it."""
        if self._last is None or self._pace.left_at(now) < 1.0:
            return None
        self._pace.spend(1.0, now)
        return self.rest()

    def rest(self) -> AuditRecord | None:
        """The same, whatever the pace."""
        last, counted = self._last, self._counted
        self._counted, self._last = 0, None
        return None if last is None else replace(last, unrecorded=counted - 1)


class AuditTrail:
    """Records refusals behind their answers, and lists what was recorded."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._known = PacedRefusals(
            at_once=REFUSALS_AT_ONCE, per_second=REFUSALS_PER_SECOND, now=clock()
        )
        self._sparse = PacedRefusals(
            at_once=SPARSE_AT_ONCE, per_second=SPARSE_PER_SECOND, now=clock()
        )
        self._waiting: list[tuple[PacedRefusals, AuditRecord]] = []
        self._filled = asyncio.Event()
        self._writing = asyncio.Lock()

    def refused(self, record: AuditRecord, *, sparingly: bool) -> None:
        """To be recorded soon, unless there are too many: then it is counted.

        ``sparingly``: it cost its caller nothing, so that they may come in any number, for ever.
        """
        pacing = self._sparse if sparingly else self._known
        paced = pacing.paced(record, self._clock())
        if paced is not None:
            self._waiting.append((pacing, paced))
            self._filled.set()

    async def keep_writing(self) -> None:
        """Until cancelled. What cannot be written now is kept, and tried again."""
        trouble = Trouble(logger, "refusals not recorded")
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(COUNTED_SECONDS):
                    await self._filled.wait()
            await asyncio.sleep(GATHERED_SECONDS)
            try:
                await self.write()
                trouble.over()
            except Exception as error:  # noqa: BLE001 - told; others have to be recorded later
                trouble.met(error)
                await asyncio.sleep(TROUBLE_SECONDS)

    async def finish(self) -> None:
        """``write``, and what is counted as well: nobody will say it later."""
        for pacing in (self._known, self._sparse):
            self._wait_for(pacing, pacing.rest())
        await self.write()

    async def write(self) -> None:
        """Returns once all refusals so far are written. Raises Unavailable; then they are kept."""
        async with self._writing:
            self._filled.clear()
            for pacing in (self._known, self._sparse):
                self._wait_for(pacing, pacing.due(self._clock()))
            taken, self._waiting = self._waiting, []
            if not taken:
                return
            try:
                async with self._store.transaction() as tx:
                    await tx.audit.add([record for _, record in taken])
            except BaseException:  # Cancelled, too: at a stop the rest is written by who stops.
                self._keep_again(taken)
                raise

    def _wait_for(self, pacing: PacedRefusals, record: AuditRecord | None) -> None:
        if record is not None:
            self._waiting.append((pacing, record))

    def _keep_again(self, taken: Sequence[tuple[PacedRefusals, AuditRecord]]) -> None:
        waiting = [*taken, *self._waiting]
        self._waiting = waiting[:MAX_WAITING]
        for pacing, record in waiting[MAX_WAITING:]:
            pacing.count(record)
        self._filled.set()

    async def list(
        self, query: AuditFilter, after: tuple[int, int] | None, limit: int
    ) -> Sequence[AuditRecord]:
        """The newest first, those that come after a time and an id."""
        async with self._store.reading() as read:
            return await read.audit.page(query, after, limit)

    async def chain(self, after: int, limit: int) -> tuple[Sequence[AuditRecord], AuditHead]:
        """Sealed records in the order of their seals, those after ``after``, and the head."""
        async with self._store.reading() as read:
            # Before the records: of what it says all are there.
            head = await read.audit.head()
            return await read.audit.chain(max(after, head.pruned_seal), limit), head
