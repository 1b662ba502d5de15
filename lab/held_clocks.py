"""A clock that a test holds still and moves on: ``ControlPlane(clock=HeldClock())``.

    clock = HeldClock()               shows the machine's time as of now, and stands still
    clock.advance(60)                 jumps; loops that pause until then go on
    await clock.run(60)               goes on second by second, so that no loop sees a jump

Must not be used for what the database or an agent measures: theirs are clocks of their own.
"""

from __future__ import annotations

import asyncio
import time


class HeldClock:
    """Implements ``ports.Timer`` for control planes on one event loop."""

    def __init__(self, seconds: float | None = None) -> None:
        self._now = time.time() if seconds is None else seconds
        self._pauses: set[tuple[float, asyncio.Future[None]]] = set()

    def now(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        """Show a later time at once."""
        assert seconds >= 0, "a clock does not go back"
        self._now += seconds
        for ends_at, future in self._pauses:
            if ends_at <= self._now and not future.done():
                future.set_result(None)

    async def run(self, seconds: float, step_seconds: float = 1.0) -> None:
        """Advance step by step; after each step all loops that pause get a turn."""
        ends_at = self._now + seconds
        while self._now < ends_at:
            self.advance(min(step_seconds, ends_at - self._now))
            await asyncio.sleep(0)

    async def sleep(self, seconds: float) -> None:
        """Return when this clock or the machine's has moved on by ``seconds``.

        The machine's counts too, because leases end by the clock of the database: a loop that
        renews one must not rest as long as this clock stands still.
        """
        pause = self._now + seconds, asyncio.get_running_loop().create_future()
        self._pauses.add(pause)
        try:
            await asyncio.wait((pause[1],), timeout=seconds)
        finally:
            self._pauses.discard(pause)
