"""Wakes up who waits for the journal, on a connection that only listens.

Must not be relied on: what is told while the connection is away is lost, so readers also poll.
"""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import suppress

import asyncpg

from federation.store.engine import CONNECT_SECONDS, CONNECTION_ERRORS, driver_target
from federation.store.journal import CHANNEL

FIRST_PAUSE_SECONDS = 0.25
LONGEST_PAUSE_SECONDS = 15.0

logger = logging.getLogger(__name__)


class JournalSignal:
    """Implements ``journal_ports.ChangeSignal``. Listens from the first wait until ``close``."""

    def __init__(self, url: str) -> None:
        target, options = driver_target(url)
        _, arguments = target.get_dialect()().create_connect_args(target)
        self._arguments = {**arguments, **options, "timeout": CONNECT_SECONDS}
        self._told = asyncio.Event()
        self._listening: asyncio.Task[None] | None = None

    async def wait(self, timeout_seconds: float) -> None:
        if self._listening is None:
            self._listening = asyncio.create_task(self._listen(), name="journal-signal")
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                await self._told.wait()
        self._told.clear()

    async def close(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
            with suppress(asyncio.CancelledError):
                await self._listening
            self._listening = None

    async def _listen(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        while True:
            try:
                connection = await asyncpg.connect(**self._arguments)
            except (*CONNECTION_ERRORS, TimeoutError) as error:
                logger.debug("cannot listen for changes", extra={"reason": str(error)})
            else:
                pause = FIRST_PAUSE_SECONDS
                await self._heed(connection)
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - spreads retries
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    async def _heed(self, connection: asyncpg.Connection) -> None:
        """Tells of every notification until the connection ends."""
        ended = asyncio.Event()
        connection.add_termination_listener(lambda _: ended.set())
        try:
            with suppress(*CONNECTION_ERRORS):
                await connection.add_listener(CHANNEL, lambda *_: self._told.set())
                # What was appended before we listened was not told.
                self._told.set()
                await ended.wait()
        finally:
            connection.terminate()
