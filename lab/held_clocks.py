"""A clock that a test holds still and moves on: ``ControlPlane(clock=HeldClock())``.

    clock = HeldClock()               shows the machine's time as of now, and stands still
    clock.advance(60)                 jumps; loops that pause until then go on
    await clock.run(60)               goes on second by second, so that no loop sees a jump
    await clock.turn(2)               goes on, and returns when the loops that it wakes pause again

A control plane takes a step of more than 15 seconds for sleep of its machine: it could hear no
agent meanwhile, and forgives all of them the time. A cluster falls silent only in shorter turns.
Must not be used for what the database or an agent measures: theirs are clocks of their own.
"""

from __future__ import annotations

import asyncio
import time

from lab.patience import PATIENCE_SECONDS


class HeldClock:
    """Implements ``ports.Timer`` for control planes on one event loop."""

    def __init__(self, seconds: float | None = None) -> None:
        self._now = time.time() if seconds is None else seconds
        self._pauses: set[tuple[float, asyncio.Future[None], asyncio.Task[object] | None]] = set()
        # Loops that the last turn woke and that have not paused since.
        self._awake: set[asyncio.Task[object] | None] = set()
        self._all_pause = asyncio.Event()

    def now(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        """Show a later time at once."""
        assert seconds >= 0, "a clock does not go back"
        self._now += seconds
        for ends_at, future, _ in self._pauses:
            if ends_at <= self._now and not future.done():
                future.set_result(None)

    async def run(self, seconds: float, step_seconds: float = 1.0) -> None:
        """Advance step by step; after each step all loops that pause get a turn."""
        ends_at = self._now + seconds
        while self._now < ends_at:
            self.advance(min(step_seconds, ends_at - self._now))
            await asyncio.sleep(0)

    async def turn(self, seconds: float) -> None:
        """Advance once, and return when all loops that this wakes have done their round."""
        woken = {task for ends_at, _, task in self._pauses if ends_at <= self._now + seconds}
        self._awake = {task for task in woken if task is not None and not task.done()}
        self._all_pause.clear()
        for task in self._awake:
            task.add_done_callback(self._rest)
        self.advance(seconds)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while self._awake:
                await self._all_pause.wait()

    def _rest(self, task: asyncio.Task[object] | None) -> None:
        self._awake.discard(task)
        if not self._awake:
            self._all_pause.set()

    async def sleep(self, seconds: float) -> None:
        """Return when this clock or the machine's has moved on by ``seconds``.

        The machine's counts too, because leases end by the clock of the database: a loop that
        renews one must not rest as long as this clock stands still.
        """
        task = asyncio.current_task()
        pause = self._now + seconds, asyncio.get_running_loop().create_future(), task
        self._pauses.add(pause)
        self._rest(task)
        try:
            await asyncio.wait((pause[1],), timeout=seconds)
        finally:
            self._pauses.discard(pause)
