"""Changes since the last round of a queue, and the wait for the next ones.

Must not look for room, nor wake bindings. Belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import compress, islice
from typing import Final

from federation.model.placement import BindingName
from federation.scheduler.fleet import Fleet
from federation.scheduler.waiting.queue import WaitingQueue
from federation.services.binding_ports import StoredBinding
from federation.services.journal import Change
from federation.services.ports import Store, Timer

# This many rows are read in less than 5 ms; then other work has its turn on the event loop.
ROWS_AT_ONCE: Final = 50


class ChangedBindings:
    """Bindings that changed and are not read yet."""

    def __init__(self) -> None:
        self._changed: set[BindingName] = set()
        # Rows as this control plane committed them; they need not be read.
        self._committed: dict[BindingName, StoredBinding] = {}

    def __bool__(self) -> bool:
        return bool(self._changed)

    def note(self, names: Iterable[BindingName]) -> None:
        """Note changed bindings, of which committed rows are then outdated."""
        for name in names:
            self._changed.add(name)
            self._committed.pop(name, None)

    def committed(self, rows: Iterable[StoredBinding]) -> None:
        """Take rows as the change that was noted last has written them."""
        for stored in rows:
            name = stored.binding.namespace, stored.binding.name
            if name in self._changed:
                self._committed[name] = stored

    async def read(self, store: Store) -> tuple[Sequence[StoredBinding], frozenset[BindingName]]:
        """Read some of them, and name those that are gone. Raises Unavailable."""
        names = frozenset(islice(self._changed, ROWS_AT_ONCE))
        committed = {name: self._committed.pop(name) for name in names & self._committed.keys()}
        unknown = names - committed.keys()
        if not unknown:
            self._changed -= names
            return [*committed.values()], frozenset()
        async with store.reading() as tx:
            # First, because bindings that change meanwhile are read again.
            self._changed -= names
            unread = set[BindingName]()
            stored = await tx.bindings.find(unknown, unread)
        return [*committed.values(), *stored.values()], unknown - stored.keys() - unread


# How often ready clusters are noted, because not every change of that is announced.
OPEN_SECONDS: Final = 1.0


class Touched:
    """Wants and clusters to look at again; at ``open_at`` ready clusters are to be noted."""

    def __init__(self) -> None:
        self.open_at = -math.inf
        self._wants: set[Hashable] = set()
        self._clusters: set[str] = set()
        self._is_everything = False
        self._open: frozenset[str] = frozenset()

    def note(self, clusters: Iterable[str]) -> None:
        """Note clusters that may have more room."""
        self._clusters.update(clusters)

    def note_everything(self) -> None:
        """Note that clusters may let in other bindings than before."""
        self._is_everything = True

    def note_refused(self, want: Hashable) -> None:
        """Look for a refused want once more, and note ready clusters by then."""
        self._wants.add(want)
        self.open_at = -math.inf

    def note_open(self, fleet: Fleet, now: float) -> None:
        """Note the clusters that are ready ``now``.

        A cluster may become ready without a change: a heartbeat ends the silence of an agent.
        """
        self.open_at = now + OPEN_SECONDS
        last, self._open = self._open, frozenset(compress(fleet.names, fleet.ready_c.tolist()))
        if not self._open <= last:
            self._is_everything = True

    def take(self, queue: WaitingQueue) -> list[Hashable]:
        """Take the sleeping wants for which there may be more room now."""
        wants, clusters, is_everything = self._wants, self._clusters, self._is_everything
        self._wants, self._clusters, self._is_everything = set(), set(), False
        if not (wants or clusters or is_everything):
            return []
        return [
            want
            for want in queue.asleep
            if is_everything or want in wants or queue.reaches(want, clusters)
        ]


class LossObserver:
    """Calls ``lost`` when entries of the journal were lost. Implements JournalObserver."""

    def __init__(self, lost: Callable[[], None]) -> None:
        self.lost = lost

    def changed(self, change: Change) -> None:
        """Ignore a change: it is announced after it was applied."""


async def wait_for_wake(wake: asyncio.Event, timer: Timer, seconds: float | None) -> None:
    """Return when ``wake`` is set, or when the clock has moved on by ``seconds``, if given."""
    if seconds is None:
        await wake.wait()
        return
    waking = asyncio.ensure_future(wake.wait())
    sleeping = asyncio.ensure_future(timer.sleep(seconds))
    try:
        await asyncio.wait((waking, sleeping), return_when=asyncio.FIRST_COMPLETED)
    finally:
        waking.cancel()
        sleeping.cancel()
