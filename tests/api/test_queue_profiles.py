"""What profiles say of the queue: who is starved, who may overtake, and in which order."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from federation.model.arrays import FloatArray
from federation.scheduler.plugins.profile import DEFAULT_PROFILE, Profiles, QueueSort
from federation.scheduler.state import SortState
from federation.v1.resource_pb2 import Gang
from lab.patience import until
from tests.api.world import World

FAILED = "a queueSort plugin failed: its bindings stand by since when they wait"


def smallest_first(state: SortState) -> FloatArray:
    return np.array([each.replicas for each in state.bindings], dtype=np.float64)


class Sort:
    """A plugin that a test may exchange."""

    def __init__(self) -> None:
        self.run: Callable[[SortState], FloatArray] = smallest_first

    def __call__(self, state: SortState) -> FloatArray:
        return self.run(state)


SORT = Sort()


@pytest.fixture(scope="module")
def profiles() -> Profiles:
    sort = QueueSort(name="Sort", run=SORT)
    return Profiles.of(
        [
            replace(DEFAULT_PROFILE, starvation_seconds=4.0),
            replace(DEFAULT_PROFILE, name="strict", strict=True),
            replace(DEFAULT_PROFILE, name="sorted", queue_sort=sort),
        ]
    )


async def starve(world: World) -> None:
    """A large binding waits, and small ones were placed before it for too long."""
    await world.fill()
    await world.ask("large", replicas=2, only=["b"])
    await world.report("b", 4)
    await world.settle()
    assert not (await world.schedule("overtaker", only=["b"])).queued
    await world.settle()
    await world.pass_until(
        lambda: world.wait_of("large"), lambda wait: wait.HasField("earmarked_since")
    )


async def test_room_is_kept_for_who_was_overtaken_for_too_long(world: World) -> None:
    await starve(world)
    await world.report("b", 5)
    await world.settle()
    # One core is free: it is kept, but not from who is more urgent.
    late = await world.schedule("late", only=["b"])
    assert late.queued
    assert f"room is kept for {world.namespace}/large" in late.decision.reason
    assert not (await world.schedule("urgent", only=["b"], priority=5)).queued
    await world.report("b", 7)
    await world.until_placed("large", b=2)
    # Nothing is kept any more, and who was kept out is tried.
    await world.report("b", 8)
    await world.until_placed("late", b=1)


async def test_what_is_kept_for_one_that_goes_is_for_the_others(world: World) -> None:
    await starve(world)
    await world.report("b", 5)
    assert (await world.schedule("late", only=["b"])).queued
    await world.settle()
    await world.delete("large")
    await world.until_placed("late", b=1)


async def test_an_earmark_lasts_until_the_binding_is_changed(world: World) -> None:
    await starve(world)
    await world.ask("large", replicas=3, only=["b"])
    await world.settle()
    wait = await world.wait_of("large")
    assert not wait.HasField("earmarked_since")
    assert not wait.HasField("overtaken_since")


async def test_room_is_kept_for_a_gang_from_others_and_not_from_itself(world: World) -> None:
    await world.fill()
    gang = Gang(name="train", size=3)
    await world.ask(*"abc", gang=gang, replicas=2)
    await world.report("a", 8)
    await world.settle()
    assert not (await world.schedule("web", 2, only=["a"])).queued
    await world.settle()
    assert {each.wait.overtaken_by for each in await world.queue()} == {f"{world.namespace}/web"}
    await world.pass_until(
        world.queue, lambda rows: all(each.wait.HasField("earmarked_since") for each in rows)
    )
    await world.report("a", 12)
    late = await world.schedule("late", only=["a"])
    assert late.queued
    kept = ", ".join(f"{world.namespace}/{name}" for name in "abc")
    assert f"room is kept for {kept}" in late.decision.reason
    await world.report("a", 14)
    await world.until_queued("late")


async def test_nobody_overtakes_the_first_of_a_strict_profile_where_both_may_go(
    world: World,
) -> None:
    await world.fill()
    await world.ask("large", replicas=2, only=["b"], scheduler_name="strict")
    await world.settle()
    for cluster in ("b", "c"):
        await world.report(cluster, 4)
    late = await world.schedule("late", only=["b"], scheduler_name="strict")
    assert late.queued
    assert f"room is kept for {world.namespace}/large" in late.decision.reason
    assert not (await world.schedule("elsewhere", only=["c"], scheduler_name="strict")).queued
    urgent = await world.schedule("urgent", only=["b"], priority=5, scheduler_name="strict")
    assert not urgent.queued
    await world.report("b", 5)
    await world.settle()
    assert await world.queued() == ["large", "late"]
    await world.delete("large")
    await world.until_placed("late", b=1)


async def positions(world: World) -> list[tuple[str, int]]:
    return [(each.name, each.wait.position) for each in await world.queue()]


async def test_a_plugin_orders_those_of_equal_priority(world: World) -> None:
    await world.fill()
    ours = {"scheduler_name": "sorted"}
    await world.ask("five", replicas=5, **ours)
    await world.ask("three", replicas=3, **ours)
    await world.ask("urgent", replicas=9, priority=1, **ours)
    await world.ask("b", "a", replicas=2, gang=Gang(name="pair", size=2), **ours)
    await world.settle()
    expected = [("urgent", 1), ("a", 2), ("b", 2), ("three", 3), ("five", 4)]
    assert await positions(world) == expected
    assert (await world.wait_of("three")).position == 3
    await world.report("a", 13)
    await world.settle()
    # Nine find no room in seven; who is small does.
    assert await positions(world) == [("urgent", 1), ("five", 2)]


async def test_a_plugin_that_fails_or_hangs_leaves_the_order_as_it_was(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    ends, asked = threading.Event(), list[int]()

    def odd(state: SortState) -> FloatArray:
        asked.append(len(state.bindings))
        if len(asked) == 1:
            raise ValueError("not today")
        if len(asked) == 2:
            ends.wait()
        if len(asked) == 3:
            return np.full(len(state.bindings), np.nan)
        return smallest_first(state)

    await world.fill()
    SORT.run = odd
    names = {"five": 5, "three": 3, "four": 4}
    for name, count in names.items():
        await world.ask(name, replicas=count, scheduler_name="sorted")
    await world.settle()
    as_it_was = [("five", 1), ("three", 2), ("four", 3)]
    assert await positions(world) == as_it_was
    # It rests for a minute after each failure; then it hangs, and then makes no sense.
    for times in (2, 3):
        world.clock.advance(61)
        await until(world.queue, lambda _, times=times: len(asked) == times)
        await world.settle()
        assert await positions(world) == as_it_was
        ends.set()
    world.clock.advance(61)
    await until(
        lambda: positions(world), lambda rows: rows == [("three", 1), ("four", 2), ("five", 3)]
    )
    SORT.run = smallest_first
    told = [record for record in caplog.records if record.message == FAILED]
    assert [vars(record)["fields"]["plugin"] for record in told] == ["Sort"] * 3
