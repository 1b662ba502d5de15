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

# A shorter use of the interpreter is not worth a rest.
STEP_SECONDS = 0.001


class Rests(threading.local):
    """Rests of each thread, during which it leaves the interpreter to others."""

    times_as_long = 0.0
    _begun = 0.0
    _until = 0.0

    def begin(self, times_as_long: float) -> None:
        """Take the rest of earlier work, and begin new work."""
        self.times_as_long = times_as_long
        time.sleep(max(0.0, self._until - time.monotonic()))
        self._begun = time.thread_time()

    def end(self) -> None:
        """End the work; its rest comes before the next, so that its caller does not wait."""
        self._until = time.monotonic() + self._owed()

    def take(self) -> None:
        """Rest, if it is time to, in threads that have to."""
        if self.times_as_long and (owed := self._owed()) > STEP_SECONDS * self.times_as_long:
            time.sleep(owed)
            self._begun = time.thread_time()

    def _owed(self) -> float:
        return self.times_as_long * (time.thread_time() - self._begun)


RESTS: Final = Rests()


class Threads:
    """Threads for one kind of work; they start when there is some.

    A thread rests ``rest`` times as long as its work has kept the interpreter: before the next
    work, and where the work itself calls ``RESTS.take``.
    """

    def __init__(self, kind: str, *, workers: int, most_waiting: int, rest: float = 0.0) -> None:
        self._kind = kind
        self._rest = rest
        self._most = workers + most_waiting
        self._executor = ThreadPoolExecutor(workers, thread_name_prefix=kind)
        self._lock = threading.Lock()
        self._under_way = 0

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of the work. Raises LimitExceeded when too much waits already.

        A caller that is cancelled waits no longer; work that has begun goes on to its end.
        """
        return await asyncio.wrap_future(self._submitted(partial(work, *args, **kwargs)))

    async def run_alone(
        self, seconds: float, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run work as ``run`` does, but block the event loop for the first ``seconds``.

        Work in numpy gives the interpreter up hundreds of times. If the event loop takes it, each
        hand-over costs 0.1 ms, more than the event loop's own step.
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
        """Give up waiting work."""
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
# Bodies to be written may be large, and are packed before a transaction begins.
PACKING: Final = Threads("packing", workers=2, most_waiting=1000)
# Stored decisions and their traces.
UNPACKING: Final = Threads("unpacking", workers=2, most_waiting=1000)
# Outstanding promises, packed into newer reports.
PACKING_ROOMS: Final = Threads("packing of rooms", workers=1, most_waiting=1000)
# Decisions under locks must not wait for other work.
UNDER_LOCKS: Final = Threads("deciding under locks", workers=2, most_waiting=100)
# Plugins of other packages take their own time.
TELLING_PLUGINS: Final = Threads("telling of plugins", workers=1, most_waiting=10_000)
# Large requests; many of their steps hold the interpreter.
DECODING: Final = Threads("reading of requests", workers=1, most_waiting=100, rest=2.0)
GIVING_BACK: Final = Threads("giving back of memory", workers=1, most_waiting=1)
ENCODING: Final = Threads("writing of answers", workers=2, most_waiting=100)
# Pages for people, which programs need not wait for.
DRAWING: Final = Threads("drawing of pages", workers=1, most_waiting=50)
ESTIMATING: Final = Threads("estimating", workers=2, most_waiting=100)
# A plan takes seconds; while two wait another one is refused.
PLANNING: Final = Threads("planning", workers=1, most_waiting=2)
SCORING: Final = Threads("scoring", workers=1, most_waiting=20, rest=1.0)
# Reports of agents that all came back at once, and messages to them.
READING_REPORTS: Final = Threads("reading of reports", workers=2, most_waiting=20_000)
TELLING_AGENTS: Final = Threads("telling of agents", workers=1, most_waiting=20_000)
