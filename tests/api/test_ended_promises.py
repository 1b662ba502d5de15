"""Bindings whose promise ended: what is placed, what is held and what counts as their own agree."""

from __future__ import annotations

import itertools
import random
from functools import partial
from typing import Any

import pytest

from federation.failover.moves import PROMISE_ENDED
from federation.v1.resource_pb2 import TargetCluster
from federation.v1.scheduling_pb2 import (
    OUTCOME_PARTIAL,
    OUTCOME_SCHEDULED,
    OUTCOME_UNSCHEDULABLE,
    WAIT_STATE_GATED,
)
from lab.control_planes import AgentStream
from lab.fake_agents import FakeAgent
from lab.patience import until
from tests.api.calls import AGGREGATED, BY_ROOM, DUPLICATED, EQUAL
from tests.api.world import World, shares

serial = itertools.count(1)
CORES = {"a": 6, "b": 3, "c": 3}
RUN_OUT = "UPDATE reservation SET lease_expires_at = now() - interval '1 second'"
STRATEGIES = (AGGREGATED, EQUAL, BY_ROOM, DUPLICATED)


async def end_leases(world: World) -> None:
    """Those of all bindings have run out, and are ended."""
    await world.plane.sql(RUN_OUT)
    expired = "SELECT count(*) FROM reservation WHERE lease_expires_at < now()"
    await world.pass_until(lambda: world.plane.sql(expired), lambda rows: rows[0][0] == 0)


async def make_anew(world: World, name: str, *, is_deleted: bool) -> None:
    """Another cluster of that name joins in place of the one that there was."""
    if is_deleted:
        await world.delete_cluster(name)
        await world.plane.follow()
        await world.clusters(**{name: CORES[name]})
        return
    await world.agents[name].leave()
    uid = f"another-{next(serial)}"
    await world.plane.ask("ReplaceCluster", name=name, cluster_uid=uid)
    agent = FakeAgent(AgentStream(await world.plane.enrolled(name, uid=uid), name))
    await agent.connect()
    await agent.report(cores=CORES[name])
    world.agents[name] = agent


@pytest.mark.parametrize("is_lease", [False, True])
async def test_a_binding_goes_elsewhere_once_others_took_its_room(
    world: World, is_lease: bool
) -> None:
    await world.clusters(b=3, c=3)
    fields: dict[str, Any] = {"lease_seconds": 60}
    assert await world.placed("web", 3, "b", **fields) == {"b": 3}
    if is_lease:
        await end_leases(world)
    else:
        await world.release()
    await world.schedule("other", 3, only=["b"])
    # There is room nowhere: what was placed stays, and waits.
    stuck = await world.schedule("web", 3, only=["b"], **fields)
    assert (stuck.decision.outcome, stuck.queued) == (OUTCOME_UNSCHEDULABLE, True)
    assert shares(stuck.binding.spec) == {"b": 3}
    moved = await world.schedule("web", 3, only=["b", "c"], **fields)
    assert shares(moved.decision) == await world.held() == {"c": 3}
    # What may run still is kept until the others do.
    (task,) = moved.binding.spec.graceful_eviction_tasks
    assert (task.from_cluster, task.reason, task.replicas) == ("b", PROMISE_ENDED, 3)
    await world.report("c", 3)
    assert (await world.got()).binding.spec.graceful_eviction_tasks
    await world.report("c", 0, web=3)

    async def tasks() -> Any:
        return (await world.got()).binding.spec.graceful_eviction_tasks

    await world.pass_until(tasks, lambda found: not found)


async def test_its_own_room_is_not_counted_twice_and_the_queue_finds_it_some(
    world: World,
) -> None:
    """A share that holds nothing leaves what is available to one that is to grow."""
    await world.clusters(a=6, b=3)
    await world.placed("web", 2, "b")
    await world.release()
    grown = await world.schedule("web", 4, only=["b"])
    assert grown.decision.outcome == OUTCOME_UNSCHEDULABLE
    assert await world.placed("web", 3, "b") == {"b": 3}
    await world.release()
    await world.schedule("other", 3, only=["b"])
    await world.schedule("third", 6, only=["a"])
    assert (await world.schedule("web", 3, only=["a", "b"])).queued
    await world.release("third")
    await world.until_placed("web", a=3)
    assert not (await world.got()).HasField("wait")


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_a_cluster_that_is_made_anew_has_none_of_its_bindings(
    world: World, is_deleted: bool
) -> None:
    await world.clusters(a=6, b=3)
    duplicated = {"placement": {"replica_scheduling": DUPLICATED}}
    by_room = {"placement": {"replica_scheduling": BY_ROOM}}
    first = await world.placed("web", 6, **by_room)
    assert first.keys() == {"a", "b"}
    await world.schedule("whole", 1, **duplicated)
    # Who is suspended waits for people, until it is resumed.
    await world.ask_of("SuspendBinding")
    await make_anew(world, "b", is_deleted=is_deleted)
    left = {"a": first["a"]}
    assert await world.shares() == await world.held() == left
    wait = await world.wait_of("web")
    assert (wait.state, wait.gate) == (WAIT_STATE_GATED, "suspended")
    assert wait.short_of == f"cluster b was {'deleted' if is_deleted else 'replaced'}"
    assert await world.placed("whole", 1, **duplicated) == await world.held("whole")
    assert await world.shares("whole") == {"a": 1, "b": 1}
    await world.ask_of("SuspendBinding", resume=True)
    placed = await world.pass_until(world.shares_of("web"), lambda found: sum(found.values()) == 6)
    assert await world.held() == placed
    assert not (await world.got()).HasField("wait")


