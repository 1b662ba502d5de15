"""Before a refusal for want of room agents are asked for fresh reports, and others do not wait."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from federation.model.placement import Binding
from federation.scheduler.decision import Outcome
from federation.services.fleet.registry import FleetOwner
from federation.services.fleet.report_requests import (
    REPORTS_AT_ONCE_BEFORE_REFUSALS,
    WAIT_SECONDS,
    Refreshing,
)
from federation.services.members.reports import Reporting
from federation.services.scheduling.pipeline import DecisionPipeline
from federation.services.values import Scheduled
from federation.store.postgres import PostgresStore
from lab.services import Agents, Deciders, decided, make_deciders, make_report
from tests.unit.services.conftest import StillClock, only


class Asked:
    """Implements AgentReports."""

    def __init__(self) -> None:
        self.clusters: list[str] = []
        self.is_connected = True
        self.some = asyncio.Event()

    def refresh(self, cluster: str, reason: str) -> bool:
        assert reason
        self.clusters.append(cluster)
        self.some.set()
        return self.is_connected


@pytest.fixture
def asked() -> Asked:
    return Asked()


@pytest.fixture
def refreshing(fleet: FleetOwner, asked: Asked, clock: StillClock) -> Refreshing:
    made = Refreshing(fleet, asked, clock)
    fleet.observe(made.changed)
    return made


@pytest.fixture
async def pipeline(
    store: PostgresStore,
    fleet: FleetOwner,
    deciders: Deciders,
    clock: StillClock,
    refreshing: Refreshing,
) -> DecisionPipeline:
    """Of cluster a, which has 6 free cores, 4 are promised, and no report shows it."""
    del deciders
    pipeline = make_deciders(store, fleet, Agents(), clock, report_requests=refreshing).pipeline
    assert decided(await submit(pipeline, "before", 4)) == {"a": 4}
    clock.time += WAIT_SECONDS
    return pipeline


def binding(name: str, replicas: int, cluster: str = "a") -> Binding:
    return replace(only(cluster, replicas), name=name, uid="")


def submit(pipeline: DecisionPipeline, name: str, replicas: int) -> asyncio.Future[Scheduled]:
    return pipeline.submit(binding(name, replicas), adopt=False, wait=False)


async def test_what_finds_room_in_a_fresh_report_is_placed(
    pipeline: DecisionPipeline, asked: Asked, reporting: Reporting
) -> None:
    asked.clusters.clear()
    asked.some.clear()
    large = submit(pipeline, "large", 4)
    larger = submit(pipeline, "larger", 100)
    small = submit(pipeline, "small", 1)
    again = submit(pipeline, "large", 1)
    # Who has room does not wait for who has none.
    assert decided(await small) == {"a": 1}
    await asked.some.wait()
    # Whoever needs the same report waits for that one.
    assert asked.clusters == ["a"]
    assert not any(answer.done() for answer in (large, larger, again))
    await reporting.accept("a", make_report(7, cpu_millis=16_000))
    assert decided(await large) == {"a": 4}
    # What is asked for later is decided later.
    assert decided(await again) == {"a": 1}
    refused = (await larger).record.decision
    assert refused.outcome is Outcome.UNSCHEDULABLE
    assert asked.clusters == ["a"]


async def test_without_a_report_it_is_refused_once_it_waited(
    pipeline: DecisionPipeline, asked: Asked, clock: StillClock
) -> None:
    asked.clusters.clear()
    assert decided(await submit(pipeline, "large", 4)) == {}
    assert asked.clusters == ["a"]
    # The agent was just asked.
    assert decided(await submit(pipeline, "other", 4)) == {}
    assert asked.clusters == ["a"]
    clock.time += 1.0
    asked.is_connected = False
    assert decided(await submit(pipeline, "third", 4)) == {}
    assert asked.clusters == ["a", "a"]


async def test_nobody_is_asked_where_reports_show_all_or_room_is_not_what_lacks(
    pipeline: DecisionPipeline, asked: Asked
) -> None:
    asked.clusters.clear()
    unseen = pipeline.submit(binding("elsewhere", 9, "b"), adopt=False, wait=False)
    assert (await unseen).record.decision.outcome is Outcome.UNSCHEDULABLE
    nowhere = pipeline.submit(binding("nowhere", 9, "unknown"), adopt=False, wait=False)
    assert (await nowhere).record.decision.outcome is Outcome.NO_FIT
    assert asked.clusters == []


async def test_of_an_atomic_batch_all_are_decided_once_more(
    pipeline: DecisionPipeline, asked: Asked, reporting: Reporting
) -> None:
    asked.some.clear()
    items = [(binding("first", 1), False, None), (binding("second", 6), False, None)]
    answers = pipeline.submit_together(items)
    await asked.some.wait()
    assert not any(answer.done() for answer in answers)
    await reporting.accept("a", make_report(7, cpu_millis=16_000))
    assert [decided(await answer) for answer in answers] == [{"a": 1}, {"a": 6}]


async def test_agents_are_asked_in_moderation(
    refreshing: Refreshing, asked: Asked, clock: StillClock
) -> None:
    names = [f"m{number}" for number in range(100)]
    assert len(refreshing.before_refusal(names)) == REPORTS_AT_ONCE_BEFORE_REFUSALS
    # Who waits for what others wait for asks nobody.
    assert len(refreshing.before_refusal(names)) == len(asked.clusters)
    clock.time += 1.0
    assert len(refreshing.before_refusal(names[:1])) == 1
    assert asked.clusters[-1] == names[0]
