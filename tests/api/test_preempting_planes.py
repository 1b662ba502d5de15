"""Preemption by two control planes at once: strictly downwards, within the limits of any minute."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest

from federation.scheduler.preemption import SPENT
from tests.api.test_preemption import PARTIAL, urgent
from tests.api.world import World

CORES = {"a": 6, "b": 3, "c": 3}
MOST = 12


@pytest.fixture(scope="module")
def flags() -> dict[str, str]:
    return dict.fromkeys(("preempted_replicas", "preempted_replicas_of_namespace"), str(MOST))


async def losses(world: World) -> list[tuple[str, str]]:
    """Who lost something, and who took it, by what decisions say."""
    rows = await world.plane.sql(
        "SELECT name, reason FROM decision WHERE namespace = $1 AND reason LIKE 'preempted by%'",
        world.namespace,
    )
    return [(name, reason.split()[2].rstrip(":").rpartition("/")[2]) for name, reason in rows]


async def test_the_limit_is_kept_by_both_together(world: World, rival: World) -> None:
    """Nobody is preempted twice, nor anybody of their own priority."""
    await world.use_settler()
    await world.clusters(a=MOST + 1)
    await world.schedule("low", MOST + 1, only=["a"], **PARTIAL)
    await rival.plane.follow()
    answers = await asyncio.gather(
        *(
            (world, rival)[number % 2].placed(f"u{number}", 1, "a", wait=False, **urgent())
            for number in range(MOST + 4)
        )
    )
    assert sum(map(bool, answers)) == MOST
    assert await world.shares("low") == {"a": 1}
    (row,) = await world.plane.sql("SELECT sum(replicas) FROM preemption")
    assert row[0] == MOST
    await world.plane.sql("DELETE FROM preemption")


async def test_what_the_other_one_preempted_meanwhile_counts(world: World, rival: World) -> None:
    await world.use_settler()
    await world.clusters(a=MOST, b=3)
    await world.schedule("low", MOST, only=["a"], **PARTIAL)
    await world.schedule("lower", 3, only=["b"], **PARTIAL)
    assert await world.placed("u1", MOST - 1, "a", **urgent())
    await rival.plane.follow()
    rival.store.before("journal.lock", lambda: world.schedule("u2", 1, only=["a"], **urgent()))
    answer = await rival.schedule("u3", 1, only=["b"], **urgent())
    assert answer.decision.reason.endswith(str(SPENT))
    assert await world.shares("lower") == {"b": 3}
    await world.plane.sql("DELETE FROM preemption")


async def test_a_victim_that_changed_meanwhile_is_looked_at_again(
    world: World, rival: World
) -> None:
    await world.use_settler()
    await world.clusters(b=3)
    await world.schedule("low", 2, only=["b"])
    await world.schedule("lower", 1, only=["b"], priority=-1)
    await rival.plane.follow()
    rival.store.before(
        "journal.lock", lambda: world.schedule("low", 2, only=["b"], preemptible=False)
    )
    assert await rival.placed("urgent", 1, "b", **urgent()) == {"b": 1}
    assert await world.shares("low") == {"b": 2}


@dataclass
class Pods:
    """What runs, by cluster and binding; no cluster ever runs more than it can."""

    world: World
    choices: random.Random
    running: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    async def go_on(self, names: Sequence[str], *, at_once: bool) -> None:
        """Some of those that are to leave do, and of those that are to run as many as fit do."""
        placed = {name: await self.world.shares(name) for name in names}
        for cluster, cores in CORES.items():
            running = self.running[cluster]
            wanted = Counter({name: found.get(cluster, 0) for name, found in placed.items()})
            for name, surplus in (running - wanted).items():
                running[name] -= surplus if at_once else self.choices.randint(0, surplus)
            for name, missing in (wanted - running).items():
                running[name] += min(missing, cores - running.total())
            seen = {f"{self.world.namespace}/{name}": n for name, n in running.items() if n}
            await self.world.agents[cluster].report(cores=cores - running.total(), sees=seen)


@pytest.mark.parametrize("seed", range(2))
async def test_it_goes_strictly_downwards_and_ends(world: World, rival: World, seed: int) -> None:
    """While pods come and go as they will; all that is placed runs in the end."""
    choices = random.Random(seed)
    await world.use_settler()
    await world.clusters(**CORES)
    planes = (world, rival)
    wishes = {f"w{number}": wish(choices, number) for number in range(12)}
    pods = Pods(world, choices)
    come: list[str] = []

    async def ask(name: str) -> None:
        with suppress(grpc.aio.AioRpcError):
            await choices.choice(planes).schedule(name, **wishes[name])

    for round_ in range(6):
        # Most come in vain, and ask again, wherever they may be heard.
        come = list(wishes)[: 4 * (round_ + 1)]
        await asyncio.gather(*(ask(name) for name in choices.sample(come, len(come))))
        await pods.go_on(come, at_once=round_ > 3)
        for each in planes:
            await each.plane.follow()
    await world.settle()
    for _ in range(3):
        await pods.go_on(come, at_once=True)
        await world.settle()
    lost = await losses(world)
    assert lost
    assert all(wishes[victim]["priority"] < wishes[winner]["priority"] for victim, winner in lost)
    spent = await world.plane.sql("SELECT at, replicas FROM preemption")
    for at, _ in spent:
        minute = [n for then, n in spent if 0 <= (at - then).total_seconds() < 60]
        assert sum(minute) <= MOST
    await world.plane.sql("DELETE FROM preemption")
    placed = {name: await world.shares(name) for name in come}
    for cluster, cores in CORES.items():
        wanted = {name: found[cluster] for name, found in placed.items() if cluster in found}
        assert +pods.running[cluster] == wanted
        assert sum(wanted.values()) <= cores


def wish(choices: random.Random, number: int) -> dict[str, Any]:
    """The more urgent the later it comes."""
    fields = urgent(number // 2, only=[choices.choice("abc")], replicas=choices.randint(1, 3))
    return fields | (PARTIAL if choices.random() < 0.5 else {})
