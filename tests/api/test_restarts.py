"""A restart at any point loses no binding that waits, nor how it waits, nor an eviction.

One control plane after the other on one database: each ends in the middle of what it does, and the
next one knows nothing but what is stored.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio

from federation.scheduler.plugins.profile import DEFAULT_PROFILE, Profiles
from federation.v1.resource_pb2 import Gang
from federation.v1.scheduling_pb2 import WAIT_STATE_BACKOFF
from lab.commanded_stores import CommandedStore
from lab.control_planes import running_control_plane
from lab.held_clocks import HeldClock
from lab.patience import until
from tests.api.test_preemption import urgent
from tests.api.world import SETTLER, World

CORES = {"a": 3, "b": 2, "c": 1}
STARVING = Profiles.of([replace(DEFAULT_PROFILE, starvation_seconds=4.0)])
LOW = {"priority": -5}


class Restarted(World):
    """What a test has of one control plane after the other."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url, self._folder = url, folder
        self._stack = AsyncExitStack()

    async def start(self) -> None:
        store = CommandedStore()
        plane = await self._stack.enter_async_context(
            running_control_plane(
                self._url,
                self._folder,
                STARVING,
                clock=self.clock,
                store=store,
                heartbeat_seconds="3600",
            )
        )
        self.plane, self.store = plane, store

    async def begin(self) -> None:
        self.clock = HeldClock()
        await self.start()
        super().__init__(self.plane, self.clock, self.store)

    async def stop(self) -> None:
        await self._stack.aclose()

    async def restart(self) -> None:
        await self.restart_alone()
        await self.reconnect()

    async def restart_alone(self) -> None:
        """Start the next one, which hears no agent yet."""
        for agent in self.agents.values():
            await agent.leave()
        await self.stop()
        await self.start()

    async def reconnect(self) -> None:
        for agent in self.agents.values():
            await agent.restart(self.plane)
            await agent.report()


@pytest_asyncio.fixture(loop_scope="module")
async def restarted(database_url: str, tmp_path: Path) -> AsyncIterator[Restarted]:
    made = Restarted(database_url, tmp_path)
    await made.begin()
    await made.use_settler()
    yield made
    for agent in made.agents.values():
        await agent.leave()
    await made.stop()


async def waits(world: World) -> dict[str, Any]:
    """How each binding waits, but for what an attempt changes."""
    found = {each.name: each.wait for each in await world.queue()}
    for wait in found.values():
        wait.ClearField("attempts")
        wait.ClearField("short_of")
    return found


async def test_how_bindings_wait_outlives_a_control_plane(restarted: Restarted) -> None:
    """Back-off, earmark, gang, suspension, and what was preempted for whom."""
    world = restarted
    await world.clusters(**CORES)
    for cluster, cores in CORES.items():
        await world.schedule(f"on-{cluster}", cores, only=[cluster], **LOW)
    key = f"{world.namespace}/on-a"
    await world.agents["a"].report(cores=0, sees={key: 3})
    await world.settle()
    # What is urgent waits for what runs to leave a; in b a large one is overtaken for too long.
    await world.ask("urgent", replicas=2, only=["a"], **urgent())
    await world.ask("large", replicas=2, only=["b"])
    await world.report("b", 3)
    await world.settle()
    await world.schedule("overtaker", only=["b"])
    await world.settle()
    await world.pass_until(
        lambda: world.wait_of("large"), lambda wait: wait.HasField("earmarked_since")
    )
    await world.ask("member", gang=Gang(name="train", size=2), only=["c"])
    await world.ask("suspended", only=["c"])
    await world.ask_of("SuspendBinding", "suspended")
    await world.ask("unlucky", only=["c"])
    await world.settle()
    world.store.fail_at("bindings.lock_all")
    await world.report("c", 2)
    await until(lambda: world.wait_of("unlucky"), lambda w: w.state == WAIT_STATE_BACKOFF)
    before, evicted = await waits(world), await world.got("on-a")
    assert evicted.binding.spec.graceful_eviction_tasks
    assert before["urgent"].nominated.shares
    await world.restart_alone()
    assert await waits(world) == before
    await world.reconnect()
    after = await world.got("on-a")
    assert after.binding.spec == evicted.binding.spec
    # Everything goes on from there.
    await world.report("b", 4)
    late = await world.schedule("late", only=["b"])
    assert "room is kept for" in late.decision.reason
    world.clock.advance(15)
    await world.until_placed("unlucky", c=1)
    await world.agents["a"].report(cores=3, sees={})
    await world.until_placed("urgent", a=2)
    await world.report("c", 9)
    assert not (await world.schedule("second", gang=Gang(name="train", size=2))).queued
    await world.until_placed("member", c=1)
    await world.report("b", 9)
    await world.until_placed("large", b=2)
    await world.until_placed("late", b=1)
    await world.ask_of("SuspendBinding", "suspended", resume=True)
    await world.until_placed("suspended", c=1)


@pytest.mark.parametrize("seed", range(2))
async def test_who_was_answered_waits_or_is_placed_wherever_it_was_cut_off(
    restarted: Restarted, seed: int
) -> None:
    world, choices = restarted, random.Random(seed)
    await world.clusters(**CORES)
    wanted: dict[str, int] = {}
    free = dict(CORES)
    cut_off = 0
    for number in range(3):
        world.store.cut_off_after(choices.randint(0, 40))
        for each in range(4):
            name, replicas = f"w{number}-{each}", choices.randint(1, 3)
            only = choices.sample(sorted(CORES), choices.randint(1, 3))
            with suppress(grpc.aio.AioRpcError):
                await world.schedule(name, replicas, only=only, priority=choices.randint(0, 1))
                wanted[name] = replicas
        cut_off += not world.store.is_reachable
        since = {name: wait.since for name, wait in (await known_waits(world)).items()}
        await world.restart()
        # And while what waits is tried, because capacity shows.
        world.store.cut_off_after(choices.randint(0, 40))
        cluster = choices.choice(sorted(CORES))
        free[cluster] += 2
        reporting = asyncio.create_task(world.report(cluster, free[cluster]))
        await until(partial(settled, world, reporting), bool)
        reporting.cancel()
        await asyncio.gather(reporting, return_exceptions=True)
        await world.restart()
        found = await waits(world)
        for name, replicas in wanted.items():
            placed = sum((await world.shares(name)).values())
            assert placed in (0, replicas)
            assert (name in found) == (placed == 0)
        assert {n: w.since for n, w in found.items() if n in since} == {
            n: at for n, at in since.items() if n in found
        }
    assert cut_off
    for cluster in CORES:
        await world.report(cluster, 100)
    await world.until_queued()
    assert {name: sum((await world.shares(name)).values()) for name in wanted} == wanted
    assert SETTLER in world.agents


async def settled(world: World, reporting: asyncio.Task[None]) -> bool:
    """Whether a report is stored, or never will be."""
    await asyncio.sleep(0)
    return reporting.done() or not world.store.is_reachable


async def known_waits(world: World) -> dict[str, Any]:
    """Nothing where the database cannot be reached."""
    try:
        return await waits(world)
    except grpc.aio.AioRpcError:
        return {}
