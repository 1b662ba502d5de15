"""Decisions about one binding after another: what is kept of them, and what stands."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import grpc
import pytest

from federation.services.ports import CONNECTION_LOST
from federation.services.scheduling import attempt
from federation.v1.resource_pb2 import (
    ClusterAffinity,
    ClusterAffinityTerm,
    NodeClaim,
    Suspension,
    TargetCluster,
)
from federation.v1.scheduling_pb2 import (
    OUTCOME_NO_FIT,
    OUTCOME_PARTIAL,
    OUTCOME_SCHEDULED,
    OUTCOME_UNSCHEDULABLE,
    WAIT_STATE_UNSCHEDULABLE,
)
from lab.control_planes import refused
from lab.fake_agents import never, on_no_node, on_nodes
from lab.patience import until
from tests.api.calls import component
from tests.api.world import World, code_of, shares

CORES = {"a": 6, "b": 3, "c": 3}
NOT_FOUND = grpc.StatusCode.NOT_FOUND


async def decisions(world: World) -> list[Any]:
    """Of the test's namespace, the newest first."""
    return list((await world.plane.ask("ListDecisions", namespace=world.namespace)).decisions)


async def test_a_new_binding_is_decided_and_committed_with_its_trace(world: World) -> None:
    await world.clusters(**CORES)
    world.clock.advance(1000)
    answer = await world.schedule("web", 12)
    assert answer.decision.outcome == OUTCOME_SCHEDULED
    assert shares(answer.decision.clusters) == CORES
    assert not answer.queued
    found = await world.got()
    assert found.binding == answer.binding
    assert found.decision.id == answer.decision.id
    assert shares(found.binding.spec.clusters) == CORES
    assert (found.binding.metadata.generation, found.decision.binding_generation) == (1, 1)
    assert found.binding.status.HasField("last_scheduled_time")
    kept = (await world.decision(answer.decision.id)).trace
    assert kept == answer.decision.trace or not answer.decision.HasField("trace")
    assert [each.name for each in kept.clusters] == ["a", "b", "c"]
    assert {each.report_sequence for each in kept.clusters} == {1}
    assert len(await decisions(world)) == 1


@pytest.mark.parametrize("decision_id", ["nonsense", "00000000-0000-0000-0000-000000000000"])
async def test_an_unknown_decision_is_not_found(world: World, decision_id: str) -> None:
    assert await code_of(world.decision(decision_id)) is NOT_FOUND


async def test_a_name_that_was_cut_short_is_told_whole(world: World) -> None:
    await world.clusters(**CORES)
    ours, names = world.namespace, ("web-deployment", "web-job", "website", "web-a", "web-b")
    await world.batch(*(world.workload(name) for name in names))
    for call in (world.got("web"), world.delete("web"), world.release("web")):
        assert (await refused(call)).message == (
            f"There is no binding '{ours}/web'. "
            f"Is it '{ours}/web-a' or '{ours}/web-b' or '{ours}/web-deployment'?"
        )
    assert (await refused(world.got("we"))).message == f"There is no binding '{ours}/we'."


async def test_asking_again_is_answered_by_the_standing_decision(world: World) -> None:
    await world.clusters(**CORES)
    first, again = await world.schedule("web", 9), await world.schedule("web", 9)
    assert (again.decision.id, again.binding) == (first.decision.id, first.binding)
    assert len(await decisions(world)) == 1


async def test_another_spec_is_another_generation_and_scaling_is_steady(world: World) -> None:
    await world.clusters(**CORES)
    first = await world.schedule("web", 6)
    more = world.workload("web", 8)
    more.metadata.annotations["a"] = "b"
    answer = await world.schedule(more)
    assert answer.decision.binding_generation == answer.binding.metadata.generation == 2
    after = Counter(shares(answer.decision.clusters))
    assert after.total() == 8
    assert not Counter(shares(first.decision.clusters)) - after
    more.metadata.annotations["c"] = "d"
    noted = (await world.schedule(more)).binding.metadata
    assert (noted.generation, dict(noted.annotations)) == (2, {"a": "b", "c": "d"})


