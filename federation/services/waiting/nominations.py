"""Until when room is kept for those that wait for others to leave.

Must not keep it: their rows in the queue do.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from federation.model.placement import BindingName, binding_key
from federation.model.waiting import Nomination, Wait
from federation.services.scheduling.claims import still_there
from federation.services.scheduling.working_copy import WorkingCopy

logger = logging.getLogger(__name__)


class Nominations:
    """Those of the queue, as last read; ``overdue`` counts for how many others did not leave in
    time.
    """

    def __init__(self) -> None:
        self.overdue = 0
        self._known: dict[BindingName, Nomination] = {}

    @property
    def next_at(self) -> float | None:
        """When the time of one is over."""
        return min((each.until for each in self._known.values()), default=None)

    def note(self, key: BindingName, wait: Wait | None, now: float) -> bool:
        """How one waits now; whether what was kept for it is not any more."""
        nominated = wait.nominated if wait else None
        if nominated is None or nominated.until <= now:
            return self.drop(key)
        self._known[key] = nominated
        return False

    def drop(self, key: BindingName) -> bool:
        """Nothing is kept for it any more; whether something was."""
        return self._known.pop(key, None) is not None

    def clear(self) -> None:
        self._known.clear()

    def end(self, now: float, working: Callable[[], WorkingCopy]) -> bool:
        """Give up what is due, by the fleet as it is then; whether something was."""
        due = {key: each for key, each in self._known.items() if each.until <= now}
        for key, nominated in due.items():
            del self._known[key]
            if any(still_there(working(), each) for each in nominated.leaving):
                self.overdue += 1
                fields = {"binding": binding_key(*key)}
                logger.warning("those it preempted did not leave in time", extra={"fields": fields})
        return bool(due)
