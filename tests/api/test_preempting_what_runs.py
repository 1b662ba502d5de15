"""Preemption of what runs: victims leave by echo, and their room is kept for who preempted them."""

from __future__ import annotations

import random
from typing import Any

import pytest

from federation.capacity import cluster_room
from federation.codec.bindings import binding_from_message
from federation.model.cluster import Cluster, ClusterState
from federation.scheduler.preemption import NOTHING_HELPS, SPENT
from federation.services.scheduling.earmarks import MAX_NOMINATED
from federation.services.scheduling.preempting import CROWDED
from federation.simulation.capacity import SimulationOptions
from federation.simulation.decisions import Simulation
from federation.v1.resource_pb2 import Gang
from federation.v1.scheduling_pb2 import OUTCOME_UNSCHEDULABLE, WAIT_STATE_UNSCHEDULABLE
from lab.fake_agents import capacity
from lab.patience import until
from tests.api.calls import component
from tests.api.test_preemption import PARTIAL, preempted, urgent
from tests.api.world import World, shares

CORES = {"a": 6, "b": 3, "c": 3}
SECONDS = 60.0
IN_NAMESPACE = 30
LOW = {"priority": -5}
TRAIN = Gang(name="train", size=2)


@pytest.fixture(scope="module")
def flags() -> dict[str, str]:
    return {
        "preempted_replicas": "10000",
        "preempted_replicas_of_namespace": str(IN_NAMESPACE),
        "eviction_seconds": str(SECONDS),
    }


async def begin(world: World) -> None:
    await world.use_settler()
    await world.clusters(**CORES)


async def see(world: World, cluster: str, pods: dict[str, int] | None = None) -> None:
    """These pods of one core run there, and no others."""
    pods = pods or {}
    seen = {f"{world.namespace}/{name}": count for name, count in pods.items()}
    free = CORES[cluster] - sum(pods.values())
    await world.agents[cluster].report(cores=free, sees=seen)
    await world.settle()


async def run(
    world: World, name: str = "low", cluster: str = "b", replicas: int = 3, **fields: Any
) -> None:
    """It is decided, and all of it runs."""
    answer = await world.schedule(name, replicas, only=[cluster], **{**LOW, **fields})
    assert shares(answer.decision.clusters) == {cluster: replicas}
    await see(world, cluster, {name: replicas})


async def ask(
    world: World, name: str = "urgent", cluster: str = "b", replicas: int = 2, **fields: Any
) -> Any:
    answer = await world.schedule(name, replicas, only=[cluster], **urgent(**fields))
    await world.settle()
    return answer


async def test_the_room_that_victims_leave_is_for_who_preempted_them(world: World) -> None:
    await begin(world)
    await run(world)
    ours = world.namespace
    answer = await ask(world)
    assert answer.queued
    assert answer.decision.outcome == OUTCOME_UNSCHEDULABLE
    assert await preempted(world, answer) == ["low: 3 in b, priority -5"]
    waits_for = f"waits for 3 replicas of {ours}/low to leave b, since "
    assert waits_for in answer.decision.reason
    wait = await world.wait_of("urgent")
    assert wait.short_of.startswith(waits_for)
    assert shares(wait.nominated.shares) == {"b": 2}
    # The victim waits, with what is to be taken away at once.
    low = await world.got("low")
    (task,) = low.binding.spec.graceful_eviction_tasks
    assert (task.from_cluster, task.replicas, task.reason) == ("b", 3, "Preempted")
    assert (task.purge_mode, task.message) == ("Directly", f"preempted by {ours}/urgent")
    assert not low.binding.spec.clusters
    assert low.wait.state == WAIT_STATE_UNSCHEDULABLE
    # Asked again nobody else loses anything, and the victims are told as they are.
    await see(world, "b", {"low": 2})
    again = await ask(world)
    assert f"waits for 2 replicas of {ours}/low to leave b" in again.decision.reason
    # Room shows bit by bit: it is not for others of no higher priority.
    late = await world.schedule("late", only=["b"], priority=10)
    assert late.queued
    assert f"room is kept for {ours}/urgent" in late.decision.reason
    assert await world.shares("urgent") == {}
    await see(world, "b")
    await world.until_placed("urgent", b=2)
    await world.until_placed("late", b=1)

    # The eviction is over by echo; then its victim may go there again.
    async def tasks() -> Any:
        return (await world.got("low")).binding.spec.graceful_eviction_tasks

    await world.pass_until(tasks, lambda found: not found)
    assert await world.held("low") == {}


