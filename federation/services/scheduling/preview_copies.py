"""Working copies for previews: what one preview found out of the fleet, the next need not.

Must not let a preview see what another one took, nor keep anything of a fleet of long ago.
Belongs to one event loop; what it makes, to the thread of previews.
"""

from __future__ import annotations

import asyncio
from typing import Final

from federation.capacity.known_packings import KnownPackings
from federation.services.fleet.registry import FleetOwner
from federation.services.scheduling.working_copy import WorkingCopy

# What nobody asks for any more would keep old reports in memory.
_KEEP_SECONDS: Final = 60.0
# Of a fleet that does not change they would remember ever more.
_MOST_PREVIEWS: Final = 100


class PreviewCopies:
    """Whoever previews mostly does so again a moment later: the same workload, placed otherwise."""

    def __init__(self, fleet: FleetOwner, *, allow_unproven: bool) -> None:
        self._fleet = fleet
        self._allow_unproven = allow_unproven
        self._packings = KnownPackings()
        self._first: WorkingCopy | None = None
        self._previews = 0
        self._forgetting: asyncio.TimerHandle | None = None

    def next(self) -> WorkingCopy:
        """The fleet as it is known now, with nothing promised since."""
        first, snapshot = self._first, self._fleet.snapshot
        if first is None or first.snapshot is not snapshot or self._previews >= _MOST_PREVIEWS:
            first = WorkingCopy(
                snapshot,
                self._fleet.known_estimates,
                allow_unproven=self._allow_unproven,
                pack=self._packings.packed,
                late=self._packings.late,
            )
            self._first, self._previews = first, 0
        self._previews += 1
        if self._forgetting is not None:
            self._forgetting.cancel()
        loop = asyncio.get_running_loop()
        self._forgetting = loop.call_later(_KEEP_SECONDS, self._forget)
        # Nobody promises anything in the first one: it stays as it is.
        return first.anew()

    def _forget(self) -> None:
        self._first, self._packings = None, KnownPackings()
