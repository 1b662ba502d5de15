"""Tells when whether clusters can be counted on changes by itself: nobody writes that down.

Must not decide it: the snapshot does, by the time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from federation.model.reasons import Reason
from federation.services.fleet.registry import FleetOwner
from federation.services.journal import Change, ClusterChanged
from federation.services.ports import Timer
from federation.services.troubles import Trouble

LOOK_SECONDS: Final = 1.0
# So many are told of between other work of the loop.
TOLD_AT_ONCE: Final = 250

logger = logging.getLogger(__name__)


class Readiness:
    """Looks at all clusters again and again. Belongs to one event loop."""

    def __init__(self, fleet: FleetOwner, clock: Timer, tell: Callable[[Change], None]) -> None:
        self._fleet = fleet
        self._clock = clock
        self._tell = tell
        self._unseen: dict[str, Reason] = {}

    async def keep_looking(self) -> None:
        """Until cancelled."""
        trouble = Trouble(logger, "readiness not looked at")
        while True:
            try:
                await self.look()
                trouble.over()
            except Exception as error:  # noqa: BLE001 - told; watchers have to hear of clusters that go stale
                trouble.met(error)
            await self._clock.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Tell of clusters that are stale, or not seen, and were not; or the other way round."""
        snapshot = self._fleet.snapshot
        why = snapshot.unseen_at(self._clock.now())
        reasons = [why.values[code] for code in why.code_c.tolist()]
        before, self._unseen = self._unseen, dict(zip(snapshot.names, reasons, strict=True))
        changed = [
            name for name, reason in self._unseen.items() if before.get(name, reason) != reason
        ]
        for first in range(0, len(changed), TOLD_AT_ONCE):
            for name in changed[first : first + TOLD_AT_ONCE]:
                self._tell(ClusterChanged(cluster=name))
            await asyncio.sleep(0)
