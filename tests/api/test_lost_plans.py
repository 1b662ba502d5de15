"""A promise by plan that its agent cannot keep any more, as people and programs see it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from federation.codec.echoes import MAX_LOST_PLANS, MAX_REASON_CHARACTERS
from federation.model.quotations import quoted
from federation.v1.agents_pb2 import Hello, LostPlan, NodeShare, PlaceReply
from lab.control_planes import AgentStream, Plane, report
from lab.patience import PATIENCE_SECONDS
from tests.api.calls import binding, decided, got, scheduled

WHY = "1 of 3 replicas found no node among 4: 4 short of cpu"


@asynccontextmanager
async def asked(api: Plane) -> AsyncIterator[tuple[AgentStream, asyncio.Task[Any], str]]:
    """The stream of an agent that is to keep a plan, whoever waits for that, and the question."""
    async with AgentStream(await api.enrolled("member1"), "member1") as stream:
        await stream.say(hello=Hello(epoch=1, agent_version="0.2.0", placer="extender"))
        await stream.hear("welcome")
        await stream.say(report=report())
        await stream.hear("ack")
        asking = asyncio.create_task(scheduled(api, binding(), node_timeout_seconds=10))
        request = await stream.hear("place_request")
        assert request.planned
        yield stream, asking, request.request_id


@asynccontextmanager
async def promised(api: Plane) -> AsyncIterator[tuple[AgentStream, str]]:
    """The stream of an agent that keeps a plan, and the decision about it."""
    async with asked(api) as (stream, asking, request_id):
        nodes = [NodeShare(node="node-1", replicas=3, score=71)]
        reply = PlaceReply(request_id=request_id, nodes=nodes, claimed=True)
        await stream.say(place_reply=reply)
        (promise,) = (await asking).decision.promises
        assert (promise.certificate, promise.note) == ("planned", "")
        yield stream, (await got(api)).decision.id


async def lose(stream: AgentStream, decision: str, sequence: int, reason: str = WHY) -> None:
    lost = LostPlan(binding="shop/cart", decision=decision, reason=reason)
    await stream.say(report=report(sequence=sequence, lost_plans=[lost]))
    await stream.hear("ack")


async def worth(api: Plane) -> tuple[str, str, str]:
    """What is held, what the decision says of it, and why."""
    found = await got(api)
    (held,), (promise,) = found.reservations, found.decision.promises
    (of_decision,) = (await decided(api, found.decision.id)).promises
    assert of_decision == promise
    return held.certificate, promise.certificate, promise.note


async def test_a_lost_plan_makes_its_promise_careful_and_says_why(
    api: Plane,
) -> None:
    async with promised(api) as (stream, decision):
        await lose(stream, "another", 2)
        assert await worth(api) == ("planned", "planned", "")
        await lose(stream, decision, 3)
        assert await worth(api) == ("careful", "careful", quoted(WHY))
        (placement,) = (await got(api)).decision.node_placements
        assert (placement.nodes[0].node, placement.message) == ("node-1", quoted(WHY))
        version = (await got(api)).binding.metadata.resource_version
        await lose(stream, decision, 4)
        assert (await got(api)).binding.metadata.resource_version == version


async def test_a_plan_that_is_lost_before_it_was_answered_is_careful_once(
    api: Plane, caplog: pytest.LogCaptureFixture
) -> None:
    async with asked(api) as (stream, asking, request_id):
        await lose(stream, (await got(api)).decision.id, 2)
        assert (await worth(api))[0] == "careful"
        version = (await got(api)).binding.metadata.resource_version
        reply = PlaceReply(request_id=request_id, unplaced=3, message="no node")
        await stream.say(place_reply=reply)
        await asking
        assert (await got(api)).binding.metadata.resource_version == version
    assert caplog.messages.count("planned promise is careful now") == 1


async def test_a_lost_plan_is_told_to_watchers(api: Plane) -> None:
    async with promised(api) as (stream, decision):
        call = api.admin.watch("WatchBindings")
        seen = watched(call)
        assert await anext(seen) == [("member1", "planned")]
        await lose(stream, decision, 2)
        assert await anext(seen) == [("member1", "careful")]
        call.cancel()


async def watched(call: Any) -> AsyncIterator[list[tuple[str, str]]]:
    """What the only binding's shares are worth, event after event."""
    while True:
        async with asyncio.timeout(PATIENCE_SECONDS):
            message = await call.read()
        for event in message.events:
            if event.binding.metadata.name:
                yield [(each.cluster, each.certificate) for each in event.promises]


@pytest.mark.parametrize(
    ("lost", "field"),
    [
        ([LostPlan(decision="d", reason=WHY)], "lostPlans[0].binding"),
        ([LostPlan(binding="shop/cart", reason=WHY)], "lostPlans[0].decision"),
        ([LostPlan(binding="b", decision="d")] * (MAX_LOST_PLANS + 1), "lostPlans"),
    ],
)
async def test_a_wrong_one_is_refused_by_name(api: Plane, lost: list[LostPlan], field: str) -> None:
    async with api.connected("member1") as stream:
        await stream.say(report=report(lost_plans=lost))
        refusal = await stream.hear("refusal")
        assert f"{field}: " in refusal.reason


async def test_a_long_reason_is_cut(api: Plane) -> None:
    async with promised(api) as (stream, decision):
        await lose(stream, decision, 2, reason="x" * 10_000)
        assert (await worth(api))[2] == quoted("x" * MAX_REASON_CHARACTERS)
