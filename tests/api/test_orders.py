"""Orders to agents: what they say, how they travel, and which answers are taken for one."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from federation.agents import session
from federation.agents.messages import MAX_NODE_SHARES
from federation.rpc import placing
from federation.v1.agents_pb2 import NodeShare, PlaceReplies, PlaceReply
from federation.v1.resource_pb2 import Component, ReplicaRequirements
from lab.commanded_stores import CommandedStore
from lab.control_planes import AgentStream, Plane, heartbeat, hello, report
from lab.fake_agents import FakeAgent
from lab.patience import until
from tests.api.calls import binding, decided, scheduled

LARGE_NUMBER = 201.0


def asked(api: Plane, name: str = "cart", **fields: Any) -> asyncio.Task[Any]:
    """The answer to a Schedule that waits for its nodes."""
    return asyncio.create_task(scheduled(api, binding(name, **fields), node_timeout_seconds=60))


async def order(stream: AgentStream) -> Any:
    return await stream.hear("place_request")


async def reply(stream: AgentStream, asked_for: Any, **fields: Any) -> None:
    await stream.say(place_reply=PlaceReply(request_id=asked_for.request_id, **fields))


async def test_an_order_has_its_shares_with_quantities_and_a_reply_becomes_a_plan(
    api: Plane, member1: AgentStream
) -> None:
    wanted = binding(
        components=[
            Component(
                name=name,
                replicas=count,
                replica_requirements=ReplicaRequirements(resource_request={"cpu": "500m"}),
            )
            for name, count in (("web", 3), ("db", 1))
        ]
    )
    wanted.spec.ClearField("replica_requirements")
    wanted.spec.replicas = 0
    asking = asyncio.create_task(scheduled(api, wanted, node_timeout_seconds=60))
    told = await order(member1)
    assert [(each.component, each.replicas) for each in told.shares] == [("web", 3), ("db", 1)]
    assert told.shares[0].replica_requirements.resource_request == {"cpu": "500m"}
    assert not told.planned
    nodes = [
        NodeShare(node="n1", component="web", replicas=2, score=71),
        NodeShare(node="n1", component="db", replicas=1, score=100),
    ]
    said = {"unplaced": 1, "message": "no more nodes" * 1000, "strategy": "MostAllocated"}
    await reply(member1, told, nodes=nodes, **said)
    (plan,) = (await asking).decision.node_placements
    assert [(each.node, each.component, each.replicas, each.score) for each in plan.nodes] == [
        ("n1", "web", 2, 71),
        ("n1", "db", 1, 100),
    ]
    assert (plan.cluster, plan.unplaced, plan.strategy) == ("member1", 1, "MostAllocated")
    assert len(plan.message) == len("“”") + 1000


def on(node: str = "n", **fields: Any) -> dict[str, Any]:
    return {"nodes": [NodeShare(node=node, replicas=fields.pop("replicas", 3), **fields)]}


BAD_REPLIES: list[tuple[str, dict[str, Any]]] = [
    ("placeReply.unplaced", {"unplaced": 2}),
    ("placeReply.unplaced", {"unplaced": 4}),
    ("placeReply.unplaced", {"unplaced": -1, **on(replicas=4)}),
    ("placeReply.nodes", on(component="other")),
    ("placeReply.nodes[0].replicas", {"unplaced": 3, **on(replicas=0)}),
    ("placeReply.nodes[0].score", on(score=101)),
    ("placeReply.nodes[0].total", on(total=LARGE_NUMBER, total_scale=200.0)),
    ("placeReply.nodes[0].totalScale", on(total_scale=float("nan"))),
    ("placeReply.nodes[0].node", on("")),
    ("placeReply.nodes[0].node", on("n" * 254)),
    # Nodes are claimed for all that was to be planned, or for nothing.
    ("placeReply.claimed", {"claimed": True, **on()}),
    (f"at most {MAX_NODE_SHARES} are looked at", {"nodes": [NodeShare()] * (MAX_NODE_SHARES + 1)}),
]


async def test_a_reply_that_does_not_answer_its_order_is_refused_by_field(
    api: Plane, member1: AgentStream
) -> None:
    for number, (said, fields) in enumerate(BAD_REPLIES):
        asking = asked(api, f"web{number}", replicas=3)
        await reply(member1, await order(member1), **fields)
        assert said in (await member1.hear("refusal")).reason
        (plan,) = (await asking).decision.node_placements
        assert (plan.unplaced, said in plan.message) == (3, True)
        await api.ask("DeleteBinding", namespace="shop", name=f"web{number}")


async def test_orders_that_wait_travel_together_as_far_as_they_fit_and_are_answered_in_any_order(
    api: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AgentStream(await api.enrolled("member1"), "member1") as stream:
        await stream.say(hello=hello(takes_place_requests=True))
        await stream.hear("welcome")
        await stream.say(report=report())
        await stream.hear("ack")
        items = [{"binding": binding(f"web{number}", replicas=1)} for number in range(4)]
        await api.ask("ScheduleBatch", items=items)
        told, sizes = [], []
        while len(told) < len(items):
            message = await stream.next()
            assert message is not None
            requests = list(message.place_requests.requests)
            if message.HasField("place_request"):
                requests = [message.place_request]
            told += requests
            sizes.append(len(requests))
        assert max(sizes) > 1
        # Of answers that come together a wrong one harms itself only.
        wrong, *others = reversed(told)
        replies = [PlaceReply(request_id=wrong.request_id, unplaced=7)]
        replies += [
            PlaceReply(request_id=each.request_id, **on(each.binding[5:], replicas=1))
            for each in others
        ]
        await stream.say(place_replies=PlaceReplies(replies=replies))
        assert (await stream.hear("refusal")).kind == "place_reply"

        async def nodes(name: str) -> list[str]:
            found = await api.ask("GetBinding", namespace="shop", name=name)
            plans = (await decided(api, found.decision.id)).node_placements
            return [node.node for plan in plans for node in plan.nodes]

        for each in others:
            name = each.binding.removeprefix("shop/")
            await until(lambda of=name: nodes(of), [each.binding[5:]].__eq__)
        monkeypatch.setattr(session, "TOGETHER_BYTES", 1)
        await api.ask("ScheduleBatch", items=[{"binding": binding(f"x{n}")} for n in range(2)])
        for _ in range(2):
            assert await order(stream)


async def test_questions_to_an_agent_are_bounded(
    api: Plane, member1: AgentStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "MAX_ASKED", 1)
    first = asked(api, "first", replicas=1)
    told = await order(member1)
    (plan,) = (await asked(api, "second", replicas=1)).decision.node_placements
    assert "questions to answer already" in plan.message
    await reply(member1, told, **on(replicas=1))
    assert (await first).decision.node_placements[0].nodes


async def test_an_agent_that_does_not_read_loses_its_stream(
    api: Plane, member1: AgentStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "MAX_OUTGOING", 0)
    await member1.say(heartbeat=heartbeat(9, "out of step"))
    _, refusal = await member1.end()
    assert refusal is not None
    assert refusal.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "does not read its stream" in refusal.message


async def test_answers_that_cannot_be_stored_are_logged_once_for_all(
    api: Plane, commanded: CommandedStore, caplog: pytest.LogCaptureFixture
) -> None:
    async with await FakeAgent.joined(api, "member1", cores=16):
        for number in range(3):
            commanded.fail_at("decisions.put_node_plans")
            decision = (await asked(api, f"web{number}", replicas=1)).decision
            assert decision.clusters
            assert not decision.node_placements
    assert caplog.messages.count("node placement not stored") == 1


async def test_too_many_at_once_are_logged_once(
    api: Plane, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(placing, "MAX_RUNNING", 0)
    async with await FakeAgent.joined(api, "member1", cores=16):
        for number in range(3):
            decision = (await asked(api, f"web{number}", replicas=1)).decision
            assert decision.clusters
            assert not decision.node_placements
    assert caplog.messages.count("too many decisions wait for agents") == 1
