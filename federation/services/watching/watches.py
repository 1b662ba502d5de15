"""Watches: changes since a place in the journal, sent in few messages, without a gap.

Must not keep objects for slow watchers: keys are kept, and objects are read when they are sent.
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

from federation.model.errors import InvalidRequest, Unavailable
from federation.runtime.futures import fail
from federation.services.fleet.journal_reader import JournalObserver
from federation.services.journal import START, Change, Position
from federation.services.pace import Shares
from federation.services.ports import Store, Transaction
from federation.services.watching.listings import ListedObjects, Listings
from federation.services.watching.resumes import Resumes, relist

JOURNAL_ENTRIES: Final = 1000

# A whole number, written in one way only, so that versions can be compared as text. Then the
# beginning of the history's id: a restored database has other changes at the same places.
_NUMBER: Final = "(0|[1-9][0-9]{0,18})"
_VERSION: Final = re.compile(f"{_NUMBER}-([0-9a-f]{{8}})", re.ASCII)
# A version of a release that ordered the journal by transactions.
_OLD_VERSION: Final = re.compile(rf"{_NUMBER}\.{_NUMBER}(?:\.[0-9a-f]{{8}})?", re.ASCII)
_HISTORY_CHARACTERS: Final = 8

K = TypeVar("K")
E = TypeVar("E")


class Feed(Protocol):
    """The journal as this process reads it; all changes before ``position`` were announced."""

    @property
    def position(self) -> Position: ...

    @property
    def history(self) -> str:
        """The id of the database's history."""
        ...

    def observe(self, observer: JournalObserver) -> None:
        """Announce everything that is read to ``observer`` from now on."""
        ...


