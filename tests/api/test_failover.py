"""Failover at the border: clusters fall silent, are left, and are back; people taint some of them.

Agents are silent for as long as a test says, by a clock that it holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from federation.v1.resource_pb2 import (
    Cluster,
    ClusterAffinityTerm,
    ResourceBinding,
    Taint,
    Toleration,
    WorkloadAffinity,
    WorkloadAffinityTerm,
)
from federation.v1.scheduling_pb2 import (
    OUTCOME_SCHEDULED,
    OUTCOME_UNSCHEDULABLE,
)
from lab.control_planes import RunningControlPlane, running_control_plane
from lab.held_clocks import HeldClock
from lab.patience import PATIENCE_SECONDS
from tests.api.calls import DUPLICATED
from tests.api.drill import EVICTION_SECONDS, FLAGS, PENDING_SECONDS, UNREACHABLE, Drill
from tests.api.world import shares

MAINTENANCE = Taint(key="maintenance", effect="NoExecute")


@pytest.fixture(scope="module")
def flags() -> dict[str, str]:
    return FLAGS


@pytest_asyncio.fixture(loop_scope="module")
async def fleet(drill: Drill) -> Drill:
    """Clusters of 6, 3 and 3 free cores."""
    await drill.clusters(a=6, b=3, c=3)
    return drill


def conditions(cluster: Cluster) -> set[tuple[str, str, str]]:
    return {(each.type, each.status, each.reason) for each in cluster.status.conditions}


async def told(plane: RunningControlPlane, namespace: str, version: str) -> AsyncIterator[Any]:
    """Bindings as a watch tells of them."""
    call = plane.admin.watch("WatchBindings", namespace=namespace, resource_version=version)
    try:
        while True:
            async with asyncio.timeout(PATIENCE_SECONDS):
                message = await call.read()
            for event in message.events:
                yield event.binding
    finally:
        call.cancel()


async def test_a_lost_cluster_is_left_and_keeps_its_share_until_the_new_one_runs(
    drill: Drill,
) -> None:
    await drill.clusters(a=6, b=3, c=2)
    await drill.run_in("a", web=3)
    listed = await drill.plane.ask("ListBindings", namespace=drill.namespace)
    await drill.fall_silent("a")
    (silent,) = (await drill.status()).silent
    assert (silent.name, silent.HasField("lost_since")) == ("a", False)
    assert silent.lost_at.seconds > drill.clock.now()
    assert await drill.shares() == {"a": 3}
    await drill.lose("a")
    cluster = await drill.cluster("a")
    assert [each.key for each in cluster.spec.taints] == [UNREACHABLE]
    found = conditions(cluster)
    assert ("Ready", "Unknown", "AgentSilent") in found
    assert ("Lost", "True") in {each[:2] for each in found}
    await drill.until_moved("web", b=3)
    (task,) = await drill.evictions()
    assert (task.from_cluster, task.replicas) == ("a", 3)
    assert (task.reason, task.producer) == ("TaintUntolerated", "fedsched")
    assert UNREACHABLE in task.message
    assert list(task.clusters_before_failover) == ["a"]
    status = await drill.status()
    assert [(each.name, each.bindings, each.replicas) for each in status.evacuated] == [("a", 1, 3)]
    (eviction,) = status.evictions
    assert (eviction.name, eviction.HasField("deadline")) == ("web", False)
    assert status.eviction_count == 1
    # Watchers are told, and agents are asked for nodes, as behind every decision.
    watched = told(drill.plane, drill.namespace, listed.resource_version)
    async for binding in watched:
        if shares(binding.spec.clusters) == {"b": 3}:
            assert list(binding.spec.graceful_eviction_tasks) == [task]
            break
    await watched.aclose()  # type: ignore[attr-defined]  # it is a generator
    await drill.agents["b"].until_asked()
    # What left is kept as long as its pods may start there.
    assert await drill.held() == {"a": 3, "b": 3}
    # A controller that submits it again changes nothing of that.
    moved = (await drill.got()).binding
    assert (await drill.schedule("web", 3)).decision.id
    again = (await drill.got()).binding
    assert again.metadata.generation == moved.metadata.generation
    assert list(again.spec.graceful_eviction_tasks) == [task]
    await drill.see("b", web=3)
    await drill.until_evicted()
    assert await drill.held() == await drill.shares() == {"b": 3}


async def test_an_agent_whose_stream_ended_is_silent_too_and_back_by_a_new_one(
    fleet: Drill,
) -> None:
    await fleet.run_in("a", web=3)
    await fleet.agents["a"].leave()
    await fleet.lose("a")
    await fleet.until_evicted(a=3)
    await fleet.agents["a"].restart()
    await fleet.agents["a"].report()
    await fleet.find_again("a")
    await fleet.until_moved("web", a=3)
    assert "Lost" not in {each[0] for each in conditions(await fleet.cluster("a"))}


async def test_what_fits_nowhere_stays_is_told_so_and_goes_once_there_is_room(
    fleet: Drill,
) -> None:
    assert not (await fleet.schedule("web", 12)).queued
    before = await fleet.shares()

    async def outcome() -> Any:
        found = await fleet.got()
        assert not found.HasField("wait")
        return found.decision.outcome

    await fleet.lose("a")
    await fleet.pass_until(outcome, lambda found: found == OUTCOME_UNSCHEDULABLE)
    assert (await fleet.shares(), await fleet.evicted()) == (before, {})
    # With its cluster back it is where it was.
    await fleet.find_again("a")
    await fleet.pass_until(outcome, lambda found: found == OUTCOME_SCHEDULED)
    assert (await fleet.shares(), await fleet.evicted()) == (before, {})
    await fleet.lose("a")
    await fleet.see("b", 9, web=3)
    await fleet.until_moved("web", b=9, c=3)


async def test_a_cluster_that_is_back_in_time_has_its_share_again(fleet: Drill) -> None:
    home = ClusterAffinityTerm(affinity_name="home", cluster_names=["a"])
    abroad = ClusterAffinityTerm(affinity_name="abroad", cluster_names=["b", "c"])
    terms = {"cluster_affinity": None, "cluster_affinities": [home, abroad]}
    await fleet.run_in("a", web=3)
    await fleet.schedule("of-groups", 3, placement=terms)
    await fleet.lose("a")
    await fleet.until_evicted("web", a=3)
    await fleet.until_evicted("of-groups", a=3)
    await fleet.find_again("a")
    for name in ("web", "of-groups"):
        await fleet.until_moved(name, a=3)
        assert (await fleet.evicted(name), await fleet.held(name)) == ({}, {"a": 3})


@pytest.mark.parametrize("policy", ["keepReplacement", "keepOriginal", "best"])
async def test_which_replicas_stay_once_new_ones_have_begun(fleet: Drill, policy: str) -> None:
    web = fleet.workload("web", 3, only=["a"], on_cluster_return=policy)
    await fleet.schedule(web)
    web.spec.placement.cluster_affinity.cluster_names[:] = ["a", "b"]
    await fleet.schedule(web)
    await fleet.lose("a")
    await fleet.until_moved("web", b=3)
    await fleet.see("b", 1, web=2)
    await fleet.find_again("a")
    if policy == "keepOriginal":
        await fleet.until_moved("web", a=3)
    await fleet.pass_time(3)
    is_original = policy == "keepOriginal"
    assert await fleet.shares() == ({"a": 3} if is_original else {"b": 3})
    assert await fleet.evicted() == ({} if is_original else {"a": 3})


async def test_what_is_duplicated_is_missed_until_its_cluster_is_back(fleet: Drill) -> None:
    everywhere = fleet.workload("web", 2, placement={"replica_scheduling": DUPLICATED})
    narrowed = fleet.workload("narrowed", 1, placement={"replica_scheduling": DUPLICATED})
    await fleet.batch(everywhere, narrowed)
    assert await fleet.shares() == {"a": 2, "b": 2, "c": 2}
    await fleet.lose("a")
    await fleet.until_moved("web", b=2, c=2)
    await fleet.until_moved("narrowed", b=1, c=1)
    # What leaves a cluster out meanwhile does not return to it.
    narrowed.spec.placement.cluster_affinity.cluster_names[:] = ["b", "c"]
    await fleet.schedule(narrowed)
    for name in ("b", "c"):
        await fleet.see(name, web=2, narrowed=1)
    await fleet.pass_time(2 * EVICTION_SECONDS, 4)
    evictions = {each.name: each for each in (await fleet.status()).evictions}
    assert not evictions["web"].HasField("deadline")
    assert await fleet.evicted() == await fleet.evicted("narrowed") | {"a": 2} == {"a": 2}
    await fleet.find_again("a")
    await fleet.until_moved("web", a=2, b=2, c=2)
    assert await fleet.held() == await fleet.shares()
    assert (await fleet.evicted(), await fleet.evicted("narrowed")) == ({}, {})
    assert await fleet.shares("narrowed") == {"b": 1, "c": 1}


async def test_what_waits_for_its_clusters_or_tolerates_their_loss_stays(drill: Drill) -> None:
    await drill.clusters(a=9, b=9)
    for_ever = Toleration(key=UNREACHABLE, operator="Exists", effect="NoExecute")
    for_a_while = Toleration(
        key=UNREACHABLE, operator="Exists", effect="NoExecute", toleration_seconds=30
    )
    rows: dict[str, dict[str, Any]] = {
        "waits": {"on_cluster_loss": "wait"},
        "tolerant": {"placement": {"cluster_tolerations": [for_ever]}},
        "patient": {"placement": {"cluster_tolerations": [for_a_while]}},
    }
    for name, fields in rows.items():
        workload = drill.workload(name, 2, only=["a"], **fields)
        await drill.schedule(workload)
        workload.spec.placement.cluster_affinity.cluster_names.append("b")
        await drill.schedule(workload)
    await drill.lose("a")
    await drill.pass_time(24)
    assert [await drill.shares(name) for name in rows] == [{"a": 2}] * 3
    await drill.until_moved("patient", b=2)
    assert [await drill.shares(name) for name in ("waits", "tolerant")] == [{"a": 2}] * 2


async def test_a_taint_by_people_moves_what_is_there_and_time_ends_the_eviction(
    fleet: Drill,
) -> None:
    await fleet.run_in("a", web=3)
    ours = Taint(key=UNREACHABLE, effect="NoExecute")
    changed = await fleet.change("a", taints=[MAINTENANCE, ours])
    # Since when it is there is known, and nobody else says that a cluster is lost.
    (taint,) = changed.spec.taints
    assert (taint.key, taint.time_added.seconds) == ("maintenance", int(fleet.clock.now()))
    await fleet.until_evicted(a=3)
    (eviction,) = (await fleet.status()).evictions
    created = eviction.task.creation_timestamp.seconds
    assert eviction.deadline.seconds - created == EVICTION_SECONDS
    await fleet.pass_time(EVICTION_SECONDS - 5)
    assert await fleet.evicted() == {"a": 3}
    await fleet.until_evicted()


async def test_a_cluster_that_is_deleted_ends_its_evictions(fleet: Drill) -> None:
    await fleet.run_in("a", web=3)
    await fleet.lose("a")
    await fleet.until_evicted(a=3)
    await fleet.plane.ask("DeleteCluster", name="a", force=True)
    await fleet.agents.pop("a").leave()
    await fleet.until_evicted()


async def test_a_replacement_that_found_no_node_ends_nothing(fleet: Drill) -> None:
    """The old share, which runs, is back with its cluster, however long that takes."""
    await fleet.run_in("a", web=3)
    await fleet.see("a", 3, web=3)
    await fleet.lose("a")
    await fleet.until_evicted(a=3)
    (there,) = await fleet.shares()
    await fleet.see(there, 3, web={"unbound": 3})
    await fleet.pass_time(3 * EVICTION_SECONDS, 4)
    assert await fleet.evicted() == {"a": 3}
    await fleet.find_again("a")
    await fleet.until_moved("web", a=3)


async def test_moves_keep_to_the_rate(drill: Drill) -> None:
    """One binding a second, or what the percentage of replicas allows where that is less."""
    await drill.clusters(a=6, b=6)
    names = [f"w{number}" for number in range(20)]
    small = {"request": {"cpu": "10m"}}
    await drill.batch(*(drill.workload(name, 1, only=["a"], **small) for name in names))
    await drill.batch(*(drill.workload(name, 1, **small) for name in names))
    await drill.lose("a")

    async def left() -> int:
        listed = (await drill.plane.ask("ListBindings", namespace=drill.namespace)).bindings
        return sum("a" in shares(each.spec.clusters) for each in listed)

    before = await drill.pass_until(left, lambda count: count < len(names))
    # Of 20 replicas a minute each takes three seconds, and no more than one of the rate.
    await drill.pass_time(10, 1)
    assert before - await left() in range(9, 12)


def member(drill: Drill, name: str, replicas: int = 1, **placement: Any) -> ResourceBinding:
    """A workload that stays together with others of its group."""
    affinity = WorkloadAffinity(affinity=WorkloadAffinityTerm(group_by_label_key="group"))
    made = drill.workload(name, replicas, placement={"workload_affinity": affinity, **placement})
    made.metadata.labels["group"] = "g1"
    return made


async def run_together(drill: Drill, *members: ResourceBinding) -> None:
    """All of them begin in cluster a, wherever they may go later."""
    for each in members:
        first = ResourceBinding()
        first.CopyFrom(each)
        first.spec.placement.cluster_affinity.cluster_names[:] = ["a"]
        for workload in (first, each):
            placed = (await drill.schedule(workload)).decision
            assert shares(placed.clusters) == {"a": each.spec.replicas}, placed.reason


async def test_a_group_leaves_a_lost_cluster_in_one_commit_or_not_at_all(fleet: Drill) -> None:
    await run_together(fleet, member(fleet, "front"), member(fleet, "back", 2))
    for name in ("b", "c"):
        await fleet.schedule(f"fills-{name}", 1, only=[name])
    await fleet.lose("a")
    await fleet.pass_time(8)
    assert (await fleet.shares("front"), await fleet.shares("back")) == ({"a": 1}, {"a": 2})
    reason = (await fleet.got("back")).decision.reason
    assert "front, which must stay together with it, has no place" in reason
    await fleet.delete("fills-b")
    await fleet.until_moved("front", b=1)
    assert await fleet.shares("back") == {"b": 2}
    assert (await fleet.evicted("front"), await fleet.evicted("back")) == ({"a": 1}, {"a": 2})
    ids = [(await fleet.got(name)).decision.id for name in ("front", "back")]
    rows = await fleet.plane.sql(
        "SELECT count(DISTINCT xmin::text) FROM decision WHERE id::text = ANY($1)", ids
    )
    assert rows[0][0] == 1


async def test_a_group_waits_for_the_one_that_may_stay_longer(fleet: Drill) -> None:
    patient = Toleration(operator="Exists", effect="NoExecute", toleration_seconds=30)
    front, back = member(fleet, "front"), member(fleet, "back", cluster_tolerations=[patient])
    await run_together(fleet, front, back)
    await fleet.change("a", taints=[MAINTENANCE])
    await fleet.pass_time(24)
    assert (await fleet.shares("front"), await fleet.shares("back")) == ({"a": 1}, {"a": 1})
    await fleet.pass_until(fleet.shares_of("back"), lambda found: "a" not in found)
    assert await fleet.shares("front") == await fleet.shares("back")


async def pending_in_a(drill: Drill, bound: int, unbound: int, **fields: Any) -> None:
    """Some pods of web, which is all in a, are on no node."""
    web = drill.workload("web", bound + unbound, only=["a"], **fields)
    await drill.schedule(web)
    web.spec.placement.cluster_affinity.cluster_names.append("b")
    await drill.schedule(web)
    await drill.see("a", 2, web={"bound": bound, "unbound": unbound})


async def test_pods_on_no_node_for_too_long_are_promised_elsewhere(fleet: Drill) -> None:
    await pending_in_a(fleet, 3, 1)
    for _ in range(2):
        # One that found its node begins anew.
        await fleet.pass_time(PENDING_SECONDS - 10)
        await fleet.see("a", 2, web=4)
        await fleet.pass_time(10)
        await fleet.see("a", 2, web={"bound": 3, "unbound": 1})
    assert await fleet.shares() == {"a": 4}
    await fleet.until_moved("web", a=3, b=1)
    assert await fleet.held() == {"a": 3, "b": 1}
    decision = await fleet.decision((await fleet.got()).decision.id)
    (trigger,) = decision.triggers
    assert trigger.startswith("1 pod was on no node in a for 3")
    # What runs nowhere any more is not looked for.
    await fleet.see("a", 2, web=3)
    await fleet.see("b", 2, web=1)
    await fleet.pass_time(2 * PENDING_SECONDS)
    assert await fleet.shares() == {"a": 3, "b": 1}


async def test_a_share_that_runs_nowhere_leaves_and_does_not_come_back_for_a_while(
    fleet: Drill,
) -> None:
    await pending_in_a(fleet, 0, 2)
    await fleet.until_moved("web", b=2)
    (task,) = await fleet.evictions()
    assert (task.from_cluster, task.replicas, task.reason) == ("a", 2, "PodsPending")
    assert task.purge_mode == "Directly"
    assert shares((await fleet.schedule("web", 3, only=["a", "b"])).decision.clusters) == {"b": 3}
    await fleet.until_evicted()


@pytest.mark.expected_errors("failover is frozen")
@pytest.mark.parametrize("how", ["no room", "duplicated", "suspended", "frozen"])
async def test_pods_on_no_node_stay_where_they_are(fleet: Drill, how: str) -> None:
    fields: dict[str, Any] = {}
    if how == "duplicated":
        fields["placement"] = {"replica_scheduling": DUPLICATED}
    if how == "no room":
        await fleet.schedule("fills-b", 3, only=["b"])
    await fleet.change("a", region="south")
    await pending_in_a(fleet, 1, 1, **fields)
    before = await fleet.shares()
    if how == "suspended":
        await fleet.plane.ask("SuspendBinding", namespace=fleet.namespace, name="web")
    if how == "frozen":
        await fleet.plane.ask("FreezeFailover", reason="a test", region="south")
    await fleet.pass_time(2 * PENDING_SECONDS)
    assert await fleet.shares() == before


async def moved_from_a_to_b(drill: Drill) -> None:
    """Of three replicas in a, which had six cores, two ran when it was lost; it is back."""
    await drill.schedule("web", 3, only=["a"])
    await drill.schedule("web", 3, only=["a", "b"])
    await drill.see("a", 4, web={"bound": 2, "unbound": 1})
    await drill.lose("a")
    await drill.until_moved("web", b=3)
    await drill.see("b", 2, web={"bound": 1, "unbound": 2})
    drill.silent -= {"a"}
    await drill.see("a", 4, web={"bound": 2, "unbound": 1})
    await drill.find_again("a")


async def test_pods_on_no_node_keep_their_room_until_the_eviction_ends(fleet: Drill) -> None:
    await moved_from_a_to_b(fleet)
    await fleet.schedule("web", 3, only=["a", "b"], on_cluster_return="best")
    assert await fleet.evicted() == {"a": 3}
    assert await fleet.held() == {"a": 3, "b": 3}
    # Four cores are free in a, and one of them is for the pod that was not deleted.
    assert (await fleet.schedule("four", 4, only=["a"])).queued
    await fleet.delete("four")
    assert not (await fleet.schedule("three", 3, only=["a"])).queued
    await fleet.delete("three")
    await fleet.see("b", 0, web=3)
    await fleet.until_evicted()
    assert await fleet.held() == {"b": 3}
    assert not (await fleet.schedule("four", 4, only=["a"])).queued


async def test_a_namespace_at_its_quota_leaves_a_lost_cluster(fleet: Drill) -> None:
    quota = {"namespace": fleet.namespace, "resources": {"cpu": "3"}}
    await fleet.plane.ask("SetQuota", quota=quota)
    await moved_from_a_to_b(fleet)
    # Until it is gone it counts there as well, for everybody else.
    assert (await fleet.schedule("other", 1, only=["a"])).queued


@pytest.mark.parametrize("next_flags", [{}, {"no_failover": "true"}])
async def test_the_next_control_plane_goes_on_with_what_had_begun(
    fresh_database_url: str, tmp_path: Path, next_flags: dict[str, str]
) -> None:
    """It takes nobody for back that it has not heard; switched off it begins nothing."""
    clock = HeldClock()

    def started(**flags: str) -> Any:
        return running_control_plane(
            fresh_database_url, tmp_path, clock=clock, **{**FLAGS, **flags}
        )

    async with started() as first:
        drill = Drill(first, clock, None)  # type: ignore[arg-type]  # no store on command
        await drill.clusters(a=6, b=3, c=3)
        await drill.schedule("all", 1, placement={"replica_scheduling": DUPLICATED})
        await drill.run_in("a", web=2)
        await drill.lose("a")
        await drill.until_evicted("web", a=2)
        await drill.until_evicted("all", a=1)
        for agent in drill.agents.values():
            await agent.leave()
    async with started(**next_flags) as second:
        assert (await second.ask("GetFailover")).status.enabled == (not next_flags)
        after = Drill(second, clock, None)  # type: ignore[arg-type]  # no store on command
        after.namespace, after.silent = drill.namespace, drill.silent
        for name, agent in drill.agents.items():
            if name != "a":
                await agent.restart(second)
                await agent.report()
                after.agents[name] = agent
        await after.pass_time(20)
        assert await after.lost() == {"a"}
        (there,) = await after.shares()
        await after.see(there, web=2, all=1)
        await after.until_evicted()
        assert (await after.evicted("all"), await after.shares("all")) == (
            {"a": 1},
            {"b": 1, "c": 1},
        )
        if next_flags:
            await after.fall_silent("c")
            await after.pass_time(20)
            assert await after.lost() == {"a"}
        else:
            after.agents["a"] = drill.agents["a"]
            await after.agents["a"].restart(second)
            await after.agents["a"].report()
            await after.find_again("a")
            await after.until_moved("all", a=1, b=1, c=1)
        for agent in after.agents.values():
            await agent.leave()
