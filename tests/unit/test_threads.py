"""Threads by kind of work: bounds, independence of each other, and rests."""

from __future__ import annotations

import asyncio
import threading

import pytest

from federation.model.errors import LimitExceeded
from federation.services import threads
from federation.services.threads import DRAWING, PLANNING, RESTS, SCORING, STEP_SECONDS


async def test_what_is_too_much_is_refused_and_other_kinds_are_not_concerned() -> None:
    go_on = threading.Event()
    # One is done, and two may wait.
    waiting = [asyncio.ensure_future(PLANNING.run(go_on.wait)) for _ in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(LimitExceeded, match="Too much planning waits"):
        await PLANNING.run(int)
    assert await DRAWING.run(int, "7") == 7
    # Who gives up while waiting leaves room for others.
    waiting[2].cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting[2]
    another = asyncio.ensure_future(PLANNING.run(int, "8"))
    go_on.set()
    assert await asyncio.gather(*waiting[:2], another) == [True, True, 8]


async def test_the_event_loop_stands_still_for_work_that_ends_soon() -> None:
    turns = list[str]()
    asyncio.get_running_loop().call_soon(turns.append, "a turn")
    assert await DRAWING.run_alone(60.0, int, "7") == 7
    with pytest.raises(ValueError, match="invalid literal"):
        await DRAWING.run_alone(60.0, int, "seven")
    assert turns == []


async def test_the_event_loop_goes_on_beside_work_that_takes_longer() -> None:
    go_on = threading.Event()
    asyncio.get_running_loop().call_soon(go_on.set)
    assert await DRAWING.run_alone(0.001, go_on.wait, 60.0)


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


async def test_work_of_some_kinds_rests_between_its_steps_and_before_what_comes_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Scoring rests as long as it works."""
    clock = Clock()
    monkeypatch.setattr(threads, "time", clock)
    clock.now = 1e9

    def steps() -> None:
        clock.work(0.25)
        clock.work(STEP_SECONDS / 2)
        clock.work(1.0)
        clock.worked += 0.5

    await SCORING.run(steps)
    assert clock.slept == [0.25, 1.0 + STEP_SECONDS / 2]
    clock.now += 0.25
    await SCORING.run(int)
    assert clock.slept[2:] == pytest.approx([0.25])
    clock.work(1.0)
    await DRAWING.run(clock.work, 1.0)
    assert len(clock.slept) == 3
