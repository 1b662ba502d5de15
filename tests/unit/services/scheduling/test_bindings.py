from __future__ import annotations

import asyncio
import threading
from dataclasses import replace

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine

from federation.model.placement import (
    DivisionPreference,
    ReplicaScheduling,
    SchedulingType,
)
from federation.services.agent_values import AgentHello
from federation.services.fleet.registry import FleetOwner
from federation.services.members.join import Registration
from federation.services.members.reports import Reporting
from federation.services.scheduling.bindings import Scheduling
from federation.store import decisions
from federation.store.postgres import PostgresStore
from lab.services import (
    WEB,
    Agents,
    apply,
    decided,
    join,
    make_report,
    make_scheduling,
)
from tests.unit.services.conftest import StillClock

AGGREGATED = ReplicaScheduling(
    type=SchedulingType.DIVIDED, preference=DivisionPreference.AGGREGATED
)


async def rows(engine: AsyncEngine, table: str) -> int:
    async with engine.connect() as connection:
        counted = await connection.execute(text(f"SELECT count(*) FROM {table}"))
        return int(counted.scalar_one())


async def test_a_commit_that_fails_leaves_nothing_half_written(
    scheduling: Scheduling,
    fleet: FleetOwner,
    agents: Agents,
    clock: StillClock,
    fresh_engine: AsyncEngine,
) -> None:
    """The fleet of one database, the bindings of another that is about to refuse a new one."""
    store = PostgresStore(fresh_engine)
    scheduling = make_scheduling(store, fleet, agents, clock)
    first = await apply(scheduling, WEB)
    async with fresh_engine.begin() as connection:
        await connection.execute(
            text("ALTER TABLE binding ADD CONSTRAINT never CHECK (generation < 2)")
        )
    with pytest.raises(IntegrityError, match="never"):
        await apply(scheduling, replace(WEB, replicas=4))
    view = await scheduling.get_binding("shop", "web")
    binding = view.binding
    record = view.record
    assert record is not None
    assert (binding, record.id) == (first.binding, first.record.id)
    assert await rows(fresh_engine, "decision") == 1


async def test_large_fleets_are_decided_beside_the_loop(
    store: PostgresStore,
    registration: Registration,
    reporting: Reporting,
    fleet: FleetOwner,
    agents: Agents,
    clock: StillClock,
) -> None:
    names = [f"c{number:03}" for number in range(210)]
    for name in names:
        credential = await join(registration, name)
        await reporting.connected(name, AgentHello(epoch=1), credential.id)
    reports = {name: make_report(cpu_millis=1000) for name in names}
    await asyncio.gather(*(reporting.accept(name, report) for name, report in reports.items()))
    scheduling = make_scheduling(store, fleet, agents, clock)
    scheduled = await apply(scheduling, replace(WEB, replicas=210))
    assert decided(scheduled) == dict.fromkeys(names, 1)
    assert (await scheduling.get_decision(scheduled.record.id)).decision.trace.clusters == tuple(
        names
    )


async def test_traces_are_unpacked_off_the_event_loop(
    scheduling: Scheduling, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []
    unpack = decisions.unpacked_trace

    def watched(packed: bytes) -> object:
        threads.append(threading.current_thread())
        return unpack(packed)

    monkeypatch.setattr(decisions, "unpacked_trace", watched)
    scheduled = await apply(scheduling, replace(WEB, replicas=4))
    again = await apply(scheduling, replace(WEB, replicas=4))
    assert again.record.id == scheduled.record.id
    assert (await scheduling.get_decision(again.record.id)).id == again.record.id
    view = await scheduling.get_binding(WEB.namespace, WEB.name)
    assert view.record is not None
    assert view.record.id == again.record.id
    assert len(threads) == 3
    assert threading.current_thread() not in threads
