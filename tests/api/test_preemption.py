"""Preemption of promises: who is urgent takes what others were promised, within limits."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from federation.codec.bindings import binding_from_message
from federation.model.cluster import Cluster, ClusterState
from federation.model.reasons import clauses_of
from federation.scheduler.preemption import NOTHING_HELPS, SPENT
from federation.simulation.capacity import SimulationOptions
from federation.simulation.decisions import Simulation
from federation.v1.resource_pb2 import ResourceBinding
from federation.v1.scheduling_pb2 import (
    OUTCOME_PARTIAL,
    OUTCOME_SCHEDULED,
    OUTCOME_UNSCHEDULABLE,
    WAIT_STATE_BACKOFF,
    WAIT_STATE_UNSCHEDULABLE,
)
from lab.fake_agents import capacity
from lab.patience import until
from tests.api.calls import DUPLICATED
from tests.api.world import World, shares

CORES = {"a": 6, "b": 3, "c": 3}
IN_NAMESPACE = 12


@pytest.fixture(scope="module")
def flags() -> dict[str, str]:
    return {
        "preempted_replicas": "10000",
        "preempted_replicas_of_namespace": str(IN_NAMESPACE),
    }


def urgent(priority: int = 10, **fields: Any) -> dict[str, Any]:
    return {"priority": priority, "preemption_policy": "PreemptLowerPriority", **fields}


PARTIAL = {"placement": {"partial": True}}


async def place(world: World, name: str, replicas: int, cluster: str, **fields: Any) -> Any:
    """Its shares."""
    answer = await world.schedule(name, replicas, only=[cluster] if cluster else [], **fields)
    return shares(answer.decision.clusters)


async def where(world: World, *names: str) -> list[dict[str, int]]:
    """By the binding and by what it holds, which is the same."""
    found = [dict(await world.shares(name)) for name in names]
    assert [await world.held(name) for name in names] == found
    return found


async def preempted(world: World, answer: Any) -> Sequence[str]:
    """What the decision says that others lost, without the namespace."""
    facts = (await world.decision(answer.decision.id)).trace.facts
    lost = [fact.value for fact in facts if fact.name == "preempted"]
    return [each.removeprefix(f"{world.namespace}/") for each in lost]


async def test_the_least_urgent_that_are_enough_lose_their_shares(world: World) -> None:
    await world.clusters(**CORES)
    await place(world, "low", 1, "b", priority=-5)
    await place(world, "middle", 2, "b", priority=3)
    await place(world, "high", 3, "c", priority=4)
    await place(world, "filling", 6, "a", priority=20)
    answer = await world.schedule("urgent", **urgent())
    assert shares(answer.decision.clusters) == {"b": 1}
    assert answer.decision.outcome == OUTCOME_SCHEDULED
    assert await preempted(world, answer) == ["low: 1 in b, priority -5"]
    assert await where(world, "low", "middle", "high") == [{}, {"b": 2}, {"c": 3}]
    low = await world.got("low")
    assert (low.decision.outcome, low.decision.remainder) == (OUTCOME_UNSCHEDULABLE, 1)
    assert low.decision.reason == f"preempted by {world.namespace}/urgent: 1 in b"
    assert list(low.decision.triggers) == [f"preempted by {world.namespace}/urgent"]
    # It goes back to waiting.
    assert (low.wait.state, low.wait.remainder) == (WAIT_STATE_UNSCHEDULABLE, 1)


async def test_who_does_not_wait_preempts_though_decided_beside_others(world: World) -> None:
    await world.clusters(**CORES)
    await place(world, "low", 3, "b")
    found = await asyncio.gather(
        place(world, "beside", 1, "c", wait=False),
        place(world, "urgent", 2, "b", wait=False, **urgent()),
    )
    assert found == [{"c": 1}, {"b": 2}]


async def test_it_is_one_transaction(world: World) -> None:
    await world.clusters(**CORES)
    await place(world, "low", 2, "b")
    await place(world, "lower", 1, "b", priority=-1)
    assert await place(world, "urgent", 3, "b", **urgent()) == {"b": 3}
    (row,) = await world.plane.sql(
        "SELECT count(*), count(DISTINCT xmin::text) FROM decision "
        "WHERE namespace = $1 AND (reason LIKE 'preempted by%' OR name = 'urgent')",
        world.namespace,
    )
    assert tuple(row) == (3, 1)


async def test_a_share_that_may_shrink_loses_replicas_one_by_one(world: World) -> None:
    await world.clusters(**CORES)
    await place(world, "low", 6, "a", **PARTIAL)
    assert await place(world, "urgent", 2, "a", **urgent()) == {"a": 2}
    assert await where(world, "low") == [{"a": 4}]
    decision = (await world.got("low")).decision
    assert (decision.outcome, decision.remainder) == (OUTCOME_PARTIAL, 2)
    # Not below what it is worth nothing with.
    await place(world, "least", 3, "b", min_available=2, **PARTIAL)
    assert await place(world, "more", 2, "b", **urgent()) == {}
    assert await place(world, "fewer", 1, "b", **urgent()) == {"b": 1}
    assert await where(world, "least") == [{"b": 2}]


async def test_a_cluster_that_needs_no_victims_comes_first(world: World) -> None:
    await world.clusters(**CORES)
    await place(world, "low", 6, "a")
    answer = await world.schedule("urgent", 2, **urgent())
    assert "a" not in shares(answer.decision.clusters)
    assert await preempted(world, answer) == []
    assert await where(world, "low") == [{"a": 6}]


@pytest.mark.parametrize(
    ("cluster", "fields"),
    [("b", {"priority": 10}), ("b", {"preemptible": False}), ("c", {})],
    ids=["same priority", "by its own policy", "of no use"],
)
async def test_who_may_not_be_preempted_is_spared(
    world: World, cluster: str, fields: dict[str, Any]
) -> None:
    await world.clusters(**CORES)
    await place(world, "other", 3, cluster, **fields)
    await place(world, "filling", 3, "b", priority=20)
    answer = await world.schedule("urgent", only=["b"], **urgent())
    assert answer.decision.outcome == OUTCOME_UNSCHEDULABLE
    assert answer.decision.reason.endswith(str(NOTHING_HELPS))
    assert await where(world, "other") == [{cluster: 3}]
    # Asked again it is told the same, and nothing is written.
    again = await world.schedule("urgent", only=["b"], **urgent())
    assert again.decision.id == answer.decision.id


async def test_who_does_not_ask_for_it_preempts_nobody(world: World) -> None:
    await world.clusters(**CORES)
    await place(world, "low", 3, "b")
    answer = await world.schedule("high", only=["b"], priority=10)
    assert answer.decision.outcome == OUTCOME_UNSCHEDULABLE
    assert str(NOTHING_HELPS) not in answer.decision.reason
    assert await where(world, "low") == [{"b": 3}]


async def test_a_preview_shows_who_would_lose_and_preempts_nobody(world: World) -> None:
    await world.clusters(**CORES)
    await place(world, "low", 3, "b")
    shown = await world.schedule("urgent", only=["b"], preview=True, **urgent())
    assert shares(shown.decision.clusters) == {"b": 1}
    facts = {fact.name: fact.value for fact in shown.decision.trace.facts}
    assert facts["preempted"] == f"{world.namespace}/low: 3 in b, priority 0"
    assert not shown.preview_token
    assert await where(world, "low") == [{"b": 3}]


async def test_of_a_duplicated_binding_the_shares_that_are_in_the_way_are_taken(
    world: World,
) -> None:
    await world.clusters(**CORES)
    await place(world, "everywhere", 2, "", placement={"replica_scheduling": DUPLICATED})
    assert await place(world, "urgent", 3, "b", **urgent()) == {"b": 3}
    assert await where(world, "everywhere") == [{"a": 2, "c": 2}]


async def test_who_loses_may_win_elsewhere_and_no_cycle_begins(world: World) -> None:
    """Bindings that all preempt ask again and again: the most urgent have the room at last."""
    await world.clusters(**CORES)
    names = {f"u{priority}": priority for priority in range(8)}

    async def ask_all() -> None:
        await asyncio.gather(
            *(place(world, name, 1, "b", **urgent(priority)) for name, priority in names.items())
        )

    for _ in range(2):
        await ask_all()
    placed = [name for name in names if await world.shares(name)]
    assert placed == ["u5", "u6", "u7"]
    decisions = [(await world.got(name)).decision.id for name in names]
    await ask_all()
    assert [(await world.got(name)).decision.id for name in names] == decisions


async def test_so_many_replicas_are_preempted_within_a_minute_and_no_more(world: World) -> None:
    await world.clusters(a=20, b=1)
    await place(world, "low", 20, "a", **PARTIAL)
    await world.schedule(world.workload("low", only=["b"], namespace=f"{world.namespace}-more"))
    assert await place(world, "u1", IN_NAMESPACE - 1, "a", **urgent()) == {"a": IN_NAMESPACE - 1}
    refused = await world.schedule("u2", 2, only=["a"], **urgent())
    assert refused.decision.reason.endswith(str(SPENT))
    # It is tried again by itself.
    await until(lambda: world.wait_of("u2"), lambda wait: wait.state == WAIT_STATE_BACKOFF)
    assert await place(world, "u3", 1, "a", **urgent()) == {"a": 1}
    assert await place(world, "u4", 1, "a", **urgent()) == {}
    # One of another namespace may lose its share.
    assert await place(world, "u5", 1, "b", **urgent()) == {"b": 1}
    await world.plane.sql("UPDATE preemption SET at = at - interval '61 seconds'")
    assert await place(world, "u4", 1, "a", **urgent()) == {"a": 1}


async def test_a_simulation_preempts_as_the_service_does(world: World) -> None:
    await world.clusters(**CORES)
    workloads: list[ResourceBinding] = [
        world.workload("low", 6, only=["a"], priority=-5, **PARTIAL),
        world.workload("middle", 2, only=["b"], priority=3),
        world.workload("high", 3, only=["c"], priority=4),
        world.workload("first", 5, **urgent()),
        world.workload("second", 2, only=["b"], **urgent()),
        world.workload("third", 4, only=["c"], **urgent()),
    ]
    for workload in workloads:
        await world.schedule(workload)
    states = [
        ClusterState(cluster=Cluster(name=name), report=capacity(cores))
        for name, cores in CORES.items()
    ]
    bindings = [binding_from_message(workload) for workload in workloads]
    simulated = Simulation(states, SimulationOptions(), now=0.0).decide_all(bindings)
    live = [(await world.got(workload.metadata.name)).decision for workload in workloads]
    assert [(shares(each.clusters), each.remainder, str(each.reason)) for each in simulated] == [
        (shares(each.clusters), each.remainder, each.reason) for each in live
    ]
    assert shares(simulated[0].clusters) == {"a": 2}
    assert f"preempted by {world.namespace}/second" in str(simulated[1].reason)
    assert NOTHING_HELPS in clauses_of(simulated[5].reason)
