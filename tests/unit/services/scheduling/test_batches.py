"""Batches: by priority, answered in order, each item by itself."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from federation.model.errors import (
    FederationError,
    InvalidRequest,
    LimitExceeded,
    PluginFailed,
    PreconditionFailed,
    Unavailable,
)
from federation.scheduler.decision import Outcome
from federation.scheduler.plugins.profile import DEFAULT_PROFILE, Profiles, Score
from federation.scheduler.state import CycleState
from federation.services.fleet.registry import FleetOwner
from federation.services.scheduling import queue as waiting
from federation.services.scheduling.batches import BatchItem, schedule_batch
from federation.services.scheduling.bindings import Scheduling
from federation.services.values import Scheduled
from federation.store.postgres import PostgresStore
from lab.services import WEB, Agents, UnsteadyStore, make_scheduling
from tests.unit.services.conftest import StillClock
from tests.unit.services.scheduling.test_bindings import rows


def item(name: str, **change: object) -> BatchItem:
    return BatchItem(binding=replace(WEB, name=name, uid="", **change))


def gist(answer: Scheduled | FederationError) -> str:
    return answer.reason if isinstance(answer, FederationError) else answer.record.name


async def test_items_are_decided_by_priority_and_answered_in_order(
    scheduling: Scheduling,
) -> None:
    """There is room for two of them."""
    items = [
        item("low", priority=-1, replicas=5),
        item("first", priority=5, replicas=5),
        item("middle", replicas=5),
        item("second", priority=5, replicas=5),
    ]
    answers = await schedule_batch(scheduling, items)
    assert [gist(answer) for answer in answers] == ["low", "first", "middle", "second"]
    placed = {
        answer.record.name
        for answer in answers
        if isinstance(answer, Scheduled) and answer.record.decision.clusters
    }
    assert placed == {"first", "second"}


async def test_a_bad_item_harms_no_other(scheduling: Scheduling, engine: AsyncEngine) -> None:
    items = [
        item("a"),
        item("broken", replicas=-1),
        item("b"),
        item("stopped", suspended=True),
        item("strange", scheduler_name="nobody"),
        item("much", replicas=1000),
    ]
    answers = await schedule_batch(scheduling, items)
    assert [gist(answer) for answer in answers] == [
        "a",
        "INVALID_REQUEST",
        "b",
        "PRECONDITION_FAILED",
        "INVALID_REQUEST",
        "much",
    ]
    assert isinstance(answers[1], InvalidRequest)
    assert [each.field for each in answers[1].violations] == ["spec.replicas"]
    assert isinstance(answers[3], PreconditionFailed)
    assert isinstance(answers[5], Scheduled)
    assert answers[5].record.decision.outcome is Outcome.UNSCHEDULABLE
    assert await rows(engine, "binding") == 3


async def test_the_same_binding_twice_is_decided_twice(scheduling: Scheduling) -> None:
    answers = await schedule_batch(scheduling, [item("a", replicas=2), item("a", replicas=3)])
    totals = [
        sum(target.replicas for target in answer.record.decision.clusters)
        for answer in answers
        if isinstance(answer, Scheduled)
    ]
    assert totals == [2, 3]


async def test_a_plugin_that_fails_for_one_binding_fails_that_one(
    store: PostgresStore, fleet: FleetOwner, scheduling: Scheduling, clock: StillClock
) -> None:
    def picky(state: CycleState) -> object:
        if state.binding.name == "bad":
            raise KeyError("no such label")
        return state.prior_c * 0

    score = Score(name="Picky", run=picky, weight=1)
    profiles = Profiles.of([replace(DEFAULT_PROFILE, scores=(score,))])
    picking = make_scheduling(store, fleet, Agents(), clock, profiles)
    answers = await schedule_batch(picking, [item("a"), item("bad"), item("b")])
    assert [gist(answer) for answer in answers] == ["a", "PLUGIN_FAILED", "b"]
    assert isinstance(answers[1], PluginFailed)
    assert "Picky" in answers[1].message


async def test_a_store_that_is_away_ends_the_batch(
    store: PostgresStore, fleet: FleetOwner, clock: StillClock
) -> None:
    away = UnsteadyStore(store)
    away.reachable = False
    with pytest.raises(Unavailable):
        await schedule_batch(make_scheduling(away, fleet, Agents(), clock), [item("a")])


async def test_nothing_is_answered_with_nothing(scheduling: Scheduling) -> None:
    assert await schedule_batch(scheduling, []) == []


async def test_a_batch_that_does_not_fit_leaves_nothing_behind(
    scheduling: Scheduling, engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(waiting, "MAX_WAITING", 2)
        with pytest.raises(LimitExceeded):
            await schedule_batch(scheduling, [item("a"), item("b"), item("c")])
    # What was in the queue is not decided behind the error.
    (answer,) = await schedule_batch(scheduling, [item("d")])
    assert gist(answer) == "d"
    assert await rows(engine, "binding") == 1


async def test_what_a_caller_who_left_waited_for_is_not_decided(
    scheduling: Scheduling, engine: AsyncEngine
) -> None:
    """The second item waits for what comes of the first."""
    items = [item("a", replicas=1), item("a", replicas=2)]
    call = asyncio.create_task(schedule_batch(scheduling, items))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await schedule_batch(scheduling, [item("a", replicas=3)])
    assert await rows(engine, "decision") <= 2
