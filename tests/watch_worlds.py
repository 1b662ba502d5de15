"""A world that watches can watch: objects, transactions, the journal, and who follows it all.

Must not check anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, cast

from federation.services.fleet.journal_reader import JournalObserver
from federation.services.journal import BindingChanged, Change, Entry, Position
from federation.services.ports import Store
from federation.services.watching.watches import Watches, WatchPace, WatchUpdate
from lab.patience import PATIENCE_SECONDS

# Every wait for something new ends with a bookmark at once.
EAGER = WatchPace(interval_seconds=0.0, bookmark_seconds=0.0)
SECONDS = PATIENCE_SECONDS


class Seen(NamedTuple):
    """An event: the object's value, None when it is gone."""

    name: str
    value: int | None
    bytes: int = 1


class World:
    """Objects, transactions that change them, the journal of it, and what is applied of that.

    Implements Store as far as watches read, watches.Feed and watches.Subject.
    """

    def __init__(self) -> None:
        self.objects: dict[str, int] = {}
        self.running: dict[int, dict[str, bool]] = {}
        self.entries: list[Entry] = []
        self.position = Position()
        self.history = "5f1d0a2b-7c3e-4d52-9f0e-2f3f5c1d7a90"
        self.horizon = Position()
        self.reads: list[Mapping[str, Change | None]] = []
        self.failure: Exception | None = None
        self.is_behind = False
        # What is changed once these have been read.
        self.meanwhile: dict[frozenset[str], tuple[str, ...]] = {}
        self.journal_reads = 0
        # At which read of the journal, counted from now, it is pruned up to which place.
        self.prune_at_read: tuple[int, Position] | None = None
        self._observers: list[JournalObserver] = []
        self._xid = 1

    @property
    def store(self) -> Store:
        return cast("Store", self)

    def begin(self, changes: Mapping[str, bool]) -> int:
        """A transaction that will change (True) or delete objects."""
        self._xid += 1
        self.running[self._xid] = dict(changes)
        return self._xid

    def commit(self, xid: int) -> None:
        for name, lives in self.running.pop(xid).items():
            if lives:
                self.objects[name] = len(self.entries)
            else:
                self.objects.pop(name, None)
            change = BindingChanged(namespace="", name=name, deleted=not lives)
            position = Position(xid, len(self.entries) + 1)
            self.entries.append(Entry(position=position, change=change))

    def change(self, *names: str) -> None:
        """Commits and reads."""
        self.commit(self.begin(dict.fromkeys(names, True)))
        self.feed()

    def feed(self) -> None:
        """Reads what can be read in order."""
        for entry in self._readable(self.position):
            self.position = entry.position
            for observer in self._observers:
                observer.changed(entry.change)

    def lose(self) -> None:
        for observer in self._observers:
            observer.lost()

    def _readable(self, after: Position) -> list[Entry]:
        first_running = min(self.running, default=self._xid + 1)
        found = [e for e in self.entries if after < e.position and e.position.xid < first_running]
        return sorted(found, key=lambda each: each.position)

    # Store

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Any]:
        await asyncio.sleep(0)
        yield _Read(self)

    # Feed

    def observe(self, observer: JournalObserver) -> None:
        self._observers.append(observer)

    # Subject

    def key_of(self, change: Change) -> str | None:
        return change.name if isinstance(change, BindingChanged) else None

    def concerns(self, key: str, scope: str) -> bool:
        return key.startswith(scope)

    async def keys(self, scope: str, after: str | None, limit: int) -> Sequence[str]:
        await asyncio.sleep(0)
        there = sorted(filter(lambda name: self.concerns(name, scope), self.objects))
        return [name for name in there if after is None or name > after][: min(limit, 2)]

    def size(self, event: Seen) -> int:
        return event.bytes

    def is_current(self) -> bool:
        return not self.is_behind

    async def events(self, changed: Mapping[str, Change | None]) -> Mapping[str, Seen]:
        if self.failure is not None:
            raise self.failure
        self.reads.append(changed)
        for _ in range(5):
            await asyncio.sleep(0)
        found = {name: Seen(name, self.objects.get(name)) for name in changed}
        if meanwhile := self.meanwhile.pop(frozenset(changed), None):
            self.change(*meanwhile)
        for _ in range(5):
            await asyncio.sleep(0)
        return {
            name: seen
            for name, seen in found.items()
            if seen.value is not None or changed[name] is not None
        }


class _Read:
    """A journal as the store has it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.journal = self

    async def read(self, after: Position, limit: int) -> Sequence[Entry]:
        await asyncio.sleep(0)
        self._world.journal_reads += 1
        if self._world.prune_at_read is not None:
            left, horizon = self._world.prune_at_read
            self._world.prune_at_read = left - 1, horizon
            if not left:
                self._world.horizon, self._world.prune_at_read = horizon, None
        return self._world._readable(after)[: min(limit, 3)]

    async def position(self) -> Position:
        await asyncio.sleep(0)
        return Position(min(self._world.running, default=self._world._xid + 1), 0)

    async def oldest(self) -> Position:
        return self._world.horizon


def watches_of(world: World, pace: WatchPace = EAGER) -> Watches[str, Seen]:
    return Watches(world.store, world, world, pace)


class Follower:
    """A client that keeps what it is told of, and resumes from the last version it was told."""

    def __init__(self, watches: Watches[str, Seen], scope: str = "") -> None:
        self.known: dict[str, int] = {}
        self.version = ""
        self._watches = watches
        self._scope = scope
        self._stream: AsyncGenerator[WatchUpdate[Seen]] | None = None

    async def hear(self) -> WatchUpdate[Seen]:
        if self._stream is None:
            if not self.version:
                self.known.clear()
            self._stream = self._watches.watch(self._scope, self.version)
        async with asyncio.timeout(SECONDS):
            told = await anext(self._stream)
        for event in told.events:
            if event.value is None:
                self.known.pop(event.name, None)
            else:
                self.known[event.name] = event.value
        self.version = told.resource_version
        return told

    async def hear_all(self) -> None:
        """Until a bookmark that can be resumed from."""
        while (told := await self.hear()).events or not told.resource_version:
            pass

    async def cut(self) -> None:
        if self._stream is not None:
            await self._stream.aclose()
            self._stream = None
