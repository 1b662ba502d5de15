from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest

from federation.v1.agents_pb2 import NodeShare, PlaceReply
from federation.v1.resource_pb2 import (
    ObjectMeta,
    ObjectReference,
    Placement,
    ReplicaRequirements,
    ReplicaSchedulingStrategy,
    ResourceBinding,
    ResourceBindingSpec,
)
from federation.v1.scheduling_pb2 import (
    OUTCOME_NO_FIT,
    OUTCOME_SCHEDULED,
    DeleteBindingRequest,
    GetBindingRequest,
    GetDecisionRequest,
    ListBindingsRequest,
    ScheduleRequest,
)
from lab.control_planes import (
    AgentStream,
    RunningControlPlane,
    refused,
    report,
    running_control_plane,
)


def binding(name: str = "cart", *, replicas: int = 3, **fields: Any) -> ResourceBinding:
    """A workload of one-core replicas, divided by what is available."""
    strategy = ReplicaSchedulingStrategy(
        replica_scheduling_type="Divided", replica_division_preference="Aggregated"
    )
    return ResourceBinding(
        metadata=ObjectMeta(namespace="shop", name=name, uid=fields.pop("uid", "")),
        spec=ResourceBindingSpec(
            resource=ObjectReference(
                api_version="apps/v1", kind="Deployment", namespace="shop", name=name, uid="u1"
            ),
            replicas=replicas,
            replica_requirements=ReplicaRequirements(resource_request={"cpu": "1"}),
            placement=Placement(replica_scheduling=strategy),
            **fields,
        ),
    )


async def scheduled(running: RunningControlPlane, wanted: ResourceBinding, **fields: Any) -> Any:
    return await running.admin.call(
        running.admin.scheduling.Schedule, ScheduleRequest(binding=wanted, **fields)
    )


async def got(running: RunningControlPlane, name: str = "cart") -> Any:
    return await running.admin.call(
        running.admin.scheduling.GetBinding, GetBindingRequest(namespace="shop", name=name)
    )


async def decided(running: RunningControlPlane, decision_id: str) -> Any:
    answer = await running.admin.call(
        running.admin.scheduling.GetDecision, GetDecisionRequest(id=decision_id)
    )
    return answer.decision


async def answer_places(stream: AgentStream, node: str) -> Any:
    """Put all replicas of the next question on one node; the question."""
    request = await stream.hear("place_request")
    replicas = sum(share.replicas for share in request.shares)
    nodes = [NodeShare(node=node, replicas=replicas, score=71)]
    await stream.say(
        place_reply=PlaceReply(request_id=request.request_id, nodes=nodes, strategy="MostAllocated")
    )
    return request


async def test_a_binding_is_decided_stored_and_found_again(running: RunningControlPlane) -> None:
    async with running.connected("member1", report=report()):
        answer = await scheduled(running, binding(replicas=3))
        assert answer.decision.outcome == OUTCOME_SCHEDULED
        assert [(each.name, each.replicas) for each in answer.decision.clusters] == [("member1", 3)]
        assert not answer.queued
        assert answer.binding.metadata.resource_version
        found = await got(running)
        assert found.binding == answer.binding
        assert found.decision.id == answer.decision.id
        assert not found.decision.HasField("trace")
        decision = await decided(running, answer.decision.id)
        assert [each.name for each in decision.trace.clusters] == ["member1"]


async def test_the_answer_may_wait_for_the_agents_nodes(running: RunningControlPlane) -> None:
    async with running.connected("member1", report=report()) as stream:
        asking = asyncio.create_task(scheduled(running, binding(), node_timeout_seconds=10))
        request = await answer_places(stream, "node-1")
        decision = (await asking).decision
        assert (request.decision_id, request.binding) == (decision.id, "shop/cart")
        (placement,) = decision.node_placements
        assert (placement.cluster, placement.strategy) == ("member1", "MostAllocated")
        (placed,) = placement.nodes
        assert (placed.node, placed.replicas, placed.score) == ("node-1", 3, 71)
        stored = (await decided(running, decision.id)).node_placements
        assert list(stored) == [placement]


async def test_without_waiting_the_agents_are_asked_behind_the_answer(
    running: RunningControlPlane, database_url: str, tmp_path: Path
) -> None:
    async with running.connected("member1", report=report()) as stream:
        answer = await scheduled(running, binding())
        assert list(answer.decision.node_placements) == []
        await answer_places(stream, "node-1")
        await running.plane.stop()
    # What came in while it stopped was kept.
    async with running_control_plane(database_url, tmp_path) as again:
        (placement,) = (await decided(again, answer.decision.id)).node_placements
        assert placement.nodes[0].node == "node-1"


async def test_a_silent_agent_costs_its_own_plan_only(running: RunningControlPlane) -> None:
    async with running.connected("member1", report=report()) as stream:
        answer = await scheduled(running, binding(), node_timeout_seconds=0.1)
        (placement,) = answer.decision.node_placements
        assert (placement.unplaced, list(placement.nodes)) == (3, [])
        assert "did not answer within 0.1 s" in placement.message
        await stream.hear("place_request")


async def test_an_agent_that_goes_away_is_not_waited_for(running: RunningControlPlane) -> None:
    async with AsyncExitStack() as until_gone:
        stream = await until_gone.enter_async_context(running.connected("member1", report=report()))
        asking = asyncio.create_task(scheduled(running, binding(), node_timeout_seconds=60))
        await stream.hear("place_request")
        await until_gone.aclose()
        (placement,) = (await asking).decision.node_placements
        assert "went away" in placement.message


