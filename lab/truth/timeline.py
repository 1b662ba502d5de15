"""What happens when: events in the order of their times, on virtual or on real seconds.

Must not know what the events are.
"""

from __future__ import annotations

import heapq
import itertools
import math
import threading
import time
from collections.abc import Callable


class Timeline:
    """Events by time. Virtual seconds pass at once; with ``real``, a second is a second.

    ``now`` begins at 0. ``post`` is for other threads, where real seconds pass.
    """

    def __init__(self, *, real: bool = False) -> None:
        self._now = 0.0
        self._began_at = time.monotonic() if real else None
        self._serial = itertools.count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._changed = threading.Condition()

    @property
    def now(self) -> float:
        return self._now

    def at(self, when: float, what: Callable[[], None]) -> None:
        with self._changed:
            heapq.heappush(self._events, (when, next(self._serial), what))
            self._changed.notify()

    def after(self, seconds: float, what: Callable[[], None]) -> None:
        self.at(self._now + seconds, what)

    def post(self, what: Callable[[], None]) -> None:
        """As soon as may be."""
        self.at(-math.inf, what)

    def run(self, until: float = math.inf, *, idle: Callable[[], bool] | None = None) -> None:
        """Let happen what happens until then; without end, until nothing is left to happen.

        ``idle``, asked after every event, ends it earlier.
        """
        while (event := self._next(until)) is not None:
            event()
            if idle is not None and idle():
                return
        if math.isfinite(until):
            self._now = max(self._now, until)

    def _next(self, until: float) -> Callable[[], None] | None:
        with self._changed:
            while True:
                when = self._events[0][0] if self._events else math.inf
                if self._began_at is None:
                    if when > until or when == math.inf:
                        return None
                    self._now = max(self._now, when)
                    return heapq.heappop(self._events)[2]
                self._now = max(self._now, time.monotonic() - self._began_at)
                if when <= self._now:
                    return heapq.heappop(self._events)[2]
                if min(when, until) <= self._now or min(when, until) == math.inf:
                    return None
                self._changed.wait(min(when, until) - self._now)