async def test_who_comes_before_may_have_the_room_that_is_kept(world: World) -> None:
    await begin(world)
    await run(world)
    await ask(world, replicas=3)
    await see(world, "b", {"low": 2})
    assert not (await world.schedule("first", only=["b"], priority=11)).queued
    await see(world, "b", {"first": 1})
    # All have left, and what they left does not do any more: it waits for room as any other.
    assert "waits for" not in (await world.wait_of("urgent")).short_of
    await see(world, "b")
    assert await world.shares("urgent") == {}
    await world.delete("first")
    await world.until_placed("urgent", b=3)


@pytest.mark.parametrize("reason", ["deleted", "changed", "over"])
async def test_room_is_given_up(world: World, reason: str) -> None:
    await begin(world)
    await run(world)
    await ask(world)
    await see(world, "b", {"low": 2})
    assert (await world.schedule("late", only=["b"], **LOW)).queued
    if reason == "deleted":
        await world.delete("urgent")
    elif reason == "changed":
        await ask(world, replicas=4, preemption_policy="Never")
    else:
        world.clock.advance(SECONDS)
    await world.until_placed("late", b=1)


async def test_a_cluster_that_leaves_the_fleet_keeps_nobody_from_another(world: World) -> None:
    await begin(world)
    await run(world)
    await ask(world)
    await world.delete_cluster("b")
    late = await world.schedule("late", only=["a"], priority=-10)
    assert shares(late.decision.clusters) == {"a": 1}


async def test_victims_come_back_by_themselves(world: World) -> None:
    """Once their pods are gone, when nobody needs the room any more."""
    await begin(world)
    await run(world)
    await ask(world)
    await world.delete("urgent")
    await see(world, "b")
    await world.pass_until(world.shares_of("low"), lambda found: found == {"b": 3})


async def test_where_victims_did_not_leave_nobody_else_is_preempted(world: World) -> None:
    """Who takes pods away does not do so there: the next ones are taken elsewhere."""
    await begin(world)
    for cluster, cores in CORES.items():
        await run(world, f"on-{cluster}", cluster, cores)
    await world.schedule("urgent", 2, **urgent())
    await world.settle()
    first = {cluster for cluster in CORES if not await world.shares(f"on-{cluster}")}
    assert len(first) == 1
    world.clock.advance(SECONDS)
    await world.settle()
    nominated = await until(
        lambda: world.wait_of("urgent"),
        lambda wait: (
            bool(wait.nominated.shares) and shares(wait.nominated.shares).keys().isdisjoint(first)
        ),
    )
    assert nominated.HasField("nominated")


async def test_a_share_that_may_shrink_loses_what_is_on_no_node_first(world: World) -> None:
    await begin(world)
    await run(world, cluster="a", replicas=4, **PARTIAL)
    grown = await world.schedule("low", 6, only=["a"], **LOW, **PARTIAL)
    assert shares(grown.decision.clusters) == {"a": 6}
    # Two replicas are on no node yet.
    assert shares((await ask(world, cluster="a", replicas=1)).decision.clusters) == {"a": 1}
    answer = await ask(world, "more", "a", 3)
    assert f"waits for 2 replicas of {world.namespace}/low to leave a" in answer.decision.reason
    low = (await world.got("low")).binding.spec
    assert (shares(low.clusters), list(low.graceful_eviction_tasks)) == ({"a": 2}, [])
    await see(world, "a", {"low": 2, "urgent": 1})
    await world.until_placed("more", a=3)


