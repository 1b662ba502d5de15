"""What this control plane appends to the journal itself: known here before it is read there.

Must not be relied on: what is forgotten is read and applied as any other's. Belongs to one event
loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from federation.services.journal import Change

# Far more than are on their way at once; nobody takes them while the journal cannot be read.
REMEMBERED = 10_000
# An entry that can be read is committed: the answer that says so is on its way, or lost.
LONGEST_WAIT_SECONDS = 1.0


class Appending:
    """The entries of one transaction until their changes are applied."""

    def __init__(self, changes: dict[int, Change]) -> None:
        self.ids: frozenset[int] = frozenset()
        self.applied = asyncio.Event()
        self._changes = changes

    def announce(self, ids: Sequence[int], changes: Sequence[Change]) -> None:
        """Before the commit: nobody reads them earlier."""
        self.ids = frozenset(ids)
        self._changes.update(zip(ids, changes, strict=True))
        while len(self._changes) > REMEMBERED:
            del self._changes[next(iter(self._changes))]


class OwnEntries:
    """Changes by the ids of their entries, until these were read."""

    def __init__(self) -> None:
        self.changes: dict[int, Change] = {}
        self._appending: set[Appending] = set()

    @contextmanager
    def appending(self) -> Iterator[Appending]:
        """For a transaction that announces what it appends, and the applying of it after the
        commit. When that raises, whether it was committed is not known.
        """
        appending = Appending(self.changes)
        self._appending.add(appending)
        try:
            yield appending
        except BaseException:
            self.forget(appending.ids)
            raise
        finally:
            self._appending.discard(appending)
            appending.applied.set()

    async def arrived(self, ids: Iterable[int]) -> None:
        """Entries with these ids can be read: wait until those in ``changes`` are applied."""
        read = frozenset(ids)
        for appending in [each for each in self._appending if each.ids & read]:
            try:
                async with asyncio.timeout(LONGEST_WAIT_SECONDS):
                    await appending.applied.wait()
            except TimeoutError:
                self.forget(appending.ids)

    def forget(self, ids: Iterable[int]) -> None:
        for each in ids:
            self.changes.pop(each, None)

    def forget_all(self) -> None:
        self.changes.clear()
