"""The duty of the queue: what waits is tried when there may be room, in order, and no sooner."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import Any

from federation.model.placement import PreemptionPolicy
from federation.services.waiting.keeper import QueueKeeper
from federation.services.waiting.running import LostNews
from lab.services import apply
from tests.unit.services.conftest import ControlPlane, only
from tests.unit.services.waiting.conftest import World, binding, small


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


@asynccontextmanager
async def running(keeper: QueueKeeper) -> Any:
    task = asyncio.create_task(keeper.run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


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