async def test_small_pods_make_room_for_a_large_one_where_enough_share_a_node(
    world: World,
) -> None:
    """The cluster has one node: two of three on it leave room for one of twice the size."""
    await begin(world)
    await run(world, **PARTIAL)
    answer = await ask(world, replicas=1, request={"cpu": "2"})
    assert await preempted(world, answer) == ["low: 2 in b, priority -5"]
    await see(world, "b", {"low": 1})
    await world.until_placed("urgent", b=1)


async def test_pods_that_are_too_small_make_no_room(world: World) -> None:
    await begin(world)
    await run(world)
    answer = await ask(world, replicas=1, request={"cpu": "1", "memory": "100Gi"})
    assert answer.decision.reason.endswith(str(NOTHING_HELPS))
    assert await world.shares("low") == {"b": 3}


def components(*parts: tuple[str, int, str]) -> dict[str, Any]:
    """Of each part its name, how many replicas it has, and how many cores each of them."""
    return {"components": [component(*part) for part in parts]}


async def test_a_workload_of_components_leaves_as_a_whole(world: World) -> None:
    await begin(world)
    job = components(("driver", 1, "1"), ("worker", 2, "1"))
    answer = await world.schedule("job", 3, only=["a"], **LOW, **job)
    assert shares(answer.decision.clusters) == {"a": 3}
    await world.agents["a"].report(
        cores=3, sees={f"{world.namespace}/job": 3}, components={"driver": 1, "worker": 2}
    )
    answer = await ask(world, cluster="a", replicas=4)
    assert await preempted(world, answer) == ["job: 3 in a, priority -5"]
    assert f"waits for 3 replicas of {world.namespace}/job to leave a" in answer.decision.reason
    spec = (await world.got("job")).binding.spec
    (task,) = spec.graceful_eviction_tasks
    assert (task.from_cluster, task.replicas, task.reason) == ("a", 3, "Preempted")
    assert not spec.clusters
    await see(world, "a")
    await world.until_placed("urgent", a=4)


async def test_room_is_made_for_a_whole_set_of_components_or_for_none(world: World) -> None:
    await begin(world)
    await run(world, cluster="a", replicas=5)
    # One core is free; the cluster has six.
    large = components(("driver", 1, "1"), ("worker", 6, "1"))
    refused = await ask(world, "large", "a", 7, **large)
    assert refused.decision.reason.endswith(str(NOTHING_HELPS))
    assert await world.shares("low") == {"a": 5}
    job = components(("driver", 1, "1"), ("worker", 2, "1"), ("sink", 1, "2"))
    answer = await ask(world, "job", "a", 4, **job)
    assert await preempted(world, answer) == ["low: 5 in a, priority -5"]
    await see(world, "a", {"low": 2})
    assert await world.shares("job") == {}
    await see(world, "a")
    await world.until_placed("job", a=4)


async def test_a_component_that_fits_in_what_is_free_needs_nobody_to_leave(world: World) -> None:
    await begin(world)
    await run(world, cluster="a", replicas=5, **PARTIAL)
    job = components(("driver", 1, "1"), ("worker", 2, "1"))
    answer = await ask(world, "job", "a", 3, **job)
    assert await preempted(world, answer) == ["low: 2 in a, priority -5"]
    await see(world, "a", {"low": 3})
    await world.until_placed("job", a=3)


async def test_who_does_not_wait_preempts_nothing_that_runs(world: World) -> None:
    await begin(world)
    await run(world)
    answer = await world.schedule("urgent", 2, only=["b"], wait=False, **urgent())
    assert answer.decision.reason.endswith(str(NOTHING_HELPS))
    # Nor does an atomic batch: none of it waits.
    results = await world.batch(
        *(world.workload(f"batch-{name}", 1, only=[name], **urgent()) for name in "bc"),
        atomic=True,
    )
    assert any(each.decision.reason.endswith(str(NOTHING_HELPS)) for each in results)
    assert await world.shares("low") == {"b": 3}


