"""Facts that the journal's reader remembers about entries that it will still read.

Must not be needed for correctness: a forgotten fact costs a query, or a second look at an entry.
Belongs to the event loop of the journal's reader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from federation.services.journal import Change, Position

# Changes of this process that wait to be read: far more than are under way at once.
MAX_OWN_CHANGES: Final = 10_000
# An entry that can be read is committed. The answer to its commit is on its way, or lost.
MAX_COMMIT_WAIT_SECONDS: Final = 1.0
# A forgotten name costs one query when an old entry names it.
MAX_DEPARTED_CLUSTERS: Final = 10_000


class Appending:
    """The journal entries of one transaction until their changes are applied."""

    def __init__(self, changes: dict[int, Change]) -> None:
        self.ids: frozenset[int] = frozenset()
        self.applied = asyncio.Event()
        self._changes = changes

    def announce(self, ids: Sequence[int], changes: Sequence[Change]) -> None:
        """Note the ids of entries and their changes; call it before the commit."""
        self.ids = frozenset(ids)
        self._changes.update(zip(ids, changes, strict=True))
        while len(self._changes) > MAX_OWN_CHANGES:
            del self._changes[next(iter(self._changes))]


class OwnEntries:
    """Changes that this process appends to the journal, by entry id, until they are read there.

    Nothing relies on them: a forgotten change is read and applied like those of other processes.
    """

    def __init__(self) -> None:
        self.changes: dict[int, Change] = {}
        self._appending: set[Appending] = set()

    @contextmanager
    def appending(self) -> Iterator[Appending]:
        """Enclose a transaction that announces its entries, and the applying of its changes.

        If the body raises, the outcome of its commit is unknown, and its entries are forgotten.
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
        """Wait until this process has applied its changes among these readable entries."""
        readable = frozenset(ids)
        for appending in [own for own in self._appending if own.ids & readable]:
            try:
                async with asyncio.timeout(MAX_COMMIT_WAIT_SECONDS):
                    await appending.applied.wait()
            except TimeoutError:
                self.forget(appending.ids)

    def forget(self, ids: Iterable[int]) -> None:
        for entry_id in ids:
            self.changes.pop(entry_id, None)

    def forget_all(self) -> None:
        self.changes.clear()


class DepartedClusters:
    """Clusters that left the fleet, by name, and the journal's position when that was read."""

    def __init__(self) -> None:
        self._positions: dict[str, Position] = {}

    def note(self, name: str, position: Position) -> None:
        """Remember that every entry up to ``position`` about this name is of a cluster that left.

        Forget the name that was noted first where there are too many.
        """
        self._positions.pop(name, None)
        self._positions[name] = position
        if len(self._positions) > MAX_DEPARTED_CLUSTERS:
            del self._positions[next(iter(self._positions))]

    def left_after(self, name: str, position: Position) -> bool:
        """Return whether a cluster that an entry at this position names has left since."""
        departure = self._positions.get(name)
        return departure is not None and position <= departure
