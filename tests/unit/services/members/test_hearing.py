"""Silence counts only while somebody listened."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, replace

import pytest

from federation.model.cluster import Cluster
from federation.services.agent_values import AgentPresence
from federation.services.fleet.registry import FleetOwner
from federation.services.members import hearing
from federation.services.members.hearing import LoopWatch
from federation.store.postgres import PostgresStore

LATE_MILLIS = (hearing.TICK_SECONDS - hearing.FINE_TICK_SECONDS) * 900


@dataclass
class StillClock:
    """Moves when told to. Implements ports.Clock."""

    time: float

    def now(self) -> float:
        return self.time


def fleet_with(store: PostgresStore, **silent_after: float) -> FleetOwner:
    fleet = FleetOwner(store)
    for name, seconds in silent_after.items():
        fleet.put_cluster(Cluster(name=name))
        fleet.put_presence(name, replace(AgentPresence(), silent_after=seconds))
    return fleet


def stale(fleet: FleetOwner, now: float) -> list[str]:
    ready_c = fleet.snapshot.fleet_at(now).ready_c
    return [name for name, ready in zip(fleet.snapshot.names, ready_c, strict=True) if not ready]


def test_agents_are_forgiven_the_time_that_the_loop_stood_still(store: PostgresStore) -> None:
    clock = StillClock(1000.0)
    fleet = fleet_with(store, heard=1020.0, silent=995.0)
    watch = LoopWatch(fleet, clock)
    clock.time = 1030.0
    assert stale(fleet, clock.now()) == ["heard", "silent"]
    watch.late_by(29.5)
    assert stale(fleet, clock.now()) == ["silent"]
    assert stale(fleet, 1049.0) == ["silent"]
    assert stale(fleet, 1050.0) == ["heard", "silent"]


def test_a_loop_that_is_only_busy_forgives_nothing(store: PostgresStore) -> None:
    fleet = fleet_with(store, heard=1000.1)
    LoopWatch(fleet, StillClock(1000.2)).late_by(0.2)
    assert stale(fleet, 1000.2) == ["heard"]


async def test_a_loop_that_stands_still_is_noticed(
    store: PostgresStore,
) -> None:
    clock = StillClock(time.time())
    fleet = fleet_with(store, heard=clock.time)
    watching = asyncio.create_task(LoopWatch(fleet, clock).keep_watching())
    await asyncio.sleep(0)
    time.sleep(hearing.TICK_SECONDS + 2 * hearing.TOLERATED_SECONDS)  # noqa: ASYNC251 - it is to stand still
    clock.time += 0.1
    await asyncio.sleep(hearing.TICK_SECONDS)
    assert not stale(fleet, clock.now())
    watching.cancel()


@pytest.mark.parametrize("level", [logging.DEBUG, logging.INFO])
async def test_short_stops_are_told_to_who_looks_for_them(
    store: PostgresStore, caplog: pytest.LogCaptureFixture, level: int
) -> None:
    fleet = fleet_with(store, heard=time.time())
    with caplog.at_level(level, logger=hearing.__name__):
        watching = asyncio.create_task(LoopWatch(fleet, StillClock(time.time())).keep_watching())
        await asyncio.sleep(0)
        time.sleep(hearing.TICK_SECONDS)  # noqa: ASYNC251 - it is to stand still
        await asyncio.sleep(hearing.FINE_TICK_SECONDS)
        watching.cancel()
    late = [each.fields["ms"] for each in caplog.records if each.levelno == logging.DEBUG]
    assert any(millis >= LATE_MILLIS for millis in late) == (level == logging.DEBUG)
