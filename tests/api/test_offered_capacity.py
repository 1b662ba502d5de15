"""Offered capacity may be promised, and no more of it, whichever way a promise is made.

The clusters and workloads are drawn. A preview of a workload says what is offered now. The same
amount is then asked for in another way: by growth, a preview's token, a gang, an atomic batch or a
plan. Or another control plane takes some of it meanwhile.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from federation.v1.rebalance_pb2 import PLAN_KIND_DRAIN
from federation.v1.resource_pb2 import Gang, TargetCluster
from lab.commanded_stores import CommandedStore
from lab.control_planes import running_control_plane
from lab.held_clocks import HeldClock
from tests.api.world import World, code_of, shares

SEEDS = range(12)
READ, COMMIT = "bindings.to_decide", "journal.lock"
TURNS = 200
CORES = ("1", "2", "3", "5")


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A cluster named ``big`` with promises in it, and two more workloads by their cores."""

    world: World
    source: random.Random
    small: str
    large: str

    @classmethod
    async def of(cls, world: World, seed: int, rival: World | None = None) -> Drawn:
        source = random.Random(seed)
        await world.clusters(big=1, spare=0)
        nodes, cores = source.randint(3, 12), source.choice((6, 8, 15, 16))
        await world.agents["big"].report(cores=cores, node_count=nodes, pods=500)
        for number in range(source.randint(0, 3)):
            replicas, request = source.randint(1, nodes), source.choice(CORES)
            await world.placed(f"other{number}", replicas, "big", request={"cpu": request})
        # A cluster is packed anew where something leaves it: from here on that changes nothing.
        await world.placed("gone", 1, "big")
        await world.delete("gone")
        if rival is not None:
            await rival.plane.follow()
        small, large = sorted(source.sample(CORES, 2))
        return cls(world=world, source=source, small=small, large=large)

    async def offered(self, cores: str, name: str = "asks") -> int:
        """Replicas that are offered beside those of the workload of this name."""
        shown = await self.world.schedule(
            name, 1, only=["big"], request={"cpu": cores}, preview=True, wait=False
        )
        (cluster,) = [one for one in shown.decision.trace.clusters if one.name == "big"]
        return int(cluster.available_replicas)

    async def fits(self, replicas: int, cores: str) -> bool:
        """Whether a preview of so many replicas of a new workload places them."""
        return bool(await self.preview(replicas, cores))

    async def preview(self, replicas: int, cores: str, name: str = "asks") -> Any:
        """The answer of a preview that places so many replicas; None of one that does not."""
        shown = await self.world.schedule(
            name, replicas, only=["big"], request={"cpu": cores}, preview=True, wait=False
        )
        return shown if shares(shown.decision) else None

    async def is_placed(self, replicas: int, cores: str, name: str = "web") -> bool:
        """Whether so many replicas are placed for good."""
        placed = await self.world.placed(name, replicas, "big", request={"cpu": cores}, wait=False)
        return placed == {"big": replicas}

    def near(self, amount: int) -> int:
        """An amount near this one, often itself or one more."""
        return max(1, amount + self.source.choice((-2, -1, 0, 0, 0, 1, 1, 2)))


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_new_workload_is_promised_what_is_offered(world: World, seed: int) -> None:
    drawn = await Drawn.of(world, seed)
    for cores in (drawn.large, drawn.small):
        offered = await drawn.offered(cores)
        if offered:
            assert await drawn.is_placed(offered, cores)
            await world.delete()
        # A second look may offer more, and says so.
        beyond = await drawn.preview(offered + 1, cores)
        if beyond is not None:
            (cluster,) = [one for one in beyond.decision.trace.clusters if one.name == "big"]
            assert cluster.available_replicas > offered
        assert await drawn.is_placed(offered + 1, cores) is (beyond is not None)
        if beyond is not None:
            await world.delete()


@pytest.mark.parametrize("seed", SEEDS)
async def test_what_grows_is_promised_what_is_offered_beside_it(world: World, seed: int) -> None:
    drawn = await Drawn.of(world, seed)
    cores = drawn.large
    held = min(await drawn.offered(cores), drawn.source.randint(1, 6))
    if not held:
        return
    assert await drawn.is_placed(held, cores)
    await world.placed("late", drawn.source.randint(1, 9), "big", request={"cpu": drawn.small})
    # What does not grow stays, whatever came beside it.
    assert await drawn.is_placed(held, cores)
    beside = await drawn.offered(cores, "web")
    assert await drawn.is_placed(held + beside + 1, cores) is False
    assert await world.shares() == {"big": held}
    assert await drawn.is_placed(held + beside, cores)
    # The difference was packed behind all else: nothing has moved, and no more is offered.
    assert await drawn.offered(cores, "web") == 0


