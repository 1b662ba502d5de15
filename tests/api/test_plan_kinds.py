"""Plans that balance, consolidate and make room, by agents that see everything.

Each binding has its place at every instant, no budget is exceeded, and a second plan has no step.
"""

from __future__ import annotations

from typing import Any

import pytest

from federation.v1.resource_pb2 import Gang
from tests.api.drill import FLAGS, Drill
from tests.api.plan_calls import (
    BALANCE,
    CONSOLIDATE,
    DONE,
    DRAIN,
    MOVING,
    PINNED,
    STEP_DONE,
    STOPPED,
    UNSCHEDULABLE,
    approved,
    got,
    look,
    planned,
    why,
)
from tests.api.world import shares

CORES = {"a": 6, "b": 3, "c": 3}


@pytest.fixture(scope="module")
def flags() -> dict[str, str]:
    return {**FLAGS, "no_failover": "true", "unschedulable_seconds": "0"}


async def running(drill: Drill, *homes: str) -> list[str]:
    """Names of workloads of one replica of one core there, which may go anywhere from now on."""
    await drill.clusters(**CORES)
    names = [f"n{number}" for number in range(len(homes))]
    for name, home in zip(names, homes, strict=True):
        await drill.run_in(home, **{name: 1})
    await look(drill, CORES, names)
    return names


async def carry_out(drill: Drill, plan: Any, names: list[str]) -> None:
    """To its end; looked at after each turn."""
    plane = drill.plane
    await approved(plane, plan)
    while (plan := await got(plane, plan)).state not in (DONE, STOPPED):
        moving = [step for step in plan.steps if step.state == MOVING]
        assert len(moving) <= plan.moves_at_once
        for cluster in CORES:
            of_one = [each for each in moving if cluster in shares([*each.before, *each.after])]
            assert len(of_one) <= (plan.moves_per_cluster or plan.moves_at_once)
        for name in names:
            placed, held = await drill.shares(name), await drill.held(name)
            assert sum(placed.values()) == 1
            assert placed.items() <= held.items()
        await look(drill, CORES, names)
        await drill.turn()
    assert (plan.state, {step.state for step in plan.steps}) == (DONE, {STEP_DONE})
    for name in names:
        assert await drill.held(name) == await drill.shares(name)


async def cordoned(drill: Drill) -> set[str]:
    listed = (await drill.plane.ask("ListClusters")).clusters
    return {each.metadata.name for each in listed if each.status.cordoned}


async def test_clusters_are_emptied_and_stay_so(drill: Drill) -> None:
    names = await running(drill, "a", "b", "c", "c")
    limits = {"headroom_percent": 10, "moves_per_cluster": 1}
    plan = await planned(drill.plane, CONSOLIDATE, **limits)
    gain = plan.gain
    assert (gain.wanted, gain.moved, gain.bound, gain.unit) == (3, 2, 2, "clusters")
    assert {step.reason for step in plan.steps} == {"b is to be empty", "c is to be empty"}
    await carry_out(drill, plan, names)
    assert await cordoned(drill) == {"b", "c"}
    second = await planned(drill.plane, CONSOLIDATE, **limits)
    assert (list(second.steps), second.gain.wanted, second.gain.moved) == ([], 1, 0)


async def test_full_clusters_give_to_others_and_a_selector_says_who(drill: Drill) -> None:
    names = await running(drill, "a", "a", "a", "a")
    pinned, labelled = drill.workload("n0"), drill.workload("n1")
    pinned.metadata.annotations[PINNED] = "true"
    labelled.metadata.labels["tier"] = "web"
    await drill.batch(pinned, labelled)
    plan = await planned(drill.plane, BALANCE, selector={"tier": "web"}, moves_at_once=1)
    # Of 12 cores 4 are in use: 2 of a's, and 5 % of it above that; the next core has to leave too.
    assert [step.name for step in plan.steps] == ["n1"]
    gain = plan.gain
    assert (gain.unit, gain.wanted, gain.moved, gain.bound) == ("cpu", 1700, 1000, 1000)
    assert plan.steps[0].reason == "a has 67 % of its cpu in use, all together 33 %"
    assert why(plan) == dict.fromkeys(
        ("n0", "n2", "n3"), "it does not have the labels that were asked for"
    )
    plan = await planned(drill.plane, BALANCE)
    assert (plan.gain.moved, plan.gain.bound, len(plan.steps)) == (1700, 1700, 2)
    assert "n0" not in {step.name for step in plan.steps}
    await carry_out(drill, plan, names)
    assert await cordoned(drill) == set()
    second = await planned(drill.plane, BALANCE)
    assert (list(second.steps), second.gain.wanted) == ([], 0)


