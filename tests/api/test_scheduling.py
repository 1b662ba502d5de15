"""Bindings over the wire: decided, stored, found again, and the nodes that agents find for them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import pytest

from federation.codec.strict import message_from_document
from federation.v1.agents_pb2 import NodePool, NodePools, PlaceReply
from federation.v1.resource_pb2 import ResourceBinding
from federation.v1.scheduling_pb2 import (
    OUTCOME_SCHEDULED,
    OUTCOME_UNSCHEDULABLE,
)
from lab.control_planes import AgentStream, Plane, refused, report, running_control_plane
from tests.api.calls import (
    answer_places,
    binding,
    decided,
    paged,
    scheduled,
    shares,
)
from tests.bad_bindings import BAD, bad_binding

MOST = 2**31 - 1
PRECONDITION = grpc.StatusCode.FAILED_PRECONDITION


async def test_the_answer_may_wait_for_the_agents_nodes(api: Plane, member1: AgentStream) -> None:
    asking = asyncio.create_task(scheduled(api, binding(), node_timeout_seconds=10))
    request = await answer_places(member1, "node-1")
    decision = (await asking).decision
    assert (request.decision_id, request.binding) == (decision.id, "shop/cart")
    (placement,) = decision.node_placements
    assert (placement.cluster, placement.strategy) == ("member1", "MostAllocated")
    (placed,) = placement.nodes
    assert (placed.node, placed.replicas, placed.score) == ("node-1", 3, 71)
    assert list((await decided(api, decision.id)).node_placements) == [placement]


async def test_without_waiting_the_agents_are_asked_behind_the_answer(
    fresh: Plane, database_url: str, tmp_path: Path
) -> None:
    async with fresh.connected("member1", report=report()) as stream:
        answer = await scheduled(fresh, binding())
        assert list(answer.decision.node_placements) == []
        await answer_places(stream, "node-1")
        await fresh.plane.stop()
    # What came in while it stopped was kept.
    async with running_control_plane(database_url, tmp_path) as again:
        (placement,) = (await decided(again, answer.decision.id)).node_placements
        assert placement.nodes[0].node == "node-1"


@pytest.mark.parametrize("goes", ["the agent", "the server"])
async def test_an_agent_that_goes_away_is_not_waited_for(fresh: Plane, goes: str) -> None:
    async with fresh.connected("member1", report=report()) as stream:
        asking = asyncio.create_task(scheduled(fresh, binding(), node_timeout_seconds=60))
        await stream.hear("place_request")
        if goes == "the agent":
            await stream.hang_up()
        else:
            await fresh.plane.stop()
        decision = (await asking).decision
    assert decision.outcome == OUTCOME_SCHEDULED
    assert "went away" in decision.node_placements[0].message


async def test_a_wrong_answer_is_told_and_costs_its_own_plan_only(
    api: Plane, member1: AgentStream
) -> None:
    asking = asyncio.create_task(scheduled(api, binding(), node_timeout_seconds=60))
    request = await member1.hear("place_request")
    await member1.say(place_reply=PlaceReply(request_id=request.request_id, unplaced=99))
    refusal = await member1.hear("refusal")
    assert refusal.kind == "place_reply"
    assert "placeReply.unplaced: " in refusal.reason
    decision = (await asking).decision
    assert decision.outcome == OUTCOME_SCHEDULED
    (placement,) = decision.node_placements
    assert placement.unplaced == 3
    assert "the answer of the agent of cluster member1 is wrong" in placement.message


async def test_lists_page_by_namespace_and_name_and_are_watched_from_the_first(
    api: Plane,
) -> None:
    for name in ("b", "a"):
        await scheduled(api, binding(name))
    first = await api.ask("ListBindings", page_size=1)
    await scheduled(api, binding("c"))
    second = await api.ask("ListBindings", page_size=1, page_token=first.next_page_token)
    assert second.resource_version == first.resource_version != ""
    rows = await paged(api, "ListBindings", "bindings", 2, namespace="shop")
    assert [each.metadata.name for each in rows] == ["a", "b", "c"]
    assert not (await api.ask("ListBindings", namespace="elsewhere")).bindings


async def test_every_wrong_binding_is_refused_by_its_field(api: Plane) -> None:
    for what, (spec, field, rule) in BAD.items():
        wrong = message_from_document(bad_binding(spec), ResourceBinding)
        refusal = await refused(scheduled(api, wrong))
        assert refusal.code is grpc.StatusCode.INVALID_ARGUMENT, what
        assert refusal.violations == {field: rule}, what


async def test_replicas_of_all_clusters_may_exceed_an_int32(api: Plane) -> None:
    free = {"cpu": 1 << 50, "memory": 1 << 60, "pods": 1 << 40}
    pools = NodePools(
        pools=[NodePool()],
        resources=[*free],
        cell_pools=[0],
        counts=[1],
        minimums=[*free.values()],
        spreads=[0, 0, 0],
        surpluses=[0, 0, 0],
    )
    endless = report(nodes=1, allocatable=free, pools=pools)
    async with api.connected("m1", report=endless), api.connected("m2", report=endless):
        wanted = message_from_document(bad_binding({"replicas": MOST}), ResourceBinding)
        assert shares((await scheduled(api, wanted)).decision) == {"m1": MOST, "m2": MOST}


async def test_replicas_of_all_components_may_exceed_an_int32(
    api: Plane, member1: AgentStream
) -> None:
    needs = {"resourceRequest": {"cpu": 1}}
    components = [{"name": name, "replicas": MOST, "replicaRequirements": needs} for name in "abc"]
    spec = {"replicas": 0, "components": components}
    wanted = message_from_document(bad_binding(spec), ResourceBinding)
    decision = (await scheduled(api, wanted)).decision
    assert (decision.outcome, decision.remainder) == (OUTCOME_UNSCHEDULABLE, 3 * MOST)