async def test_the_stored_placement_wins_unless_it_is_to_be_adopted(world: World) -> None:
    await world.clusters(**CORES)

    async def asked(cluster: str, **fields: Any) -> dict[str, int]:
        placed = [TargetCluster(name=cluster, replicas=2)]
        answer = await world.schedule("web", 2, clusters=placed, **fields)
        return shares(answer.decision.clusters)

    assert await asked("c") == {"c": 2}
    assert await asked("b") == {"c": 2}
    assert await asked("b", adopt=True) == {"b": 2}


async def test_shares_in_clusters_that_are_gone_are_placed_again(world: World) -> None:
    await world.clusters(**CORES)
    lost = [TargetCluster(name="b", replicas=1), TargetCluster(name="gone", replicas=3)]
    placed = shares((await world.schedule("web", 4, clusters=lost)).decision.clusters)
    assert "gone" not in placed
    assert sum(placed.values()) == 4


async def test_what_cannot_be_placed_waits_with_the_placement_it_has(world: World) -> None:
    await world.clusters(**CORES)
    first = await world.schedule("web", 9)
    too_many = await world.schedule("web", 1000)
    assert too_many.queued
    decision = too_many.decision
    assert (decision.outcome, list(decision.clusters)) == (OUTCOME_UNSCHEDULABLE, [])
    assert decision.reason
    found = await world.got()
    assert found.decision.id == decision.id
    assert found.binding.spec.clusters == first.binding.spec.clusters
    assert found.binding.status.last_scheduled_time == first.binding.status.last_scheduled_time
    assert (found.binding.spec.replicas, found.binding.metadata.generation) == (1000, 2)
    assert (found.wait.state, found.wait.position) == (WAIT_STATE_UNSCHEDULABLE, 1)
    assert found.wait.remainder == 1000
    # What is left of a placement in parts waits as well.
    partial = await world.schedule("parts", 1000, placement={"partial": True})
    assert (partial.decision.outcome, partial.queued) == (OUTCOME_PARTIAL, True)
    assert (await world.wait_of("parts")).remainder == partial.decision.remainder
    assert not (await world.schedule("web", 9)).queued
    assert not (await world.got()).HasField("wait")


@pytest.mark.parametrize("is_filtered", [False, True], ids=["capacity", "filters"])
async def test_who_does_not_want_to_wait_leaves_nothing_behind(
    world: World, is_filtered: bool
) -> None:
    await world.clusters(**CORES)
    asked = world.workload("web", 9 if is_filtered else 1000, only=["z"] if is_filtered else [])
    answer = await world.schedule(asked, wait=False)
    assert answer.decision.outcome == (OUTCOME_NO_FIT if is_filtered else OUTCOME_UNSCHEDULABLE)
    assert (answer.decision.id, answer.HasField("binding")) == ("", False)
    assert await code_of(world.got()) is NOT_FOUND
    waiting = await world.schedule(asked)
    assert waiting.queued
    assert (await world.schedule(asked)).decision.id == waiting.decision.id
    # A known binding keeps the record of what was asked for, also that it waits no more.
    again = await world.schedule(asked, wait=False)
    assert not again.queued
    assert (await world.schedule(asked, wait=False)).decision.id == again.decision.id
    assert len(await decisions(world)) == 2
    assert await world.queued() == []


async def test_another_uid_is_refused_until_the_old_binding_is_deleted(world: World) -> None:
    await world.clusters(**CORES)
    await world.schedule("web", uid="one")
    refusal = await refused(world.schedule("web", uid="other"))
    assert refusal.code is grpc.StatusCode.FAILED_PRECONDITION
    assert "one" in refusal.message
    assert (await world.schedule("web")).binding.metadata.uid == "one"
    await world.delete()
    assert await code_of(world.got()) is await code_of(world.delete()) is NOT_FOUND
    assert (await world.schedule("web", uid="other")).decision.binding_generation == 1
    refusal = await refused(world.schedule("stopped", suspension=Suspension(scheduling=True)))
    assert "suspended" in refusal.message
    assert await code_of(world.got("stopped")) is NOT_FOUND


