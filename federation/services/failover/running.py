"""Failover of one control plane: built of its settings, run, and left to others at its end.

Must not contain any rule.
"""

from __future__ import annotations

import asyncio

from federation.failover.breaker import BreakerLimits
from federation.runtime.setting_values import Settings
from federation.services.duties import URGENT_LEASE_SECONDS, Duties
from federation.services.failover.control import FailoverControl
from federation.services.failover.moving import PlacedObserver
from federation.services.failover.watching import (
    Failover,
    FailoverSettings,
    Hearing,
)
from federation.services.fleet.registry import FleetOwner
from federation.services.ports import Store, Timer
from federation.services.scheduling.pipeline import DecisionPipeline


class RunningFailover:
    """``control`` is what people see of it and can do about it."""

    def __init__(
        self,
        store: Store,
        fleet: FleetOwner,
        pipeline: DecisionPipeline,
        hearing: Hearing,
        clock: Timer,
        settings: Settings,
    ) -> None:
        limits = FailoverSettings(
            enabled=not settings.no_failover,
            lost_seconds=settings.lost_seconds,
            eviction_seconds=settings.eviction_seconds,
            percent_a_minute=settings.failover_percent,
            unschedulable_seconds=settings.unschedulable_seconds,
            breaker=BreakerLimits(
                settings.breaker_clusters, settings.breaker_percent, settings.breaker_by_place
            ),
        )
        self._failover = Failover(store, fleet, pipeline, hearing, clock, limits)
        # Rounds of its own: some of its work takes its time.
        duties = (self._failover.duty,)
        self._duties = Duties(
            store, hearing.replica_id, duties, clock, lease_seconds=URGENT_LEASE_SECONDS
        )
        self.control = FailoverControl(store, fleet, self._failover, clock, limits)

    def observe(self, observer: PlacedObserver) -> None:
        """From now on tell ``observer`` of every decision that placed something."""
        self._failover.moving.observe(observer)

    async def run(self) -> None:
        """Until cancelled."""
        await asyncio.gather(self._failover.keep_looking(), self._duties.keep_doing())

    async def leave(self) -> None:
        """Another control plane may go on at once."""
        self._failover.moving.close()
        await self._duties.leave()
