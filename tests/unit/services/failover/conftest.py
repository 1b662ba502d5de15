"""A control plane with three clusters, whose clocks stand still, and failover over a real store."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from federation.failover.breaker import BreakerLimits
from federation.model.placement import (
    Binding,
)
from federation.scheduler.decision import Outcome
from federation.services.duties import Duties
from federation.services.failover.control import FailoverControl
from federation.services.failover.watching import Failover, FailoverSettings
from federation.services.fleet.registry import FleetOwner
from federation.services.members.join import Registration
from federation.services.members.reports import Reporting
from federation.store.postgres import PostgresStore
from lab.reports import echo
from lab.services import WEB, Deciders, make_report
from tests.unit.services.conftest import StillClock

SETTINGS = FailoverSettings(
    lost_seconds=60.0, eviction_seconds=100.0, breaker=BreakerLimits(clusters=2, percent=60)
)


@dataclass
class Drill:
    """A control plane with clusters a, b and c, of which only those in ``speaking`` are heard."""

    clock: StillClock
    store: PostgresStore
    fleet: FleetOwner
    reporting: Reporting
    deciders: Deciders
    registration: Registration
    speaking: set[str] = field(default_factory=lambda: {"a", "b", "c"})
    left_alone: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.shared_at = self.clock.now()
        self.start("one")

    def start(self, replica: str, settings: FailoverSettings = SETTINGS) -> None:
        """With nothing in memory but the fleet."""
        self.replica_id = replica
        self.failover = Failover(
            self.store,
            self.fleet,
            self.deciders.pipeline,
            self,
            self.clock,
            settings,
        )
        # One piece a round: the clock stands still in between.
        duty = replace(self.failover.duty, at_once=2)
        self.duties = Duties(self.store, replica, [duty], self.clock)
        self.control = FailoverControl(self.store, self.fleet, self.failover, self.clock, settings)

    @property
    def silence_seconds(self) -> float:
        return self.reporting.silence_seconds

    def is_left_alone(self, cluster: str) -> bool:
        return cluster in self.left_alone

    async def pass_time(self, seconds: int) -> None:
        """Second by second, each with a look and a round."""
        for _ in range(seconds):
            self.clock.time += 1
            self.shared_at = self.clock.now()
            for name in self.speaking:
                self.reporting.heartbeat(name, 0, "", self.clock.now())
            self.failover.look()
            await self.duties.do_round()

    async def stored(self, binding: Binding = WEB) -> Binding:
        async with self.store.reading() as read:
            found = await read.bindings.get(binding.namespace, binding.name)
        assert found is not None
        return found.binding

    async def view(self) -> Any:
        return await self.deciders.scheduling.get_binding(WEB.namespace, WEB.name)

    async def outcome(self) -> Outcome:
        """Of the newest decision about WEB, which does not wait for room in the queue."""
        view = await self.view()
        assert view.wait is None
        return view.record.decision.outcome

    async def sees(self, cluster: str, bound: int, free: int = 6, unbound: int = 0) -> None:
        """The cluster's agent sees so many pods of WEB on nodes, and on none."""
        known = self.fleet.report(cluster)
        assert known is not None
        seen = replace(
            make_report(known.sequence + 1, cpu_millis=1000 * free),
            interest_version=self.fleet.ledger(cluster).interest_version,
            echoes=(replace(echo(WEB.key, WEB.requirements.request, bound), unbound=unbound),),
        )
        await self.reporting.accept(cluster, seen)

    async def put_in(self, region: str, *names: str) -> None:
        for name in names:
            cluster = self.fleet.known(name).cluster
            async with self.store.transaction() as tx:
                stored = await tx.clusters.lock(name)
                assert stored is not None
                put = await tx.clusters.put(stored.id, replace(cluster, region=region))
            self.fleet.put_cluster(put)

    def is_lost(self, name: str) -> bool:
        return self.fleet.known(name).cluster.lost_since is not None


@pytest.fixture
def drill(
    clock: StillClock,
    store: PostgresStore,
    fleet: FleetOwner,
    reporting: Reporting,
    deciders: Deciders,
    registration: Registration,
) -> Drill:
    return Drill(clock, store, fleet, reporting, deciders, registration)
