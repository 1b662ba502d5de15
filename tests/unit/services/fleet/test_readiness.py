from __future__ import annotations

import asyncio
from typing import Any

import pytest

from federation.model.cluster import API_SERVER_UNREACHABLE, Blindness
from federation.services.agent_values import AgentPresence
from federation.services.fleet.readiness import Readiness
from federation.services.fleet.registry import FleetOwner
from federation.services.members.join import Registration
from federation.store.postgres import PostgresStore
from lab.services import join


class StillClock:
    time = 1_000.0

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@pytest.fixture
async def fleet(store: PostgresStore) -> FleetOwner:
    owner = FleetOwner(store)
    for name in ("member1", "member2"):
        await join(Registration(store, owner), name)
    return owner


def heard(fleet: FleetOwner, name: str, until: float, **seen: Any) -> None:
    fleet.put_presence(name, AgentPresence(connected=True, silent_after=until, **seen))


async def test_clusters_that_go_stale_and_come_back_are_told_once(fleet: FleetOwner) -> None:
    clock, told = StillClock(), list[str]()
    readiness = Readiness(fleet, clock, lambda change: told.append(change.cluster))
    for name, until in (("member1", 1_010.0), ("member2", 1_020.0)):
        heard(fleet, name, until)
    await readiness.look()
    assert told == []
    clock.time = 1_015.0
    await readiness.look()
    await readiness.look()
    assert told == ["member1"]
    heard(fleet, "member1", 1_100.0)
    clock.time = 1_021.0
    await readiness.look()
    assert told == ["member1", "member1", "member2"]


async def test_a_cluster_that_cannot_be_seen_is_told(fleet: FleetOwner) -> None:
    clock, told = StillClock(), list[str]()
    readiness = Readiness(fleet, clock, lambda change: told.append(change.cluster))
    for name in ("member1", "member2"):
        heard(fleet, name, 2_000.0)
    await readiness.look()
    blind = Blindness(since=999.0, reason=API_SERVER_UNREACHABLE, message="no route")
    heard(fleet, "member2", 2_000.0, blindness=blind)
    await readiness.look()
    assert told == ["member2"]
