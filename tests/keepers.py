"""Keeps reports when a test says so, without the minute that lies between.

Must not keep them otherwise than the duty does.
"""

from __future__ import annotations

import time

from federation.app import ControlPlane
from federation.services.members.kept_reports import DECIDED_SECONDS, ReportKeeping


class Keeper:
    """As if it had been told for ``seconds`` already what is decided."""

    def __init__(self, plane: ControlPlane, seconds: float = DECIDED_SECONDS) -> None:
        self.ahead = 0.0
        self._begin = plane.parts.store.transaction
        self.keeping = ReportKeeping(plane.parts.fleet, lambda: time.monotonic() + self.ahead)
        self.ahead = seconds

    async def __call__(self) -> int:
        return await self.keeping.keep(self._begin)