@pytest.mark.parametrize("seed", range(6))
async def test_all_control_planes_offer_the_same_beside_what_grew_and_ran_and_shrank(
    world: World, seed: int, module_database_url: str, clock: HeldClock, module_folder: Path
) -> None:
    """Also one that starts in between and reads what is stored, and whichever of them decides."""
    drawn = await Drawn.of(world, seed)
    cores, agent, web = drawn.large, world.agents["big"], f"{world.namespace}/web"
    held = min(await drawn.offered(cores), drawn.source.randint(2, 5))
    if held < 2:
        return
    assert await drawn.is_placed(held, cores)
    await world.placed("late", drawn.source.randint(1, 5), "big", request={"cpu": drawn.small})
    grown = held + min(await drawn.offered(cores, "web"), drawn.source.randint(1, 3))
    assert await drawn.is_placed(grown, cores)
    await world.placed("later", drawn.source.randint(1, 5), "big", request={"cpu": drawn.small})
    requests = {web: {"cpu": 1000 * int(cores)}}
    # Pods of the first promise run; of the second there are none yet.
    await agent.report(sees={web: held - 1}, requests=requests)
    store = CommandedStore()
    started = running_control_plane(
        module_database_url, module_folder, clock=clock, store=store, heartbeat_seconds="3600"
    )
    async with started as plane:
        at_other = replace(drawn, world=world.at(plane, store))
        beside = await drawn.offered(cores, "web")
        assert await at_other.offered(cores, "web") == beside
        assert await at_other.is_placed(grown + beside + 1, cores) is False
        assert await at_other.is_placed(grown + beside, cores)
        await world.plane.follow()
        assert await drawn.offered(cores, "web") == await at_other.offered(cores, "web") == 0
        for size in (drawn.small, cores):
            assert await drawn.offered(size) == await at_other.offered(size)
        # Less is taken from what was promised last: then it is offered again.
        for replicas in (grown, held, 1):
            assert await drawn.is_placed(replicas, cores)
            await agent.report(sees={web: held - 1}, requests=requests)
            await plane.follow()
            shrunk = await drawn.offered(cores, "web")
            assert await at_other.offered(cores, "web") == shrunk
            assert shrunk >= (beside if replicas == grown else 0)


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_preview_is_committed_where_it_would_be_shown_again(
    world: World, seed: int
) -> None:
    drawn = await Drawn.of(world, seed)
    replicas = drawn.near(await drawn.offered(drawn.large))
    shown = await drawn.preview(replicas, drawn.large)
    if shown is None:
        return
    await world.placed("late", drawn.source.randint(1, 9), "big", request={"cpu": drawn.small})
    is_shown_again = await drawn.fits(replicas, drawn.large)
    code = await code_of(world.commit(shown))
    assert (code is grpc.StatusCode.OK) is is_shown_again


@pytest.mark.parametrize("atomic", [True, False], ids=["batch", "gang"])
@pytest.mark.parametrize("seed", SEEDS)
async def test_what_is_placed_together_is_promised_what_is_offered_one_by_one(
    world: World, seed: int, atomic: bool
) -> None:
    drawn = await Drawn.of(world, seed)
    first = drawn.source.randint(1, 9)
    if not await drawn.is_placed(first, drawn.small, "first"):
        return
    second = drawn.near(await drawn.offered(drawn.large))
    fits = await drawn.fits(second, drawn.large)
    await world.delete("first")
    gang = {} if atomic else {"gang": Gang(name="train", size=2)}
    members = [
        world.workload(name, replicas, only=["big"], request={"cpu": cores}, **gang)
        for name, replicas, cores in (("a", first, drawn.small), ("b", second, drawn.large))
    ]
    results = await world.batch(*members, atomic=atomic)
    if atomic:
        assert [bool(shares(result.decision)) for result in results] == [fits, fits]
        return
    assert [bool(await world.shares(name)) for name in "ab"] == [fits, fits]


@pytest.mark.parametrize("seed", SEEDS)
async def test_what_another_control_plane_takes_meanwhile_is_not_offered_any_more(
    world: World, rival: World, seed: int
) -> None:
    """The shares are packed again under the lock, on what the other one left."""
    drawn = await Drawn.of(world, seed, rival)
    taken = min(await drawn.offered(drawn.small), drawn.source.randint(1, 20))
    taking = {"only": ["big"], "request": {"cpu": drawn.small}, "wait": False}
    replicas = drawn.near(await drawn.offered(drawn.large))
    if not taken:
        return
    await world.schedule("late", taken, **taking)
    fits = await drawn.fits(replicas, drawn.large)
    await world.delete("late")
    await rival.plane.follow()
    rival.store.before(COMMIT, lambda: world.schedule("late", taken, **taking))
    placed = await rival.placed("web", replicas, "big", request={"cpu": drawn.large}, wait=False)
    rival.store.forget_acts()
    assert bool(placed) is fits


@pytest.mark.parametrize("seed", SEEDS)
async def test_after_a_batch_that_failed_the_next_one_is_promised_what_is_offered(
    world: World, seed: int
) -> None:
    """The next batch was decided beside promises that were never made."""
    drawn = await Drawn.of(world, seed)
    first = min(await drawn.offered(drawn.small), drawn.source.randint(1, 9))
    if not first:
        return
    second = drawn.near(await drawn.offered(drawn.large))
    alone = await drawn.fits(second, drawn.large)
    follower: list[asyncio.Task[bool]] = []

    async def follow() -> None:
        follower.append(asyncio.create_task(drawn.is_placed(second, drawn.large)))

    async def fail() -> None:
        # Mostly the second one is read and decided by then, beside what the first one was promised.
        for _ in range(TURNS):
            await asyncio.sleep(0)
        raise ConnectionError

    world.store.before(READ, follow)
    world.store.before(COMMIT, fail)
    code = await code_of(
        world.schedule("lost", first, only=["big"], request={"cpu": drawn.small}, wait=False)
    )
    assert code is not grpc.StatusCode.OK
    assert await follower[0] is alone


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_plan_moves_what_is_offered(world: World, seed: int) -> None:
    drawn = await Drawn.of(world, seed)
    offered = await drawn.offered(drawn.large)
    replicas = drawn.near(offered)
    await world.agents["spare"].report(cores=16, node_count=replicas, pods=500)
    moved = world.workload("moved", replicas, only=["big", "spare"], request={"cpu": drawn.large})
    moved.spec.clusters.append(TargetCluster(name="spare", replicas=replicas))
    await world.schedule(moved, adopt=True)
    plan = (await world.plane.ask("CreatePlan", kind=PLAN_KIND_DRAIN, clusters=["spare"])).plan
    assert bool(plan.steps) is (replicas <= offered), plan
