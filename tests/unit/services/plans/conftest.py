"""A control plane that plans, over a real store, with a clock that stands still."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from federation.model.placement import Binding
from federation.plans.plan import Plan, PlanKind, PlanState, StepState
from federation.services.duties import Duties, Duty
from federation.services.failover.watching import Failover, FailoverSettings
from federation.services.fleet.registry import FleetOwner
from federation.services.members.reports import Reporting
from federation.services.plans.carrying_out import CarryingOut
from federation.services.plans.control import PlanControl
from federation.services.plans.drafting import PlanWish
from federation.services.values import Scheduled
from federation.store.postgres import PostgresStore
from lab.reports import echo
from lab.services import WEB, Deciders, make_report
from tests.unit.services.conftest import StillClock

SECONDS = 20.0
DRAIN_A = PlanWish(kind=PlanKind.DRAIN, clusters=("a",))


@dataclass
class Workshop:
    """A control plane with clusters a, b and c of 6, 3 and 3 free cores."""

    clock: StillClock
    store: PostgresStore
    fleet: FleetOwner
    reporting: Reporting
    deciders: Deciders
    told: list[Scheduled] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.shared_at = self.clock.now()
        self.replica_id = "one"
        self.start()

    def start(self, replica: str = "one") -> None:
        """With nothing in memory but the fleet."""
        self.replica_id = replica
        self.control = PlanControl(self.store, self.fleet, self.deciders.pipeline, self.clock)
        carrying_out = CarryingOut(
            self.store,
            self.fleet,
            self.deciders.pipeline,
            self.deciders.releases,
            self.clock,
            most_seconds=SECONDS,
        )
        carrying_out.observe(self.told.extend)
        # Evictions end by failover's duty, also where failover itself is off.
        self.failover = Failover(
            self.store,
            self.fleet,
            self.deciders.pipeline,
            self,
            self.clock,
            FailoverSettings(enabled=False, eviction_seconds=SECONDS / 2),
        )
        # One piece a round: the clock stands still in between.
        duties = [
            Duty(name="plans", work=carrying_out.work, at_once=10**6),
            replace(self.failover.duty, at_once=2),
        ]
        self.duties = Duties(self.store, replica, duties, self.clock)

    @property
    def silence_seconds(self) -> float:
        return self.reporting.silence_seconds

    async def pass_time(self, seconds: int = 4) -> None:
        for _ in range(seconds):
            self.clock.time += 1
            self.shared_at = self.clock.now()
            for name in self.fleet.snapshot.names:
                self.reporting.heartbeat(name, 0, "", self.clock.now())
            self.failover.look()
            await self.duties.do_round()

    async def approved(self, wish: PlanWish = DRAIN_A) -> Plan:
        plan, _ = await self.control.create(wish, "ops")
        return await self.control.approve(plan.id, "ops")

    async def stored(self, binding: Binding = WEB) -> Binding:
        async with self.store.reading() as read:
            found = await read.bindings.get(binding.namespace, binding.name)
        assert found is not None
        return found.binding

    async def sees(self, cluster: str, *seen: tuple[Binding, int], free: int = 6) -> None:
        """The cluster's agent sees so many pods of bindings."""
        known = self.fleet.report(cluster)
        assert known is not None
        report = replace(
            make_report(known.sequence + 1, cpu_millis=1000 * free),
            interest_version=self.fleet.ledger(cluster).interest_version,
            echoes=tuple(echo(each.key, each.requirements.request, n) for each, n in seen),
        )
        await self.reporting.accept(cluster, report)

    async def states(self, plan: Plan) -> tuple[PlanState, list[StepState]]:
        found, steps = await self.control.get(plan.id)
        return found.state, [step.state for step in steps]


@pytest.fixture
def workshop(
    clock: StillClock,
    store: PostgresStore,
    fleet: FleetOwner,
    reporting: Reporting,
    deciders: Deciders,
) -> Workshop:
    return Workshop(clock, store, fleet, reporting, deciders)
