"""Bindings that are asked again: what moves them, why, and what does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from federation.v1.resource_pb2 import (
    Cluster,
    ClusterAffinity,
    ClusterAffinityTerm,
    GracefulEvictionTask,
    LabelSelector,
    ReplicaSchedulingStrategy,
    ResourceBinding,
    StaticClusterWeight,
    Taint,
    TargetCluster,
    Toleration,
)
from federation.v1.scheduling_pb2 import OUTCOME_UNSCHEDULABLE
from lab.patience import until
from tests.api.calls import AGGREGATED, BY_ROOM, DUPLICATED, EQUAL
from tests.api.world import World, shares

CORES = {"a": 6, "b": 3, "c": 3}
FULL = Taint(key="full", effect="NoSchedule")
LOST = Taint(key="unreachable", effect="NoExecute")
STRATEGIES = {"equal": EQUAL, "dynamic": BY_ROOM, "aggregated": AGGREGATED}


@pytest.fixture(scope="module")
def flags() -> dict[str, str]:
    """An agent is silent after 30 seconds, and not lost for long."""
    return {"heartbeat_seconds": "10", "lost_seconds": "86400"}


async def change(world: World, name: str, do: Callable[[Cluster], None]) -> None:
    cluster = (await world.plane.ask("GetCluster", name=name)).cluster
    do(cluster)
    await world.plane.ask("UpdateCluster", cluster=cluster)


async def taint(world: World, name: str, *taints: Taint) -> None:
    def put(cluster: Cluster) -> None:
        del cluster.spec.taints[:]
        cluster.spec.taints.extend(taints)

    await change(world, name, put)


async def label(world: World, *names: str, value: str = "yes") -> None:
    for name in names:
        await change(world, name, lambda cluster: cluster.metadata.labels.update(on=value))


def by(strategy: ReplicaSchedulingStrategy, **placement: Any) -> dict[str, Any]:
    return {"placement": {"replica_scheduling": strategy, **placement}}


def target(**replicas: int) -> list[TargetCluster]:
    return [TargetCluster(name=name, replicas=count) for name, count in replicas.items()]


def evicted(cluster: str) -> dict[str, Any]:
    task = GracefulEvictionTask(from_cluster=cluster, producer="others")
    return {"graceful_eviction_tasks": [task]}


def bumped(wanted: ResourceBinding) -> ResourceBinding:
    """The same with something noted on it."""
    noted = ResourceBinding()
    noted.CopyFrom(wanted)
    noted.metadata.annotations["bumped"] = "yes"
    return noted


async def test_what_runs_stays_when_a_taint_has_gone(world: World) -> None:
    await world.clusters(a=60, b=30, c=30)
    await taint(world, "c", FULL)
    wishes = {
        name: world.workload(name, 4, **by(strategy)) for name, strategy in STRATEGIES.items()
    }
    first = {name: shares((await world.schedule(wish)).decision) for name, wish in wishes.items()}
    assert all("c" not in placed for placed in first.values())
    await taint(world, "c")
    for name, wish in wishes.items():
        image, tie, moved = (ResourceBinding() for _ in range(3))
        for each in (image, tie, moved):
            each.CopyFrom(wish)
        image.spec.resource.name = "web-2"
        tie.spec.placement.tie_break = "karmada"
        moved.spec.graceful_eviction_tasks.extend(evicted("gone")["graceful_eviction_tasks"])
        for bump in (wish, image, bumped(wish), moved, tie):
            assert shares((await world.schedule(bump)).decision) == first[name]


async def test_adoption_leaves_what_the_placement_allows(world: World) -> None:
    await world.clusters(**CORES)
    for replicas, ran, expected in (
        (4, {"a": 3, "b": 1}, {"a": 3, "b": 1}),
        # Somebody else scaled it meanwhile, and has placed all of that.
        (6, {"a": 5, "b": 1}, {"a": 5, "b": 1}),
        (9, {"a": 5, "b": 1}, {"a": 3, "b": 3, "c": 3}),
        # What is said of clusters that are not there counts as gone.
        (6, {"a": 2, "nowhere": 4}, {"a": 2, "b": 2, "c": 2}),
    ):
        wanted = world.workload("web", replicas, clusters=target(**ran), **by(EQUAL))
        for wish in (wanted, bumped(wanted)):
            assert shares((await world.schedule(wish, adopt=True)).decision) == expected


async def test_a_change_that_found_no_room_is_not_forgotten(world: World) -> None:
    await world.clusters(**CORES)
    wanted = world.workload("web", 6, **by(EQUAL))
    even = {"a": 2, "b": 2, "c": 2}
    assert shares((await world.schedule(wanted)).decision) == even
    only_b = StaticClusterWeight(target_cluster=ClusterAffinity(cluster_names=["b"]), weight=1)
    weighed = ResourceBinding()
    weighed.CopyFrom(wanted)
    strategy = weighed.spec.placement.replica_scheduling
    strategy.weight_preference.static_weight_list.append(only_b)
    # What was asked for last is wanted still, whatever is noted on it.
    for wish in (weighed, bumped(weighed)):
        answer = await world.schedule(wish, wait=False)
        assert answer.decision.outcome == OUTCOME_UNSCHEDULABLE
    assert shares((await world.schedule(wanted)).decision) == even


async def test_each_trigger_divides_static_weights_anew(world: World) -> None:
    await world.clusters(**CORES)
    one = StaticClusterWeight(target_cluster=ClusterAffinity(), weight=1)
    weighed = ReplicaSchedulingStrategy()
    weighed.CopyFrom(EQUAL)
    weighed.weight_preference.static_weight_list.append(one)
    leaves_c = by(EQUAL, cluster_affinity=ClusterAffinity(exclude=["c"]))
    two, three = {"a": 2, "b": 2}, {"a": 2, "b": 2, "c": 2}
    for taints, replicas, fields, expected in (
        ([FULL], 4, by(EQUAL), two),
        ([], 4, by(EQUAL), two),
        ([], 6, by(EQUAL), three),
        ([FULL], 6, leaves_c, {"a": 3, "b": 3}),
        ([], 6, by(weighed), three),
        ([FULL], 6, by(weighed) | evicted("c"), {"a": 3, "b": 3}),
        ([], 6, by(weighed) | {"request": {"cpu": "1001m"}}, {"a": 2, "b": 2, "c": 2}),
    ):
        await taint(world, "c", *taints)
        assert await world.placed("web", replicas, **fields) == expected, fields
    # So does a reschedule.
    await world.delete("web")
    await taint(world, "c", FULL)
    assert await world.placed("again", 6, **by(EQUAL)) == {"a": 3, "b": 3}
    await taint(world, "c")
    moved = await world.ask_of("RescheduleBinding", "again")
    assert shares(moved.decision) == three


async def test_a_later_affinity_group_is_adopted_and_left_by_a_reschedule_alone(
    world: World,
) -> None:
    """And is found where nobody says which group runs."""
    await world.clusters(**CORES)
    groups = [
        ClusterAffinityTerm(affinity_name="near", cluster_names=["a"]),
        ClusterAffinityTerm(affinity_name="far", cluster_names=["b", "c"]),
    ]
    wanted = world.workload(
        "web", 2, clusters=target(b=2), **by(BY_ROOM, cluster_affinities=groups)
    )
    wanted.spec.placement.ClearField("cluster_affinity")
    adopted = await world.schedule(wanted, adopt=True)
    assert shares(adopted.decision) == {"b": 2}
    facts = (await world.decision(adopted.decision.id)).trace.facts
    assert ("affinityGroup", "far") in {(fact.name, fact.value) for fact in facts}
    wanted.spec.replicas = 3
    assert shares((await world.schedule(wanted, adopt=True)).decision).keys() <= {"b", "c"}
    again = await world.ask_of("RescheduleBinding")
    assert shares(again.decision) == {"a": 3}


async def test_what_is_asked_for_anew_is_decided_again_and_that_is_said(world: World) -> None:
    await world.clusters(**CORES)
    exclude = {"cluster_affinity": ClusterAffinity(exclude=["nowhere"])}
    base: dict[str, Any] = {"replicas": 6}
    first = await world.schedule("web", **base)
    assert list(first.decision.triggers) == ["the binding is new"]
    generation = 1
    for changed, trigger in (
        ({"replicas": 7}, "replicas changed"),
        ({"request": {"cpu": "500m"}}, "requirements changed"),
        ({"placement": exclude}, "placement changed"),
        (evicted("c"), "evictions changed"),
        ({"scheduler_name": "default-scheduler"}, "schedulerName changed"),
    ):
        base |= changed
        answer = await world.schedule("web", **base)
        generation += 1
        assert answer.decision.binding_generation == generation
        assert list(answer.decision.triggers) == [trigger]
    # Several are all told, and other capacity is none.
    wanted = world.workload("web", **base | {"replicas": 3})
    at = answer.binding.status.last_scheduled_time
    wanted.spec.reschedule_triggered_at.FromNanoseconds(at.ToNanoseconds() + 1_000_000)
    answer = await world.schedule(wanted)
    assert list(answer.decision.triggers) == ["a reschedule was triggered", "replicas changed"]
    await world.report("a", 1)
    assert (await world.schedule(wanted)).decision.id == answer.decision.id


async def test_an_unplaced_binding_is_decided_again_when_the_answer_would_be_another(
    world: World,
) -> None:
    await world.clusters(**CORES)
    first = await world.schedule("web", 13, wait=False)
    assert first.decision.outcome == OUTCOME_UNSCHEDULABLE
    await world.schedule("web", 13)
    standing = (await world.got()).decision.id
    assert (await world.schedule("web", 13)).decision.id == standing
    await world.report("a", 7)
    await world.until_placed("web", a=7, b=3, c=3)
    # What is duplicated follows the fleet.
    await label(world, "a", "b")
    matching = ClusterAffinity(label_selector=LabelSelector(match_labels={"on": "yes"}))
    fields = by(DUPLICATED, cluster_affinity=matching)
    await world.delete()
    assert await world.placed("all", 1, **fields) == {"a": 1, "b": 1}
    await label(world, "c")
    again = await world.schedule("all", 1, **fields)
    assert shares(again.decision) == {"a": 1, "b": 1, "c": 1}
    assert list(again.decision.triggers) == ["asked again, nothing changed"]
    # And a cluster that does not match any more is left.
    fields = by(BY_ROOM, cluster_affinity=matching)
    assert "b" in await world.placed("some", 6, **fields)
    await label(world, "b", "c", value="no")
    await world.report("a", 20)
    assert await world.placed("some", 6, **fields) == {"a": 6}


async def test_a_no_execute_taint_without_toleration_moves_the_replicas(world: World) -> None:
    await world.clusters(**CORES)
    assert await world.placed("web", 6) == {"a": 6}
    for effect in ("NoSchedule", "PreferNoSchedule"):
        await taint(world, "a", Taint(key="unreachable", effect=effect))
        assert await world.placed("web", 6) == {"a": 6}
    await taint(world, "a", LOST)
    again = await world.schedule("web", 6)
    assert shares(again.decision) == {"b": 3, "c": 3}
    reason = "cluster a has the untolerated taint unreachable:NoExecute"
    assert list(again.decision.triggers) == [reason]
    # Where they do not fit the placement stays.
    await taint(world, "b", LOST)
    stuck = await world.schedule("web", 6)
    assert stuck.decision.outcome == OUTCOME_UNSCHEDULABLE
    assert shares(stuck.binding.spec) == {"b": 3, "c": 3}


@pytest.mark.parametrize(
    ("seconds", "passed", "stays"), [(None, 1e6, True), (60, 59, True), (60, 60, False)]
)
async def test_a_toleration_holds_for_its_seconds(
    world: World, seconds: int | None, passed: float, stays: bool
) -> None:
    await world.clusters(**CORES)
    toleration = Toleration(
        key="unreachable", operator="Exists", effect="NoExecute", toleration_seconds=seconds
    )
    fields = {"placement": {"cluster_tolerations": [toleration]}}
    assert await world.placed("web", 6, **fields) == {"a": 6}
    lost = Taint()
    lost.CopyFrom(LOST)
    lost.time_added.FromNanoseconds(int((world.clock.now() + 1 - passed) * 1e9))
    await taint(world, "a", lost)
    # Between 59 and 60 seconds after it was added, and one second later.
    world.clock.advance(0 if stays else 1)
    assert ("a" in await world.placed("web", 6, **fields)) is stays


async def test_a_stale_cluster_keeps_its_shares_and_gets_no_more(world: World) -> None:
    await world.clusters(**CORES)
    before = await world.placed("web", 4, **by(BY_ROOM))
    await world.clock.run(31)
    for name in "bc":
        await world.agents[name].beat()

    async def grown() -> dict[str, int]:
        return dict(await world.placed("web", 7, **by(BY_ROOM)))

    after = await until(grown, lambda found: sum(found.values()) == 7)
    assert after["a"] == before["a"]
    refusal = await world.schedule("api", 7, wait=False)
    assert refusal.decision.outcome == OUTCOME_UNSCHEDULABLE
    assert "is stale: its agent is silent" in refusal.decision.reason
