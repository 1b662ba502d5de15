"""The audit: refusals are recorded, records are sealed in a chain, forgotten, and listed.

Must not record changes: the transactions that make them do.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from federation.model.audit import AuditHead, AuditRecord
from federation.services.access_ports import AuditFilter
from federation.services.pace import Pace
from federation.services.ports import Store
from federation.services.troubles import Trouble

# Of all refusals that a control plane records: what is beyond is counted.
REFUSALS_AT_ONCE: Final = 200
REFUSALS_PER_SECOND: Final = 20.0
# Refusals within this time are written together.
GATHERED_SECONDS: Final = 0.2
TROUBLE_SECONDS: Final = 1.0

logger = logging.getLogger(__name__)


class AuditTrail:
    """Records refusals behind their answers, and lists what was recorded."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._pace = Pace(at_once=REFUSALS_AT_ONCE, per_second=REFUSALS_PER_SECOND, now=clock())
        self._unrecorded = 0
        self._refusals: list[AuditRecord] = []
        self._filled = asyncio.Event()
        self._writing = asyncio.Lock()

    def refused(self, record: AuditRecord) -> None:
        """To be recorded soon, unless there are too many."""
        if self._pace.left_at(self._clock()) < 1.0:
            self._unrecorded += 1
            return
        self._pace.spend(1.0, self._clock())
        self._refusals.append(replace(record, unrecorded=self._unrecorded))
        self._unrecorded = 0
        self._filled.set()

    async def keep_writing(self) -> None:
        """Until cancelled. What cannot be written now is kept, and tried again."""
        trouble = Trouble(logger, "refusals not recorded")
        while True:
            await self._filled.wait()
            await asyncio.sleep(GATHERED_SECONDS)
            try:
                await self.write()
                trouble.over()
            except Exception as error:  # noqa: BLE001 - told; others have to be recorded later
                trouble.met(error)
                await asyncio.sleep(TROUBLE_SECONDS)

    async def write(self) -> None:
        """Returns once all refusals so far are written. Raises Unavailable; then they are kept."""
        async with self._writing:
            self._filled.clear()
            refusals, self._refusals = self._refusals, []
            if not refusals:
                return
            try:
                async with self._store.transaction() as tx:
                    await tx.audit.add(refusals)
            except BaseException:  # Cancelled, too: at a stop the rest is written by who stops.
                # While the database is away no more than these are kept.
                self._refusals = (refusals + self._refusals)[:REFUSALS_AT_ONCE]
                self._filled.set()
                raise

    async def list(
        self, wanted: AuditFilter, after: tuple[int, int] | None, limit: int
    ) -> Sequence[AuditRecord]:
        """The newest first, those that come after a time and an id."""
        async with self._store.reading() as read:
            return await read.audit.page(wanted, after, limit)

    async def chain(self, after: int, limit: int) -> tuple[Sequence[AuditRecord], AuditHead]:
        """Sealed records in the order of their seals, those after ``after``, and the head."""
        async with self._store.reading() as read:
            # Before the records: of what it says all are there.
            head = await read.audit.head()
            return await read.audit.chain(max(after, head.pruned_seal), limit), head
