"""What decisions reserve, and what others find beside it: a control plane and what agents see."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from federation.model.placement import Certificate
from federation.scheduler.plugins.profile import DEFAULT_PROFILE, Profiles
from federation.v1.estimates_pb2 import ESTIMATE_SOURCE_EXACT
from federation.v1.resource_pb2 import (
    ClusterAffinity,
    ReplicaRequirements,
    ReplicaSchedulingStrategy,
    StaticClusterWeight,
    TargetCluster,
    Toleration,
)
from federation.v1.scheduling_pb2 import OUTCOME_UNSCHEDULABLE
from lab.control_planes import refused
from lab.fake_agents import fits, on_nodes
from lab.patience import until
from tests.api.calls import DUPLICATED, component
from tests.api.world import World, shares

CORES = {"a": 6, "b": 3, "c": 3}
STATIC = ReplicaSchedulingStrategy(
    replica_scheduling_type="Divided",
    replica_division_preference="Weighted",
    weight_preference={
        "static_weight_list": [
            StaticClusterWeight(target_cluster=ClusterAffinity(cluster_names=[name]), weight=1)
            for name in "ab"
        ]
    },
)


@pytest.fixture(scope="module")
def profiles() -> Profiles:
    return Profiles.of([replace(DEFAULT_PROFILE, name="strict", certificate=Certificate.STRICT)])


async def test_what_is_scaled_down_or_left_is_free(world: World) -> None:
    await world.clusters(**CORES)
    for replicas, cluster, free in ((6, "a", 0), (4, "a", 2), (3, "b", 6)):
        assert await world.placed("web", replicas, cluster) == {cluster: replicas}
        assert (await world.free())["a"] == free
    assert await world.held() == {"b": 3}


async def test_a_binding_that_is_decided_again_has_its_own_room(world: World) -> None:
    await world.clusters(**CORES)
    first = await world.schedule("web", 12)
    again = await world.ask_of("RescheduleBinding")
    assert again.decision.id != first.decision.id
    assert shares(again.decision) == await world.held() == CORES
    assert (await world.schedule("web", 13)).decision.outcome == OUTCOME_UNSCHEDULABLE
    assert await world.held() == CORES


async def test_pods_of_an_older_shape_make_room_for_their_own_binding_only(world: World) -> None:
    await world.clusters(a=6)
    await world.placed("web", 3, request={"cpu": "2"})
    agent, key = world.agents["a"], f"{world.namespace}/web"
    await agent.report(cores=0, sees={key: 3}, request={"cpu": 2000})
    assert await world.free() == {"a": 0}
    # Each smaller pod takes the place of a larger one, and leaves the rest of it to nobody yet.
    assert await world.placed("web", 3, request={"cpu": "1"}) == {"a": 3}
    assert await world.free() == {"a": 0}
    # A larger one does not.
    answer = await world.schedule("web", 3, request={"cpu": "3"})
    assert (answer.decision.outcome, answer.decision.remainder) == (OUTCOME_UNSCHEDULABLE, 3)
    assert await world.held() == {"a": 3}


@pytest.mark.parametrize(
    ("seen", "cpu", "placed", "more"),
    [
        # What is seen has its room already; what is not needs one core each.
        (0, 1000, 5, 1),
        (2, 1000, 5, 1),
        (5, 1000, 5, 1),
        # Larger pods that run make room for as many that are asked for now, smaller ones for none.
        (2, 2000, 3, 1),
        (2, 500, 5, 0),
    ],
)
async def test_what_is_not_seen_yet_needs_room_where_it_stays(
    world: World, seen: int, cpu: int, placed: int, more: int
) -> None:
    await world.clusters(a=6)
    await world.placed("web", placed, request={"cpu": f"{cpu}m"})
    key, free = f"{world.namespace}/web", 6000 - seen * cpu
    await world.agents["a"].report(cores=0, cpu=free, sees={key: seen}, request={"cpu": cpu})
    shown = await world.schedule("web", 9, preview=True)
    (row,) = shown.decision.trace.clusters
    assert row.available_replicas == more


async def test_what_runs_already_is_neither_deducted_nor_measured(world: World) -> None:
    await world.clusters(a=1)
    running = [TargetCluster(name="a", replicas=4)]
    adopted = await world.schedule("web", 4, clusters=running, adopt=True)
    assert shares(adopted.decision) == {"a": 4}
    (held,) = (await world.got()).reservations
    assert (held.replicas, held.outstanding) == (4, 0)
    assert await world.free() == {"a": 1}
    await world.report("a", 1, web=4)
    assert await world.free() == {"a": 1}
    # From then on the agent speaks for them: one of them is gone.
    await world.report("a", 2, web=3)
    assert await world.free() == {"a": 1}
    # Of more only the rest is taken.
    more = [TargetCluster(name="a", replicas=9)]
    assert (await world.schedule("other", 11, clusters=more, adopt=True)).queued
    assert await world.placed("other", 10, clusters=more, adopt=True) == {"a": 10}
    assert await world.free() == {"a": 0}


@pytest.mark.parametrize(
    ("strategy", "fits", "wanted", "lacking"), [(DUPLICATED, 3, 4, "bc"), (STATIC, 6, 8, "b")]
)
async def test_shares_that_ignore_capacity_need_room_all_the_same(
    world: World, strategy: Any, fits: int, wanted: int, lacking: str
) -> None:
    await world.clusters(**CORES)
    placement = {"replica_scheduling": strategy}
    placed = await world.placed("web", fits, placement=placement)
    answer = await world.schedule("web", wanted, placement=placement)
    decision = answer.decision
    assert (decision.outcome, shares(decision)) == (OUTCOME_UNSCHEDULABLE, {})
    assert [name for name in CORES if f"{name}: " in decision.reason] == list(lacking)
    count = "1 cluster" if len(lacking) == 1 else "2 clusters"
    assert decision.reason.endswith(f"; short of cpu in {count}")
    assert shares(answer.binding.spec) == await world.held() == placed


async def test_what_is_scarce_is_said_by_the_decision_its_preview_and_its_record(
    world: World,
) -> None:
    gib = 1 << 30
    await world.clusters(a=6)
    await world.clusters(b=9)
    await world.agents["b"].report(cores=9, memory=2 * gib)
    fields: dict[str, Any] = {"request": {"cpu": "1", "memory": "1Gi"}}
    shown = (await world.schedule("web", 50, preview=True, **fields)).decision
    decision = (await world.schedule("web", 50, **fields)).decision
    assert decision.reason.endswith(" wanted; short of cpu in 1 cluster, memory in 1")
    assert shown.reason == decision.reason == (await world.got()).decision.reason
    assert (await world.schedule("web", 50, **fields)).decision.id == decision.id


async def test_a_cluster_that_lost_what_is_promised_takes_nothing_new(
    world: World, rival: World, caplog: pytest.LogCaptureFixture
) -> None:
    await world.clusters(a=6)
    await world.placed("web", 5)
    caplog.set_level("INFO")
    for cores in (3, 3):
        await world.report("a", cores)
    answer = await world.schedule("x", 1, request={"cpu": "1m"}, wait=False)
    stuck = f"promised replicas lost their room, 2 of {world.namespace}/web"
    assert answer.decision.reason.endswith(f"a: the cluster is over-committed: {stuck}")
    # The same again, or less, is nothing new.
    assert await world.placed("web", 5) == {"a": 5}
    assert await world.placed("web", 3) == {"a": 3}
    await world.report("a", 4)
    assert await world.free() == {"a": 1}
    # It is said once a change, by the control plane that serves the agent.
    await rival.plane.follow()
    told = [vars(each).get("fields", {}) for each in caplog.records]
    assert [each["replicas_without_room"] for each in told if "replicas_without_room" in each] == [
        2,
        0,
    ]


async def test_every_component_of_a_workload_is_held(world: World) -> None:
    await world.clusters(a=6)
    job = {"components": [component("manager", 1), component("worker", 2, "2")]}
    assert await world.placed("job", 0, **job) == {"a": 3}
    held = (await world.got("job")).reservations
    told = [(each.component, each.replicas, each.outstanding) for each in held]
    assert told == [("manager", 1, 1), ("worker", 2, 2)]
    # One core is left, and kept back while others are on their way.
    assert await world.placed("core", 1, wait=False) == {}
    assert await world.placed("again", 0, wait=False, **job) == {}
    await world.release("job")
    assert await world.free() == {"a": 6}


@pytest.mark.parametrize(
    ("asked", "profile", "placer", "certificate", "note"),
    [
        ("", "", "none", "careful", ""),
        ("", "", "extender", "planned", ""),
        ("", "strict", "binder", "strict", ""),
        ("careful", "strict", "extender", "careful", ""),
        ("strict", "", "extender", "strict", ""),
        ("planned", "strict", "binder", "planned", ""),
        ("planned", "", "none", "careful", "no placer of ours"),
    ],
)
@pytest.mark.parametrize("is_here", [True, False])
async def test_a_promise_is_worth_what_is_asked_for_and_what_its_agent_can_keep(
    world: World,
    asked: str,
    profile: str,
    placer: str,
    certificate: str,
    note: str,
    is_here: bool,
) -> None:
    await world.clusters(placer=placer, a=6)
    world.agents["a"].place = on_nodes("n1", claimed=True)
    if not is_here:
        await world.agents["a"].leave()
        # Who asks for a plan waits for an agent that may come back; nobody else does.
        certificate = "careful" if (asked, certificate) == ("", "planned") else certificate
    fields = {"certificate": asked, "scheduler_name": profile}

    async def shown() -> Any:
        answer = await world.schedule("web", 2, preview=True, **fields)
        return answer.decision.promises[0].certificate

    await until(shown, lambda found: found == certificate)
    (promise,) = (await world.schedule("web", 2, **fields)).decision.promises
    (held,) = (await world.got()).reservations
    assert promise.certificate == held.certificate == certificate
    assert (bool(promise.note), note in promise.note) == (bool(note), True)
    # An agent that is asked for another report while it joins sends a second one.
    assert promise.report_epoch == 1
    assert promise.report_sequence in (1, 2)


SIXTEEN = {"cores": 16, "node_count": 10, "pods": 500}


@pytest.mark.parametrize("parts", [False, True], ids=["replicas", "a set"])
async def test_of_two_previews_the_second_is_stale_where_it_takes_what_is_kept_back(
    world: World, parts: bool
) -> None:
    """On nodes of 16 cores what is small may stand anywhere, and leave less for what is large."""
    await world.clusters(big=1)
    await world.agents["big"].report(**SIXTEEN)
    large: dict[str, Any] = {"replicas": 40, "request": {"cpu": "2"}}
    if parts:
        large = {"replicas": 0, "components": [component("one", 2), component("two", 37, "2")]}
    wishes: dict[str, dict[str, Any]] = {
        "small": {"replicas": 80},
        "large": large,
        "fitting": {"replicas": 35, "request": {"cpu": "2"}},
        "copies": {"replicas": 40, "request": {"cpu": "2"}},
    }
    wishes["copies"]["placement"] = {"replica_scheduling": DUPLICATED}
    previews = {
        name: await world.schedule(name, preview=True, **fields) for name, fields in wishes.items()
    }
    await world.commit(previews["small"])
    assert (await refused(world.commit(previews["large"]))).reason == "PREVIEW_STALE"
    # So says a new decision, and the next preview.
    for is_preview in (False, True):
        answer = await world.schedule("large", preview=is_preview, **large)
        assert shares(answer.decision) == {}
    # What is duplicated takes all that fits, as ever; what a new decision would get is committed.
    for name in ("copies", "fitting"):
        await world.commit(previews[name])
        assert await world.held(name) == {"big": wishes[name]["replicas"]}
        await world.delete(name)


async def test_previews_are_told_what_nobody_having_asked_before_would_be_told(
    world: World, rival: World
) -> None:
    """What one control plane found out for previews before changes no answer of later ones."""
    choices = random.Random(1)
    await world.clusters(a=6, b=6, c=4, d=9)
    for name, request in (("web", {"cpu": "1"}), ("other", {"cpu": "500m"})):
        await world.schedule(name, 9, request=request)
    await world.report("b", 2)
    await rival.plane.follow()
    asked: list[tuple[str, dict[str, Any]]] = [
        (
            choices.choice(("web", "new")),
            {
                "replicas": choices.randint(1, 14),
                "only": choices.sample("abcd", 3),
                "request": {"cpu": choices.choice(("1", "500m", "2"))},
            },
        )
        for _ in range(40)
    ]

    async def shown(plane: World, name: str, fields: dict[str, Any]) -> Any:
        decision = (await plane.schedule(name, preview=True, **fields)).decision
        decision.ClearField("create_time")
        for row in decision.trace.clusters:
            row.ClearField("report_age_seconds")
        return decision

    first = [await shown(world, *each) for each in asked]
    last = [await shown(rival, *each) for each in reversed(asked)]
    assert first == last[::-1]
    assert {bool(decision.clusters) for decision in first} == {True, False}
    # So it is of refusals in one batch: no node has as much.
    toleration = Toleration(key="gpu", operator="Exists")
    wishes: list[dict[str, Any]] = [
        {"request": {"cpu": "50"}, **changed}
        for changed in (
            {},
            {"priority": 7},
            {"replicas": 2},
            {"request": {"cpu": "60"}},
            {"placement": {"cluster_tolerations": [toleration]}},
            {"placement": {"partial": True}},
            {"certificate": "careful"},
            {"only": ["a"]},
            {"only": ["a", "b"]},
        )
    ]
    results = await world.batch(
        *(world.workload(f"w{number}", **fields) for number, fields in enumerate(wishes))
    )
    alone = [(await shown(rival, "alone", fields)).reason for fields in wishes]
    assert [each.decision.reason for each in results] == alone
    assert len(set(alone)) > 2


async def test_agents_are_asked_beside_what_is_promised_and_not_there_yet(world: World) -> None:
    await world.clusters(a=6, b=3)
    for agent in world.agents.values():
        agent.estimate = fits(4)
    for name, replicas, cluster in (("web", 3, "a"), ("other", 2, "a"), ("third", 1, "b")):
        await world.placed(name, replicas, cluster)
    await world.placed("small", 1, "b", request={"cpu": "100m"})
    await world.report("a", 5, web=1)
    shape = ReplicaRequirements(resource_request={"cpu": "1"})
    exact = {"highest_source": ESTIMATE_SOURCE_EXACT, "shapes": [shape]}
    assert list((await world.plane.ask("EstimateReplicas", **exact)).replicas) == [4, 4]
    assumed = {
        name: sorted(
            (part.replica_requirements.resource_request["cpu"], part.replicas)
            for each in agent.questions[-1].assumed
            for part in each.components
        )
        for name, agent in world.agents.items()
    }
    assert assumed == {"a": [("1", 4)], "b": [("1", 1), ("100m", 1)]}
