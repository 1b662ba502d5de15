"""Bindings of which a queue has to learn how they wait by now, and those it was told of already.

Must not know what follows from that. Belongs to one event loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

from federation.model.placement import BindingName
from federation.services.binding_ports import StoredBinding
from federation.services.ports import Store

# So many are read in less than 5 ms; then it is others' turn on the event loop.
ROWS_AT_ONCE: Final = 50


class News:
    """Those that changed, and are not learnt of yet."""

    def __init__(self) -> None:
        self._changed: set[BindingName] = set()
        # As they were committed here, and by nobody since: they need not be read.
        self._committed: dict[BindingName, StoredBinding] = {}

    def __bool__(self) -> bool:
        return bool(self._changed)

    def note(self, names: Iterable[BindingName]) -> None:
        """These changed: what was committed before says nothing any more."""
        for name in names:
            self._changed.add(name)
            self._committed.pop(name, None)

    def committed(self, rows: Iterable[StoredBinding]) -> None:
        """So they were written by the change of them that was noted last."""
        for stored in rows:
            name = stored.binding.namespace, stored.binding.name
            if name in self._changed:
                self._committed[name] = stored

    async def learn(self, store: Store) -> tuple[Sequence[StoredBinding], frozenset[BindingName]]:
        """Some of them as they are stored, and those that are gone. Raises Unavailable."""
        names = frozenset(islice(self._changed, ROWS_AT_ONCE))
        known = {name: self._committed.pop(name) for name in names & self._committed.keys()}
        unknown = names - known.keys()
        if not unknown:
            self._changed -= names
            return [*known.values()], frozenset()
        async with store.reading() as read:
            # Before it is read: what changes meanwhile is read once more.
            self._changed -= names
            unread = set[BindingName]()
            found = await read.bindings.find(unknown, unread)
        return [*known.values(), *found.values()], unknown - found.keys() - unread
