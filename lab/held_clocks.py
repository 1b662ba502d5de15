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
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TypeAlias

from lab.patience import PATIENCE_SECONDS

# While its clock stands still a control plane that is alone at its database renews leases that
# nobody else wants: it does that more seldom.
RESTS_OF_ONE_ALONE = 8

# When it ends, what ends it, and whose it is.
Pause: TypeAlias = tuple[float, asyncio.Future[None], asyncio.Task[object] | None]


class HeldClock:
    """Implements ``ports.Timer`` for control planes on one event loop."""

    def __init__(self, seconds: float | None = None) -> None:
        self._now = time.time() if seconds is None else seconds
        self._pauses: set[Pause] = set()
        # Loops that the last turn woke and that have not paused since.
        self._awake: set[asyncio.Task[object] | None] = set()
        self._all_pause = asyncio.Event()
        self._rests = RESTS_OF_ONE_ALONE

    def now(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        """Show a later time at once."""
        assert seconds >= 0, "a clock does not go back"
        self._now += seconds
        self._end(self._over_at(self._now))

    async def run(self, seconds: float, step_seconds: float = 1.0) -> None:
        """Advance step by step; after each step all loops that pause get a turn."""
        ends_at = self._now + seconds
        while self._now < ends_at:
            self.advance(min(step_seconds, ends_at - self._now))
            await asyncio.sleep(0)

    async def turn(self, seconds: float) -> None:
        """Advance once, and return when all loops that this wakes have done their round."""
        self._now += seconds
        await self._do_rounds(self._over_at(self._now))

    async def keep_leases(self) -> None:
        """Renew all, and let loops rest no longer than they ask for: somebody else wants them."""
        if self._rests > 1:
            self._rests = 1
            await self._do_rounds(list(self._pauses))

    async def _do_rounds(self, pauses: Sequence[Pause]) -> None:
        self._awake = {task for _, _, task in pauses if task is not None and not task.done()}
        self._all_pause.clear()
        for task in self._awake:
            task.add_done_callback(self._rest)
        self._end(pauses)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while self._awake:
                await self._all_pause.wait()

    def _over_at(self, now: float) -> Sequence[Pause]:
        return [pause for pause in self._pauses if pause[0] <= now]

    def _end(self, pauses: Sequence[Pause]) -> None:
        for _, future, _ in pauses:
            if not future.done():
                future.set_result(None)

    def _rest(self, task: asyncio.Task[object] | None) -> None:
        self._awake.discard(task)
        if not self._awake:
            self._all_pause.set()

    async def sleep(self, seconds: float) -> None:
        """Return when this clock has moved on by ``seconds``, or the machine's by some times that.

        The machine's counts too, because leases end by the clock of the database: a loop that
        renews one must not rest as long as this clock stands still.
        """
        task = asyncio.current_task()
        pause = self._now + seconds, asyncio.get_running_loop().create_future(), task
        self._pauses.add(pause)
        self._rest(task)
        try:
            await asyncio.wait((pause[1],), timeout=self._rests * seconds)
        finally:
            self._pauses.discard(pause)


_clocks: defaultdict[str, list[object]] = defaultdict(list)


@asynccontextmanager
async def at_database(url: str, clock: object) -> AsyncIterator[None]:
    """Let control planes that share a database keep their leases by their clocks."""
    clocks = _clocks[url]
    clocks.append(clock)
    if len(clocks) > 1:
        for each in clocks:
            if isinstance(each, HeldClock):
                await each.keep_leases()
    try:
        yield
    finally:
        clocks.remove(clock)
