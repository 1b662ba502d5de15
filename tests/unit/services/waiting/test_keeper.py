"""The duty of the queue: what waits is tried when there may be room, in order, and no sooner."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from federation.model.errors import Unavailable
from federation.model.placement import ClusterAffinity, Placement
from federation.model.waiting import WaitState
from federation.scheduler.decision import Outcome
from federation.scheduler.triggers import QUEUE_TRIED
from federation.services.journal import ClusterChanged
from federation.services.members.lifecycle import Membership
from federation.services.waiting.keeper import QueueKeeper
from federation.services.waiting.running import LostNews
from federation.services.waiting.steering import Queueing
from federation.services.waiting.touched import OPEN_SECONDS
from federation.store.postgres import PostgresStore
from lab.services import WEB, Deciders, UnsteadyStore, apply, decided
from tests.unit.services.conftest import ControlPlane, Streams, only
from tests.unit.services.waiting.conftest import World, binding


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


async def test_while_nobody_waits_nothing_is_done_about_what_happens(world: World) -> None:
    await world.settle()
    world.keeper._wake.clear()
    await world.report("a", 7)
    assert not (await apply(world.deciders.scheduling, binding("placed"))).queued
    assert not world.keeper._wake.is_set()
    await world.ask("large", replicas=20)
    assert world.keeper._wake.is_set()
    await world.settle()
    world.keeper._wake.clear()
    await world.report("a", 5)
    assert world.keeper._wake.is_set()


async def test_a_refusal_in_vain_leaves_the_decision_and_tells_what_is_short_by_now(
    world: World,
) -> None:
    scheduling = world.deciders.scheduling
    await world.ask("large", replicas=14)
    before = (await scheduling.get_binding("shop", "large")).record
    await world.settle()
    await world.report("a", 7)
    assert await world.settle() == ["large"]
    view = await scheduling.get_binding("shop", "large")
    assert view.record is not None
    assert before is not None
    assert view.record.id == before.id
    assert view.wait is not None
    assert (view.wait.attempts, view.wait.short_of) == (3, "cpu in 3 clusters")


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


async def test_a_decision_of_the_queue_says_that_the_queue_tried_it(world: World) -> None:
    await world.ask("one", replicas=2)
    await world.report("b", 5)
    await world.settle()
    scheduling = world.deciders.scheduling
    placed = await scheduling.get_binding("shop", "one")
    assert placed.record.decision.trace.triggers == (QUEUE_TRIED, "it was never placed")
    # One that had a place, and waits again: nothing that its owner asks for has changed.
    moved = replace(placed.binding, placement=only("c", 2).placement)
    assert (await apply(scheduling, moved)).queued
    await world.report("c", 8)
    await world.settle()
    again = await scheduling.get_binding("shop", "one")
    assert {each.name: each.replicas for each in again.binding.clusters} == {"c": 2}
    assert again.record.decision.trace.triggers[0] == QUEUE_TRIED
    assert "asked again, nothing changed" not in again.record.decision.trace.triggers


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


async def test_what_is_duplicated_grows_in_a_cluster_that_is_heard_again(world: World) -> None:
    await world.report("b", 9)
    await world.report("c", 9)
    everywhere = Placement(affinity=ClusterAffinity(cluster_names=("b", "c")))
    asked = binding("everywhere", replicas=2, placement=everywhere)
    assert not (await apply(world.deciders.scheduling, asked)).queued
    present = world.fleet.known("b").presence
    world.fleet.put_presence("b", replace(present, silent_after=world.clock.now() - 1))
    answer = await apply(world.deciders.scheduling, replace(asked, replicas=4))
    assert answer.queued
    assert (answer.record.decision.outcome, decided(answer)) == (Outcome.PARTIAL, {"b": 2, "c": 4})
    assert await world.settle() == ["everywhere"]
    assert await world.names() == ["everywhere"]
    # By a heartbeat: no change tells of it, so that it is looked for once a second.
    world.fleet.put_presence("b", present)
    world.clock.time += OPEN_SECONDS
    await world.settle()
    view = await world.deciders.scheduling.get_binding("shop", "everywhere")
    assert {each.name: each.replicas for each in view.binding.clusters} == {"b": 4, "c": 4}
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


async def test_a_round_that_the_database_ended_keeps_nobody_from_being_tried(world: World) -> None:
    """Who was taken to be tried, and was not read then, is not waited for for ever."""
    store = UnsteadyStore(world.store)
    world.keeper._store = store
    await world.ask("one", "two")
    store.reachable = False
    with pytest.raises(Unavailable):
        await world.keeper.do_round()
    store.reachable = True
    assert await world.settle() == ["one"]
    await world.report("b", 5)
    await world.settle()
    assert world.placed == ["one", "two"]


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


async def test_it_is_woken_by_a_cluster_that_is_heard_again(world: World) -> None:
    present = world.fleet.known("b").presence
    world.fleet.put_presence("b", replace(present, silent_after=world.clock.now() - 1))
    await world.report("b", 5)
    await world.ask("one")
    assert await world.settle() == ["one"]
    done = asyncio.Event()
    world.keeper._placed = lambda _: done.set()
    async with running(world.keeper):
        # It has nothing to do by then, and waits.
        await asyncio.sleep(0.5)
        world.fleet.put_presence("b", present)
        world.clock.time += OPEN_SECONDS
        await asyncio.wait_for(done.wait(), 60)


async def test_who_may_go_to_a_cluster_by_now_is_tried_when_that_has_room(world: World) -> None:
    labelled = Placement(affinity=ClusterAffinity(match_labels={"tier": "gold"}))
    await world.ask("gold", placement=labelled)
    assert await world.settle() == ["gold"]
    cluster = replace(world.fleet.known("b").state.cluster, labels={"tier": "gold"})
    world.fleet.put_cluster(replace(cluster, resource_version=cluster.resource_version + 1))
    world.keeper.changed(ClusterChanged(cluster="b"))
    # It may go there, and there is no room.
    assert await world.settle() == []
    await world.report("b", 5)
    assert await world.settle() == ["gold"]
    assert world.placed == ["gold"]
