"""What may have more room since it was looked at last: clusters, and wants that sleep.

Must not look for room, nor wake anybody. Belongs to one event loop.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from itertools import compress

from federation.scheduler.fleet import Fleet
from federation.scheduler.waiting.queue import WaitingQueue


class Touched:
    """``wants`` are to be looked for whatever happened."""

    def __init__(self) -> None:
        self.wants: set[Hashable] = set()
        self._clusters: set[str] = set()
        self._is_everything = False
        self._open: frozenset[str] = frozenset()

    def note(self, clusters: Iterable[str]) -> None:
        """There may be more room in these, for whom they let in."""
        self._clusters.update(clusters)

    def note_everything(self) -> None:
        """Clusters may let in others than they did."""
        self._is_everything = True

    def note_open(self, fleet: Fleet) -> None:
        """Something may grow in these clusters now. Some that were closed are open without a change
        that says so: an agent that was silent is heard again by a heartbeat.
        """
        known, self._open = self._open, frozenset(compress(fleet.names, fleet.ready_c.tolist()))
        if not self._open <= known:
            self._is_everything = True

    def take(self, queue: WaitingQueue) -> list[Hashable]:
        """The wants that sleep, and for which there may be more now."""
        wants, clusters, is_everything = self.wants, self._clusters, self._is_everything
        self.wants, self._clusters, self._is_everything = set(), set(), False
        if not (wants or clusters or is_everything):
            return []
        return [
            want
            for want in queue.asleep
            if is_everything or want in wants or queue.reaches(want, clusters)
        ]
