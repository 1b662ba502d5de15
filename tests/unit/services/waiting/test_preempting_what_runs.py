"""Preemption of what runs: victims leave by echo, and their room is kept for who preempted them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from federation.failover.moves import PREEMPTED
from federation.model.errors import NotPlacedTogether
from federation.model.placement import Binding, Gang, PreemptionPolicy, PurgeMode
from federation.model.waiting import WaitState
from federation.model.workload import Component, ReplicaRequirements
from federation.scheduler.decision import Outcome
from federation.scheduler.preemption import NOTHING_HELPS, SPENT
from federation.services.failover.evicting import Evicting
from federation.services.failover.moving import Moving
from federation.services.fleet.registry import FleetOwner
from federation.services.journal_ports import PreemptionLimits
from federation.services.members.reports import Reporting, ReportTimes
from federation.services.scheduling import preempting, queue
from federation.services.scheduling.preempting import CROWDED
from federation.services.values import Scheduled
from lab.reports import echo
from lab.services import Agents, apply, decided, make_deciders, make_report, shares
from tests.unit.services.conftest import only
from tests.unit.services.waiting.conftest import World

URGENT = PreemptionPolicy.PREEMPT_LOWER_PRIORITY
CORES = {"a": 6, "b": 3, "c": 3}
# Fewer than silence that makes a cluster stale.
SECONDS = 5.0
LIMITS = PreemptionLimits(replicas=1000, in_namespace=100, seconds=SECONDS)


@dataclass
class Members:
    """Clusters whose pods come and go as they are told; what they see is reported."""

    world: World

    async def see(self, cluster: str, *running: tuple[Binding, int]) -> None:
        """So many pods of these run there, and of nobody else."""
        self.world.sequence += 1
        used = sum(n * each.requirements.request["cpu"] for each, n in running)
        report = replace(
            make_report(self.world.sequence, cpu_millis=1000 * CORES[cluster] - used),
            interest_version=self.world.fleet.ledger(cluster).interest_version,
            echoes=tuple(echo(each.key, each.requirements.request, n) for each, n in running),
        )
        await self.world.reporting.accept(cluster, report)
        await self.world.settle()

    async def see_components(self, cluster: str, job: Binding) -> None:
        """All pods of its components run there, and nobody else's."""
        self.world.sequence += 1
        used = sum(each.replicas * each.requirements.request["cpu"] for each in job.components)
        report = replace(
            make_report(self.world.sequence, cpu_millis=1000 * CORES[cluster] - used),
            interest_version=self.world.fleet.ledger(cluster).interest_version,
            echoes=tuple(
                replace(
                    echo(job.key, each.requirements.request, each.replicas), component=each.name
                )
                for each in job.components
            ),
        )
        await self.world.reporting.accept(cluster, report)
        await self.world.settle()

    async def run(self, binding: Binding) -> Binding:
        """It is decided, and all of it runs."""
        for cluster, replicas in decided(
            await apply(self.world.deciders.scheduling, binding)
        ).items():
            await self.see(cluster, (binding, replicas))
        return binding

    async def ask(self, binding: Binding) -> Scheduled:
        answer = await apply(self.world.deciders.scheduling, binding)
        await self.world.settle()
        return answer

    async def stored(self, binding: Binding) -> Binding:
        async with self.world.store.reading() as read:
            found = await read.bindings.get(binding.namespace, binding.name)
        assert found is not None
        return found.binding

    async def where(self, binding: Binding) -> Mapping[str, int]:
        return shares((await self.stored(binding)).clusters)

    async def wait_of(self, binding: Binding) -> Any:
        return (await self.world.deciders.scheduling.get_binding("shop", binding.name)).wait

    async def end_evictions(self) -> None:
        world = self.world
        known = world.store, world.fleet
        moving = Moving(*known, world.deciders.pipeline, world.clock, percent_a_minute=100)
        evicting = Evicting(*known, moving, world.clock, most_seconds=SECONDS)
        assert not await evicting.look(world.store.transaction, (), is_frozen=False)
        await world.settle()


