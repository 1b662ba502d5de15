"""Fresh reports: asked for once much was promised, and before a refusal for want of capacity."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from federation.services.fleet.report_requests import (
    ALLOCATABLE_PART,
    MAX_DECISIONS,
    MAX_REPORTS_BEFORE_REFUSALS,
)
from federation.services.scheduling.fresh_reports import MAX_REPORTS_REQUESTED
from federation.v1.scheduling_pb2 import OUTCOME_NO_FIT, OUTCOME_UNSCHEDULABLE
from lab.patience import PATIENCE_SECONDS, until
from tests.api.world import World, shares

WAIT = "federation.services.scheduling.fresh_reports.WAIT_SECONDS"


async def begin(world: World) -> None:
    """Of cluster a, which has 6 free cores, 4 are promised, and no report shows it."""
    await world.clusters(a=6, b=6)
    assert await world.placed("before", 4, "a") == {"a": 4}
    await forget_requests(world)


async def forget_requests(world: World) -> None:
    """From now on reports may be asked for again."""
    await asked(world, "a", 1)
    world.clock.advance(1)
    for agent in world.agents.values():
        agent.resyncs.clear()


async def asked(world: World, cluster: str, times: int) -> None:
    """Return once the cluster's agent was asked so often."""

    async def count() -> int:
        await world.queued()
        return len(world.agents[cluster].resyncs)

    assert await until(count, lambda found: found >= times) == times


def ask(world: World, name: str, replicas: int) -> asyncio.Task[Any]:
    return asyncio.create_task(world.placed(name, replicas, "a", wait=False))


async def test_what_finds_room_in_a_fresh_report_is_placed_and_others_do_not_wait(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WAIT, PATIENCE_SECONDS)
    await begin(world)
    large, larger = ask(world, "large", 4), ask(world, "larger", 100)
    await asked(world, "a", 1)
    again = ask(world, "large", 1)
    assert await world.placed("small", 1, "a") == {"a": 1}
    assert not any(each.done() for each in (large, larger, again))
    await world.report("a", 16)
    assert await large == {"a": 4}
    # What is asked for later is decided later; who needs the same report waits for that one.
    assert await again == {"a": 1}
    assert await larger == {}
    # Of an atomic batch all are decided once more.
    assert await world.placed("more", 9, "a") == {"a": 9}
    await forget_requests(world)
    items = [world.workload(f"w{n}", n, only=["a"]) for n in (1, 6)]
    batch = asyncio.create_task(world.batch(*items, atomic=True))
    await asked(world, "a", 1)
    assert not batch.done()
    await world.report("a", 32)
    assert [shares(each.decision) for each in await batch] == [{"a": 1}, {"a": 6}]


async def test_without_a_report_it_is_refused_once_it_waited(world: World) -> None:
    await begin(world)
    assert await world.placed("large", 4, "a", wait=False) == {}
    # The agent was just asked.
    assert await world.placed("other", 4, "a", wait=False) == {}
    await asked(world, "a", 1)
    world.clock.advance(1)
    assert await world.placed("third", 4, "a", wait=False) == {}
    await asked(world, "a", 2)
    # Nobody is asked where reports show all, where capacity is not what lacks, or who is away.
    unseen = await world.schedule("elsewhere", 9, only=["b"], wait=False)
    assert unseen.decision.outcome == OUTCOME_UNSCHEDULABLE
    nowhere = await world.schedule("nowhere", 9, only=["unknown"], wait=False)
    assert nowhere.decision.outcome == OUTCOME_NO_FIT
    await world.agents["a"].leave()
    world.clock.advance(1)
    assert await world.placed("fourth", 4, "a", wait=False) == {}
    assert (len(world.agents["a"].resyncs), world.agents["b"].resyncs) == (2, [])


async def test_agents_are_asked_in_moderation_before_refusals(world: World) -> None:
    names = [f"m{number:02}" for number in range(3 * MAX_REPORTS_REQUESTED)]
    await world.clusters(**dict.fromkeys(names, 2))
    await world.batch(*(world.workload(name, 2, only=[name]) for name in names))
    world.clock.advance(60)
    # Some were asked because much was promised there.
    before = sum(len(agent.resyncs) for agent in world.agents.values())
    for number in range(3):
        only = names[number * MAX_REPORTS_REQUESTED : (number + 1) * MAX_REPORTS_REQUESTED]
        assert await world.placed(f"w{number}", 99, *only, wait=False) == {}
    await world.queued()

    async def count() -> int:
        await world.queued()
        return sum(len(agent.resyncs) for agent in world.agents.values()) - before

    most = int(MAX_REPORTS_BEFORE_REFUSALS)
    assert await until(count, lambda found: found >= most) == most


async def test_a_fresh_report_is_asked_for_once_much_was_promised(world: World) -> None:
    """After ten decisions, or a twentieth of the cluster; once a second, and not after a report."""
    await world.clusters(a=100)
    tiny: dict[str, Any] = {"request": {"cpu": "1m"}}
    for number in range(MAX_DECISIONS - 1):
        await world.placed(f"w{number}", 1, "a", **tiny)
    assert world.agents["a"].resyncs == []
    for number in range(3):
        await world.placed(f"x{number}", 1, "a", **tiny)
    await asked(world, "a", 1)
    world.clock.advance(1)
    await world.placed("y", 1, "a", **tiny)
    await asked(world, "a", 2)
    await world.report("a", 100)
    world.clock.advance(1)
    part = 100 // ALLOCATABLE_PART
    assert await world.placed("less", part - 1, "a") == {"a": part - 1}
    await asked(world, "a", 2)
    await world.placed("enough", 1, "a")
    await asked(world, "a", 3)
