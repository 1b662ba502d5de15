"""Working copies for previews: the next preview of the same fleet need not find out the same again.

Must not let a preview see what another one took, nor keep anything of a fleet of long ago.
Belongs to one event loop; its working copies belong to the thread of previews.
"""

from __future__ import annotations

import asyncio
from typing import Final

from federation.services.fleet.registry import FleetOwner
from federation.services.scheduling.working_copy import WorkingCopy

# What nobody asks for any more would keep old reports in memory.
_KEEP_SECONDS: Final = 60.0
# A fleet may stay the same for hours. Rooms that previews packed for it are kept for so many.
MAX_PREVIEWS: Final = 100


class PreviewCopies:
    """Copies of one working copy, which keeps its answers while the fleet stays the same."""

    def __init__(self, fleet: FleetOwner, *, allow_unproven: bool) -> None:
        self._fleet = fleet
        self._allow_unproven = allow_unproven
        self._first: WorkingCopy | None = None
        self._previews = 0
        self._forgetting: asyncio.TimerHandle | None = None

    def next(self) -> WorkingCopy:
        """Return the fleet as it is known now, with nothing promised since."""
        first, snapshot = self._first, self._fleet.snapshot
        if first is None or first.snapshot is not snapshot or self._previews >= MAX_PREVIEWS:
            estimates = self._fleet.known_estimates
            first = WorkingCopy(snapshot, estimates, allow_unproven=self._allow_unproven)
            self._first, self._previews = first, 0
        self._previews += 1
        if self._forgetting is not None:
            self._forgetting.cancel()
        loop = asyncio.get_running_loop()
        self._forgetting = loop.call_later(_KEEP_SECONDS, self._forget)
        # Nobody promises anything in the first one: it stays as it is.
        return first.anew()

    def _forget(self) -> None:
        self._first = None
