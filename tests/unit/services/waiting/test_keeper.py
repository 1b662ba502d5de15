"""The duty of the queue: what waits is tried when there may be room, in order, and no sooner."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from federation.model.errors import LimitExceeded
from federation.model.placement import Binding, Placement, PreemptionPolicy
from federation.model.waiting import WaitState
from federation.scheduler.plugins.profile import (
    DEFAULT_PROFILE,
    DEFAULT_PROFILES,
    Profile,
    Profiles,
)
from federation.services.fleet.registry import FleetOwner
from federation.services.members.lifecycle import Membership
from federation.services.members.reports import Reporting
from federation.services.ports import StoredBinding
from federation.services.scheduling.bindings import Scheduling
from federation.services.scheduling.pipeline import DecisionPipeline
from federation.services.scheduling.queue import Attempt
from federation.services.scheduling.working_copy import WorkingCopy
from federation.services.waiting.keeper import LostNews, QueueKeeper
from federation.services.waiting.steering import Queueing
from federation.services.waiting_ports import QueuedBinding
from federation.store.postgres import PostgresStore
from tests.services import WEB, Agents, Deciders, apply, make_deciders, make_report
from tests.unit.services.conftest import ControlPlane, StillClock, Streams, only


class Tries:
    """A pipeline that remembers who was tried, and may be too busy. Implements what is used."""

    def __init__(self, pipeline: DecisionPipeline) -> None:
        self._pipeline = pipeline
        self.attempts: list[Attempt] = []
        self.is_busy = False

    def try_again(self, stored: StoredBinding, place: int) -> Attempt:
        if self.is_busy:
            raise LimitExceeded("too many")
        attempt = self._pipeline.try_again(stored, place)
        self.attempts.append(attempt)
        return attempt

    def working(self) -> WorkingCopy:
        return self._pipeline.working()


@dataclass(kw_only=True)
class World:
    """Clusters a, b and c of 6, 3 and 3 free cores, and one keeper over them."""

    store: PostgresStore
    fleet: FleetOwner
    deciders: Deciders
    reporting: Reporting
    clock: StillClock
    tries: Tries
    keeper: QueueKeeper
    placed: list[str]
    sequence: int = field(default=10)
    profiles: Profiles = DEFAULT_PROFILES

    async def take_over(self) -> None:
        """As a control plane that has started, or has got the duty, does."""
        self.tries = Tries(self.deciders.pipeline)
        self.keeper = QueueKeeper(
            self.store,
            self.fleet,
            cast(DecisionPipeline, self.tries),
            self.profiles,
            self.clock,
            lambda every: self.placed.extend(each.record.name for each in every),
        )
        self.fleet.observe(self.keeper.changed)
        await self.settle()

    async def settle(self) -> list[str]:
        """Round after round until nothing more comes of it; who was tried, in order."""
        first, calm = len(self.tries.attempts), 0
        while calm < 3:
            before = len(self.tries.attempts)
            await self.keeper.hold(None)  # type: ignore[arg-type]  # it needs no transaction
            await self.keeper.do_round()
            answers = [each.answer for each in self.tries.attempts]
            await asyncio.gather(*answers, return_exceptions=True)
            calm = calm + 1 if len(self.tries.attempts) == before else 0
        return [each.binding.name for each in self.tries.attempts[first:]]

    async def ask(self, *names: str, **fields: Any) -> None:
        for name in names:
            answer = await apply(self.deciders.scheduling, binding(name, **fields))
            assert answer.queued

    async def fill(self) -> None:
        """All 12 cores are promised, and the queue knows it."""
        for name, cores in (("a", 6), ("b", 3), ("c", 3)):
            taken = replace(only(name, cores), name=f"on-{name}", uid="")
            assert not (await apply(self.deciders.scheduling, taken)).queued
        await self.settle()

    async def report(self, cluster: str, cores: int) -> None:
        """So many are free there, beside what is promised."""
        self.sequence += 1
        await self.reporting.accept(cluster, make_report(self.sequence, cpu_millis=1000 * cores))

    async def waits(self, namespace: str = "") -> Sequence[QueuedBinding]:
        async with self.store.reading() as read:
            return await read.waiting.page(namespace, None, None, 100)

    async def names(self) -> list[str]:
        return [each.name for each in await self.waits()]


def binding(name: str, **fields: Any) -> Binding:
    return replace(WEB, **{"name": name, "uid": "", "replicas": 1, **fields})


@pytest.fixture
async def world(
    store: PostgresStore,
    fleet: FleetOwner,
    deciders: Deciders,
    reporting: Reporting,
    clock: StillClock,
) -> World:
    tries = Tries(deciders.pipeline)
    made = World(
        store=store,
        fleet=fleet,
        deciders=deciders,
        reporting=reporting,
        clock=clock,
        tries=tries,
        keeper=cast(QueueKeeper, None),
        placed=[],
    )
    await made.take_over()
    await made.fill()
    return made


async def test_a_report_that_shows_room_places_as_many_as_find_some_in_order(
    world: World,
) -> None:
    await world.ask("one", "two", "three")
    await world.ask("urgent", priority=5)
    assert await world.settle() == ["urgent"]
    await world.report("b", 5)
    # When those have taken it, nobody else is even tried.
    assert await world.settle() == ["urgent", "one"]
    assert world.placed == ["urgent", "one"]
    assert await world.names() == ["two", "three"]
    view = await world.deciders.scheduling.get_binding("shop", "urgent")
    assert [each.name for each in view.binding.clusters] == ["b"]
    assert view.wait is None


async def test_nobody_is_tried_while_nothing_has_grown(world: World) -> None:
    await world.ask("one", "two")
    await world.ask("large", replicas=7)
    assert await world.settle() == ["one", "large"]
    await world.report("a", 6)
    await world.report("b", 2)
    assert await world.settle() == []
    assert world.keeper.rescued == 0


async def test_what_is_small_may_overtake_what_is_large_and_that_is_told(world: World) -> None:
    await world.ask("large", replicas=7)
    await world.settle()
    await world.ask("small")
    await world.report("a", 7)
    await world.settle()
    assert world.placed == ["small"]
    (large,) = await world.waits()
    assert large.wait.overtaken_since is not None
    assert large.wait.overtaken_by == "shop/small"


async def test_who_comes_and_finds_room_at_once_overtakes_too(world: World) -> None:
    await world.ask("large", replicas=7)
    await world.settle()
    await world.report("a", 7)
    await world.settle()
    assert not (await apply(world.deciders.scheduling, binding("new"))).queued
    await world.settle()
    (large,) = await world.waits()
    assert large.wait.overtaken_by == "shop/new"


@pytest.mark.parametrize("how", ["release", "delete", "shrink"])
async def test_what_is_given_back_is_room(world: World, how: str) -> None:
    await world.ask("one", "two", "three", "four")
    await world.settle()
    match how:
        case "release":
            await world.deciders.scheduling.release("shop", "on-b")
        case "delete":
            await world.deciders.scheduling.delete_binding("shop", "on-b")
        case _:
            smaller = replace(only("a", 3), name="on-a", uid="")
            assert not (await apply(world.deciders.scheduling, smaller)).queued
    await world.settle()
    assert world.placed == ["one", "two", "three"]
    assert await world.names() == ["four"]


async def test_an_uncordoned_cluster_wakes_who_may_go_there(
    world: World, store: PostgresStore
) -> None:
    membership = Membership(store, world.fleet, Streams())
    await membership.cordon("c", cordoned=True)
    await world.report("c", 4)
    await world.ask("one")
    assert await world.settle() == ["one"]
    await membership.cordon("c", cordoned=False)
    await world.deciders.following.follow()
    await world.settle()
    assert world.placed == ["one"]


async def test_what_is_left_of_a_partial_placement_is_placed_when_there_is_room(
    world: World,
) -> None:
    await world.report("b", 5)
    placement = Placement(replica_scheduling=WEB.placement.replica_scheduling, partial=True)
    await world.ask("part", replicas=4, placement=placement)
    await world.settle()
    await world.report("c", 5)
    await world.settle()
    view = await world.deciders.scheduling.get_binding("shop", "part")
    assert {each.name: each.replicas for each in view.binding.clusters} == {"b": 2, "c": 2}
    assert await world.names() == []


async def test_a_binding_that_is_changed_or_gone_is_tried_as_it_is_now(world: World) -> None:
    await world.ask("gone", "changed")
    await world.settle()
    await world.deciders.scheduling.delete_binding("shop", "gone")
    await world.ask("changed", replicas=2)
    assert await world.settle() == ["changed"]
    await world.report("b", 5)
    assert await world.settle() == ["changed"]
    view = await world.deciders.scheduling.get_binding("shop", "changed")
    assert sum(each.replicas for each in view.binding.clusters) == 2
    assert await world.names() == []


async def test_what_another_control_plane_decides_and_hears_is_known(
    world: World, other: ControlPlane
) -> None:
    asked = binding("elsewhere")
    await other.follow()
    assert (await apply(other.deciders.scheduling, asked)).queued
    await world.deciders.following.follow()
    assert await world.settle() == ["elsewhere"]
    await world.report("b", 4)
    await world.settle()
    assert world.placed == ["elsewhere"]


async def test_a_restart_loses_nobody_and_keeps_the_order(world: World) -> None:
    await world.ask("one", "two")
    await world.ask("urgent", priority=5)
    await world.settle()
    before = await world.waits()
    await world.take_over()
    assert [each.wait.since for each in await world.waits()] == [each.wait.since for each in before]
    assert len(world.keeper) == 3
    await world.report("b", 5)
    await world.settle()
    assert world.placed == ["urgent", "one"]


async def test_who_fails_for_a_passing_reason_is_tried_after_a_while(world: World) -> None:
    world.tries.is_busy = True
    await world.ask("one")
    await world.settle()
    (waits,) = await world.waits()
    assert waits.wait.state is WaitState.BACKOFF
    assert waits.wait.next_try is not None
    world.tries.is_busy = False
    assert await world.settle() == []
    world.clock.time += 1.5
    assert await world.settle() == ["one"]
    (waits,) = await world.waits()
    assert (waits.wait.state, waits.wait.next_try) == (WaitState.UNSCHEDULABLE, None)


async def test_a_backoff_is_kept_over_a_restart(world: World) -> None:
    world.tries.is_busy = True
    await world.ask("one")
    await world.settle()
    await world.take_over()
    assert await world.settle() == []
    world.clock.time += 10.5
    assert await world.settle() == ["one"]


async def test_the_sweep_finds_what_no_event_told_of_and_counts_it(world: World) -> None:
    await world.ask("one")
    await world.settle()
    told = world.fleet._observers
    kept = {kind: list(observers) for kind, observers in told.items()}
    for observers in told.values():
        observers.clear()
    await world.report("b", 5)
    told.update(kept)
    assert await world.settle() == []
    world.keeper._sweep_at = world.clock.time
    assert await world.settle() == ["one"]
    assert world.placed == ["one"]
    assert world.keeper.rescued == 1


async def test_after_news_were_lost_everything_is_read_again(world: World) -> None:
    await world.ask("one")
    await world.settle()
    LostNews(world.keeper).lost()
    assert await world.settle() == ["one"]
    await world.report("b", 5)
    await world.settle()
    assert world.placed == ["one"]


async def test_who_has_not_the_duty_tries_nobody(world: World) -> None:
    await world.ask("one")
    await world.settle()
    world.clock.time += 60
    await world.report("b", 5)
    await world.keeper.do_round()
    assert len(world.keeper) == 0
    assert await world.names() == ["one"]


async def test_who_is_suspended_is_not_tried_until_resumed(
    world: World, deciders: Deciders
) -> None:
    queueing = Queueing(world.store, world.fleet, deciders.pipeline)
    await world.ask("one", "two")
    await world.settle()
    await queueing.suspend("shop", "one")
    await world.settle()
    await world.report("b", 5)
    await world.settle()
    assert world.placed == ["two"]
    await queueing.resume("shop", "one")
    await world.settle()
    assert world.placed == ["two", "one"]


async def starve(world: World, profile: Profile) -> None:
    """A large binding waits, and small ones were placed before it for too long."""
    world.profiles = Profiles.of([profile])
    await world.take_over()
    await world.ask("large", replicas=2, placement=only("b").placement)
    await world.settle()
    await world.report("b", 4)
    await world.settle()
    assert not (await apply(world.deciders.scheduling, small("overtaker"))).queued
    await world.settle()


def small(name: str, **fields: Any) -> Binding:
    return replace(only("b", 1), **{"name": name, "uid": "", **fields})


async def test_room_is_kept_for_who_was_overtaken_for_too_long(world: World) -> None:
    await starve(world, replace(DEFAULT_PROFILE, starvation_seconds=4.0))
    world.clock.time += 5.0
    await world.settle()
    (large,) = await world.waits()
    assert large.wait.earmarked_since is not None
    await world.report("b", 5)
    await world.settle()
    # One core is free: it is kept, but not for who is more urgent.
    refused = await apply(world.deciders.scheduling, small("late"))
    assert refused.queued
    assert "room is kept for shop/large" in refused.record.decision.reason
    assert not (await apply(world.deciders.scheduling, small("urgent", priority=5))).queued
    await world.settle()
    await world.report("b", 7)
    await world.settle()
    assert world.placed == ["large"]
    # Nothing is kept any more, and who was kept out is tried.
    await world.report("b", 8)
    await world.settle()
    assert world.placed == ["large", "late"]


async def test_what_is_kept_for_one_that_goes_is_for_the_others(world: World) -> None:
    await starve(world, replace(DEFAULT_PROFILE, starvation_seconds=4.0))
    world.clock.time += 5.0
    await world.settle()
    await world.report("b", 5)
    assert (await apply(world.deciders.scheduling, small("late"))).queued
    await world.settle()
    await world.deciders.scheduling.delete_binding("shop", "large")
    await world.settle()
    assert world.placed == ["late"]
    assert world.keeper.rescued == 0


async def test_an_earmark_lasts_over_a_restart_until_the_binding_is_changed(world: World) -> None:
    await starve(world, replace(DEFAULT_PROFILE, starvation_seconds=4.0))
    world.clock.time += 5.0
    await world.settle()
    (before,) = await world.waits()
    await world.take_over()
    (after,) = await world.waits()
    assert after.wait.earmarked_since == before.wait.earmarked_since
    await world.ask("large", replicas=3, placement=only("b").placement)
    await world.settle()
    (changed,) = await world.waits()
    assert (changed.wait.earmarked_since, changed.wait.overtaken_since) == (None, None)


async def test_who_may_preempt_is_tried_when_something_to_preempt_was_placed(
    world: World,
) -> None:
    preempting = PreemptionPolicy.PREEMPT_LOWER_PRIORITY
    placement = only("b").placement
    await world.ask("urgent", placement=placement, preemption_policy=preempting)
    await world.settle()
    await world.report("b", 4)
    assert not (await apply(world.deciders.scheduling, small("victim", priority=-5))).queued
    await world.settle()
    view = await world.deciders.scheduling.get_binding("shop", "urgent")
    assert [(each.name, each.replicas) for each in view.binding.clusters] == [("b", 1)]
    assert await world.names() == ["victim"]


@pytest.fixture
def strict(world: World) -> Scheduling:
    """In a profile that lets nobody overtake."""
    world.profiles = Profiles.of([replace(DEFAULT_PROFILE, strict=True)])
    world.deciders = make_deciders(world.store, world.fleet, Agents(), world.clock, world.profiles)
    return world.deciders.scheduling


async def test_nobody_overtakes_the_first_of_a_strict_profile_where_both_may_go(
    world: World, strict: Scheduling
) -> None:
    await world.take_over()
    await world.ask("large", replicas=2, placement=only("b").placement)
    await world.settle()
    for cluster in ("b", "c"):
        await world.report(cluster, 4)
    refused = await apply(strict, small("late"))
    assert refused.queued
    assert "room is kept for shop/large" in refused.record.decision.reason
    assert not (await apply(strict, replace(only("c", 1), name="elsewhere", uid=""))).queued
    assert not (await apply(strict, small("urgent", priority=5))).queued
    await world.report("b", 5)
    await world.settle()
    assert await world.names() == ["large", "late"]
    await world.deciders.scheduling.delete_binding("shop", "large")
    await world.settle()
    assert world.placed == ["late"]


@asynccontextmanager
async def running(keeper: QueueKeeper) -> Any:
    task = asyncio.create_task(keeper.run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_it_is_woken_by_what_happens(world: World) -> None:
    await world.ask("one")
    await world.settle()
    done = asyncio.Event()
    world.placed.clear()
    world.keeper._placed = lambda _: done.set()
    async with running(world.keeper):
        await world.report("b", 5)
        await asyncio.wait_for(done.wait(), 60)
