"""Whether we could hear agents at all: silence counts only while somebody listened.

Must not tell who was heard. Belongs to one event loop.
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
# A loop that is late by less is busy, and hears all the same.
TOLERATED_SECONDS = 0.25
# At log level debug: what holds up callers is far shorter.
FINE_TICK_SECONDS, NOTED_SECONDS = 0.01, 0.01

logger = logging.getLogger(__name__)


def forgive(fleet: FleetOwner, names: Iterable[str], seconds: float, since: float) -> None:
    """Clusters that were not stale at ``since`` (Unix seconds) become so that much later.

    To be called after, or while, nobody could hear their agents for so many seconds.
    """
    for name in names:
        presence = fleet.presence(name)
        if presence is not None and not presence.is_silent_at(since):
            later = replace(presence, silent_after=presence.silent_after + seconds)
            fleet.put_presence(name, later)


class LoopWatch:
    """Notices when the event loop stood still, and forgives all agents the time.

    ``delays`` is by how much each tick came late, in seconds.
    """

    def __init__(self, fleet: FleetOwner, clock: Clock) -> None:
        self._fleet = fleet
        self._clock = clock
        self.delays = Distribution()

    async def keep_watching(self) -> None:
        """Until cancelled. After a stop this goes on before anybody can decide on what it made."""
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
        """The loop went on that much later than it should have."""
        if seconds <= TOLERATED_SECONDS:
            return
        since = self._clock.now() - seconds - TICK_SECONDS
        forgive(self._fleet, self._fleet.snapshot.names, seconds, since)
        fields = {"seconds": round(seconds, 1)}
        logger.warning("the event loop stood still", extra={"fields": fields})


def _note(seconds: float, cpu_seconds: float) -> None:
    """``cpu_seconds`` of it the loop was at work; else other threads and programs had its turn."""
    millis = {"ms": round(seconds * 1000, 1), "cpu_ms": round(cpu_seconds * 1000, 1)}
    logger.debug("the event loop was late", extra={"fields": millis})
