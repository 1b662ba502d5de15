"""Bindings that are asked again through the use cases: what moves them, and what does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from federation.model.cluster import Taint, TaintEffect
from federation.model.placement import (
    AffinityGroup,
    Binding,
    ClusterAffinity,
    DivisionPreference,
    EvictionTask,
    Placement,
    ReplicaScheduling,
    SchedulingType,
    StaticWeight,
    TieBreak,
)
from federation.model.workload import ReplicaRequirements, TargetCluster
from federation.scheduler.decision import Outcome
from federation.services.fleet.registry import FleetOwner
from federation.services.scheduling.bindings import Scheduling
from federation.store.postgres import PostgresStore
from lab.services import WEB, Deciders, apply, decided

DIVIDED = SchedulingType.DIVIDED
EQUAL = ReplicaScheduling(type=DIVIDED)
FULL = Taint(key="full", effect=TaintEffect.NO_SCHEDULE)
STRATEGIES = [
    EQUAL,
    ReplicaScheduling(type=DIVIDED, dynamic=True),
    ReplicaScheduling(type=DIVIDED, preference=DivisionPreference.AGGREGATED),
    ReplicaScheduling(type=DIVIDED, preference=DivisionPreference.FILL_FIRST),
]
BUMPS: dict[str, Callable[[Binding], Binding]] = {
    "nothing": lambda binding: binding,
    "a new image": lambda binding: replace(
        binding, resource=replace(binding.resource, name="web-2")
    ),
    "an annotation": lambda binding: replace(binding, annotations={"bumped": "yes"}),
    "an eviction from elsewhere": lambda binding: replace(
        binding, eviction_tasks=(EvictionTask(from_cluster="gone", producer="others"),)
    ),
    "another order among equals": lambda binding: replace(
        binding, placement=replace(binding.placement, tie_break=TieBreak.KARMADA)
    ),
}


def with_taints(fleet: FleetOwner, name: str, *taints: Taint) -> None:
    fleet.put_cluster(replace(fleet.known(name).cluster, taints=taints))


def divided(scheduling: ReplicaScheduling, replicas: int = 4) -> Binding:
    return replace(WEB, replicas=replicas, placement=Placement(replica_scheduling=scheduling))


@pytest.mark.parametrize("bump", BUMPS)
@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_what_runs_stays_when_a_taint_has_gone(
    scheduling: Scheduling, fleet: FleetOwner, strategy: ReplicaScheduling, bump: str
) -> None:
    binding = divided(strategy)
    with_taints(fleet, "c", FULL)
    first = decided(await apply(scheduling, binding))
    assert "c" not in first
    with_taints(fleet, "c")
    assert decided(await apply(scheduling, BUMPS[bump](binding))) == first


async def test_adoption_leaves_what_the_placement_allows(
    scheduling: Scheduling, store: PostgresStore
) -> None:
    ran = (TargetCluster(name="a", replicas=3), TargetCluster(name="b", replicas=1))
    stated = replace(divided(EQUAL), clusters=ran, last_scheduled_time=5.0)
    adopted = await scheduling.schedule(stated, adopt=True, wait=True)
    assert decided(adopted) == {"a": 3, "b": 1}
    again = replace(stated, annotations={"bumped": "yes"})
    assert decided(await scheduling.schedule(again, adopt=True, wait=True)) == {"a": 3, "b": 1}
    # Somebody else scaled it meanwhile, and has placed all of that.
    scaled = replace(stated, replicas=6, clusters=(replace(ran[0], replicas=5), ran[1]))
    assert decided(await scheduling.schedule(scaled, adopt=True, wait=True)) == {"a": 5, "b": 1}
    unplaced = replace(scaled, replicas=9)
    assert decided(await scheduling.schedule(unplaced, adopt=True, wait=True)) == {
        "a": 3,
        "b": 3,
        "c": 3,
    }


async def test_a_placement_that_was_changed_before_adoption_is_decided(
    scheduling: Scheduling,
) -> None:
    ran = (TargetCluster(name="a", replicas=3), TargetCluster(name="b", replicas=1))
    stated = replace(divided(EQUAL, 3), replicas=4, clusters=ran, is_unsettled=True)
    adopted = await scheduling.schedule(stated, adopt=True, wait=True)
    assert sorted(decided(adopted).values()) == [1, 1, 2]
    assert adopted.binding is not None
    assert not adopted.binding.is_unsettled


async def test_a_change_that_found_no_room_is_not_forgotten(
    scheduling: Scheduling, store: PostgresStore
) -> None:
    binding = divided(EQUAL, 6)
    assert decided(await apply(scheduling, binding)) == {"a": 2, "b": 2, "c": 2}
    only_b = (StaticWeight(target=ClusterAffinity(cluster_names=("b",)), weight=1),)
    weighed = divided(replace(EQUAL, static_weights=only_b), 6)
    refused = await scheduling.schedule(weighed, adopt=False, wait=False)
    assert refused.record.decision.outcome is Outcome.UNSCHEDULABLE
    async with store.reading() as read:
        stored = await read.bindings.get("shop", "web")
    assert stored is not None
    assert stored.binding.is_unsettled
    # What was asked for last is wanted still.
    bumped = replace(weighed, annotations={"bumped": "yes"})
    refused = await scheduling.schedule(bumped, adopt=False, wait=False)
    assert refused.record.decision.outcome is Outcome.UNSCHEDULABLE
    placed = await apply(scheduling, binding)
    assert decided(placed) == {"a": 2, "b": 2, "c": 2}
    assert placed.binding is not None
    assert not placed.binding.is_unsettled


async def test_each_trigger_divides_static_weights_anew(
    scheduling: Scheduling, fleet: FleetOwner, deciders: Deciders
) -> None:
    with_taints(fleet, "c", FULL)
    binding = divided(EQUAL)
    assert decided(await apply(scheduling, binding)) == {"a": 2, "b": 2}
    with_taints(fleet, "c")
    assert decided(await apply(scheduling, binding)) == {"a": 2, "b": 2}
    six = replace(binding, replicas=6)
    assert decided(await apply(scheduling, six)) == {"a": 2, "b": 2, "c": 2}
    with_taints(fleet, "c", FULL)
    weights = (StaticWeight(target=ClusterAffinity(), weight=1),)
    leaves_c = replace(six, placement=Placement(affinity=ClusterAffinity(exclude=("c",))))
    leaves_c = replace(leaves_c, placement=replace(leaves_c.placement, replica_scheduling=EQUAL))
    assert decided(await apply(scheduling, leaves_c)) == {"a": 3, "b": 3}
    with_taints(fleet, "c")
    back = replace(
        six, placement=Placement(replica_scheduling=replace(EQUAL, static_weights=weights))
    )
    assert decided(await apply(scheduling, back)) == {"a": 2, "b": 2, "c": 2}
    with_taints(fleet, "c", FULL)
    evicted = replace(back, eviction_tasks=(EvictionTask(from_cluster="c", producer="others"),))
    assert decided(await apply(scheduling, evicted)) == {"a": 3, "b": 3}
    with_taints(fleet, "c")
    heavier = replace(back, requirements=ReplicaRequirements(request={"cpu": 1001}))
    assert decided(await apply(scheduling, heavier)) == {"a": 2, "b": 2, "c": 2}


async def test_a_reschedule_divides_static_weights_anew(
    scheduling: Scheduling, fleet: FleetOwner, deciders: Deciders
) -> None:
    with_taints(fleet, "c", FULL)
    assert decided(await apply(scheduling, divided(EQUAL, 6))) == {"a": 3, "b": 3}
    with_taints(fleet, "c")
    again = await deciders.pipeline.reschedule(("shop", "web"), "")
    assert decided(again) == {"a": 2, "b": 2, "c": 2}


async def test_a_later_affinity_group_is_adopted_and_left_by_a_reschedule_alone(
    scheduling: Scheduling, deciders: Deciders
) -> None:
    groups = (
        AffinityGroup(name="near", affinity=ClusterAffinity(cluster_names=("a",))),
        AffinityGroup(name="far", affinity=ClusterAffinity(cluster_names=("b", "c"))),
    )
    placement = Placement(
        affinity_groups=groups, replica_scheduling=ReplicaScheduling(type=DIVIDED, dynamic=True)
    )
    stated = replace(
        WEB,
        replicas=2,
        placement=placement,
        clusters=(TargetCluster(name="b", replicas=2),),
        observed_affinity="far",
    )
    adopted = await scheduling.schedule(stated, adopt=True, wait=True)
    assert decided(adopted) == {"b": 2}
    scaled = replace(stated, replicas=3)
    assert set(decided(await scheduling.schedule(scaled, adopt=True, wait=True))) <= {"b", "c"}
    again = await deciders.pipeline.reschedule(("shop", "web"), "")
    assert decided(again) == {"a": 3}


async def test_the_group_of_what_runs_is_found_where_nobody_says_it(scheduling: Scheduling) -> None:
    groups = (
        AffinityGroup(name="near", affinity=ClusterAffinity(cluster_names=("a",))),
        AffinityGroup(name="far", affinity=ClusterAffinity(cluster_names=("b", "c"))),
    )
    stated = replace(
        WEB,
        replicas=2,
        placement=Placement(affinity_groups=groups, replica_scheduling=EQUAL),
        clusters=(TargetCluster(name="b", replicas=2),),
    )
    adopted = await scheduling.schedule(stated, adopt=True, wait=True)
    assert decided(adopted) == {"b": 2}
    assert adopted.record.decision.trace.affinity_group == "far"