async def test_reasons_call_no_cluster_cordoned_that_nobody_cordoned(drill: Drill) -> None:
    await running(drill, "a", "a", "a", "a", "b", "b", "b")
    # One may go to a full cluster, the other out of the plan's clusters.
    for name, other in (("n0", "b"), ("n1", "c")):
        await drill.schedule(name, 1, only=["a", other])
    refused = "2 of 3 clusters were refused: "
    for kind, clusters, reason in (
        (
            BALANCE,
            ("a", "b"),
            "is as full as the plan lets it become (1), is not among the plan's clusters (1)",
        ),
        (DRAIN, ("a",), "does not match the cluster affinity (1), is to be emptied (1)"),
    ):
        plan = await planned(drill.plane, kind, *clusters)
        assert plan.unfixed
        for each in plan.unfixed:
            assert each.reason.partition(refused)[2].startswith(reason)


async def test_others_make_room_for_what_waits(drill: Drill) -> None:
    names = await running(drill, "a", "a", "a", "a", "a")
    assert (await drill.schedule("waits", 3, only=["a"])).queued
    gang = Gang(name="g", size=1)
    assert (await drill.schedule("of-gang", 9, only=["a"], gang=gang)).queued
    plan = await planned(drill.plane, UNSCHEDULABLE)
    # One core of a is free, and no other cluster lets it in.
    assert (plan.gain.wanted, plan.gain.moved, len(plan.steps)) == (12, 3, 2)
    assert 3 <= plan.gain.bound <= 6
    reasons = {step.reason for step in plan.steps}
    assert reasons == {f"{drill.namespace}/waits waits for room in a"}
    ((name, reason),) = why(plan).items()
    assert (name, reason[:22]) == ("of-gang", "it waits with its gang")
    await carry_out(drill, plan, names)
    await drill.until_moved("waits", a=3)
    second = await planned(drill.plane, UNSCHEDULABLE)
    assert (list(second.steps), second.gain.moved, second.gain.wanted) == ([], 0, 9)


async def test_what_lost_its_room_moves_to_where_there_is_some(drill: Drill) -> None:
    await drill.clusters(**CORES)
    await drill.run_in("b", web=3)
    # Somebody else took the last core of b but one before the new pods came.
    await drill.see("b", 1, web=1)
    plan = await planned(drill.plane, UNSCHEDULABLE)
    assert (plan.gain.wanted, plan.gain.moved, plan.gain.bound) == (1, 1, 1)
    (step,) = plan.steps
    assert step.reason == "1 of its replicas lost their room in b"
    assert "b" not in shares(step.after)
    pinned = drill.workload("web", 3)
    pinned.metadata.annotations[PINNED] = "true"
    await drill.schedule(pinned)
    plan = await planned(drill.plane, UNSCHEDULABLE)
    assert (list(plan.steps), plan.gain.moved) == ([], 0)
    assert why(plan) == {"web": f"it is pinned by {PINNED}"}


async def test_clusters_are_named_by_labels(drill: Drill) -> None:
    await running(drill, "a", "a", "a")
    for name in ("a", "b"):
        cluster = await drill.cluster(name)
        cluster.metadata.labels["env"] = "prod"
        await drill.plane.ask("UpdateCluster", cluster=cluster)
    plan = await planned(drill.plane, BALANCE, cluster_selector={"env": "prod"})
    assert list(plan.clusters) == ["a", "b"]
    assert {target.name for step in plan.steps for target in step.after} == {"b"}
