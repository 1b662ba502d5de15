"""Watchers and the loop they report to: threads that are started, started anew and stopped.

Must not know what is watched.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from estimator.kube.objects import version_number
from estimator.kube.reading import ObjectChange
from estimator.sight import Loss
from federation.runtime.backoff import Backoff

STOP_SECONDS: Final = 5.0
# A thread that ran so long had not been started in vain.
STEADY_SECONDS: Final = 60.0
# Where runs end sooner than that for so long, another process may do better.
FAILING_SECONDS: Final = 120.0

Value = TypeVar("Value")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSink(Generic[Value]):
    """Hands what a watcher's thread sees to the loop that owns what is made of it.

    ``on_loss`` is told None when what is known is current again, ``on_reach`` up to which version
    everything was handed on: 0 where versions are no numbers.
    """

    name: str
    loop: asyncio.AbstractEventLoop
    on_replace: Callable[[list[Value]], None]
    on_put: Callable[[Value], None]
    on_remove: Callable[[Value], None]
    on_loss: Callable[[Loss | None, bool], None] = lambda _loss, _forbidden: None
    on_skip: Callable[[int], None] = lambda _objects: None
    on_reach: Callable[[int], None] | None = None

    def replace(self, values: list[Value]) -> None:
        self.loop.call_soon_threadsafe(self.on_replace, values)

    def apply(self, changes: list[ObjectChange[Value]]) -> None:
        self.loop.call_soon_threadsafe(self._apply, changes)

    def reach(self, version: str) -> None:
        if self.on_reach is not None:
            self.loop.call_soon_threadsafe(self.on_reach, version_number(version))

    def find(self) -> None:
        self.loop.call_soon_threadsafe(self.on_loss, None, False)

    def lose(self, loss: Loss, *, forbidden: bool) -> None:
        self.loop.call_soon_threadsafe(self.on_loss, loss, forbidden)

    def skip(self, objects: int) -> None:
        self.loop.call_soon_threadsafe(self.on_skip, objects)

    def _apply(self, changes: list[ObjectChange[Value]]) -> None:
        for change in changes:
            if change.value is None:
                continue
            try:
                if change.is_removal:
                    self.on_remove(change.value)
                else:
                    self.on_put(change.value)
            except Exception:
                # The others of the batch are right all the same.
                logger.exception("passing over a change of one of the %s", self.name)


class Threaded(Protocol):
    """What runs in a thread until it is stopped, from any other, and may be run again."""

    name: str

    def run(self) -> None: ...

    def stop(self) -> None: ...


@dataclass(slots=True)
class _Run:
    """When a watcher's thread was started last, and since when such runs do not last.

    In the loop's seconds.
    """

    started_at: float
    failing_since: float | None = None


class WatcherThreads:
    """Watchers in threads of their own; one that ends by itself is started anew, with back-off."""

    def __init__(self, watchers: Sequence[Threaded], uniform: Callable[[float], float]) -> None:
        self._watchers = watchers
        self._uniform = uniform
        self._runs: dict[str, _Run] = {}

    def are_failing_at(self, now: float) -> bool:
        """Whether some watcher's thread ends again and again, however often it is started."""
        return any(
            run.failing_since is not None
            and now - run.failing_since >= FAILING_SECONDS
            and now - run.started_at < STEADY_SECONDS
            for run in self._runs.values()
        )

    async def run(self) -> None:
        """Until cancelled."""
        await asyncio.gather(*(self._keep_running(each) for each in self._watchers))

    async def _keep_running(self, watcher: Threaded) -> None:
        loop = asyncio.get_running_loop()
        backoff = Backoff(self._uniform)
        run = self._runs[watcher.name] = _Run(loop.time())
        while True:
            await self._run_once(watcher, loop)
            now = loop.time()
            if now - run.started_at >= STEADY_SECONDS:
                backoff.reset()
                run.failing_since = None
            if run.failing_since is None:
                run.failing_since = now
            seconds = backoff.next_seconds()
            logger.error("watching %s ended; it begins anew in %.1f s", watcher.name, seconds)
            await asyncio.sleep(seconds)
            run.started_at = loop.time()

    async def _run_once(self, watcher: Threaded, loop: asyncio.AbstractEventLoop) -> None:
        """In a thread, until that ends by itself; stopped with its thread when cancelled."""
        ended = asyncio.Event()

        def work() -> None:
            try:
                watcher.run()
            except Exception:
                logger.exception("watching %s failed", watcher.name)
            finally:
                # The loop may have ended before a thread that does not stop in time.
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(ended.set)

        thread = threading.Thread(target=work, name=f"watch {watcher.name}", daemon=True)
        thread.start()
        try:
            await ended.wait()
        except asyncio.CancelledError:
            watcher.stop()
            # It still hands things to this loop, which must not end before it.
            await asyncio.to_thread(thread.join, STOP_SECONDS)
            raise
