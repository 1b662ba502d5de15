"""Use cases over a real store, with a clock that stands still and a fleet that is empty."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from federation.services.fleet import FleetOwner
from federation.services.registration import Registration
from federation.services.reporting import Beat, Reporting
from federation.services.scheduling import Scheduling
from federation.store.postgres import PostgresStore
from tests.services import Agents, Deciders, join_and_report, make_deciders, make_report
from tests.stores import engine, fresh_engine, store

__all__ = ["engine", "fresh_engine", "store"]


@dataclass
class StillClock:
    """Moves when told to. Implements ports.Clock."""

    time: float = 1_000_000.0

    def now(self) -> float:
        return self.time


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
    return Reporting(store, fleet, clock, Beat(batch_seconds=0.0))


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
