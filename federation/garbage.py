"""The garbage collector kept from looking at a fleet again and again, and leaks found all the same.

Must not know what is in the fleet.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

# Objects made before the garbage collector looks at them: five times as many stopped everything
# for 50 to 150 ms on a busy machine, and each is looked at once either way.
COLLECT_AFTER: Final = 20_000
MOSTLY_GARBAGE: Final = COLLECT_AFTER * 9 // 10
# Spared objects are all looked at once there are a quarter more than after the last such look,
# and so many: a look takes 0.15 to 0.3 s for a million (lab/benchmarks/bench_garbage.py).
LOOK_AT_GROWTH: Final = 1.25
LOOK_AT_MORE: Final = 300_000
# Counting takes 10 ms for a million.
COUNT_EVERY_SECONDS: Final = 60.0

logger = logging.getLogger(__name__)


@contextmanager
def sparing_the_fleet() -> Iterator[None]:
    """Keep the garbage collector from ever looking at what is made meanwhile: a whole fleet.

    Nearly all of its millions of objects live on, and reference counts end the others: looking at
    them takes longer than loading them does, and later longer than decisions do.
    """
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.set_threshold(COLLECT_AFTER)
        gc.callbacks.append(spare_survivors)
        gc.enable()


def spare_survivors(phase: str, look: Mapping[str, int]) -> None:
    """Keep the garbage collector from looking once more at what has outlived its look.

    Nearly all of that is promises, which reference counts end: a look at millions of them would
    stop everything for seconds. A cycle that is in use at such a look is never freed, so none is
    spared where nearly all was garbage: that is what calls leave behind in a fleet that does not
    grow, and some are always under way.
    """
    if phase == "stop" and look["collected"] < MOSTLY_GARBAGE:
        gc.freeze()


class SpareLooks:
    """Looks at all that was spared, once its number says that there may be garbage in it.

    A cycle that was alive at a look of the collector is spared for good, and one for each call is a
    leak: of a plug-in, or of a library. A fleet that does not grow has no more spared objects later
    than before, because reference counts end what it does not need any more.
    """

    def __init__(self) -> None:
        self._after_last_look = 0

    async def keep_looking(self) -> None:
        """Count now and then, until cancelled."""
        while True:
            await asyncio.sleep(COUNT_EVERY_SECONDS)
            self.look_if_grown()

    def look_if_grown(self) -> int:
        """How many objects a look has freed; 0 without one."""
        spared = gc.get_freeze_count()
        if not self._after_last_look:
            # What was loaded at the start was looked at then.
            self._after_last_look = spared
        if spared <= self._after_last_look * LOOK_AT_GROWTH + LOOK_AT_MORE:
            return 0
        started = time.monotonic()
        gc.unfreeze()
        freed = gc.collect()
        gc.freeze()
        self._after_last_look = gc.get_freeze_count()
        fields = {
            "objects": spared,
            "freed": freed,
            "seconds": round(time.monotonic() - started, 3),
        }
        logger.info("looked at all spared objects", extra={"fields": fields})
        return freed
