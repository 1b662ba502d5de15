"""Watches: what has changed since a place in the journal, told in few messages, nothing missed.

Must not keep objects for slow watchers: names are kept, and what is there is read when it is told.
"""

from __future__ import annotations

import asyncio
import re
from bisect import bisect_right
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, Generic, Protocol, TypeVar

from federation.model.errors import InvalidRequest, LimitExceeded, Unavailable
from federation.runtime.futures import fail
from federation.services.fleet.journal_reader import JournalObserver
from federation.services.journal import Change, Position
from federation.services.pace import check_share
from federation.services.ports import Store, Transaction
from federation.services.watching.listings import ListedObjects, Listings
from federation.services.watching.resumes import Resumes, relist

JOURNAL_ENTRIES: Final = 1000

# Two whole numbers, written in one way only: what was given out can be compared as text. Then the
# beginning of the history's id: a database that was put back has other changes at the same places.
_VERSION: Final = re.compile(
    r"(0|[1-9][0-9]{0,18})\.(0|[1-9][0-9]{0,18})(?:\.([0-9a-f]{8}))?", re.ASCII
)
_HISTORY_CHARACTERS: Final = 8

K = TypeVar("K")
E = TypeVar("E")


class Feed(Protocol):
    """The journal as this process reads it; everything before ``position`` was told of."""

    @property
    def position(self) -> Position: ...

    @property
    def history(self) -> str:
        """The id of the database's history that it is read of."""
        ...

    def observe(self, observer: JournalObserver) -> None:
        """From now on tell ``observer`` of everything that is read."""
        ...


