"""Detection of a long transaction that keeps the journal from being read.

The journal is read up to the least floor of its writers, because they may still commit entries.
Must not read the journal. Belongs to the event loop of its reader.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from federation.model.printable import printable
from federation.services.journal import Position
from federation.services.journal_ports import OpenTransaction
from federation.services.ports import Transaction

LOOK_SECONDS: Final = 1.0
# A transaction is reported within 10 s, because it is first seen up to 1 s after it began.
HELD_SECONDS: Final = 6.0

logger = logging.getLogger(__name__)


class HeldBack(NamedTuple):
    """The fact that changes of other processes are not seen since ``since`` (monotonic clock).

    ``holder`` is the transaction at fault; None where the server does not show it to our role.
    """

    since: float
    holder: OpenTransaction | None

    @property
    def message(self) -> str:
        """A sentence for people: the transaction, and what to do about it."""
        held = f"for {time.monotonic() - self.since:.0f} s"
        if self.holder is None:
            return (
                f"A transaction that is not shown has held back {held} what others change: look at "
                "pg_locks and pg_stat_activity, and end it."
            )
        return (
            f"A transaction that may append to the journal has held back {held} what others "
            f"change: {self.holder.text}. Until it ends, nothing of that is seen here, and no "
            f"cluster counts as lost. {self.holder.remedy}"
        )


class JournalHold:
    """A check whether one floor keeps entries from being read for ``HELD_SECONDS``."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._looked_at = float("-inf")
        self._floor: Position | None = None
        self._floor_since = 0.0
        self.held: HeldBack | None = None

    @property
    def seconds(self) -> float:
        """Seconds for which changes have not been seen; 0 where nothing holds them back."""
        return self._now() - self.held.since if self.held else 0.0

    async def look(self, read: Transaction) -> None:
        """Query the least floor, at most once a second. Raises Unavailable."""
        now = self._now()
        if now - self._looked_at < LOOK_SECONDS:
            return
        bounds = await read.journal.bounds()
        floor = bounds.settled if bounds.settled < bounds.newest else None
        self._looked_at = now
        if floor != self._floor:
            self._floor, self._floor_since = floor, now
        if floor is None or now - self._floor_since < HELD_SECONDS:
            self._end()
            return
        if self.held is None or self.held.since != self._floor_since:
            self.held = HeldBack(self._floor_since, await read.journal.holder_of(floor))
            self._log(self.held)

    def _end(self) -> None:
        if self.held is not None:
            self.held = None
            logger.info("others' changes are seen again")

    def _log(self, held: HeldBack) -> None:
        holder = held.holder
        fields: dict[str, object] = {"held_seconds": round(self.seconds)}
        if holder is not None:
            fields |= {
                "pid": holder.pid,
                "database": printable(holder.database),
                "user": printable(holder.user),
                "application": printable(holder.application),
            }
            if holder.seconds is not None:
                fields["open_seconds"] = round(holder.seconds)
        logger.warning(
            "a transaction that may append to the journal holds back what others change: "
            "not ready, and no cluster counts as lost",
            extra={"fields": fields},
        )
