"""Threads by kind of work: so many of each, and so much that may wait for one.

Must not know what is done there. Work of one kind never waits behind that of another.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from typing import Final, ParamSpec, TypeVar

from federation.model.errors import LimitExceeded

P = ParamSpec("P")
T = TypeVar("T")

# Less of the interpreter is not worth a rest.
STEP_SECONDS = 0.001


class Rests(threading.local):
    """Of each thread, how long it leaves the interpreter to others for what it has kept it."""

    times_as_long = 0.0
    _begun = 0.0
    _until = 0.0

    def begin(self, times_as_long: float) -> None:
        """What is left of the rest after what this thread has done before."""
        self.times_as_long = times_as_long
        time.sleep(max(0.0, self._until - time.monotonic()))
        self._begun = time.thread_time()

    def end(self) -> None:
        """Whoever waits for what was done does not wait for the rest after it."""
        self._until = time.monotonic() + self._owed()

    def take(self) -> None:
        """Rests, if it is time to. Nothing in threads that need not, as in the event loop's."""
        if self.times_as_long and (owed := self._owed()) > STEP_SECONDS * self.times_as_long:
            time.sleep(owed)
            self._begun = time.thread_time()

    def _owed(self) -> float:
        return self.times_as_long * (time.thread_time() - self._begun)


RESTS: Final = Rests()


class Threads:
    """Threads for one kind of work; they start when there is some.

    ``rest``: for so many times as long as work has kept the interpreter its thread leaves it to
    others, before the next and where the work itself calls ``RESTS.take``.
    """

    def __init__(self, kind: str, *, workers: int, most_waiting: int, rest: float = 0.0) -> None:
        self._kind = kind
        self._rest = rest
        self._most = workers + most_waiting
        self._executor = ThreadPoolExecutor(workers, thread_name_prefix=kind)
        self._lock = threading.Lock()
        self._under_way = 0

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What the work comes to. Raises LimitExceeded when too much waits already.

        Who is cancelled does not wait any longer; work that has begun goes on to its end.
        """
        return await asyncio.wrap_future(self._submitted(partial(work, *args, **kwargs)))

    async def run_alone(
        self, seconds: float, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """As ``run``, but the event loop does nothing else for the first ``seconds``.

        Work in numpy gives the interpreter up hundreds of times. Where the event loop takes it,
        each hand-over costs 0.1 ms, more than what the event loop does with it.
        """
        future = self._submitted(partial(work, *args, **kwargs))
        wait((future,), seconds)
        return future.result() if future.done() else await asyncio.wrap_future(future)

    def _submitted(self, work: Callable[[], T]) -> Future[T]:
        with self._lock:
            if self._under_way >= self._most:
                raise LimitExceeded(f"Too much {self._kind} waits for its turn; try again later.")
            self._under_way += 1
        future = self._executor.submit(partial(self._rested, work) if self._rest else work)
        future.add_done_callback(self._ended)
        return future

    def close(self) -> None:
        """What waits is given up."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _rested(self, work: Callable[[], T]) -> T:
        RESTS.begin(self._rest)
        try:
            return work()
        finally:
            RESTS.end()

    def _ended(self, _: Future[T]) -> None:
        with self._lock:
            self._under_way -= 1


# Batches are decided one after the other; previews must not be in their way.
PREVIEWING: Final = Threads("previewing", workers=1, most_waiting=200)
# Before a transaction begins: what is to be written may be large.
PACKING: Final = Threads("packing", workers=2, most_waiting=1000)
# Decisions that are read, with their traces.
UNPACKING: Final = Threads("unpacking", workers=2, most_waiting=1000)
# What is outstanding, into newer reports: all that came together at once.
PACKING_ROOMS: Final = Threads("packing of rooms", workers=1, most_waiting=1000)
# What has to be decided under locks: nobody else's work is in its way.
UNDER_LOCKS: Final = Threads("deciding under locks", workers=2, most_waiting=100)
# Of other packages: what they do with what they hear is their own time.
TELLING_PLUGINS: Final = Threads("telling of plugins", workers=1, most_waiting=10_000)
# Large requests. In many of their steps nobody else has the interpreter.
DECODING: Final = Threads("reading of requests", workers=1, most_waiting=100, rest=2.0)
GIVING_BACK: Final = Threads("giving back of memory", workers=1, most_waiting=1)
ENCODING: Final = Threads("writing of answers", workers=2, most_waiting=100)
# Pages for people: programs that ask need not wait for them.
DRAWING: Final = Threads("drawing of pages", workers=1, most_waiting=50)
ESTIMATING: Final = Threads("estimating", workers=2, most_waiting=100)
# A plan takes seconds; whoever asks for another one while two wait had better ask later.
PLANNING: Final = Threads("planning", workers=1, most_waiting=2)
SCORING: Final = Threads("scoring", workers=1, most_waiting=20, rest=1.0)
# Reports of agents that all came back at once, and what they are told then.
READING_REPORTS: Final = Threads("reading of reports", workers=2, most_waiting=20_000)
TELLING_AGENTS: Final = Threads("telling of agents", workers=1, most_waiting=20_000)