async def test_a_triggered_reschedule_divides_anew_once(world: World) -> None:
    await world.clusters(**CORES)
    asked = world.workload("web", 8)
    first = shares((await world.schedule(asked)).decision.clusters)
    await world.report("b", 60)
    steady = await world.schedule(asked)
    assert shares(steady.decision.clusters) == first
    scheduled_at = steady.binding.status.last_scheduled_time
    asked.spec.reschedule_triggered_at.seconds = scheduled_at.seconds - 60
    assert shares((await world.schedule(asked)).decision.clusters) == first
    # By the clock of the database, which nobody holds.
    asked.spec.reschedule_triggered_at.seconds = scheduled_at.seconds + 3600
    fresh = shares((await world.schedule(asked)).decision.clusters)
    assert first != fresh == {"b": 8}
    await world.report("a", 60)
    assert shares((await world.schedule(asked)).decision.clusters) == fresh


async def test_of_many_schedulings_at_once_each_is_decided_on_the_one_before(
    world: World,
) -> None:
    await world.clusters(**CORES)
    for first in (1, 5, 9):
        counts = range(first, first + 4)
        await asyncio.gather(*(world.schedule("web", count) for count in counts))
    found = await world.got()
    made = await decisions(world)
    assert found.decision.id == made[0].id
    assert sum(shares(found.binding.spec.clusters).values()) == found.binding.spec.replicas
    assert len(made) == 12
    held: dict[str, int] = {}
    for each in reversed(made):
        trace = (await world.decision(each.id)).trace
        previous = {row.name: row.previous_replicas for row in trace.clusters}
        assert {name: count for name, count in previous.items() if count > 0} == held
        held = shares(each.clusters)


async def test_bindings_are_listed_in_pages(world: World) -> None:
    await world.clusters(**CORES)
    await world.batch(*(world.workload(name) for name in ("z", "x", "y")))

    async def page(token: str = "") -> tuple[list[str], str]:
        fields = {"namespace": world.namespace, "page_size": 2, "page_token": token}
        listed = await world.plane.ask("ListBindings", **fields)
        return [each.metadata.name for each in listed.bindings], listed.next_page_token

    names, token = await page()
    assert names == ["x", "y"]
    assert await page(token) == (["z"], "")


async def test_a_workload_of_components_goes_whole_to_one_cluster_that_holds_a_set(
    world: World,
) -> None:
    await world.clusters(**CORES)
    job = [component("manager", 1), component("worker", 4)]
    answer = await world.schedule("job", 0, components=job, node_timeout_seconds=60)
    assert shares(answer.decision.clusters).keys() == {"a"}
    shown = {share.component: share.replicas for share in world.agents["a"].orders[0].shares}
    assert shown == {"manager": 1, "worker": 4}
    more = await world.schedule("more", 0, components=[component("one", 7)])
    assert more.decision.outcome == OUTCOME_UNSCHEDULABLE


async def test_affinity_groups_do_not_fail_back_by_themselves(world: World) -> None:
    await world.clusters(**CORES)
    groups = [
        ClusterAffinityTerm(affinity_name=name, cluster_names=[cluster])
        for name, cluster in (("near", "b"), ("far", "a"))
    ]
    fields = {"placement": {"cluster_affinities": groups, "cluster_affinity": ClusterAffinity()}}
    asked = world.workload("web", 5, **fields)
    asked.spec.placement.ClearField("cluster_affinity")
    assert shares((await world.schedule(asked)).decision.clusters) == {"a": 5}
    await world.report("b", 50)
    asked.spec.replicas = 6
    assert shares((await world.schedule(asked)).decision.clusters) == {"a": 6}


async def test_a_cluster_that_is_not_seen_keeps_its_shares_and_gets_no_more(world: World) -> None:
    await world.clusters(**CORES)
    before = shares((await world.schedule("web", 4)).decision.clusters)
    world.agents["a"].blind = "the API server is gone"
    await world.report("a", 6)
    after = shares((await world.schedule("web", 7)).decision.clusters)
    assert after["a"] == before["a"]
    refusal = await world.schedule("api", 7)
    assert refusal.decision.outcome == OUTCOME_UNSCHEDULABLE
    assert "cannot be seen" in refusal.decision.reason