async def run_many(world: World, replicas: int) -> None:
    """So many of one binding run in a cluster that is as large."""
    await world.use_settler()
    await world.clusters(a=replicas)
    await world.schedule("low", replicas, only=["a"], **LOW, **PARTIAL)
    await world.report("a", 0, low=replicas)
    await world.settle()


async def test_the_limit_holds_for_what_runs_too(world: World) -> None:
    await run_many(world, IN_NAMESPACE + 2)
    assert await preempted(world, await ask(world, cluster="a", replicas=IN_NAMESPACE))
    refused = await ask(world, "more", "a", 1)
    assert refused.decision.reason.endswith(str(SPENT))
    assert await world.shares("low") == {"a": 2}


async def test_so_many_wait_for_others_to_leave_and_no_more(world: World) -> None:
    await run_many(world, MAX_NOMINATED + 1)
    for number in range(MAX_NOMINATED):
        await world.schedule(f"w{number}", only=["a"], **urgent())
    refused = await world.schedule("more", only=["a"], **urgent())
    assert refused.decision.reason.endswith(str(CROWDED))
    assert await world.shares("low") == {"a": 1}


async def test_room_is_made_for_a_whole_gang_or_for_nobody(world: World) -> None:
    await begin(world)
    await run(world)
    await run(world, "other", "c", 2)
    ours = world.namespace
    await ask(world, "one", "b", 3, gang=TRAIN)
    # Room in c there never will be: nobody loses anything in b.
    assert not await preempted(world, await ask(world, "two", "c", 4, gang=TRAIN))
    assert [await world.shares(name) for name in ("low", "other")] == [{"b": 3}, {"c": 2}]
    answer = await ask(world, "two", "c", 3, gang=TRAIN)
    facts = (await world.decision(answer.decision.id)).trace.facts
    lost = " ".join(fact.value for fact in facts if fact.name == "preempted")
    assert f"{ours}/low: 3 in b" in lost
    assert f"{ours}/other: 2 in c" in lost
    for name in ("one", "two"):
        short_of = (await world.wait_of(name)).short_of
        assert f"3 replicas of {ours}/low to leave b" in short_of
        assert f"2 replicas of {ours}/other to leave c" in short_of
    # Both have left in b, and in c they have not: nobody is placed, and b is kept.
    await see(world, "b")
    assert (await world.schedule("late", only=["b"], **LOW)).queued
    assert await world.shares("one") == {}
    await see(world, "c")
    await world.until_placed("one", b=3)
    await world.until_placed("two", c=3)


async def test_a_gang_preempts_only_as_all_of_it_ask_for_it(world: World) -> None:
    await begin(world)
    await run(world, priority=9)
    await ask(world, "one", "b", 1, gang=TRAIN, preemption_policy="Never")
    assert not await preempted(world, await ask(world, "two", "b", 1, gang=TRAIN))
    # Nor above the least urgent of it.
    await ask(world, "one", "b", 1, gang=TRAIN, priority=9)
    assert await world.shares("low") == {"b": 3}
    await ask(world, "one", "b", 1, gang=TRAIN)
    assert await world.shares("low") == {}


async def test_promises_make_room_for_a_gang_and_for_a_batch_at_once(world: World) -> None:
    await begin(world)
    for name, cluster in (("low", "b"), ("other", "c")):
        await world.schedule(name, 3, only=[cluster], **LOW)
    await ask(world, "one", "b", 1, gang=TRAIN)
    assert shares((await ask(world, "two", "b", 2, gang=TRAIN)).decision.clusters) == {"b": 2}
    assert await world.shares("one") == {"b": 1}
    results = await world.batch(
        *(world.workload(f"batch-{n}", n, only=["c"], **urgent()) for n in (1, 2)), atomic=True
    )
    assert [shares(each.decision.clusters) for each in results] == [{"c": 1}, {"c": 2}]
    assert await world.shares("other") == {}


