"""The queue of one control plane: kept while it has the duty, and left to others at its end.

Must not contain any rule.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from federation.scheduler.plugins.profile import Profiles
from federation.services.duties import URGENT_LEASE_SECONDS, Duties, Duty
from federation.services.fleet.journal_reader import Following
from federation.services.fleet.registry import FleetOwner
from federation.services.journal import Change
from federation.services.ports import Store, Timer
from federation.services.scheduling.pipeline import DecisionPipeline
from federation.services.values import Scheduled
from federation.services.waiting.keeper import QueueKeeper


class RunningQueue:
    """``placed`` is told what became of those that found room."""

    def __init__(
        self,
        store: Store,
        fleet: FleetOwner,
        following: Following,
        pipeline: DecisionPipeline,
        profiles: Profiles,
        clock: Timer,
        placed: Callable[[Iterable[Scheduled]], None],
        replica_id: str,
    ) -> None:
        self.keeper = QueueKeeper(store, fleet, pipeline, profiles, clock, placed)
        pipeline.observe_waiting(self.keeper.committed)
        following.observe(LostNews(self.keeper))
        following.observe_anew(self.keeper.lost)
        duties = (Duty(name="queue", work=self.keeper.hold),)
        self._duties = Duties(store, replica_id, duties, clock, lease_seconds=URGENT_LEASE_SECONDS)

    async def run(self) -> None:
        """Until cancelled."""
        await asyncio.gather(self.keeper.run(), self._duties.keep_doing())

    async def leave(self) -> None:
        """Another control plane may go on at once."""
        await self._duties.leave()

    def close(self) -> None:
        self.keeper.close()


class LostNews:
    """Tells a keeper when it was not told of everything. Implements JournalObserver."""

    def __init__(self, keeper: QueueKeeper) -> None:
        self._keeper = keeper

    def changed(self, change: Change) -> None:
        """It is told of that once it was applied."""

    def lost(self) -> None:
        self._keeper.lost()
