"""The beginning of watches: all objects of a scope, read and written once for many watchers.

Must not keep more than a bounded part of it: the rest is read anew for every watcher. Belongs to
one event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from itertools import islice
from typing import Final, Generic, Protocol, TypeVar

# The time for which a listing is shared.
SHARED_SECONDS: Final = 10.0
# The size of all shared listings.
MAX_SHARED_BYTES: Final = 64 * 1024 * 1024

K = TypeVar("K")
E = TypeVar("E")


class ListedObjects(Protocol[K, E]):
    """Objects to list by key, sent as events."""

    def concerns(self, key: K, scope: str) -> bool:
        """Whether an object is in a scope; the empty one holds everything."""
        ...

    async def keys(self, scope: str, after: K | None, limit: int) -> Sequence[K]:
        """Return keys of objects, ascending, behind ``after``; few, or none, at the end."""
        ...

    async def events(self, changed: Mapping[K, None]) -> Mapping[K, E]:
        """Return the existing objects as they are now."""
        ...

    def size(self, event: E) -> int:
        """Return the size of an event in bytes."""
        ...


class Listings(Generic[K, E]):
    """The newest listing of each scope, as long as it is shared."""

    def __init__(self, subject: ListedObjects[K, E], events_at_once: int) -> None:
        self._subject = subject
        self._events_at_once = events_at_once
        # The oldest first.
        self._shared: dict[str, _Listing[K, E]] = {}

    async def pages(self, scope: str) -> AsyncGenerator[Collection[E]]:
        """Yield all objects, as of when a page is yielded, or a moment before.

        The watcher gets every change from the beginning of its iteration on.
        """
        listing, place, after = self._joined(scope), 0, None
        while listing.is_shared:
            page = await listing.page(place)
            self._shrink()
            if page is None:
                return
            yield page.values()
            after = listing.last[place]
            place += 1
        while keys := await self._subject.keys(scope, after, self._events_at_once):
            yield (await self._subject.events(dict.fromkeys(keys))).values()
            after = keys[-1]

    def changed(self, key: K) -> None:
        """Note that an object changed, or was deleted."""
        self._drop_old()
        for scope, listing in self._shared.items():
            if self._subject.concerns(key, scope):
                listing.stale.add(key)

    def forget(self) -> None:
        """Forget all listings, because changes were lost."""
        self._shared.clear()

    def _joined(self, scope: str) -> _Listing[K, E]:
        self._drop_old()
        listing = self._shared.get(scope)
        if listing is None:
            listing = self._shared[scope] = _Listing(self._subject, scope, self._events_at_once)
        return listing

    def _drop_old(self) -> None:
        oldest = asyncio.get_running_loop().time() - SHARED_SECONDS
        while self._shared and next(iter(self._shared.values())).begun_at < oldest:
            del self._shared[next(iter(self._shared))]

    def _shrink(self) -> None:
        while sum(listing.size for listing in self._shared.values()) > MAX_SHARED_BYTES:
            self._shared.pop(next(iter(self._shared))).is_shared = False


class _Listing(Generic[K, E]):
    """The pages of one scope that were read so far; ``last`` are their last keys.

    ``stale``: keys of objects that changed since they were read, or came since.
    """

    def __init__(self, subject: ListedObjects[K, E], scope: str, events_at_once: int) -> None:
        self.begun_at = asyncio.get_running_loop().time()
        self.is_shared = True
        self.stale: set[K] = set()
        self.last: list[K] = []
        self.size = 0
        self._subject = subject
        self._scope = scope
        self._events_at_once = events_at_once
        self._pages: list[dict[K, E]] = []
        self._page_of: dict[K, int] = {}
        self._is_whole = False
        # The first watcher reads a page, and the others wait for it.
        self._reading = asyncio.Lock()

    async def page(self, place: int) -> Mapping[K, E] | None:
        """Return a page, brought up to date; None behind the last. Pages are read in order."""
        async with self._reading:
            if place == len(self._pages):
                keys = await self._next_keys()
                if not keys:
                    return None
                await self._read(keys, place)
            else:
                stale = [key for key in self.stale if self._page_of.get(key) == place]
                if stale:
                    await self._read(stale, place)
            return self._pages[place]

    async def _next_keys(self) -> Sequence[K]:
        """Return the next keys; at the end those of objects that came behind the iteration."""
        if not self._is_whole:
            after = self.last[-1] if self.last else None
            keys = await self._subject.keys(self._scope, after, self._events_at_once)
            if keys:
                return keys
            self._is_whole = True
        came = (key for key in self.stale if key not in self._page_of)
        return list(islice(came, self._events_at_once))

    async def _read(self, keys: Sequence[K], place: int) -> None:
        """Read objects into an existing page, or the next one."""
        # First, because objects that change meanwhile are read again.
        self.stale.difference_update(keys)
        try:
            events = await self._subject.events(dict.fromkeys(keys))
        except BaseException:
            self.stale.update(keys)
            raise
        if place == len(self._pages):
            self._pages.append({})
            self.last.append(keys[-1])
        page = self._pages[place]
        for key in keys:
            self._page_of[key] = place
            last = page.pop(key, None)
            self.size -= 0 if last is None else self._subject.size(last)
            if key in events:
                page[key] = events[key]
                self.size += self._subject.size(events[key])