@pytest.fixture
async def members(world: World) -> Members:
    """Empty ones."""
    world.deciders = make_deciders(
        world.store, world.fleet, Agents(), world.clock, preemption_limits=LIMITS
    )
    await world.take_over()
    for name in CORES:
        await world.deciders.scheduling.delete_binding("shop", f"on-{name}")
    await world.settle()
    world.placed.clear()
    return Members(world)


def low(name: str = "low", cluster: str = "b", replicas: int = 3, **fields: Any) -> Binding:
    return replace(only(cluster, replicas), **{"name": name, "uid": "", "priority": -5, **fields})


def urgent(name: str = "urgent", cluster: str = "b", replicas: int = 2, **fields: Any) -> Binding:
    given = {"name": name, "uid": "", "priority": 10, "preemption_policy": URGENT, **fields}
    return replace(only(cluster, replicas), **given)


def in_parts(binding: Binding) -> Binding:
    return replace(binding, placement=replace(binding.placement, partial=True))


@pytest.mark.parametrize("seconds", [0.0, 10.0], ids=["one by one", "in one batch"])
async def test_the_room_that_victims_leave_is_for_who_preempted_them(
    members: Members, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is refused while the room is given up is tried again."""
    monkeypatch.setattr(queue, "SMALL_BATCH_SECONDS", seconds)
    victim = await members.run(low())
    answer = await members.ask(urgent())
    assert answer.queued
    assert answer.record.decision.outcome is Outcome.UNSCHEDULABLE
    assert answer.record.decision.trace.preempted == ("shop/low: 3 in b, priority -5",)
    assert "waits for 3 replicas of shop/low to leave b, since " in answer.record.decision.reason
    wait = await members.wait_of(urgent())
    assert wait.short_of.startswith("waits for 3 replicas of shop/low to leave b, since ")
    assert shares(wait.nominated.shares) == {"b": 2}
    # The victim waits, with what is to be taken away at once.
    stored = await members.stored(victim)
    assert stored.clusters == ()
    (task,) = stored.eviction_tasks
    assert (task.from_cluster, task.replicas, task.reason) == ("b", 3, PREEMPTED)
    assert (task.purge_mode, task.message) == (PurgeMode.DIRECTLY, "preempted by shop/urgent")
    assert (await members.wait_of(victim)).state is WaitState.UNSCHEDULABLE
    # Asked again nobody else loses anything, and the victims are told as they are.
    await members.see("b", (victim, 2))
    again = await members.ask(urgent())
    assert "waits for 2 replicas of shop/low to leave b" in again.record.decision.reason
    # Room shows bit by bit: it is not for others of no higher priority.
    late = await members.ask(low("late", replicas=1, priority=10))
    assert late.queued
    assert "room is kept for shop/urgent" in late.record.decision.reason
    assert members.world.placed == []
    await members.see("b")
    assert members.world.placed == ["urgent", "late"]
    assert await members.where(urgent()) == {"b": 2}
    assert await members.where(victim) == {}
    # The eviction is over by echo; then its victim may go there again.
    await members.end_evictions()
    assert (await members.stored(victim)).eviction_tasks == ()
    view = await members.world.deciders.scheduling.get_binding("shop", "low")
    assert view.held == ()
    assert members.world.keeper.rescued == 0


async def test_a_restart_between_eviction_and_placement_loses_nothing(members: Members) -> None:
    world = members.world
    victim = await members.run(low())
    await members.ask(urgent())
    before = await members.wait_of(urgent())
    # Nothing is left but what the database has.
    world.fleet = FleetOwner(world.store)
    await world.fleet.load(grace_until=world.clock.now() + 3600)
    world.reporting = Reporting(
        world.store, world.fleet, world.clock, ReportTimes(batch_seconds=0.0)
    )
    world.deciders = make_deciders(
        world.store, world.fleet, Agents(), world.clock, preemption_limits=LIMITS
    )
    await world.take_over()
    assert (await members.wait_of(urgent())).nominated == before.nominated
    await members.see("b", (victim, 2))
    late = await members.ask(low("late", replicas=1))
    assert "room is kept for shop/urgent" in late.record.decision.reason
    await members.see("b")
    assert world.placed == ["urgent", "late"]


async def test_who_comes_before_may_have_the_room_that_is_kept(members: Members) -> None:
    victim = await members.run(low())
    await members.ask(urgent(replicas=3))
    await members.see("b", (victim, 2))
    assert not (await members.ask(low("first", replicas=1, priority=11))).queued
    await members.see("b", (low("first"), 1))
    # All have left, and what they left does not do any more: it waits for room as any other.
    assert "waits for" not in (await members.wait_of(urgent())).short_of
    assert await members.where(urgent()) == {}
    await members.see("b")
    assert await members.where(urgent()) == {}
    await members.world.deciders.scheduling.delete_binding("shop", "first")
    await members.world.settle()
    assert await members.where(urgent()) == {"b": 3}


@pytest.mark.parametrize("reason", ["deleted", "changed", "over"])
async def test_room_is_given_up(members: Members, reason: str) -> None:
    world = members.world
    victim = await members.run(low())
    await members.ask(urgent())
    await members.see("b", (victim, 2))
    assert (await members.ask(low("late", replicas=1))).queued
    if reason == "deleted":
        await world.deciders.scheduling.delete_binding("shop", "urgent")
    elif reason == "changed":
        await members.ask(urgent(replicas=4, preemption_policy=PreemptionPolicy.NEVER))
    else:
        world.clock.time += SECONDS
    await world.settle()
    assert await members.where(low("late")) == {"b": 1}
    assert world.keeper.nominations.overdue == int(reason == "over")


async def test_victims_come_back_by_themselves(members: Members) -> None:
    """Once their pods are gone, when nobody needs the room any more."""
    victim = await members.run(low())
    await members.ask(urgent())
    await members.world.deciders.scheduling.delete_binding("shop", "urgent")
    await members.see("b")
    assert await members.where(victim) == {}
    await members.end_evictions()
    assert await members.where(victim) == {"b": 3}
    assert members.world.placed == ["low"]
    assert members.world.keeper.rescued == 0


async def test_where_victims_did_not_leave_nobody_else_is_preempted(members: Members) -> None:
    """Who takes pods away does not do so there: the next ones are taken elsewhere."""
    anywhere = replace(only("b", 2).placement, affinity=None)
    on_b = await members.run(low())
    await members.run(low("on-c", "c"))
    await members.run(low("on-a", "a", 6))
    await members.ask(urgent(placement=anywhere))
    first = {
        each.name for each in (on_b, low("on-c"), low("on-a")) if not await members.where(each)
    }
    assert len(first) == 1
    members.world.clock.time += SECONDS
    await members.world.settle()
    nominated = (await members.wait_of(urgent())).nominated
    assert {f"on-{each}" for each in nominated.avoids} == {
        name.replace("low", "on-b") for name in first
    }
    assert {each.name for each in nominated.shares}.isdisjoint(nominated.avoids)


async def test_a_share_that_may_shrink_loses_what_is_on_no_node_first(members: Members) -> None:
    victim = await members.run(in_parts(low(cluster="a", replicas=4)))
    assert decided(await members.ask(replace(victim, replicas=6))) == {"a": 6}
    # Two replicas are on no node yet.
    assert decided(await members.ask(urgent(cluster="a", replicas=1))) == {"a": 1}
    answer = await members.ask(urgent("more", "a", 3))
    assert "waits for 2 replicas of shop/low to leave a" in answer.record.decision.reason
    assert await members.where(victim) == {"a": 2}
    assert (await members.stored(victim)).eviction_tasks == ()
    await members.see("a", (victim, 2), (urgent(), 1))
    assert await members.where(urgent("more")) == {"a": 3}


def asking(cores: int, gibibytes: int = 1) -> ReplicaRequirements:
    request = {"cpu": 1000 * cores, "memory": gibibytes * 2**30}
    return replace(urgent().requirements, request=request)


async def test_small_pods_make_room_for_a_large_one_where_enough_share_a_node(
    members: Members,
) -> None:
    """The cluster has one node: two of three on it leave room for one of twice the size."""
    victim = await members.run(in_parts(low()))
    answer = await members.ask(urgent(replicas=1, requirements=asking(2)))
    assert answer.record.decision.trace.preempted == ("shop/low: 2 in b, priority -5",)
    assert await members.where(victim) == {"b": 1}
    await members.see("b", (victim, 1))
    assert members.world.placed == ["urgent"]


async def test_pods_that_are_too_small_make_no_room(members: Members) -> None:
    await members.run(low())
    # Four have as much memory, and three are there.
    answer = await members.ask(urgent(replicas=1, requirements=asking(1, 4)))
    assert answer.record.decision.reason.endswith(NOTHING_HELPS)
    await members.run(low("large", "a", 3, requirements=asking(2)))
    asked = await members.ask(urgent("small", "a", 2, requirements=only("a").requirements))
    assert asked.record.decision.trace.preempted == ("shop/large: 3 in a, priority -5",)


def in_components(name: str, cluster: str, *parts: tuple[str, int, int], **fields: Any) -> Binding:
    """Of each part its name, how many replicas it has, and how many cores each of them."""
    components = tuple(
        Component(name=part, replicas=replicas, requirements=asking(cores))
        for part, replicas, cores in parts
    )
    made = urgent(name, cluster, sum(part.replicas for part in components), **fields)
    return replace(made, components=components)


async def run_components(members: Members, job: Binding, cluster: str) -> None:
    assert cluster in decided(await members.ask(job))
    await members.see_components(cluster, job)


async def test_a_workload_of_components_leaves_as_a_whole(members: Members) -> None:
    victim = in_components("job", "a", ("driver", 1, 1), ("worker", 2, 2), priority=-5)
    await run_components(members, victim, "a")
    answer = await members.ask(urgent(cluster="a", replicas=3))
    assert answer.record.decision.trace.preempted == ("shop/job: 3 in a, priority -5",)
    assert "waits for 3 replicas of shop/job to leave a" in answer.record.decision.reason
    assert await members.where(victim) == {}
    (task,) = (await members.stored(victim)).eviction_tasks
    assert (task.from_cluster, task.replicas, task.reason) == ("a", 3, PREEMPTED)
    await members.see("a")
    assert await members.where(urgent()) == {"a": 3}
    assert members.world.placed == ["urgent"]


async def test_room_is_made_for_a_whole_set_of_components_or_for_none(members: Members) -> None:
    victim = await members.run(low(cluster="a", replicas=5))
    # One core is free; the cluster has six.
    too_large = in_components("large", "a", ("driver", 1, 1), ("worker", 6, 1))
    refused = await members.ask(too_large)
    assert refused.record.decision.reason.endswith(NOTHING_HELPS)
    assert await members.where(victim) == {"a": 5}
    job = in_components("job", "a", ("driver", 1, 1), ("worker", 2, 1), ("sink", 1, 2))
    answer = await members.ask(job)
    assert answer.record.decision.trace.preempted == ("shop/low: 5 in a, priority -5",)
    await members.see("a", (victim, 2))
    assert await members.where(job) == {}
    assert (await members.ask(low("late", "a", 6))).queued
    await members.see("a")
    assert await members.where(job) == {"a": 4}


async def test_a_component_that_fits_in_what_is_free_needs_nobody_to_leave(
    members: Members,
) -> None:
    victim = await members.run(in_parts(low(cluster="a", replicas=5)))
    job = in_components("job", "a", ("driver", 1, 1), ("worker", 2, 1))
    answer = await members.ask(job)
    assert answer.record.decision.trace.preempted == ("shop/low: 2 in a, priority -5",)
    await members.see("a", (victim, 3))
    assert await members.where(job) == {"a": 3}


async def test_who_does_not_wait_preempts_nothing_that_runs(members: Members) -> None:
    victim = await members.run(low())
    answer = await members.world.deciders.scheduling.schedule(urgent(), adopt=False, wait=False)
    assert answer.record.decision.reason.endswith(NOTHING_HELPS)
    assert await members.where(victim) == {"b": 3}


async def test_the_limit_holds_for_what_runs_too(members: Members) -> None:
    world = members.world
    limits = replace(LIMITS, replicas=2)
    world.deciders = make_deciders(
        world.store, world.fleet, Agents(), world.clock, preemption_limits=limits
    )
    await world.take_over()
    victim = await members.run(in_parts(low()))
    assert (await members.ask(urgent())).record.decision.trace.preempted
    refused = await members.ask(urgent("more", replicas=1))
    assert refused.record.decision.reason.endswith(SPENT)
    assert await members.where(victim) == {"b": 1}


def member(name: str, cluster: str, replicas: int, **fields: Any) -> Binding:
    return urgent(name, cluster, replicas, gang=Gang(name="train", size=2), **fields)


async def test_room_is_made_for_a_whole_gang_or_for_nobody(members: Members) -> None:
    on_b, on_c = await members.run(low()), await members.run(low("other", "c", 2))
    one, two = member("one", "b", 3), member("two", "c", 4)
    await members.ask(one)
    assert not (await members.ask(two)).record.decision.trace.preempted
    # Room in c there never will be: nobody loses anything in b.
    assert [await members.where(each) for each in (on_b, on_c)] == [{"b": 3}, {"c": 2}]
    two = member("two", "c", 3)
    answer = await members.ask(two)
    assert set(answer.record.decision.trace.preempted) == {
        "shop/low: 3 in b, priority -5",
        "shop/other: 2 in c, priority -5",
    }
    for each in (one, two):
        wait = await members.wait_of(each)
        assert "3 replicas of shop/low to leave b" in wait.short_of
        assert "2 replicas of shop/other to leave c" in wait.short_of
    assert [await members.where(each) for each in (on_b, on_c)] == [{}, {}]
    # Both have left in b, and in c they have not: nobody is placed, and b is kept.
    await members.see("b")
    assert (await members.ask(low("late", replicas=1))).queued
    assert members.world.placed == []
    await members.see("c")
    assert [await members.where(each) for each in (one, two)] == [{"b": 3}, {"c": 3}]


async def test_a_gang_preempts_only_as_all_of_it_ask_for_it(members: Members) -> None:
    victim = await members.run(low(priority=9))
    never = member("one", "b", 1, preemption_policy=PreemptionPolicy.NEVER)
    await members.ask(never)
    assert not (await members.ask(member("two", "b", 1))).record.decision.trace.preempted
    # Nor above the least urgent of it.
    await members.ask(replace(never, preemption_policy=URGENT, priority=9))
    assert await members.where(victim) == {"b": 3}
    await members.ask(replace(never, preemption_policy=URGENT))
    assert await members.where(victim) == {}


async def test_promises_make_room_for_a_gang_and_for_a_batch_at_once(members: Members) -> None:
    for name, cluster in (("low", "b"), ("other", "c")):
        assert decided(await members.ask(low(name, cluster))) == {cluster: 3}
    await members.ask(member("one", "b", 1))
    assert decided(await members.ask(member("two", "b", 2))) == {"b": 2}
    assert await members.where(member("one", "b", 1)) == {"b": 1}
    batch = [(urgent(f"batch-{n}", "c", n), False, None) for n in (1, 2)]
    answers = await asyncio.gather(*members.world.deciders.pipeline.submit_together(batch))
    assert [decided(each) for each in answers] == [{"c": 1}, {"c": 2}]
    assert await members.where(low("other", "c")) == {}


async def test_an_atomic_batch_preempts_nothing_that_runs(members: Members) -> None:
    """None of it waits."""
    victim = await members.run(low())
    batch = [(urgent(f"batch-{name}", name, 1), False, None) for name in "bc"]
    answers = await asyncio.gather(
        *members.world.deciders.pipeline.submit_together(batch), return_exceptions=True
    )
    assert isinstance(answers[1], NotPlacedTogether)
    assert not isinstance(answers[0], BaseException)
    assert answers[0].record.decision.reason.endswith(NOTHING_HELPS)
    assert await members.where(victim) == {"b": 3}


async def test_so_many_wait_for_others_to_leave_and_no_more(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preempting, "MOST_NOMINATED", 1)
    victim = await members.run(low())
    await members.ask(member("one", "b", 1))
    refused = await members.ask(member("two", "b", 1))
    assert refused.record.decision.reason.endswith(CROWDED)
    assert await members.where(victim) == {"b": 3}
    assert (await members.ask(urgent(replicas=1))).record.decision.trace.preempted
    other = await members.run(low("other", "c"))
    assert (await members.ask(urgent("more", "c", 1))).record.decision.reason.endswith(CROWDED)
    assert await members.where(other) == {"c": 3}
