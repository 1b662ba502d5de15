"""A plugin orders those of equal priority; one that fails or hangs harms nobody."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from federation.model.arrays import FloatArray
from federation.model.placement import Gang
from federation.scheduler.plugins.profile import DEFAULT_PROFILE, Profiles, QueueSort
from federation.scheduler.state import SortState
from federation.services.waiting import ordering
from lab.patience import PATIENCE_SECONDS
from lab.services import Deciders
from tests.unit.services.waiting.conftest import World

FAILED = "a queueSort plugin failed: its bindings stand by since when they wait"


def smallest_first(state: SortState) -> FloatArray:
    return np.array([each.replicas for each in state.bindings], dtype=np.float64)


async def ordered_by(world: World, run: Callable[[SortState], FloatArray]) -> None:
    sort = QueueSort(name="Sort", run=run)
    world.profiles = Profiles.of([replace(DEFAULT_PROFILE, queue_sort=sort)])
    await world.take_over()


async def positions(world: World) -> list[tuple[str, int]]:
    return [(each.name, each.position) for each in await world.waits()]


async def test_a_plugin_orders_those_of_equal_priority(world: World, deciders: Deciders) -> None:
    await world.ask("five", replicas=5)
    await ordered_by(world, smallest_first)
    await world.ask("three", replicas=3)
    await world.ask("urgent", replicas=9, priority=1)
    for name in ("b", "a"):
        await world.ask(name, replicas=2, gang=Gang(name="pair", size=2))
    await world.settle()
    expected = [("urgent", 1), ("a", 2), ("b", 2), ("three", 3), ("five", 4)]
    assert await positions(world) == expected
    assert (await deciders.scheduling.get_binding("shop", "three")).position == 3
    await world.report("a", 13)
    await world.settle()
    # Nine find no room in seven; who is small does.
    assert world.placed == ["a", "three"]
    assert await positions(world) == [("urgent", 1), ("five", 2)]


async def test_a_plugin_that_fails_or_hangs_leaves_the_order_as_it_was(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ordering, "LONGEST_SECONDS", PATIENCE_SECONDS)
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

    for name, replicas in (("five", 5), ("three", 3)):
        await world.ask(name, replicas=replicas)
    await ordered_by(world, odd)
    await world.ask("four", replicas=4)
    await world.settle()
    assert await positions(world) == [("five", 1), ("three", 2), ("four", 3)]
    # It was asked once, and told of once; a minute later it hangs, and then makes no sense.
    assert asked == [2]
    for times in (2, 3):
        # It is too slow only where it hangs, however slow the machine is.
        longest = 0.05 if times == 2 else PATIENCE_SECONDS
        monkeypatch.setattr(ordering, "LONGEST_SECONDS", longest)
        world.clock.time += 61
        await world.settle()
        ends.set()
        assert asked == [2, *[3] * (times - 1)]
        assert await positions(world) == [("five", 1), ("three", 2), ("four", 3)]
    world.clock.time += 61
    await world.settle()
    assert await positions(world) == [("three", 1), ("four", 2), ("five", 3)]
    told = [record for record in caplog.records if record.message == FAILED]
    assert [record.fields["plugin"] for record in told] == ["Sort"] * 3  # type: ignore[attr-defined]  # extra
