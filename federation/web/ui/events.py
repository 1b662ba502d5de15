"""Tells pages that something changed, so that they load anew: a word, never what changed.

Must not say anything to who may not look; a page that nobody tells is as true as when it was
loaded.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from federation.services.journal import Change
from federation.services.pace import Shares

# How soon after a change pages hear of it, and how long they are told nothing at most: ages grow.
TELL_SECONDS = 6.0
TELL_ANYWAY_ROUNDS = 6
# A stream ends, and the browser asks for the next one: so each session is looked at again.
STREAM_SECONDS = 120.0
RETRY_MILLIS = 3000
MOST_STREAMS = 200


class Pulse:
    """Counts changes, for streams that look at it from time to time."""

    def __init__(self, *, tell_seconds: float = TELL_SECONDS) -> None:
        self._tell_seconds = tell_seconds
        self._changes = 0
        self.shares = Shares(MOST_STREAMS, "pages that hear of changes")
        self._closing = asyncio.Event()

    def changed(self, _: Change) -> None:
        self._changes += 1

    def close(self) -> None:
        """All streams end."""
        self._closing.set()

    def stream(self, actor: str, keep_open: Callable[[float], None]) -> AsyncIterator[bytes]:
        """Server-sent events. ``keep_open`` is told for how long the connection is used.

        Raises LimitExceeded.
        """
        self.shares.check(actor)
        keep_open(STREAM_SECONDS + 2 * self._tell_seconds)
        return self._events(actor)

    async def _events(self, actor: str) -> AsyncIterator[bytes]:
        # A stream that nobody begins to read takes nothing.
        self.shares.take(actor)
        loop = asyncio.get_running_loop()
        ends_at, told, silent = loop.time() + STREAM_SECONDS, self._changes, 0
        try:
            yield f"retry: {RETRY_MILLIS}\n\n".encode()
            while loop.time() < ends_at and not self._closing.is_set():
                await self._pause()
                silent += 1
                if self._changes != told or silent >= TELL_ANYWAY_ROUNDS:
                    told, silent = self._changes, 0
                    yield f"event: changed\ndata: {told}\n\n".encode()
                else:
                    # So that a browser that is gone is noticed.
                    yield b":\n\n"
        finally:
            self.shares.give_back(actor)

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(self._tell_seconds):
                await self._closing.wait()
        except TimeoutError:
            return
