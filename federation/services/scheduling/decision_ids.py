"""Ids of decisions, which carry the time of the database that stores them.

Must not read a clock of the day: that of a control plane may be wrong. A decision is found by the
day in its id, so the id must not name a day that the database has not come to.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from typing import Final
from uuid import UUID, uuid4

from federation.model.errors import Conflict, Unavailable
from federation.services.ports import Store

# An id that is further from the time of its transaction is refused.
MAX_OFFSET_SECONDS: Final = 3600.0
_RANDOM_BITS: Final = 74
_LOW_BITS: Final = 62


class DecisionIds:
    """Makes ids by the database's clock, as this process last learned it.

    ``elapsed`` is any clock that only goes on; ``random_bits`` returns so many random bits.
    """

    def __init__(self, elapsed: Callable[[], float], random_bits: Callable[[int], int]) -> None:
        self._elapsed = elapsed
        self._random_bits = random_bits
        # The database's time when ``elapsed`` was 0; None before it was learned.
        self._origin: float | None = None

    def new(self) -> str:
        """Return a new id. Until a clock was learned it carries no day."""
        if self._origin is None:
            return str(uuid4())
        return str(uuid7(self._origin + self._elapsed(), self._random_bits(_RANDOM_BITS)))

    def learn(self, at: float) -> None:
        """Take the time of the database, in Unix seconds, for the time by now."""
        self._origin = at - self._elapsed()

    def check(self, ids: Iterable[str], at: float) -> None:
        """Learn the time of the transaction that writes these ids.

        Raises Unavailable if an id is more than an hour away from it: another try gets a new id.
        """
        self.learn(at)
        for decision_id in ids:
            made_at = time_of(decision_id)
            if made_at is not None and abs(made_at - at) > MAX_OFFSET_SECONDS:
                raise Unavailable(
                    "The clock of the database moved by more than an hour; try again."
                )


def uuid7(at: float, randomness: int) -> UUID:
    """Return the UUID of version 7 of a time in Unix seconds, with 74 random bits."""
    high, low = randomness >> _LOW_BITS, randomness & ((1 << _LOW_BITS) - 1)
    milliseconds = int(at * 1000)
    return UUID(int=milliseconds << 80 | 7 << 76 | high << 64 | 0b10 << 62 | low)


def time_of(decision_id: str) -> float | None:
    """Return the time that an id carries, in Unix seconds; None for an id of version 4."""
    uuid = UUID(decision_id)
    return (uuid.int >> 80) / 1000 if uuid.version == 7 else None


DECISION_IDS: Final = DecisionIds(time.monotonic, random.SystemRandom().getrandbits)


async def prepare_days(store: Store) -> None:
    """Make the partitions of the days to come, and learn the time. Raises Unavailable."""
    async with store.reading() as read:
        DECISION_IDS.learn((await read.kept_reports.now()).at / 1_000_000)
    try:
        async with store.transaction() as tx:
            await tx.partitions.make()
    except Conflict:
        # Others change the tables just now. The duty goes on with it, if there is time.
        async with store.reading() as read:
            if not await read.partitions.days_left():
                raise Unavailable(
                    "The partition of today cannot be made: others use its table."
                ) from None
