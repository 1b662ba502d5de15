"""Follows one resource of the API server in a thread of its own: list, then watch, for ever.

Must not touch the cache: what it sees goes to a sink, which hands it to the loop.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Generic, Protocol, TypeVar

import urllib3
from kubernetes.client.exceptions import ApiException

from estimator.kube.objects import version_number
from estimator.kube.reading import (
    DEFAULT_PATIENCE,
    Expired,
    Garbled,
    ObjectChange,
    Patience,
    ResourceReader,
    Watched,
)
from estimator.measures import AgentMeasures
from estimator.sight import Loss
from federation.model.errors import FederationError
from federation.runtime.backoff import Backoff
from federation.runtime.measures import Distribution

MAX_RETRY_AFTER_SECONDS: Final = 60.0
# One agent a cluster makes no herd, and until the next try it is blind.
CAP_SECONDS: Final = 10.0

Value = TypeVar("Value")

logger = logging.getLogger(__name__)


class Sink(Protocol[Value]):
    """Takes what a watcher sees. Called from the watcher's thread."""

    def replace(self, values: list[Value]) -> None:
        """These are all there are."""
        ...

    def apply(self, changes: list[ObjectChange[Value]]) -> None:
        """These came, in this order."""
        ...

    def reach(self, version: str) -> None:
        """What came is all there is, or was changed, up to this version."""
        ...

    def find(self) -> None:
        """What was seen is current from now on, until it is lost."""
        ...

    def lose(self, loss: Loss, *, forbidden: bool) -> None:
        """What was seen may be out of date. ``forbidden``: the agent may not read it."""
        ...

    def skip(self, objects: int) -> None:
        """So many objects cannot be read and are left out."""
        ...


class Watcher(Generic[Value]):
    """Keeps a sink in step with one resource until stopped.

    Runs in the thread that calls ``run``; ``stop`` may be called from any other. ``clock`` is the
    one that losses are dated by.
    """

    def __init__(
        self,
        watched: Watched[Value],
        sink: Sink[Value],
        uniform: Callable[[float], float],
        patience: Patience = DEFAULT_PATIENCE,
        clock: Callable[[], float] = time.monotonic,
        measures: AgentMeasures | None = None,
    ) -> None:
        self.name = watched.name
        self._measures = measures or AgentMeasures()
        self._listing = self._measures.lists.setdefault(self.name, Distribution())
        self._reader = ResourceReader(watched, patience, uniform)
        self._sink = sink
        self._backoff = Backoff(uniform, cap_seconds=CAP_SECONDS)
        self._clock = clock
        self._stopping = threading.Event()
        self._version: str | None = None
        # When the server last showed that it, and what it sends us, is alive.
        self._alive_at = clock()
        self._is_current = False
        self._answers = True
        self._skipped = 0

    def stop(self) -> None:
        """End ``run`` soon, also when it is reading a quiet watch."""
        self._stopping.set()
        self._reader.abort()

    def run(self) -> None:
        """Returns when stopped. What nobody foresaw is raised, after contact was said to be lost;
        ``run`` may be called again then and begins with a list.
        """
        try:
            while not self._stopping.is_set():
                self._stopping.wait(self._try())
        except Exception as error:
            self._version = None
            self._lose(f"the watcher failed: {type(error).__name__}: {error}")
            raise

    def _try(self) -> float:
        """List, or watch until the watch ends; seconds to wait before the next try."""
        try:
            if self._version is None:
                self._list()
            else:
                self._watch(self._version)
        except Expired as error:
            logger.info("listing %s anew: %s", self.name, error)
            self._version = None
            self._lose(f"what was seen is too old: {error}")
            # After a server's restart every agent lists anew: spread the herd.
            return self._pause(answers=True)
        except ApiException as error:
            return self._after_refusal(error)
        except Garbled as error:
            # Going on from the same version might bring the same again.
            self._version = None
            return self._after_trouble(str(error), answers=True)
        except (urllib3.exceptions.HTTPError, OSError, FederationError) as error:
            # The certificates of a kubeconfig may be others by now.
            self._reader.renew_credentials()
            return self._after_trouble(str(error), answers=False)
        self._backoff.reset()
        return 0.0

    def _after_refusal(self, error: ApiException) -> float:
        """Seconds to wait after an error status."""
        if error.status == HTTPStatus.UNAUTHORIZED:
            self._reader.renew_credentials()
        # A proxy says so of a server that is away.
        answers = (error.status or 0) < HTTPStatus.INTERNAL_SERVER_ERROR
        seconds = self._after_trouble(
            f"{error.status} {error.reason}",
            answers=answers,
            forbidden=error.status in (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND),
        )
        if error.status == HTTPStatus.TOO_MANY_REQUESTS:
            seconds = max(seconds, _retry_after_seconds(error))
        return seconds

    def _after_trouble(self, what: str, *, answers: bool, forbidden: bool = False) -> float:
        seconds = self._pause(answers=answers)
        if not self._stopping.is_set():
            self._measures.troubles[self.name] += 1
            self._lose(what, forbidden=forbidden)
            logger.warning("watching %s: %s; again in %.1f s", self.name, what, seconds)
        return seconds

    def _pause(self, *, answers: bool) -> float:
        """Seconds to wait: few again once a server answers that did not."""
        if answers and not self._answers:
            self._backoff.reset()
        self._answers = answers
        return self._backoff.next_seconds()

    def _lose(self, why: str, *, forbidden: bool = False) -> None:
        self._is_current = False
        self._sink.lose(Loss(since=self._alive_at, why=why), forbidden=forbidden)

    def _find(self) -> None:
        """What was handed on is current now."""
        self._alive_at = self._clock()
        self._answers = True
        if not self._is_current:
            self._is_current = True
            self._sink.find()
        if self._reader.skipped != self._skipped:
            self._skipped = self._reader.skipped
            self._sink.skip(self._skipped)

    def _list(self) -> None:
        began = time.monotonic()
        listed = self._reader.list_all()
        self._listing.add(time.monotonic() - began)
        self._sink.replace(listed.values)
        self._version = listed.version
        self._sink.reach(listed.version)
        self._find()

    def _watch(self, version: str) -> None:
        """Hand on changes until the watch ends; the version to go on from moves with them."""
        for changes in self._reader.changes(version):
            if self._stopping.is_set():
                return
            if changes:
                self._sink.apply(changes)
                self._measures.changes[self.name] += len(changes)
                self._backoff.reset()
                self._version = changes[-1].version
                self._sink.reach(self._version)
            elif not self._is_current:
                # Servers open watches, too, that they never say a word on.
                self._check_history(version)
            self._find()
        self._find()
        if self._version == version:
            self._check_history(version)

    def _check_history(self, version: str) -> None:
        """A watch from a version of another etcd stays silent for ever; a list tells."""
        now = self._reader.present_version()
        if now.isdigit() and version.isdigit() and int(now) < int(version):
            raise Expired(f"the server is at version {now}, before {version}")


def _retry_after_seconds(error: ApiException) -> float:
    text = (error.headers or {}).get("Retry-After", "")
    seconds = float(text) if text.isdigit() else 1.0
    return min(seconds, MAX_RETRY_AFTER_SECONDS)


STOP_SECONDS: Final = 5.0
# A thread that ran so long had not been started in vain.
STEADY_SECONDS: Final = 60.0
# Where runs end sooner than that for so long, another process may do better.
FAILING_SECONDS: Final = 120.0


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
    """A worker that runs in a thread until another one stops it, and may run again."""

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
