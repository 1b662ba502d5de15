"""Use cases over a real store, with a clock that stands still and a fleet that is empty."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from federation.model.placement import Binding, ClusterAffinity, Placement
from federation.services.fleet.registry import FleetOwner
from federation.services.members.join import Registration
from federation.services.members.reports import Reporting, ReportTimes
from federation.services.ports import Store, Transaction
from federation.services.scheduling.bindings import Scheduling
from federation.store.postgres import PostgresStore
from lab.services import (
    DYNAMIC,
    WEB,
    Agents,
    Deciders,
    join_and_report,
    make_deciders,
    make_report,
)
from tests.stores import engine, fresh_engine, store

__all__ = ["engine", "fresh_engine", "store"]


@dataclass
class StillClock:
    """Moves when told to. Implements ports.Clock."""

    time: float = 1_000_000.0

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


@pytest.fixture
def fleet(store: PostgresStore) -> FleetOwner:
    return FleetOwner(store)


@pytest.fixture
def registration(store: PostgresStore, fleet: FleetOwner) -> Registration:
    return Registration(store, fleet)


@pytest.fixture
def reporting(store: PostgresStore, fleet: FleetOwner, clock: StillClock) -> Reporting:
    return Reporting(store, fleet, clock, ReportTimes(batch_seconds=0.0))


@pytest.fixture
def agents() -> Agents:
    return Agents()


@pytest.fixture
async def deciders(
    store: PostgresStore,
    fleet: FleetOwner,
    registration: Registration,
    reporting: Reporting,
    agents: Agents,
    clock: StillClock,
) -> Deciders:
    """Three clusters of 6, 3 and 3 free cores."""
    reports = {
        "a": make_report(4, cpu_millis=6000),
        "b": make_report(5, cpu_millis=3000),
        "c": make_report(6, cpu_millis=3000),
    }
    await join_and_report(registration, reporting, reports)
    return make_deciders(store, fleet, agents, clock)


@pytest.fixture
def scheduling(deciders: Deciders) -> Scheduling:
    return deciders.scheduling


class Streams:
    """No agent is connected. Implements agent_ports.AgentStreams."""

    def dismiss(self, cluster: str, error: Exception) -> None:
        """Nobody to send away."""


class MeddledStore:
    """A store in which something happens just before a transaction. Implements ports.Store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.meddle: Callable[[], Awaitable[object]] | None = None

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        meddle, self.meddle = self.meddle, None
        if meddle is not None:
            await meddle()
        async with self._store.transaction() as tx:
            yield tx

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Transaction]:
        async with self._store.reading() as tx:
            yield tx


@dataclass(frozen=True, kw_only=True)
class ControlPlane:
    """One of several over one database, that follows the others when told to."""

    fleet: FleetOwner
    deciders: Deciders

    async def follow(self) -> None:
        await self.deciders.following.follow()


@pytest.fixture
def one(fleet: FleetOwner, deciders: Deciders) -> ControlPlane:
    return ControlPlane(fleet=fleet, deciders=deciders)


@pytest.fixture
def meddled(store: PostgresStore) -> MeddledStore:
    return MeddledStore(store)


@pytest.fixture
async def other(
    one: ControlPlane, meddled: MeddledStore, agents: Agents, clock: StillClock
) -> ControlPlane:
    """A second one, started when the clusters of ``one`` had joined."""
    del one
    fleet = FleetOwner(meddled)
    await fleet.load(grace_until=clock.now() + 3600)
    return ControlPlane(fleet=fleet, deciders=make_deciders(meddled, fleet, agents, clock))


def only(cluster: str, replicas: int = 2) -> Binding:
    """A binding of replicas of one core that may go there only."""
    affinity = ClusterAffinity(cluster_names=(cluster,))
    placement = Placement(affinity=affinity, replica_scheduling=DYNAMIC)
    return replace(WEB, replicas=replicas, placement=placement)


async def held(store: Store, binding: Binding = WEB) -> dict[str, int]:
    """Replicas by cluster, by the store."""
    async with store.reading() as read:
        row = await read.reservations.of(binding.namespace, binding.name)
    return {each.cluster: each.replicas for each in row.reservations} if row else {}


async def rows(engine: AsyncEngine, table: str) -> int:
    async with engine.connect() as connection:
        counted = await connection.execute(text(f"SELECT count(*) FROM {table}"))
        return int(counted.scalar_one())


async def run_out(engine: AsyncEngine) -> None:
    """All leases, one second ago."""
    async with engine.begin() as connection:
        await connection.execute(
            text("UPDATE reservation SET lease_expires_at = now() - interval '1 second'")
        )
