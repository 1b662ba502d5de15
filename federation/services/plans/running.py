"""The plans of one control plane: built of its settings, run, and left to others at its end.

Must not contain any rule.
"""

from __future__ import annotations

from federation.runtime.setting_values import Settings
from federation.services.duties import URGENT_LEASE_SECONDS, Duties, Duty
from federation.services.fleet.registry import FleetOwner
from federation.services.plans.carrying_out import CarryingOut, MovedObserver
from federation.services.plans.control import PlanControl
from federation.services.ports import Store, Timer
from federation.services.scheduling.pipeline import DecisionPipeline
from federation.services.scheduling.release import ReleaseService


class RunningPlans:
    """``control`` is what people see of them and can do about them."""

    def __init__(
        self,
        store: Store,
        fleet: FleetOwner,
        pipeline: DecisionPipeline,
        releases: ReleaseService,
        replica_id: str,
        clock: Timer,
        settings: Settings,
    ) -> None:
        self._carrying_out = CarryingOut(
            store, fleet, pipeline, releases, clock, most_seconds=settings.eviction_seconds
        )
        duty = Duty(name="plans", work=self._carrying_out.work)
        # Rounds of its own: some of its work takes its time.
        self._duties = Duties(store, replica_id, (duty,), clock, lease_seconds=URGENT_LEASE_SECONDS)
        self.control = PlanControl(store, fleet, pipeline, clock)

    def observe(self, observer: MovedObserver) -> None:
        """From now on tell ``observer`` of every decision that placed something."""
        self._carrying_out.observe(observer)

    async def run(self) -> None:
        """Until cancelled."""
        await self._duties.keep_doing()

    async def leave(self) -> None:
        """Another control plane may go on at once."""
        await self._duties.leave()
