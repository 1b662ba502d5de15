"""Bindings whose promise ended: what is placed, what is held and what counts as their own agree."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from federation.failover.evictions import Ending, Progress, ending_of
from federation.failover.moves import PROMISE_ENDED, with_evictions
from federation.model.placement import (
    Binding,
    ClusterAffinity,
    DivisionPreference,
    Placement,
    ReplicaScheduling,
    SchedulingType,
)
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import Reason
from federation.model.waiting import SUSPENDED
from federation.model.workload import TargetCluster
from federation.scheduler.decision import Outcome
from federation.services.agent_values import AgentHello
from federation.services.binding_ports import StoredBinding
from federation.services.fleet.registry import FleetOwner
from federation.services.members.join import Registration
from federation.services.members.lifecycle import Membership
from federation.services.members.reports import Reporting
from federation.services.scheduling.attempt import PLACED
from federation.services.values import Scheduled
from federation.services.waiting.steering import Queueing
from federation.store.postgres import PostgresStore
from lab.services import DYNAMIC, WEB, Deciders, apply, decided, join, make_report
from tests.unit.services.conftest import StillClock, Streams, held, only, run_out

DIVIDED = SchedulingType.DIVIDED
STRATEGIES = (
    DYNAMIC,
    ReplicaScheduling(type=DIVIDED, preference=DivisionPreference.AGGREGATED),
    ReplicaScheduling(type=DIVIDED, preference=DivisionPreference.FILL_FIRST),
    ReplicaScheduling(type=DIVIDED),
    ReplicaScheduling(),
)
NAMES = ("a", "b", "c")
FREE = {"a": 6000, "b": 3000, "c": 3000}
STEPS = 40


def among(
    names: Sequence[str],
    replicas: int,
    strategy: ReplicaScheduling = DYNAMIC,
    lease_seconds: int | None = None,
) -> Binding:
    affinity = ClusterAffinity(cluster_names=tuple(names))
    placement = Placement(affinity=affinity, replica_scheduling=strategy)
    return replace(WEB, replicas=replicas, placement=placement, lease_seconds=lease_seconds)


class World:
    """A control plane, and what operators, callers and time do to it."""

    def __init__(
        self,
        store: PostgresStore,
        engine: AsyncEngine,
        fleet: FleetOwner,
        deciders: Deciders,
        registration: Registration,
        reporting: Reporting,
    ) -> None:
        self.store = store
        self.deciders = deciders
        self._engine = engine
        self._registration = registration
        self._reporting = reporting
        self._membership = Membership(store, fleet, Streams())
        self._sequence = 100

    async def ask(self, binding: Binding) -> Scheduled:
        return await apply(self.deciders.scheduling, binding)

    async def would_be_new(self, binding: Binding) -> Outcome:
        twin = replace(binding, name="twin", uid="")
        considered = await self.deciders.scheduling.consider(twin, adopt=False, wait=True)
        return considered.verdict.decision.outcome

    async def release(self, binding: Binding, clusters: Sequence[str] = ()) -> None:
        await self.deciders.releases.release("shop", binding.name, clusters=clusters)

    async def run_out(self) -> None:
        await run_out(self._engine)
        await self.deciders.releases.expire_leases(self.store.transaction)

    async def make_anew(self, name: str) -> None:
        """Delete the cluster with force, and join one of that name."""
        await self._membership.delete(name, force=True)
        await self.deciders.following.follow()
        credential = await join(self._registration, name)
        await self._report(name, credential.id)

    async def replace(self, name: str) -> None:
        uid = f"uid-{self._sequence}"
        await self._membership.replace(name, uid)
        await self.deciders.following.follow()
        credential = await join(self._registration, name, cluster_uid=uid)
        await self._report(name, credential.id)

    async def _report(self, name: str, credential: str) -> None:
        self._sequence += 1
        epoch = self._sequence
        await self._reporting.connected(name, AgentHello(epoch=epoch), credential)
        report = make_report(self._sequence, epoch=epoch, cpu_millis=FREE[name])
        await self._reporting.accept(name, report)

    async def stored(self, name: str) -> StoredBinding | None:
        async with self.store.reading() as read:
            return await read.bindings.get("shop", name)

    async def end_evictions(self, name: str) -> None:
        async with self.store.transaction() as tx:
            stored = await tx.bindings.lock("shop", name)
            if stored is not None:
                await tx.failover.put_evictions({stored.id: []})

    async def try_waiting(self) -> None:
        async with self.store.reading() as read:
            waiting = await read.bindings.waiting(0, 100)
        for each in waiting:
            await self.deciders.pipeline.try_again(each, 1).answer


@pytest.fixture
def world(
    store: PostgresStore,
    engine: AsyncEngine,
    fleet: FleetOwner,
    deciders: Deciders,
    registration: Registration,
    reporting: Reporting,
) -> World:
    return World(store, engine, fleet, deciders, registration, reporting)


@pytest.mark.parametrize("is_lease", [False, True])
@pytest.mark.parametrize("strategy", STRATEGIES[:3])
async def test_a_binding_goes_elsewhere_once_others_took_its_room(
    world: World, strategy: ReplicaScheduling, *, is_lease: bool
) -> None:
    binding = among("b", 3, lease_seconds=60)
    assert decided(await world.ask(binding)) == {"b": 3}
    if is_lease:
        await world.run_out()
    else:
        await world.release(binding)
    await world.ask(replace(only("b", 3), name="other", uid=""))
    # There is room nowhere: what was placed stays, and waits.
    stuck = await world.ask(binding)
    assert stuck.record.decision.outcome is Outcome.UNSCHEDULABLE
    assert stuck.binding is not None
    assert stuck.binding.clusters == (TargetCluster(name="b", replicas=3),)
    assert stuck.queued
    anywhere = among("bc", 3, strategy, lease_seconds=60)
    moved = await world.ask(anywhere)
    assert decided(moved) == {"c": 3}
    assert await held(world.store, binding) == {"c": 3}
    # What may run still is kept until the others do.
    assert moved.binding is not None
    (task,) = moved.binding.eviction_tasks
    assert (task.from_cluster, task.reason, task.replicas) == ("b", PROMISE_ENDED, 3)


async def test_what_waits_is_placed_by_the_queue(world: World) -> None:
    binding = among("ab", 3)
    await world.ask(replace(binding, placement=only("b").placement))
    await world.release(binding)
    await world.ask(replace(only("b", 3), name="other", uid=""))
    await world.ask(replace(only("a", 6), name="third", uid=""))
    assert (await world.ask(binding)).queued
    await world.release(replace(WEB, name="third"))
    await world.try_waiting()
    stored = await world.stored("web")
    assert stored is not None
    assert stored.binding.clusters == (TargetCluster(name="a", replicas=3),)
    assert stored.wait is None


async def test_what_finds_its_room_again_is_promised_where_it_is(world: World) -> None:
    binding = among("bc", 3)
    first = decided(await world.ask(binding))
    await world.release(binding)
    again = await world.ask(binding)
    assert decided(again) == first == await held(world.store, binding)
    assert again.record.decision.trace.triggers == (Reason(ReasonCode.PROMISE_RELEASED),)


async def test_its_own_room_is_not_counted_twice(world: World) -> None:
    """A share that holds nothing leaves what is available to one that is to grow."""
    binding = among("b", 2)
    await world.ask(binding)
    await world.release(binding)
    grown = await world.ask(replace(binding, replicas=4))
    assert grown.record.decision.outcome is Outcome.UNSCHEDULABLE
    assert decided(await world.ask(replace(binding, replicas=3))) == {"b": 3}


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_a_cluster_that_is_made_anew_has_none_of_its_bindings(
    world: World, *, is_deleted: bool
) -> None:
    binding, whole = among("ab", 6), replace(among("ab", 1, STRATEGIES[4]), name="whole", uid="")
    first = decided(await world.ask(binding))
    assert first == {"a": 4, "b": 2}
    await world.ask(whole)
    await (world.make_anew if is_deleted else world.replace)("b")
    for name, left in (("web", {"a": 4}), ("whole", {"a": 1})):
        stored = await world.stored(name)
        assert stored is not None
        assert {each.name: each.replicas for each in stored.binding.clusters} == left
        assert await held(world.store, stored.binding) == left
        assert stored.wait is not None
        assert stored.wait.is_tried
        assert stored.wait.short_of == f"cluster b was {'deleted' if is_deleted else 'replaced'}"
    await world.try_waiting()
    for name, replicas in (("web", 6), ("whole", 2)):
        stored = await world.stored(name)
        assert stored is not None
        assert stored.wait is None
        placed = {each.name: each.replicas for each in stored.binding.clusters}
        assert sum(placed.values()) == replicas
        assert await held(world.store, stored.binding) == placed


async def test_a_suspended_binding_waits_for_people_until_it_is_resumed(
    world: World, fleet: FleetOwner, clock: StillClock
) -> None:
    binding = among("ab", 6)
    await world.ask(binding)
    deciders = world.deciders
    queueing = Queueing(world.store, fleet, deciders.pipeline)
    await queueing.suspend("shop", "web")
    await world.make_anew("b")
    stored = await world.stored("web")
    assert stored is not None
    assert stored.wait is not None
    assert stored.wait.gate == SUSPENDED
    wait = await queueing.resume("shop", "web")
    assert wait is not None
    assert wait.is_tried


async def test_an_adoption_that_was_refused_states_what_runs_still(world: World) -> None:
    """It runs there by what somebody said, and needs room for no more than it lacks."""
    runs = (TargetCluster(name="b", replicas=3),)
    await world.ask(replace(only("b", 2), name="other", uid=""))
    stated = replace(among("b", 5), clusters=runs, last_scheduled_time=5.0)
    refused = await world.deciders.scheduling.schedule(stated, adopt=True, wait=True)
    assert refused.record.decision.outcome is Outcome.UNSCHEDULABLE
    await world.release(replace(WEB, name="other"))
    await world.try_waiting()
    stored = await world.stored("web")
    assert stored is not None
    assert stored.wait is None
    assert stored.binding.clusters == (TargetCluster(name="b", replicas=5),)
    assert not stored.binding.clusters_are_stated


@pytest.mark.parametrize("seed", range(6))
async def test_what_is_placed_is_held_or_asked_again(world: World, seed: int) -> None:
    """Whatever ends promises, in any order."""
    chance = random.Random(seed)
    bindings: dict[str, Binding] = {}
    ended: set[tuple[str, str]] = set()
    for _ in range(STEPS):
        name = f"w{chance.randrange(4)}"
        step = chance.choice(
            ["ask", "ask", "ask", "new", "new", "release", "lease", "try", "delete"]
        )
        if chance.random() < 0.15:
            step = chance.choice(["make anew", "replace"])
        binding = bindings.get(name)
        if step == "new" or binding is None:
            names = chance.sample(NAMES, chance.choice([1, 2, 3]))
            wanted = among(names, chance.randint(1, 6), chance.choice(STRATEGIES), lease_seconds=60)
            bindings[name] = binding = replace(wanted, name=name, uid="")
            await world.ask(binding)
        elif step == "ask":
            await _check_asked(world, binding)
        elif step == "release":
            clusters = sorted(await held(world.store, binding))
            some = clusters and chance.sample(clusters, chance.randint(1, len(clusters)))
            if some:
                await world.release(binding, some)
                ended |= {(name, each) for each in some}
        elif step == "lease":
            for each in bindings.values():
                ended |= {(each.name, cluster) for cluster in await held(world.store, each)}
            await world.run_out()
        elif step == "delete":
            del bindings[name]
            await world.deciders.releases.delete("shop", name)
        elif step == "try":
            await world.try_waiting()
        elif step == "make anew":
            await world.make_anew(chance.choice(NAMES))
        else:
            await world.replace(chance.choice(NAMES))
        for each in bindings.values():
            await _check(world, each, ended)


async def _check_asked(world: World, binding: Binding) -> None:
    """Where it holds nothing it is decided as a new one would be."""
    await world.end_evictions(binding.name)
    holds = await held(world.store, binding)
    new = await world.would_be_new(binding)
    asked = await world.ask(binding)
    if not holds and new is Outcome.SCHEDULED:
        assert asked.record.decision.outcome is Outcome.SCHEDULED
    assert asked.record.decision.outcome in PLACED or asked.queued


async def _check(world: World, binding: Binding, ended: set[tuple[str, str]]) -> None:
    stored = await world.stored(binding.name)
    assert stored is not None
    placed = {each.name: each.replicas for each in stored.binding.clusters}
    holds = await held(world.store, binding)
    assert holds.items() <= placed.items()
    ended -= {(binding.name, cluster) for cluster in holds}
    for cluster in placed.keys() - holds.keys():
        assert (binding.name, cluster) in ended
    await world.deciders.following.follow()
    in_memory = world.deciders.pipeline.working().snapshot
    known = {
        name: sum(each.replicas for each in ledger.newest(f"shop/{binding.name}"))
        for name, ledger in zip(in_memory.names, in_memory.ledgers, strict=True)
    }
    assert {name: replicas for name, replicas in known.items() if replicas} == holds
    is_divided = binding.placement.replica_scheduling.type is DIVIDED
    if is_divided and sum(placed.values()) < binding.replicas:
        assert stored.wait is not None


def test_a_share_whose_promise_ended_is_kept_until_others_run() -> None:
    task_of = replace(
        among("ab", 3),
        clusters=(TargetCluster(name="a", replicas=3),),
    )
    before = replace(task_of, clusters=(TargetCluster(name="b", replicas=3),))
    (task,) = with_evictions(before, PROMISE_ENDED, {"b": "why"}, task_of.clusters, 100.0)

    def ending(outstanding: int, now: float) -> Ending | None:
        return ending_of(
            task,
            task_of,
            Progress(outstanding, started=0),
            now,
            is_known=True,
            is_silent=False,
            is_back=True,
            most_seconds=600.0,
        )

    assert ending(3, 100.0) is None
    assert ending(0, 100.0) is Ending.REPLACED
    assert ending(3, 700.0) is Ending.DEADLINE
