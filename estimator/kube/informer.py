"""Follows one resource of the API server in one task: list, then watch, for ever.

Must not keep objects: a receiver takes them, on the same event loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, Generic, TypeVar

from estimator.kube.client import KubeClient, ReadTimedOut, RefusedRequest
from estimator.kube.decoding import (
    Expired,
    Garbled,
    LineBuffer,
    ObjectChange,
    ObjectDecoder,
    ObjectList,
    Watched,
)
from estimator.kube.objects import version_number
from estimator.measures import AgentMeasures
from estimator.sight import Loss
from federation.model.errors import FederationError
from federation.runtime.backoff import Backoff
from federation.runtime.measures import Distribution

PAGE_SIZE: Final = 500
# Objects that are decoded at once, some milliseconds long: the event loop is others', too.
SLICE_SIZE: Final = 100
# One agent a cluster makes no herd, and until the next try it is blind.
CAP_SECONDS: Final = 10.0
# A run that lasted so long was not in vain.
STEADY_SECONDS: Final = 60.0
# Where runs end sooner than that for so long, another process may do better.
FAILING_SECONDS: Final = 120.0
# Servers that do not know WatchList, or have it off, answer its parameters with these.
_WATCH_LIST_REFUSED: Final = frozenset({400, 422})

Value = TypeVar("Value")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long to wait for the API server, in seconds.

    The server ends a watch after ``watch`` and up to ``watch_shift`` more, which keeps watches
    from ending together; ``grace`` later it is taken for dead. Watches are short, because a quiet
    one shows by its end only that it is alive. The one object that is requested between them may
    take ``watch`` at most.
    """

    connect: float = 5.0
    list_read: float = 60.0
    watch: float = 10.0
    watch_shift: float = 5.0
    grace: float = 5.0


DEFAULT_PATIENCE: Final = Patience()


@dataclass(frozen=True, slots=True, kw_only=True)
class Receiver(Generic[Value]):
    """Takes the objects of an informer.

    ``replace`` gets a whole list, and may yield between slices of its work. ``on_loss`` gets None
    once the objects are current again. ``on_reach`` gets the version up to which everything was
    handed on: 0 where versions are no numbers.
    """

    replace: Callable[[list[Value]], Iterable[None] | None]
    put: Callable[[Value], None]
    remove: Callable[[Value], None]
    on_loss: Callable[[Loss | None, bool], None] = lambda _loss, _is_forbidden: None
    on_skip: Callable[[int], None] = lambda _objects: None
    on_reach: Callable[[int], None] = lambda _version: None