async def test_a_decision_is_answered_even_when_the_server_stops_meanwhile(
    running: RunningControlPlane,
) -> None:
    async with running.connected("member1", report=report()) as stream:
        asking = asyncio.create_task(scheduled(running, binding(), node_timeout_seconds=60))
        await stream.hear("place_request")
        await running.plane.stop()
        decision = (await asking).decision
        assert decision.outcome == OUTCOME_SCHEDULED
        assert "went away" in decision.node_placements[0].message


async def test_a_wrong_answer_is_told_and_costs_its_own_plan_only(
    running: RunningControlPlane,
) -> None:
    async with running.connected("member1", report=report()) as stream:
        asking = asyncio.create_task(scheduled(running, binding(), node_timeout_seconds=60))
        request = await stream.hear("place_request")
        await stream.say(place_reply=PlaceReply(request_id=request.request_id, unplaced=99))
        refusal = await stream.hear("refusal")
        assert refusal.kind == "place_reply"
        assert "placeReply.unplaced: " in refusal.reason
        answer = await asking
        assert answer.decision.outcome == OUTCOME_SCHEDULED
        (placement,) = answer.decision.node_placements
        assert placement.unplaced == 3
        assert "the answer of the agent of cluster member1 is wrong" in placement.message


async def test_nothing_fits_nowhere_is_an_answer(running: RunningControlPlane) -> None:
    answer = await scheduled(running, binding(), wait=False)
    assert answer.decision.outcome == OUTCOME_NO_FIT
    assert list(answer.decision.clusters) == []
    assert answer.decision.reason
    assert not answer.HasField("binding")
    refusal = await refused(got(running))
    assert refusal.code is grpc.StatusCode.NOT_FOUND


async def test_another_uid_is_a_failed_precondition(running: RunningControlPlane) -> None:
    await scheduled(running, binding(uid="one"))
    refusal = await refused(scheduled(running, binding(uid="other")))
    assert refusal.code is grpc.StatusCode.FAILED_PRECONDITION
    admin = running.admin

    def delete(uid: str) -> Any:
        request = DeleteBindingRequest(namespace="shop", name="cart", uid=uid)
        return admin.call(admin.scheduling.DeleteBinding, request)

    refusal = await refused(delete("other"))
    assert refusal.code is grpc.StatusCode.FAILED_PRECONDITION
    await delete("one")
    await scheduled(running, binding(uid="other"))


@pytest.mark.parametrize("seconds", [-1.0, 61.0, float("nan"), float("inf")])
async def test_waiting_for_nodes_is_bounded(running: RunningControlPlane, seconds: float) -> None:
    refusal = await refused(scheduled(running, binding(), node_timeout_seconds=seconds))
    assert refusal.code is grpc.StatusCode.INVALID_ARGUMENT
    assert set(refusal.violations) == {"nodeTimeoutSeconds"}


async def test_a_bad_binding_names_every_broken_rule(running: RunningControlPlane) -> None:
    bad = binding(replicas=2**31)
    bad.spec.replica_requirements.resource_request["cpu"] = "lots"
    bad.spec.placement.replica_scheduling.replica_scheduling_type = "Halved"
    refusal = await refused(scheduled(running, bad))
    assert refusal.code is grpc.StatusCode.INVALID_ARGUMENT
    assert {
        "spec.replicas",
        "spec.replicaRequirements.resourceRequest[cpu]",
        "spec.placement.replicaScheduling.replicaSchedulingType",
    } <= set(refusal.violations)
    refusal = await refused(scheduled(running, ResourceBinding()))
    assert refusal.code is grpc.StatusCode.INVALID_ARGUMENT


async def test_lists_page_by_namespace_and_name(running: RunningControlPlane) -> None:
    names = ["a", "b", "c"]
    for name in reversed(names):
        await scheduled(running, binding(name))
    admin = running.admin
    found: list[str] = []
    token = ""
    while True:
        request = ListBindingsRequest(namespace="shop", page_size=2, page_token=token)
        page = await admin.call(admin.scheduling.ListBindings, request)
        found += [each.metadata.name for each in page.bindings]
        token = page.next_page_token
        if not token:
            break
    assert found == names
    elsewhere = ListBindingsRequest(namespace="elsewhere")
    assert list((await admin.call(admin.scheduling.ListBindings, elsewhere)).bindings) == []


async def test_names_that_are_missing_or_impossible(running: RunningControlPlane) -> None:
    admin = running.admin
    for request in (
        GetBindingRequest(),
        GetBindingRequest(name="a\x00"),
        DeleteBindingRequest(),
        DeleteBindingRequest(name="a", uid="\x00"),
        GetDecisionRequest(),
        GetDecisionRequest(id="\x00"),
        ListBindingsRequest(namespace="\x00"),
    ):
        method = getattr(admin.scheduling, type(request).__name__.removesuffix("Request"))
        refusal = await refused(admin.call(method, request))
        assert refusal.code is grpc.StatusCode.INVALID_ARGUMENT, request
    for request in (
        GetBindingRequest(name="a"),
        DeleteBindingRequest(name="a"),
        GetDecisionRequest(id="a"),
        GetDecisionRequest(id="9" * 40),
    ):
        method = getattr(admin.scheduling, type(request).__name__.removesuffix("Request"))
        assert (await refused(admin.call(method, request))).code is grpc.StatusCode.NOT_FOUND
