"""Who is overtaken for too long, and profiles in which nobody overtakes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from federation.model.placement import PreemptionPolicy
from federation.model.waiting import WaitState
from federation.scheduler.plugins.profile import (
    DEFAULT_PROFILE,
    Profile,
    Profiles,
)
from federation.services.journal_ports import PreemptionLimits
from federation.services.scheduling.bindings import Scheduling
from lab.services import Agents, apply, make_deciders
from tests.unit.services.conftest import only
from tests.unit.services.waiting.conftest import World, small


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


async def test_who_may_preempt_no_more_within_this_minute_is_tried_again_by_itself(
    world: World,
) -> None:
    limits = PreemptionLimits(replicas=0, in_namespace=0)
    world.deciders = make_deciders(
        world.store, world.fleet, Agents(), world.clock, preemption_limits=limits
    )
    await world.take_over()
    await world.deciders.scheduling.delete_binding("shop", "on-b")
    victim = small("victim", priority=-5, replicas=3)
    assert not (await apply(world.deciders.scheduling, victim)).queued
    preempting = PreemptionPolicy.PREEMPT_LOWER_PRIORITY
    await world.ask("urgent", placement=only("b").placement, preemption_policy=preempting)
    assert await world.settle() == ["urgent"]
    (urgent,) = await world.waits()
    assert urgent.wait.state is WaitState.BACKOFF
    world.clock.time += 1.5
    assert await world.settle() == ["urgent"]