async def test_an_adoption_that_was_refused_states_what_runs_still(world: World) -> None:
    """It runs there by what somebody said, and needs room for no more than it lacks."""
    await world.clusters(b=3)
    await world.placed("other", 2, "b")
    runs = [TargetCluster(name="b", replicas=3)]
    refusal = await world.schedule("web", 5, only=["b"], clusters=runs, adopt=True)
    assert refusal.decision.outcome == OUTCOME_UNSCHEDULABLE
    await world.release("other")
    await world.until_placed("web", b=5)
    assert not (await world.got()).HasField("wait")


class Story:
    """Bindings, and the clusters where a promise of theirs has ended."""

    def __init__(self, world: World, chance: random.Random) -> None:
        self.world, self.chance = world, chance
        self.wishes: dict[str, dict[str, Any]] = {}
        self.ended: set[tuple[str, str]] = set()

    async def step(self) -> None:
        chance, world = self.chance, self.world
        name = f"w{chance.randrange(4)}"
        act = chance.choice(["ask", "ask", "new", "new", "release", "lease", "delete", "anew"])
        if act == "new" or name not in self.wishes:
            strategy = chance.choice(STRATEGIES)
            self.wishes[name] = {
                "replicas": chance.randint(1, 6),
                "only": chance.sample(sorted(CORES), chance.randint(1, 3)),
                "placement": {"replica_scheduling": strategy},
                "lease_seconds": 3600,
            }
            await world.schedule(name, **self.wishes[name])
        elif act == "ask":
            await self.ask(name)
        elif act == "release":
            held = sorted(await world.held(name))
            if some := chance.sample(held, chance.randint(0, len(held))):
                await world.release(name, clusters=some)
                self.ended |= {(name, each) for each in some}
        elif act == "lease":
            # The queue may have placed others by then.
            self.ended |= {(each, cluster) for each in self.wishes for cluster in CORES}
            await end_leases(world)
        elif act == "delete":
            del self.wishes[name]
            await world.delete(name)
        else:
            cluster = chance.choice(sorted(CORES))
            await make_anew(world, cluster, is_deleted=chance.random() < 0.5)

    async def ask(self, name: str) -> None:
        """Where it holds nothing it is decided as a new one would be."""
        world, wish = self.world, self.wishes[name]
        holds = await world.held(name)
        tasks = (await world.got(name)).binding.spec.graceful_eviction_tasks
        answer = await world.schedule(name, **wish)
        is_new = not holds and not tasks and not await world.shares(name)
        if is_new and answer.decision.outcome != OUTCOME_SCHEDULED:
            # The queue may have placed others since.
            shown = await world.schedule("twin", preview=True, **wish)
            assert shown.decision.outcome != OUTCOME_SCHEDULED
        if answer.decision.outcome == OUTCOME_SCHEDULED:
            # From now on all of it is held again, also where a promise had ended.
            self.ended -= {(name, cluster) for cluster in CORES}
        placed = answer.decision.outcome in (OUTCOME_SCHEDULED, OUTCOME_PARTIAL)
        assert placed or answer.queued

    async def check(self) -> None:
        """The queue goes on meanwhile: what holds, holds as soon as it has come to rest."""
        for name in self.wishes:
            found = await until(partial(self.world.got, name), partial(self.is_sound, name))
            self.ended -= {(name, each.cluster) for each in found.reservations}

    def is_sound(self, name: str, found: Any) -> bool:
        placed, wish = shares(found.binding.spec), self.wishes[name]
        holds = {each.cluster: each.replicas for each in found.reservations}
        lacking = {(name, cluster) for cluster in placed.keys() - holds.keys()}
        is_whole = sum(placed.values()) >= wish["replicas"]
        is_duplicated = wish["placement"]["replica_scheduling"] is DUPLICATED
        return (
            holds.items() <= placed.items()
            and lacking <= self.ended
            and (is_whole or is_duplicated or found.HasField("wait"))
        )


@pytest.mark.parametrize("seed", range(4))
async def test_what_is_placed_is_held_or_asked_again(world: World, seed: int) -> None:
    """Whatever ends promises, in any order."""
    await world.clusters(**CORES)
    story = Story(world, random.Random(seed))
    for _ in range(25):
        await story.step()
        await story.check()
