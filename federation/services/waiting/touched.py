"""What may have more room since it was looked at last: clusters, and wants that sleep.

Must not look for room, nor wake anybody. Belongs to one event loop.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from itertools import compress
from typing import Final

from federation.scheduler.fleet import Fleet
from federation.scheduler.waiting.queue import WaitingQueue

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
