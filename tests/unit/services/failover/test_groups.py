"""Bindings that stay together by workload affinity leave a cluster together, or not at all."""

from __future__ import annotations

from dataclasses import replace

from federation.model.cluster import Taint, TaintEffect
from federation.model.placement import (
    AffinityGroup,
    Binding,
    ClusterAffinity,
    DivisionPreference,
    Placement,
    ReplicaScheduling,
    SchedulingType,
)
from federation.model.workload import Toleration, TolerationOperator
from federation.services.values import Scheduled
from lab.services import DYNAMIC, WEB, apply, decided, shares
from tests.unit.services.failover.conftest import Drill

TOGETHER = Placement(
    replica_scheduling=ReplicaScheduling(
        type=SchedulingType.DIVIDED, preference=DivisionPreference.AGGREGATED
    ),
    workload_affinity_key="group",
)


def member(name: str, replicas: int = 1, placement: Placement = TOGETHER) -> Binding:
    return replace(
        WEB, name=name, uid=name, replicas=replicas, labels={"group": "g1"}, placement=placement
    )


def filler(cluster: str, replicas: int) -> Binding:
    placement = Placement(
        replica_scheduling=DYNAMIC, affinity=ClusterAffinity(cluster_names=(cluster,))
    )
    return replace(WEB, name=cluster, uid=cluster, replicas=replicas, placement=placement)


async def put_in_a(drill: Drill, *group: Binding) -> None:
    """All of the group begin in cluster a, wherever they may go later."""
    for binding in group:
        first = replace(
            binding,
            placement=replace(binding.placement, affinity=ClusterAffinity(cluster_names=("a",))),
        )
        assert decided(await apply(drill.deciders.scheduling, first)) == {"a": binding.replicas}
        again = await apply(drill.deciders.scheduling, binding)
        assert decided(again) == {"a": binding.replicas}


async def places(drill: Drill, *group: Binding) -> list[dict[str, int]]:
    return [shares((await drill.stored(each)).clusters) for each in group]


async def test_a_group_leaves_a_lost_cluster_in_one_decision(drill: Drill) -> None:
    front, back = member("front"), member("back", 2)
    await put_in_a(drill, front, back)
    moved: list[list[str]] = []

    def note(scheduled: object) -> None:
        assert isinstance(scheduled, list)
        moved.append([each.record.name for each in scheduled if isinstance(each, Scheduled)])

    drill.failover.moving.observe(note)
    drill.speaking.remove("a")
    await drill.pass_time(65)
    there, here = await places(drill, front, back)
    assert there.keys() == here.keys()
    assert "a" not in there
    assert (sum(there.values()), sum(here.values())) == (1, 2)
    (together,) = moved
    assert sorted(together) == ["back", "front"]
    for each in (front, back):
        (task,) = (await drill.stored(each)).eviction_tasks
        assert task.from_cluster == "a"


async def test_a_group_goes_where_all_of_it_has_room(drill: Drill) -> None:
    """The first one alone would go where the others have no room."""
    groups = tuple(
        AffinityGroup(name=name, affinity=ClusterAffinity(cluster_names=(name,)))
        for name in ("a", "b", "c")
    )
    front = member("front", 2)
    back = member("back", placement=replace(TOGETHER, affinity_groups=groups))
    await put_in_a(drill, front)
    assert decided(await apply(drill.deciders.scheduling, back)) == {"a": 1}
    await apply(drill.deciders.scheduling, filler("b", 1))
    drill.speaking.remove("a")
    await drill.pass_time(65)
    assert await places(drill, front, back) == [{"c": 2}, {"c": 1}]


async def test_where_one_has_no_room_all_stay_and_say_because_of_whom(drill: Drill) -> None:
    front, back = member("front"), member("back", 2)
    await put_in_a(drill, front, back)
    drill.speaking.remove("a")
    for name in ("b", "c"):
        await apply(drill.deciders.scheduling, filler(name, 1))
    await drill.pass_time(65)
    assert await places(drill, front, back) == [{"a": 1}, {"a": 2}]
    view = await drill.deciders.scheduling.get_binding("shop", "back")
    assert view.record is not None
    assert "front, which must stay together with it, has no place" in view.record.decision.reason
    # Once there is room for all of it they go.
    await drill.deciders.scheduling.delete_binding("shop", "b")
    await drill.pass_time(70)
    assert await places(drill, front, back) == [{"b": 1}, {"b": 2}]


async def test_a_group_waits_for_the_one_that_may_stay_longer(drill: Drill) -> None:
    patient = Toleration(
        operator=TolerationOperator.EXISTS, effect=TaintEffect.NO_EXECUTE, toleration_seconds=30
    )
    front = member("front")
    back = member("back", placement=replace(TOGETHER, tolerations=(patient,)))
    await put_in_a(drill, front, back)
    drill.speaking.remove("a")
    await drill.pass_time(65)
    assert await places(drill, front, back) == [{"a": 1}, {"a": 1}]
    await drill.pass_time(60)
    there, here = await places(drill, front, back)
    assert there == here
    assert "a" not in there


async def test_a_group_leaves_a_cluster_that_people_tainted(drill: Drill) -> None:
    front, back = member("front"), member("back")
    await put_in_a(drill, front, back)
    taint = Taint(key="maintenance", effect=TaintEffect.NO_EXECUTE, time_added=drill.clock.now())
    async with drill.store.transaction() as tx:
        stored = await tx.clusters.lock("a")
        assert stored is not None
        put = await tx.clusters.put(stored.id, replace(stored.cluster, taints=(taint,)))
    drill.fleet.put_cluster(put)
    await drill.pass_time(3)
    there, here = await places(drill, front, back)
    assert there == here
    assert "a" not in there
