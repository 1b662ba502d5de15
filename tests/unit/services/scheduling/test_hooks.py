"""Plugins that keep something for decisions and hear of them: what is kept is what is committed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from federation.model.errors import PluginFailed
from federation.model.placement import Binding
from federation.scheduler.decision import Outcome
from federation.scheduler.plugins.profile import DEFAULT_PROFILE, PostBind, Profiles, Reserve
from federation.scheduler.state import CycleState
from federation.services.fleet.registry import FleetOwner
from federation.services.scheduling.batches import BatchItem, schedule_batch
from federation.services.values import Scheduled
from federation.store.postgres import PostgresStore
from lab.patience import PATIENCE_SECONDS
from lab.services import Agents, Deciders, apply, decided, make_deciders
from tests.unit.services.conftest import ControlPlane, MeddledStore, StillClock, held, only

OTHERS = "others"


@dataclass
class Licences:
    """So many replicas may run in all. Keeps them, gives them back, and hears of them."""

    free: int
    heard: list[tuple[str, int]] = field(default_factory=list)
    fails: str = ""

    def keep(self, state: CycleState, replicas_c: Any) -> str:
        if state.binding.name == self.fails:
            raise KeyError("no such licence")
        wanted = int(replicas_c.sum() - state.prior_c.sum())
        if wanted > self.free:
            return f"{self.free} licences are left, {wanted} wanted"
        self.free -= wanted
        return ""

    def give_back(self, state: CycleState, replicas_c: Any) -> None:
        self.free += int(replicas_c.sum() - state.prior_c.sum())

    def hear(self, state: CycleState, replicas_c: Any) -> None:
        self.heard.append((state.binding.name, int(replicas_c.sum())))
        if state.binding.name == "odd":
            raise ValueError("odd")

    @property
    def profiles(self) -> Profiles:
        reserve = Reserve(name="Licences", run=self.keep, undo=self.give_back)
        hear = PostBind(name="Ears", run=self.hear)
        licensed = replace(DEFAULT_PROFILE, reserves=(reserve,), post_binds=(hear,))
        return Profiles.of([licensed, replace(DEFAULT_PROFILE, name=OTHERS)])

    async def has_heard(self, *names: str) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while [name for name, _ in self.heard] != [*names]:  # noqa: ASYNC110 - another thread
                await asyncio.sleep(0.01)


@pytest.fixture
def licences() -> Licences:
    return Licences(free=5)


@pytest.fixture
def licensed(
    deciders: Deciders,
    licences: Licences,
    store: PostgresStore,
    fleet: FleetOwner,
    clock: StillClock,
) -> Deciders:
    """Of the fleet of ``deciders``."""
    return make_deciders(store, fleet, Agents(), clock, licences.profiles)


def named(name: str, binding: Binding, **change: Any) -> Binding:
    return replace(binding, name=name, uid="", **change)


async def test_what_is_kept_is_what_is_placed(
    licensed: Deciders, licences: Licences, store: PostgresStore
) -> None:
    assert decided(await apply(licensed.scheduling, named("w1", only("a", 3)))) == {"a": 3}
    assert licences.free == 2
    refused = await apply(licensed.scheduling, named("w2", only("a", 3)))
    decision = refused.record.decision
    assert (decision.outcome, decision.remainder) == (Outcome.UNSCHEDULABLE, 3)
    assert decision.reason == "Licences: “2 licences are left, 3 wanted”"
    assert refused.queued
    assert await held(store, named("w2", only("a"))) == {}
    # Its room is not taken: nothing is missing for the next one.
    others = named("w3", only("a", 3), scheduler_name=OTHERS)
    assert decided(await apply(licensed.scheduling, others)) == {"a": 3}
    assert licences.free == 2
    # The same again keeps nothing more; fewer give back.
    await apply(licensed.scheduling, named("w1", only("a", 3)))
    assert licences.free == 2
    await apply(licensed.scheduling, named("w1", only("a", 1)))
    assert licences.free == 4
    await licences.has_heard("w1", "w1")
    assert licences.heard == [("w1", 3), ("w1", 1)]


async def test_who_finds_no_room_gives_back(licensed: Deciders, licences: Licences) -> None:
    """Static weights find out when they are packed."""
    wanted = only("b", 4)
    static = replace(wanted.placement.replica_scheduling, dynamic=False)
    wanted = replace(wanted, placement=replace(wanted.placement, replica_scheduling=static))
    answer = await apply(licensed.scheduling, named("w1", wanted))
    assert answer.record.decision.outcome is Outcome.UNSCHEDULABLE
    assert "no room" in answer.record.decision.reason
    assert licences.free == 5


async def test_a_spoilt_atomic_batch_gives_back(licensed: Deciders, licences: Licences) -> None:
    items = [BatchItem(binding=named(f"w{n}", only(name, 3))) for n, name in enumerate("ab")]
    await schedule_batch(licensed.scheduling, items, atomic=True)
    assert licences.free == 5
    licences.free = 6
    await schedule_batch(licensed.scheduling, items, atomic=True)
    assert licences.free == 0


async def test_what_others_took_meanwhile_gives_back(
    one: ControlPlane,
    other: ControlPlane,
    meddled: MeddledStore,
    licences: Licences,
    clock: StillClock,
) -> None:
    plane = make_deciders(meddled, other.fleet, Agents(), clock, licences.profiles)
    meddled.meddle = lambda: apply(one.deciders.scheduling, named("rival", only("b", 2)))
    answer = await apply(plane.scheduling, named("w1", only("b", 2)))
    assert answer.record.decision.outcome is Outcome.UNSCHEDULABLE
    assert licences.free == 5
    meddled.meddle = lambda: apply(one.deciders.scheduling, named("rival2", only("a", 2)))
    assert decided(await apply(plane.scheduling, named("w2", only("a", 2)))) == {"a": 2}
    assert licences.free == 3


async def test_one_that_raises_fails_its_own_binding(
    licensed: Deciders, licences: Licences, caplog: pytest.LogCaptureFixture
) -> None:
    """Who hears of what is committed changes nothing of it any more."""
    licences.fails = "w1"
    items = [BatchItem(binding=named(name, only("a", 1))) for name in ("w0", "w1", "odd", "w3")]
    answers = await schedule_batch(licensed.scheduling, items)
    assert isinstance(answers[1], PluginFailed)
    assert "Licences failed: it raised KeyError" in answers[1].message
    placed = [decided(each) for each in answers if isinstance(each, Scheduled)]
    assert placed == [{"a": 1}] * 3
    assert licences.free == 2
    await licences.has_heard("w0", "odd", "w3")
    async with asyncio.timeout(PATIENCE_SECONDS):
        while "scheduler plugin failed" not in caplog.text:  # noqa: ASYNC110 - another thread
            await asyncio.sleep(0.01)


async def test_a_preview_keeps_nothing_and_is_not_committed_as_shown(
    licensed: Deciders, licences: Licences
) -> None:
    shown = await licensed.previews.preview(named("w1", only("a", 9)), adopt=False, wait=True)
    assert shown.record.decision.outcome is Outcome.UNSCHEDULABLE
    shown = await licensed.previews.preview(named("w1", only("a", 6)), adopt=False, wait=True)
    assert shown.record.decision.outcome is Outcome.SCHEDULED
    assert shown.token == ""
    assert (licences.free, licences.heard) == (5, [])