class Subject(ListedObjects[K, E], Protocol[K, E]):
    """Objects to watch by key, sent as events."""

    def key_of(self, change: Change) -> K | None:
        """Return the object that changed; None: one that is not watched here."""
        ...

    def is_current(self) -> bool:
        """Whether ``events`` would show all changes that were read."""
        ...

    async def events(self, changed: Mapping[K, Change | None]) -> Mapping[K, E]:
        """Return the objects as they are now, or their deletion, by their last changes.

        A missing object without a change is left out.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchPace:
    """The pace of messages to watchers, and the bounds of their cost.

    A message comes at least ``interval_seconds`` after the last one and has at most ``events``;
    after ``bookmark_seconds`` without one there is a bookmark. About ``round_events`` go to all
    watchers within an interval. A watcher that does not read has at most ``buffer_keys``, and less
    if all of them would have more than ``buffer_keys_in_all``.
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
    """All watchers of one subject in this process, which share reads."""

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
        self.shares = Shares(self._pace.watchers, "watches of this kind")
        self._wake = asyncio.Event()
        self._teller: asyncio.Task[None] | None = None
        self._closed = False
        self._settled = START
        self._resumes = Resumes(store)
        feed.observe(self)

    @property
    def size(self) -> int:
        """Count the watchers."""
        return len(self._watchers)

    @property
    def position(self) -> Position:
        """The place from which on a watcher that has all current objects misses no change."""
        if self._subject.is_current():
            self._settled = self._feed.position
        return self._settled

    @property
    def history(self) -> str:
        """The id of the database's history."""
        return self._feed.history

    def resource_version(self, position: Position) -> str:
        """Return a place in the journal as callers see it."""
        return version_of(position, self._feed.history)

    @property
    def interval_seconds(self) -> float:
        """The least time between two messages to one watcher."""
        return self._pace.interval_seconds

    async def watch(
        self, scope: str, resource_version: str, actor: str = ""
    ) -> AsyncGenerator[WatchUpdate[E]]:
        """Yield all objects, unless a version is passed, and every change from there on.

        An ``actor`` has at most half of the watches that the others leave free.

        Raises InvalidRequest for a version that was never given out, LimitExceeded for too many
        watchers, and Unavailable when the process stops. Conflict with reason RELIST: the version
        is too old or of a database that was restored since, or the watcher is too slow.
        """
        since = self._since(resource_version) if resource_version else None
        watcher = self._attached(scope, actor)
        try:
            if since is None:
                async with aclosing(self._present(watcher)) as present:
                    async for event in present:
                        yield event
                        await asyncio.sleep(self._pace.interval_seconds)
            else:
                await self._catch_up(watcher, since)
            while True:
                yield await self._next(watcher)
        finally:
            self._watchers.discard(watcher)
            self.shares.give_back(actor)

    def _since(self, resource_version: str) -> Position:
        position, history = _read(resource_version)
        if not self._feed.history.startswith(history):
            raise relist("the resource version is of a database that was put back since")
        return position

    def changed(self, change: Change) -> None:
        """Note a change for all watchers that it concerns."""
        key = self._subject.key_of(change)
        if key is None:
            return
        self._listings.changed(key)
        for watcher in self._watchers:
            self._note(watcher, key, change)

    def lost(self) -> None:
        """End all watches, because changes were lost."""
        self._listings.forget()
        for watcher in self._watchers:
            watcher.fail(relist("what has changed is not kept any more"))

    async def close(self) -> None:
        """End all watches, and refuse new ones."""
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
        self.shares.take(actor)
        if self._teller is None:
            self._teller = asyncio.create_task(self._tell_for_ever())
        watcher: _Watcher[K, E] = _Watcher(scope, actor, self._pace)
        self._watchers.add(watcher)
        return watcher

    async def _present(self, watcher: _Watcher[K, E]) -> AsyncGenerator[WatchUpdate[E]]:
        """Yield all objects without a version to resume from, then a bookmark with one."""
        async with self._store.reading() as read:
            since = await self._mark_unread(read)
        async with aclosing(self._listings.pages(watcher.scope)) as pages:
            async for events in pages:
                watcher.check()
                if events:
                    yield WatchUpdate(events=tuple(events), resource_version="")
        watcher.version = since
        yield WatchUpdate(resource_version=self.resource_version(since))

    async def _mark_unread(self, read: Transaction) -> Position:
        """Note changes that this process has not read yet in listings that have begun.

        Return the place up to which it has noted or read all.
        """
        last = self._feed.position
        while entries := await read.journal.read(last, JOURNAL_ENTRIES):
            last = entries[-1].position
            for entry in entries:
                key = self._subject.key_of(entry.change)
                if key is not None:
                    self._listings.changed(key)
        return last

    async def _catch_up(self, watcher: _Watcher[K, E], since: Position) -> None:
        """Note changes that can be read by now; later ones come as this process reads them."""

        def note(change: Change) -> None:
            key = self._subject.key_of(change)
            if key is not None:
                self._note(watcher, key, change)
            watcher.check()

        await self._resumes.resume(since, self._feed.position, note)
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
        """Return the watchers that waited longest, for as many events as a round has."""
        due = [watcher for watcher in self._watchers if watcher.is_due_at(now)]
        due.sort(key=lambda watcher: watcher.waiting_since)
        events = accumulate(min(watcher.pending, self._pace.events) for watcher in due)
        count = bisect_right(list(events), self._pace.round_events)
        return due[: max(count, 1)]

    async def _woken(self, now: float) -> None:
        """Wait for a change, for a watcher that waits again, or for a bookmark that is due."""
        bookmarks = [
            watcher.bookmark_at for watcher in self._watchers if watcher.waiter is not None
        ]
        try:
            async with asyncio.timeout(max(0.0, min(bookmarks) - now) if bookmarks else None):
                await self._wake.wait()
        except TimeoutError:
            return
        self._wake.clear()

    async def _tell(self, due: Sequence[_Watcher[K, E]]) -> None:
        """Read changed objects once for all watchers that get them."""
        # First, because changes meanwhile are noted, and sent the next time.
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
    """One watcher: its pending changes, and the place up to which it has got all."""

    def __init__(self, scope: str, actor: str, pace: WatchPace) -> None:
        self.scope = scope
        self.actor = actor
        self.version = START
        self.waiter: asyncio.Future[WatchUpdate[E]] | None = None
        self.waiting_since = 0.0
        self.pending_at_take = False
        self.bookmark_at = asyncio.get_running_loop().time() + pace.bookmark_seconds
        self._pace = pace
        self._pending: dict[K, Change] = {}
        self._failure: Exception | None = None

    @property
    def pending(self) -> int:
        """Count the keys that changed for it."""
        return len(self._pending)

    def wait(self) -> asyncio.Future[WatchUpdate[E]]:
        """Wait for the next message from now on."""
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
        """Take the first changes, as many as one message may have."""
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
        """Raise the reason why the watch has to end."""
        if self._failure is not None:
            raise self._failure


def version_of(position: Position, history: str) -> str:
    """Return a place in the journal of a history as an opaque text."""
    return f"{position}-{history[:_HISTORY_CHARACTERS]}"


def is_version(text: str) -> bool:
    """Tell whether this or an earlier release can have given out such a resource version."""
    return any(pattern.fullmatch(text) for pattern in (_VERSION, _OLD_VERSION))


def _read(resource_version: str) -> tuple[Position, str]:
    """Return the place, and the beginning of the history's id. Raises as ``Watches.watch`` does."""
    if _OLD_VERSION.fullmatch(resource_version):
        raise relist("the resource version was given out by an earlier release")
    match = _VERSION.fullmatch(resource_version)
    if match is None:
        raise InvalidRequest.of("resourceVersion", "is not one that was given out")
    return Position(int(match[1])), match[2]