class ResourceReader(Generic[Value]):
    """Lists and watches one resource.

    Methods raise Expired, Garbled, RefusedRequest, and errors of the tree.
    """

    def __init__(
        self,
        client: KubeClient,
        watched: Watched[Value],
        patience: Patience,
        uniform: Callable[[float], float],
    ) -> None:
        self._client = client
        self._watched = watched
        self._patience = patience
        self._uniform = uniform
        self._decoder = ObjectDecoder(watched)
        self._streams_lists = True

    @property
    def skipped(self) -> int:
        return self._decoder.skipped

    async def list_all(self) -> tuple[list[Value], str]:
        """Return everything, and the version that it was all true at.

        A list is one stream where the server can, else it comes in pages.
        """
        self._decoder.begin_list()
        if self._streams_lists:
            listed = await self._streamed_list()
            if listed is not None:
                return listed
            logger.info("listing %s in pages: the server does not stream lists", self._watched.name)
            self._streams_lists = False
        return await self._paged_list()

    async def present_version(self) -> str:
        """Return the server's version now; asks for one object."""
        return (await self._page(self._patience.watch, limit=1)).metadata.resource_version

    async def changes(self, version: str) -> AsyncGenerator[list[ObjectChange[Value]]]:
        """Yield changes after ``version`` until the watch ends, as many at once as have come.

        Begins with none, once the watch is open.
        """
        seconds = round(self._patience.watch + self._uniform(self._patience.watch_shift))
        async with self._stream(seconds, resourceVersion=version) as batches:
            yield []
            async for batch in batches:
                yield batch

    async def _streamed_list(self) -> tuple[list[Value], str] | None:
        """Return None when the server did not stream the list to its end."""
        values: list[Value] = []
        seconds = round(self._patience.list_read)
        query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        try:
            async with self._stream(seconds, **query) as batches:
                async for batch in batches:
                    for change in batch:
                        if change.ends_list:
                            return values, change.version
                        if change.value is not None:
                            values.append(change.value)
        except ReadTimedOut:
            return None
        except RefusedRequest as refusal:
            if refusal.status not in _WATCH_LIST_REFUSED:
                raise
        return None

    async def _paged_list(self) -> tuple[list[Value], str]:
        values: list[Value] = []
        token: str | None = None
        while True:
            page = await self._page(
                self._patience.list_read, limit=PAGE_SIZE, **{"continue": token}
            )
            for start in range(0, len(page.items), SLICE_SIZE):
                values += self._decoder.values(page.items[start : start + SLICE_SIZE])
                await asyncio.sleep(0)
            token = page.metadata.continue_
            if not token:
                return values, page.metadata.resource_version

    async def _page(self, read_seconds: float, **query: object) -> ObjectList:
        async with self._open(read_seconds, query) as answer:
            return self._decoder.page(await answer.read())

    @asynccontextmanager
    async def _stream(
        self, seconds: int, **query: object
    ) -> AsyncIterator[AsyncIterator[list[ObjectChange[Value]]]]:
        watching = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": seconds}
        async with (
            self._open(seconds + self._patience.grace, {**watching, **query}) as answer,
            aclosing(self._batches(answer)) as batches,
        ):
            yield batches

    async def _batches(self, answer: Any) -> AsyncGenerator[list[ObjectChange[Value]]]:
        lines = LineBuffer()
        async for chunk in answer.content.iter_any():
            for batch in self._decoder.batches(lines.feed(chunk)):
                yield batch
            # A server that is quicker than we are must not keep the event loop to itself.
            await asyncio.sleep(0)

    @asynccontextmanager
    async def _open(self, read_seconds: float, query: dict[str, Any]) -> AsyncIterator[Any]:
        try:
            async with self._client.open(
                self._watched.path,
                {**query, "fieldSelector": self._watched.field_selector},
                connect_seconds=self._patience.connect,
                read_seconds=read_seconds,
            ) as answer:
                yield answer
        except RefusedRequest as refusal:
            if refusal.status == HTTPStatus.GONE:
                raise Expired(str(refusal)) from refusal
            raise


