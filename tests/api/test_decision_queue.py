"""Who is decided together, and in which order, while a transaction holds everybody up."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from federation.services.scheduling import queue
from federation.services.scheduling.queue import MIN_BATCH
from lab.patience import until
from tests.api.world import World, code_of, shares

CORES = 1000
# Smaller than the product's own, so that fewer bindings are more than one takes.
MAX_BATCH = 3 * MIN_BATCH


@pytest.fixture(autouse=True)
def _smaller_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "MAX_BATCH", MAX_BATCH)


async def begin(world: World) -> None:
    await world.clusters(a=1)
    await world.agents["a"].report(cores=CORES, pods=2 * CORES)


@asynccontextmanager
async def held_up(world: World) -> AsyncIterator[list[asyncio.Task[Any]]]:
    """What is asked for meanwhile waits for a decision that is being committed; then for all."""
    is_reached, goes_on = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        is_reached.set()
        await goes_on.wait()

    world.store.before("decisions.add_all", hold)
    first = asyncio.create_task(world.schedule("first"))
    await is_reached.wait()
    tasks: list[asyncio.Task[Any]] = []
    yield tasks
    goes_on.set()
    await asyncio.gather(first, *tasks, return_exceptions=True)


async def ask(world: World, tasks: list[asyncio.Task[Any]], call: Any) -> None:
    """Make a call, and return once the control plane has it."""
    tasks.append(asyncio.create_task(call))
    for _ in range(2):
        await world.queued()


async def committed(world: World) -> list[list[str]]:
    """Names by transaction, in order."""
    rows = await world.plane.sql(
        "SELECT name, xmin::text AS transaction FROM decision WHERE namespace = $1 "
        "ORDER BY created_at, name",
        world.namespace,
    )
    batches: dict[str, list[str]] = {}
    for name, transaction in rows:
        batches.setdefault(transaction, []).append(name)
    return list(batches.values())


def first_batch_of(batches: list[list[str]], name: str) -> int:
    return next(number for number, batch in enumerate(batches) if name in batch)


async def test_the_most_urgent_go_first_and_requests_take_turns(world: World) -> None:
    await begin(world)
    async with held_up(world) as tasks:
        bulk = [world.workload(f"bulk-{n:03}") for n in range(2 * MAX_BATCH)]
        await ask(world, tasks, world.batch(*bulk))
        other = [world.workload(f"other-{n:03}") for n in range(20)]
        await ask(world, tasks, world.batch(*other))
        for name, priority in (("web", 0), ("db", 0), ("urgent", 9)):
            await ask(world, tasks, world.schedule(name, priority=priority))
    batches = await committed(world)
    places = {name: first_batch_of(batches, name) for name in ("urgent", "web", "db")}
    # What is decided already while the first one is committed goes on; then come those alone.
    last = len(batches) - 1
    assert places["urgent"] <= places["web"] <= places["db"] < last
    assert first_batch_of(batches, "other-019") < last
    assert max(map(len, batches)) <= MAX_BATCH
    assert (
        Counter(name for batch in batches for name in batch).total() == 1 + 2 * MAX_BATCH + 20 + 3
    )


async def test_the_less_urgent_wait_for_all_others(world: World) -> None:
    await begin(world)
    count = 2 * MAX_BATCH
    async with held_up(world) as tasks:
        for name, priority in (("low", -5), ("normal", 0)):
            items = [world.workload(f"{name}-{n:03}", priority=priority) for n in range(count)]
            await ask(world, tasks, world.batch(*items))
    batches = await committed(world)
    last = first_batch_of(batches, f"normal-{count - 1:03}")
    # Some were decided while nobody else had asked.
    before = [name for batch in batches[:last] for name in batch if name.startswith("low")]
    assert len(before) <= MAX_BATCH


async def test_many_that_ask_for_one_each_go_together(world: World) -> None:
    await begin(world)
    async with held_up(world) as tasks:
        for number in range(2 * MIN_BATCH):
            tasks.append(asyncio.create_task(world.schedule(f"w{number:02}")))
        await world.queued()
    batches = await committed(world)
    assert len(batches) <= 6


async def test_what_is_asked_of_one_binding_twice_stays_in_order(world: World) -> None:
    await begin(world)
    async with held_up(world) as tasks:
        for replicas in (2, 3, 4):
            await ask(world, tasks, world.schedule("web", replicas))
        await ask(world, tasks, world.schedule("db"))
    assert [shares((await each).decision) for each in tasks] == [
        {"a": 2},
        {"a": 3},
        {"a": 4},
        {"a": 1},
    ]
    generations = [(await each).decision.binding_generation for each in tasks]
    assert generations == [1, 2, 3, 1]


async def test_an_atomic_batch_goes_as_a_whole_and_waits_for_what_it_shares(world: World) -> None:
    await begin(world)
    async with held_up(world) as tasks:
        await ask(world, tasks, world.schedule("shared", 2))
        many = [world.workload(f"w{n:03}") for n in range(MAX_BATCH + 5)]
        items = [*many, world.workload("shared", 3)]
        await ask(world, tasks, world.batch(*items, atomic=True))
        await ask(world, tasks, world.schedule("late"))
    batches = await committed(world)
    (whole,) = [batch for batch in batches if "w000" in batch]
    assert sorted(whole) == sorted([*(each.metadata.name for each in many), "shared"])
    assert first_batch_of(batches, "shared") < batches.index(whole)
    assert await world.shares("shared") == {"a": 3}


async def test_no_more_may_wait_than_there_is_patience_for_and_who_leaves_gives_way(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begin(world)
    monkeypatch.setattr("federation.services.scheduling.queue.MAX_WAITING", 2)
    async with held_up(world) as tasks:
        # Of the same binding: they wait for the one that is being committed.
        for replicas in (2, 3):
            await ask(world, tasks, world.schedule("first", replicas))
        refusal = await code_of(world.schedule("first", 9))
        assert refusal is grpc.StatusCode.RESOURCE_EXHAUSTED
        batch = [world.workload(name) for name in "xyz"]
        assert await code_of(world.batch(*batch, atomic=True)) is refusal
        tasks[1].cancel()

        async def is_taken() -> bool:
            late = asyncio.create_task(world.schedule("first", 7))
            for _ in range(2):
                await world.queued()
            if late.done():
                return late.exception() is None
            tasks.append(late)
            return True

        await until(is_taken, bool)
    assert await world.shares("first") == {"a": 7}
    assert [batch for batch in await committed(world) if "x" in batch] == []