async def test_agents_say_where_their_shares_go_and_one_costs_its_own_plan_only(
    world: World,
) -> None:
    await world.clusters(**CORES)
    world.agents["a"].place = never
    world.agents["b"].place = on_no_node("no node")
    answer = await world.schedule("web", 12, node_timeout_seconds=1)
    late, without, placed = answer.decision.node_placements
    assert (late.cluster, late.unplaced, len(late.nodes)) == ("a", 6, 0)
    assert late.message == "the agent did not answer within 1 s"
    assert (without.unplaced, without.message) == (3, "“no node”")
    assert [(node.node, node.replicas) for node in placed.nodes] == [("c-n1", 3)]
    kept = await world.decision(answer.decision.id)
    assert list(kept.node_placements) == list(answer.decision.node_placements)
    (order,) = world.agents["a"].orders
    assert (order.decision_id, order.binding) == (answer.decision.id, f"{world.namespace}/web")
    await world.agents["c"].leave()
    world.agents["a"].place = on_nodes("n1")
    gone = await world.schedule("gone", 1, only=["c"], node_timeout_seconds=60)
    assert not gone.decision.node_placements


async def test_agents_are_asked_about_labels_that_their_pools_do_not_carry(world: World) -> None:
    await world.clusters(a=6, b=3)

    async def ask(name: str) -> Any:
        asked = world.workload(name)
        claim = NodeClaim(node_selector={"disk": "ssd"})
        asked.spec.replica_requirements.node_claim.CopyFrom(claim)
        return await world.schedule(asked)

    async def questions() -> list[int]:
        await world.queued()
        return [len(world.agents[name].questions) for name in "ab"]

    await world.schedule("plain")
    assert await questions() == [0, 0]
    assert (await ask("picky")).decision.outcome == OUTCOME_UNSCHEDULABLE
    await until(questions, lambda counts: counts == [1, 1])
    (shape,) = world.agents["a"].questions[0].shapes
    assert dict(shape.node_claim.node_selector) == {"disk": "ssd"}
    # An agent is not asked again and again.
    world.clock.advance(5)
    await ask("again")
    assert await questions() == [1, 1]
    world.clock.advance(30)
    await ask("later")
    await until(questions, lambda counts: min(counts) >= 2)


async def test_a_decision_rests_on_the_nodes_and_not_on_their_sum(world: World) -> None:
    await world.clusters(a=1)
    await world.agents["a"].report(cores=1, node_count=2)
    answer = await world.schedule("web", 8, request={"cpu": "600m"})
    (row,) = (await world.decision(answer.decision.id)).trace.clusters
    assert row.available_replicas == 2
    # Sets of components as well: by the sum three parts would fit.
    parts = [component("part", 3, "600m")]
    answer = await world.schedule("job", 0, components=parts)
    assert answer.decision.outcome == OUTCOME_UNSCHEDULABLE


async def test_while_the_store_is_away_nothing_is_promised(world: World) -> None:
    await world.clusters(**CORES)
    world.store.is_reachable = False
    for call in (world.schedule("web"), world.plane.ask("ListBindings")):
        assert await code_of(call) is grpc.StatusCode.UNAVAILABLE
    world.store.is_reachable = True
    assert await code_of(world.got()) is NOT_FOUND
    # What goes away before the commit keeps nothing, of none of those that were decided at once.
    world.store.fail_at("journal.append")
    answers = await asyncio.gather(
        *(world.schedule(name, 2, only=["a"]) for name in "xyz"), return_exceptions=True
    )
    assert any(isinstance(answer, grpc.aio.AioRpcError) for answer in answers)
    kept = [name for name in "xyz" if await code_of(world.got(name)) is not NOT_FOUND]
    placed = [answer for answer in answers if not isinstance(answer, BaseException)]
    assert len(kept) == len(placed)
    for name in kept:
        await world.delete(name)
    assert shares((await world.schedule("all", 6, only=["a"])).decision.clusters) == {"a": 6}


