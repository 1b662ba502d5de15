"""Changes since the last round of a queue: of bindings, of clusters, and wants that were refused.

Must not look for room, nor wake anybody. Belongs to one event loop.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from itertools import compress, islice
from typing import Final

from federation.model.placement import BindingName
from federation.scheduler.fleet import Fleet
from federation.scheduler.waiting.queue import WaitingQueue
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


# How often it is looked which clusters are open, as not all that opens them is told of.
OPEN_SECONDS: Final = 1.0


class Touched:
    """At ``open_at`` it is to be noted which clusters are open."""

    def __init__(self) -> None:
        self.open_at = -math.inf
        self._wants: set[Hashable] = set()
        self._clusters: set[str] = set()
        self._is_everything = False
        self._open: frozenset[str] = frozenset()

    def note(self, clusters: Iterable[str]) -> None:
        """There may be more room in these, for whom they let in."""
        self._clusters.update(clusters)

    def note_everything(self) -> None:
        """Clusters may let in others than they did."""
        self._is_everything = True

    def note_refused(self, want: Hashable) -> None:
        """It is looked for once more, and which clusters are closed by then is noted."""
        self._wants.add(want)
        self.open_at = -math.inf

    def note_open(self, fleet: Fleet, now: float) -> None:
        """Something may grow in the clusters that are ready ``now``. Some that were closed are open
        without a change that says so: an agent that was silent is heard again by a heartbeat.
        """
        self.open_at = now + OPEN_SECONDS
        known, self._open = self._open, frozenset(compress(fleet.names, fleet.ready_c.tolist()))
        if not self._open <= known:
            self._is_everything = True

    def take(self, queue: WaitingQueue) -> list[Hashable]:
        """The wants that sleep, and for which there may be more now."""
        wants, clusters, is_everything = self._wants, self._clusters, self._is_everything
        self._wants, self._clusters, self._is_everything = set(), set(), False
        if not (wants or clusters or is_everything):
            return []
        return [
            want
            for want in queue.asleep
            if is_everything or want in wants or queue.reaches(want, clusters)
        ]
