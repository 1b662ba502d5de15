"""Times in which the event loop could not hear agents, which do not count as silence.

Must not decide which agents are silent. Belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from dataclasses import replace

from federation.runtime.measures import Distribution
from federation.services.fleet.registry import FleetOwner
from federation.services.ports import Clock
from federation.services.troubles import Trouble

TICK_SECONDS = 0.5
# A loop that is late by less is busy, but hears agents.
TOLERATED_SECONDS = 0.25
# At log level debug, because far shorter lags delay callers.
FINE_TICK_SECONDS, NOTED_SECONDS = 0.01, 0.01

logger = logging.getLogger(__name__)


def shift_deadlines(fleet: FleetOwner, names: Iterable[str], seconds: float, since: float) -> None:
    """Let clusters that were not stale at ``since`` (Unix seconds) become so that much later.

    To be called after, or while, their agents could not be heard for so many seconds.
    """
    for name in names:
        presence = fleet.presence(name)
        if presence is not None and not presence.is_silent_at(since):
            later = replace(presence, silent_after=presence.silent_after + seconds)
            fleet.put_presence(name, later)


class LoopWatch:
    """A watch that notices when the event loop stood still, and shifts all deadlines by that.

    ``delays`` are the delays of its ticks, in seconds.
    """

    def __init__(self, fleet: FleetOwner, clock: Clock) -> None:
        self._fleet = fleet
        self._clock = clock
        self.delays = Distribution()

    async def keep_watching(self) -> None:
        """Watch until cancelled. After a stop this runs before any decision on its results."""
        loop = asyncio.get_running_loop()
        is_fine = logger.isEnabledFor(logging.DEBUG)
        tick = FINE_TICK_SECONDS if is_fine else TICK_SECONDS
        trouble = Trouble(logger, "agents not forgiven that the event loop stood still")
        while True:
            due, used = loop.time() + tick, time.thread_time()
            await asyncio.sleep(tick)
            late = loop.time() - due
            self.delays.add(late)
            if is_fine and late > NOTED_SECONDS:
                _note(late, time.thread_time() - used)
            try:
                self.late_by(late)
                trouble.over()
            except Exception as error:  # noqa: BLE001 - told; it has to go on watching
                trouble.met(error)

    def late_by(self, seconds: float) -> None:
        """Shift deadlines, if the loop was late by more than it may be."""
        if seconds <= TOLERATED_SECONDS:
            return
        since = self._clock.now() - seconds - TICK_SECONDS
        shift_deadlines(self._fleet, self._fleet.snapshot.names, seconds, since)
        fields = {"seconds": round(seconds, 1)}
        logger.warning("the event loop stood still", extra={"fields": fields})


def _note(seconds: float, cpu_seconds: float) -> None:
    """Log a lag, of which the loop was at work ``cpu_seconds``; else others had its turn."""
    millis = {"ms": round(seconds * 1000, 1), "cpu_ms": round(cpu_seconds * 1000, 1)}
    logger.debug("the event loop was late", extra={"fields": millis})