class Informer(Generic[Value]):
    """Keeps a receiver in step with one resource. ``clock`` dates losses."""

    def __init__(
        self,
        client: KubeClient,
        watched: Watched[Value],
        receiver: Receiver[Value],
        uniform: Callable[[float], float],
        patience: Patience = DEFAULT_PATIENCE,
        clock: Callable[[], float] = time.monotonic,
        measures: AgentMeasures | None = None,
    ) -> None:
        self.name = watched.name
        self._measures = measures or AgentMeasures()
        self._listing = self._measures.lists.setdefault(self.name, Distribution())
        self._reader = ResourceReader(client, watched, patience, uniform)
        self._receiver = receiver
        self._backoff = Backoff(uniform, cap_seconds=CAP_SECONDS)
        self._failures = Backoff(uniform)
        self._clock = clock
        self._version: str | None = None
        # When the server last showed that it, and what it sends us, is alive.
        self._alive_at = clock()
        self._is_current = False
        self._answers = True
        self._skipped = 0
        # In the event loop's seconds.
        self._begun_at = 0.0
        self._failing_since: float | None = None

    def is_failing_at(self, now: float) -> bool:
        """Whether it ends again and again by errors that are none of the API server's."""
        return (
            self._failing_since is not None
            and now - self._failing_since >= FAILING_SECONDS
            and now - self._begun_at < STEADY_SECONDS
        )

    async def run(self) -> None:
        """Follow until cancelled. After an unforeseen error it begins with a list."""
        loop = asyncio.get_running_loop()
        while True:
            self._begun_at = loop.time()
            try:
                while True:
                    seconds = await self._try()
                    await asyncio.sleep(seconds)
            except Exception as error:
                logger.exception("watching %s failed", self.name)
                self._version = None
                self._lose(f"the watcher failed: {type(error).__name__}: {error}")
            await asyncio.sleep(self._after_failure(loop.time()))

    def _after_failure(self, now: float) -> float:
        """Return the seconds to wait before a new beginning."""
        if now - self._begun_at >= STEADY_SECONDS:
            self._failures.reset()
            self._failing_since = None
        if self._failing_since is None:
            self._failing_since = now
        seconds = self._failures.next_seconds()
        logger.error("watching %s ended; it begins anew in %.1f s", self.name, seconds)
        return seconds

    async def _try(self) -> float:
        """List, or watch until the watch ends; return the seconds to wait before the next try."""
        try:
            if self._version is None:
                await self._list()
            else:
                await self._watch(self._version)
        except Expired as error:
            logger.info("listing %s anew: %s", self.name, error)
            self._version = None
            self._lose(f"what was seen is too old: {error}")
            # After a server's restart every agent lists anew: spread the herd.
            return self._pause(answers=True)
        except RefusedRequest as refusal:
            return self._after_refusal(refusal)
        except Garbled as error:
            # Going on from the same version might bring the same again.
            self._version = None
            return self._after_trouble(str(error), answers=True)
        except FederationError as error:
            return self._after_trouble(error.message, answers=False)
        self._backoff.reset()
        return 0.0

    def _after_refusal(self, refusal: RefusedRequest) -> float:
        """Return the seconds to wait after an error status."""
        # A proxy says so of a server that is away.
        answers = refusal.status < HTTPStatus.INTERNAL_SERVER_ERROR
        is_forbidden = refusal.status in (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND)
        seconds = self._after_trouble(str(refusal), answers=answers, is_forbidden=is_forbidden)
        if refusal.status == HTTPStatus.TOO_MANY_REQUESTS:
            seconds = max(seconds, refusal.retry_after_seconds)
        return seconds

    def _after_trouble(self, why: str, *, answers: bool, is_forbidden: bool = False) -> float:
        seconds = self._pause(answers=answers)
        self._measures.troubles[self.name] += 1
        self._lose(why, is_forbidden=is_forbidden)
        logger.warning("watching %s: %s; again in %.1f s", self.name, why, seconds)
        return seconds

    def _pause(self, *, answers: bool) -> float:
        """Return the seconds to wait: few again once a server answers that did not."""
        if answers and not self._answers:
            self._backoff.reset()
        self._answers = answers
        return self._backoff.next_seconds()

    def _lose(self, why: str, *, is_forbidden: bool = False) -> None:
        self._is_current = False
        self._receiver.on_loss(Loss(since=self._alive_at, why=why), is_forbidden)

    def _find(self) -> None:
        """Note that everything that was handed on is current now."""
        self._alive_at = self._clock()
        self._answers = True
        if not self._is_current:
            self._is_current = True
            self._receiver.on_loss(None, False)
        if self._reader.skipped != self._skipped:
            self._skipped = self._reader.skipped
            self._receiver.on_skip(self._skipped)

    async def _list(self) -> None:
        began_at = time.monotonic()
        values, version = await self._reader.list_all()
        self._listing.add(time.monotonic() - began_at)
        for _ in self._receiver.replace(values) or ():
            await asyncio.sleep(0)
        self._reach(version)
        self._find()

    async def _watch(self, version: str) -> None:
        """Hand on changes until the watch ends; the version to go on from moves with them."""
        async with aclosing(self._reader.changes(version)) as batches:
            async for changes in batches:
                if changes:
                    self._apply(changes)
                    self._measures.changes[self.name] += len(changes)
                    self._backoff.reset()
                    self._reach(changes[-1].version)
                elif not self._is_current:
                    # Servers open watches, too, that they never say a word on.
                    await self._check_history(version)
                self._find()
        self._find()
        if self._version == version:
            await self._check_history(version)

    def _apply(self, changes: list[ObjectChange[Value]]) -> None:
        for change in changes:
            if change.value is None:
                continue
            try:
                if change.is_removal:
                    self._receiver.remove(change.value)
                else:
                    self._receiver.put(change.value)
            except Exception:
                # The others of the batch are right all the same.
                logger.exception("passing over a change of one of the %s", self.name)

    def _reach(self, version: str) -> None:
        self._version = version
        self._receiver.on_reach(version_number(version))

    async def _check_history(self, version: str) -> None:
        """Ask for one object: a watch from a version of another etcd stays silent for ever.

        Raises Expired.
        """
        now = await self._reader.present_version()
        if now.isdigit() and version.isdigit() and int(now) < int(version):
            raise Expired(f"the server is at version {now}, before {version}")