async def test_who_gives_up_harms_nobody_else(world: World) -> None:
    await world.clusters(**CORES)
    calls = [asyncio.create_task(world.schedule(name, only=["a"])) for name in "xyz"]
    again = asyncio.create_task(world.schedule("y", 2, only=["a"]))
    await asyncio.sleep(0)
    calls[1].cancel()
    answers = await asyncio.gather(calls[0], calls[2], again)
    assert [shares(each.decision.clusters) for each in answers] == [{"a": 1}, {"a": 1}, {"a": 2}]
    assert [await world.held(name) for name in "xyz"] == [{"a": 1}, {"a": 2}, {"a": 1}]


async def test_the_same_request_is_answered_once(world: World) -> None:
    await world.clusters(**CORES)
    key = f"{world.namespace}-key"
    asked = world.workload("web", 2, only=["a"])
    answers = await asyncio.gather(*(world.schedule(asked, idempotency_key=key) for _ in range(2)))
    assert len({answer.decision.id for answer in answers}) == len(await decisions(world)) == 1
    # A standing decision is the answer to another key. Answers outlive later decisions.
    await world.schedule(asked, idempotency_key=f"{key}-1")
    await world.schedule("web", 2, only=["b"])
    for name in (key, f"{key}-1"):
        again = await world.schedule(asked, idempotency_key=name)
        assert again.decision.id == answers[0].decision.id
    refusal = await refused(world.schedule("web", 2, only=["c"], idempotency_key=key))
    assert refusal.reason == "IDEMPOTENCY_KEY_REUSED"
    assert len(await decisions(world)) == 2
    # A key is free after a refusal.
    fields = {"only": ["a"], "idempotency_key": f"{key}-2"}
    refused_once = await world.schedule("large", 7, wait=False, **fields)
    assert refused_once.decision.outcome == OUTCOME_UNSCHEDULABLE
    await world.delete()
    assert shares((await world.schedule("large", 6, **fields)).decision.clusters) == {"a": 6}


async def test_an_answer_that_was_lost_is_given_again_under_its_key(world: World) -> None:
    await world.clusters(**CORES)
    key = f"{world.namespace}-key"
    world.store.forget_outcome("decisions.add_all")
    asked = world.workload("web", 2, only=["a"])
    assert await code_of(world.schedule(asked, idempotency_key=key)) is (
        grpc.StatusCode.UNAVAILABLE
    )
    again = await world.schedule(asked, idempotency_key=key)
    assert shares(again.decision.clusters) == {"a": 2}
    assert len(await decisions(world)) == 1


async def test_who_is_decided_under_locks_leaves_a_cluster_where_it_may_not_be_any_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt, "MAX_TRIES_WITHOUT_LOCKS", 0)
    await world.clusters(**CORES)
    assert await world.placed("web", 3, "b") == {"b": 3}
    assert await world.placed("web", 3, "a") == {"a": 3}
    assert await world.held() == {"a": 3}


@pytest.mark.parametrize("losses", [1, 2])
async def test_a_connection_that_was_lost_costs_another_try_and_no_more(
    world: World, losses: int
) -> None:
    await world.clusters(**CORES)
    for _ in range(losses):
        world.store.fail_at("decisions.add_all", CONNECTION_LOST)
    codes = [grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE]
    assert await code_of(world.schedule("web", 2)) is codes[losses - 1]
    assert len(await decisions(world)) == 2 - losses


@pytest.mark.expected_errors("an observer failed")
async def test_a_fault_of_ours_after_the_commit_lets_nothing_be_decided_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise RuntimeError("a fault of the observer")

    await world.clusters(**CORES)
    fleet = world.plane.plane.parts.fleet
    observers = {kind: [fail, *told] for kind, told in fleet._observers.items()}
    monkeypatch.setattr(fleet, "_observers", observers)
    answers = await asyncio.gather(*(world.schedule(name, 2, only=["a"]) for name in "xyz"))
    assert [shares(each.decision) for each in answers] == [{"a": 2}] * 3
    assert len(await decisions(world)) == 3