class Subject(ListedObjects[K, E], Protocol[K, E]):
    """What is watched: objects by key, told as events."""

    def key_of(self, change: Change) -> K | None:
        """Which object changed; None: one that is not watched here."""
        ...

    def is_current(self) -> bool:
        """Whether ``events`` would tell everything that the journal was read for."""
        ...

    async def events(self, changed: Mapping[K, Change | None]) -> Mapping[K, E]:
        """The objects as they are now, or their deletion, with what last happened to each.

        What is not there any more, and nothing is known to have happened to, is left out.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchPace:
    """How often watchers are told, and what they may cost.

    A message comes at least ``interval_seconds`` after the one before it and has at most
    ``events``; after ``bookmark_seconds`` without one there is a bookmark. About ``round_events``
    go to all watchers within an interval. What is kept for a watcher that does not read is at most
    ``buffer_keys``, and less where all of them would keep more than ``buffer_keys_in_all``.
    """

    interval_seconds: float = 0.1
    bookmark_seconds: float = 30.0
    events: int = 500
    buffer_keys: int = 10_000
    buffer_keys_in_all: int = 1_000_000
    round_events: int = 2_000
    watchers: int = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchUpdate(Generic[E]):
    """One message: a bookmark when it has no events.

    Resuming from ``resource_version`` misses nothing that comes after this message.
    """

    events: tuple[E, ...] = ()
    resource_version: str


class Watches(Generic[K, E]):
    """All watchers of one subject in this process. They share what is read for them."""

    def __init__(
        self,
        store: Store,
        feed: Feed,
        subject: Subject[K, E],
        pace: WatchPace | None = None,
    ) -> None:
        self._store = store
        self._feed = feed
        self._subject = subject
        self._pace = pace or WatchPace()
        self._listings = Listings(subject, self._pace.events)
        self._watchers: set[_Watcher[K, E]] = set()
        self._wake = asyncio.Event()
        self._teller: asyncio.Task[None] | None = None
        self._closed = False
        self._settled = Position()
        self._resumes = Resumes(store)
        feed.observe(self)

    @property
    def size(self) -> int:
        """How many watchers there are."""
        return len(self._watchers)

    @property
    def position(self) -> Position:
        """Whoever knows what is there now is told of everything else when watching from here."""
        if self._subject.is_current():
            self._settled = self._feed.position
        return self._settled

    @property
    def history(self) -> str:
        """The id of the history of the database that is known."""
        return self._feed.history

    def resource_version(self, position: Position) -> str:
        """A place in the journal as callers are told of it."""
        return version_of(position, self._feed.history)

    @property
    def interval_seconds(self) -> float:
        """The least time between two messages to one watcher."""
        return self._pace.interval_seconds

    async def watch(
        self, scope: str, resource_version: str, actor: str = ""
    ) -> AsyncGenerator[WatchUpdate[E]]:
        """What is there now, when no version is given, and every change from there on.

        An ``actor`` has at most half of the watches that the others leave free; "" is nobody.

        Raises InvalidRequest for a version that was never given out, Conflict with reason RELIST
        for one that is too old, or of a database that was put back since, and for a watcher that
        is too slow, LimitExceeded when there are too many watchers, Unavailable when the process
        stops.
        """
        since = self._since(resource_version) if resource_version else None
        watcher = self._attached(scope, actor)
        try:
            if since is None:
                async with aclosing(self._present(watcher)) as present:
                    async for told in present:
                        yield told
                        await asyncio.sleep(self._pace.interval_seconds)
            else:
                await self._catch_up(watcher, since)
            while True:
                yield await self._next(watcher)
        finally:
            self._watchers.discard(watcher)

    def _since(self, resource_version: str) -> Position:
        position, history = _read(resource_version)
        if history and not self._feed.history.startswith(history):
            raise relist("the resource version is of a database that was put back since")
        return position

    def changed(self, change: Change) -> None:
        """All who watch what it is about are told of it."""
        key = self._subject.key_of(change)
        if key is None:
            return
        self._listings.changed(key)
        for watcher in self._watchers:
            self._note(watcher, key, change)

    def lost(self) -> None:
        """Nobody can be told of everything any more."""
        self._listings.forget()
        for watcher in self._watchers:
            watcher.fail(relist("what has changed is not kept any more"))

    async def close(self) -> None:
        """Ends all watches, and refuses new ones."""
        self._closed = True
        for watcher in self._watchers:
            watcher.fail(Unavailable("the control plane is stopping; watch again"))
        await self._resumes.close()
        if self._teller is not None:
            self._teller.cancel()
            await asyncio.gather(self._teller, return_exceptions=True)

    def _attached(self, scope: str, actor: str) -> _Watcher[K, E]:
        if self._closed:
            raise Unavailable("the control plane is stopping; watch again")
        if len(self._watchers) >= self._pace.watchers:
            raise LimitExceeded(f"{len(self._watchers)} watchers are as many as are served here")
        if actor:
            own = sum(watcher.actor == actor for watcher in self._watchers)
            check_share(own, len(self._watchers), self._pace.watchers, "watches")
        if self._teller is None:
            self._teller = asyncio.create_task(self._tell_for_ever())
        watcher: _Watcher[K, E] = _Watcher(scope, actor, self._pace)
        self._watchers.add(watcher)
        return watcher

    async def _present(self, watcher: _Watcher[K, E]) -> AsyncGenerator[WatchUpdate[E]]:
        """All objects, without a version to resume from, then a bookmark that has one."""
        async with self._store.reading() as read:
            since = await read.journal.position()
            await self._mark_unread(read)
        async with aclosing(self._listings.pages(watcher.scope)) as pages:
            async for events in pages:
                watcher.check()
                if events:
                    yield WatchUpdate(events=tuple(events), resource_version="")
        watcher.version = since
        yield WatchUpdate(resource_version=self.resource_version(since))

    async def _mark_unread(self, read: Transaction) -> None:
        """Listings that were begun before know of what this process did not read yet."""
        last = self._feed.position
        while entries := await read.journal.read(last, JOURNAL_ENTRIES):
            last = entries[-1].position
            for entry in entries:
                key = self._subject.key_of(entry.change)
                if key is not None:
                    self._listings.changed(key)

    async def _catch_up(self, watcher: _Watcher[K, E], since: Position) -> None:
        """What can be read by now; what this process reads from now on the watcher is told of."""

        def note(change: Change) -> None:
            key = self._subject.key_of(change)
            if key is not None:
                self._note(watcher, key, change)
            watcher.check()

        await self._resumes.told(since, note)
        watcher.version = since

    def _note(self, watcher: _Watcher[K, E], key: K, change: Change) -> None:
        if self._subject.concerns(key, watcher.scope):
            pace = self._pace
            fair = max(pace.events, pace.buffer_keys_in_all // max(len(self._watchers), 1))
            watcher.note(key, change, min(pace.buffer_keys, fair))
            self._wake.set()

    async def _next(self, watcher: _Watcher[K, E]) -> WatchUpdate[E]:
        watcher.check()
        waiter = watcher.wait()
        self._wake.set()
        try:
            return await waiter
        finally:
            watcher.waiter = None

    async def _tell_for_ever(self) -> None:
        while True:
            now = asyncio.get_running_loop().time()
            due = self._next_due(now)
            if not due:
                await self._woken(now)
                continue
            try:
                await self._tell(due)
            except Exception as error:  # noqa: BLE001 - told to those who wait, who answer for it
                for watcher in due:
                    watcher.fail(error)
            await asyncio.sleep(self._pace.interval_seconds)

    def _next_due(self, now: float) -> list[_Watcher[K, E]]:
        """Who is told now: those that have waited longest, for as many events as a round has."""
        due = [watcher for watcher in self._watchers if watcher.is_due_at(now)]
        due.sort(key=lambda watcher: watcher.waiting_since)
        events = accumulate(min(watcher.pending, self._pace.events) for watcher in due)
        count = bisect_right(list(events), self._pace.round_events)
        return due[: max(count, 1)]

    async def _woken(self, now: float) -> None:
        """By a change, by a watcher that waits again, or by a bookmark that is due."""
        bookmarks = [each.bookmark_at for each in self._watchers if each.waiter is not None]
        try:
            async with asyncio.timeout(max(0.0, min(bookmarks) - now) if bookmarks else None):
                await self._wake.wait()
        except TimeoutError:
            return
        self._wake.clear()

    async def _tell(self, due: Sequence[_Watcher[K, E]]) -> None:
        """Reads what changed once for all who are told of it."""
        # Before it is read: what happens meanwhile is noted, and told the next time.
        position = self.position
        taken = [(watcher, watcher.take()) for watcher in due]
        union = {key: change for _, changed in taken for key, change in changed.items()}
        events = await self._subject.events(union) if union else {}
        for watcher, changed in taken:
            if not watcher.pending_at_take:
                watcher.version = max(watcher.version, position)
            watcher.tell(
                tuple(events[key] for key in changed if key in events),
                self.resource_version(watcher.version),
            )


class _Watcher(Generic[K, E]):
    """One watcher: what it has to be told of, and up to where it was told everything."""

    def __init__(self, scope: str, actor: str, pace: WatchPace) -> None:
        self.scope = scope
        self.actor = actor
        self.version = Position()
        self.waiter: asyncio.Future[WatchUpdate[E]] | None = None
        self.waiting_since = 0.0
        self.pending_at_take = False
        self.bookmark_at = asyncio.get_running_loop().time() + pace.bookmark_seconds
        self._pace = pace
        self._pending: dict[K, Change] = {}
        self._failure: Exception | None = None

    @property
    def pending(self) -> int:
        """Of how many keys it has to be told."""
        return len(self._pending)

    def wait(self) -> asyncio.Future[WatchUpdate[E]]:
        """For the next message, from now on."""
        loop = asyncio.get_running_loop()
        self.waiter, self.waiting_since = loop.create_future(), loop.time()
        return self.waiter

    def note(self, key: K, change: Change, max_keys: int) -> None:
        if self._failure is not None:
            return
        self._pending[key] = change
        if len(self._pending) > max_keys:
            self.fail(relist("more has changed than is kept for a watcher"))

    def is_due_at(self, now: float) -> bool:
        waits = self.waiter is not None and not self.waiter.done()
        return waits and (bool(self._pending) or self.bookmark_at <= now)

    def take(self) -> dict[K, Change | None]:
        """What changed first, as much as one message may have."""
        taken: dict[K, Change | None] = {}
        for key in list(self._pending)[: self._pace.events]:
            taken[key] = self._pending.pop(key)
        self.pending_at_take = bool(self._pending)
        return taken

    def tell(self, events: tuple[E, ...], resource_version: str) -> None:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(WatchUpdate(events=events, resource_version=resource_version))
            self.bookmark_at = asyncio.get_running_loop().time() + self._pace.bookmark_seconds

    def fail(self, error: Exception) -> None:
        self._failure = error
        self._pending.clear()
        if self.waiter is not None:
            fail(self.waiter, error)

    def check(self) -> None:
        """Raises why the watch has to end."""
        if self._failure is not None:
            raise self._failure


def version_of(position: Position, history: str) -> str:
    """A place in the journal of a history as callers see it: an opaque text."""
    beginning = f".{history[:_HISTORY_CHARACTERS]}" if history else ""
    return f"{position.xid}.{position.id}{beginning}"


def position_of(resource_version: str) -> Position:
    """Raises InvalidRequest."""
    return _read(resource_version)[0]


def _read(resource_version: str) -> tuple[Position, str]:
    """The place, and the beginning of the history's id; older releases gave out none."""
    match = _VERSION.fullmatch(resource_version)
    if match is None:
        raise InvalidRequest.of("resourceVersion", "is not one that was given out")
    return Position(int(match[1]), int(match[2])), match[3] or ""
