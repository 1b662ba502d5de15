"""Threads by kind of work: bounds, and independence of each other."""

from __future__ import annotations

import asyncio
import threading

import pytest

from federation.model.errors import LimitExceeded
from federation.services import threads
from federation.services.threads import RESTS, STEP_SECONDS, Threads


async def test_what_is_too_much_is_refused_and_other_kinds_are_not_concerned() -> None:
    go_on = threading.Event()
    full = Threads("counting", workers=1, most_waiting=1)
    other = Threads("other", workers=1, most_waiting=0)
    waiting = [asyncio.ensure_future(full.run(go_on.wait)) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(LimitExceeded, match="Too much counting waits"):
        await full.run(int)
    assert await other.run(int, "7") == 7
    go_on.set()
    assert await asyncio.gather(*waiting) == [True, True]
    assert await full.run(int, "8") == 8
    full.close()
    other.close()


async def test_who_gives_up_while_waiting_leaves_room_for_others() -> None:
    go_on = threading.Event()
    full = Threads("counting", workers=1, most_waiting=1)
    first = asyncio.ensure_future(full.run(go_on.wait))
    second = asyncio.ensure_future(full.run(int))
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    third = asyncio.ensure_future(full.run(int, "3"))
    go_on.set()
    assert await third == 3
    assert await first
    full.close()


class Clock:
    """Stands in for ``time``: of one thread, which works only when it is told to."""

    def __init__(self) -> None:
        self.now = self.worked = 0.0
        self.slept = list[float]()

    def work(self, seconds: float) -> None:
        self.now += seconds
        self.worked += seconds
        RESTS.take()

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if seconds:
            self.slept.append(seconds)

    def monotonic(self) -> float:
        return self.now

    def thread_time(self) -> float:
        return self.worked


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(threads, "time", clock)
    return clock


async def test_work_rests_between_its_steps_and_before_what_comes_next(clock: Clock) -> None:
    def steps() -> None:
        clock.work(0.25)
        clock.work(STEP_SECONDS / 2)
        clock.work(1.0)
        clock.worked += 0.5

    resting = Threads("resting", workers=1, most_waiting=1, rest=2.0)
    await resting.run(steps)
    assert clock.slept == [0.5, 2 * (1.0 + STEP_SECONDS / 2)]
    clock.now += 0.75
    await resting.run(int)
    assert clock.slept[2:] == pytest.approx([0.25])
    resting.close()


async def test_other_threads_do_not_rest(clock: Clock) -> None:
    clock.work(1.0)
    other = Threads("other", workers=1, most_waiting=1)
    await other.run(clock.work, 1.0)
    assert clock.slept == []
    other.close()