async def test_small_pods_on_several_nodes_make_room_for_a_large_one(world: World) -> None:
    """Nobody knows which node they leave: as many go as surely leave one node with enough."""
    await world.use_settler()
    await world.clusters(a=1)
    agent, key = world.agents["a"], f"{world.namespace}/small"
    await agent.report(cores=2, node_count=3)
    await world.schedule("small", 6, only=["a"], priority=-5, **PARTIAL)
    await agent.report(cores=0, node_count=3, sees={key: 6})
    await world.settle()
    answer = await world.schedule("large", 1, only=["a"], request={"cpu": "2"}, **urgent())
    (lost,) = await preempted(world, answer)
    count = int(lost.split()[1])
    assert 2 <= count <= 4
    await agent.report(cores=0, node_count=3, sees={key: 6 - count})
    await world.settle()
    assert await world.shares("large") == {}
    # A large pod that leaves makes room for small ones.
    await world.delete("small")
    await agent.report(cores=2, node_count=3, sees={})
    await world.until_placed("large", a=1)
    await world.delete("large")
    two = {"request": {"cpu": "2"}, "priority": -5}
    await world.schedule("wide", 3, only=["a"], **two)
    wide = f"{world.namespace}/wide"
    await agent.report(cores=0, node_count=3, sees={wide: 3}, request={"cpu": 2000})
    await world.settle()
    answer = await world.schedule("tiny", 2, only=["a"], **urgent())
    assert await preempted(world, answer) == ["wide: 3 in a, priority -5"]


CLUSTERS = "abc"
NODES, NODE_CORES = 8, 4
SMALL, FILLING, WANTED = 40, 60, 12


class Packings:
    """How many clusters were packed anew."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        packed = cluster_room.repack

        def counted(kinds: Any, every: Any) -> Any:
            self.count += len(every)
            return packed(kinds, every)

        monkeypatch.setattr(cluster_room, "repack", counted)


@pytest.mark.parametrize("is_simulated", [False, True])
async def test_preempting_many_packs_no_more_than_grows_with_their_number(
    world: World, monkeypatch: pytest.MonkeyPatch, is_simulated: bool
) -> None:
    """Small ones of two priorities; then more urgent ones; then one that takes their room."""
    choices = random.Random(1)
    await world.plane.sql("DELETE FROM preemption")
    workloads = [
        world.workload(
            f"small-{number}",
            choices.randint(1, 2),
            priority=choices.randint(0, 1),
            request={"cpu": f"{choices.choice((500, 750, 1000))}m", "memory": "1Gi"},
        )
        for number in range(SMALL)
    ]
    workloads += [
        world.workload(f"filling-{number}", 2, priority=50, request={"cpu": "500m"})
        for number in range(FILLING)
    ]
    large = world.workload("large", WANTED, **urgent())
    report = capacity(NODE_CORES, node_count=NODES)
    if is_simulated:
        states = [
            ClusterState(cluster=Cluster(name=name), report=report, as_of=0.0) for name in CLUSTERS
        ]
        simulation = Simulation(states, SimulationOptions(), now=0.0)
        simulation.decide_all([binding_from_message(each) for each in workloads])
        packings = Packings(monkeypatch)
        (decision,) = simulation.decide_all([binding_from_message(large)])
        lost = sum(int(str(each).split()[1]) for each in decision.trace.preempted)
    else:
        await world.clusters(**dict.fromkeys(CLUSTERS, 1))
        for agent in world.agents.values():
            await agent.report(report)
        for workload in workloads:
            await world.schedule(workload)
        packings = Packings(monkeypatch)
        answer = await world.schedule(large)
        lost = sum(int(each.split()[1]) for each in await preempted(world, answer))
        assert shares(answer.decision)
    assert lost >= WANTED
    # For each that is tried one cluster, not every one for all that would go with it.
    assert packings.count < 3 * SMALL
