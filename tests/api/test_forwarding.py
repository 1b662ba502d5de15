"""Questions to agents that another control plane holds, over real gRPC between the two."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from federation import parts
from federation.agents.forwarding import REMEMBERED_SECONDS, PeerChannels, dial
from federation.model.errors import Unavailable
from federation.services.members.replicas import RENEW_SECONDS
from federation.v1.agents_pb2 import EstimateReply, EstimateRequest, PlaceReply
from federation.v1.estimates_pb2 import ESTIMATE_SOURCE_EXACT, ESTIMATE_SOURCE_POOLS
from federation.v1.resource_pb2 import ReplicaRequirements
from lab.control_planes import AgentStream, Caller, Plane
from lab.fake_agents import Estimate, FakeAgent, fits, never, on_no_node
from lab.patience import until
from tests.api.calls import binding, scheduled
from tests.api.pairs import (
    Pair,
    at,
    pair,
    shares_often,
    started_pair,
    until_connected,
    until_ready,
)

__all__ = ["pair", "shares_often", "started_pair"]

SHAPES = [ReplicaRequirements(resource_request={"cpu": "1"})]
# Where the agent cannot be asked.
BY_POOLS = 4


def answering(*replicas: int, message: str = "") -> Estimate:
    def estimate(_: EstimateRequest) -> EstimateReply:
        return EstimateReply(replicas=replicas, message=message)

    return estimate


@asynccontextmanager
async def agent_of(
    plane: Plane, caller: Caller, estimate: Estimate = never, cluster: str = "member1"
) -> AsyncIterator[FakeAgent]:
    """An agent that is connected there, has reported four free cores, and answers so."""
    async with FakeAgent(AgentStream(at(plane, caller), cluster)) as agent:
        agent.estimate = estimate
        await agent.connect()
        await agent.report(cores=BY_POOLS)
        yield agent


async def estimated(plane: Plane, cluster: str = "member1") -> tuple[int, str]:
    """How many replicas the control plane says fit, and why the agent did not say it."""
    asked = {"shapes": SHAPES, "clusters": [cluster], "highest_source": ESTIMATE_SOURCE_EXACT}
    answer = await plane.ask("EstimateReplicas", **asked)
    assert answer.sources[0] in (ESTIMATE_SOURCE_EXACT, ESTIMATE_SOURCE_POOLS)
    is_exact = answer.sources[0] == ESTIMATE_SOURCE_EXACT
    assert is_exact is not bool(answer.notes)
    return answer.replicas[0], "" if is_exact else answer.notes[0].reason


async def until_known(plane: Plane) -> None:
    """Return when it knows where the agent of member1 is, and what it reported."""
    await until_ready(plane)
    await until_connected(plane)
    await plane.follow()


def cut_off(pair: Pair) -> None:
    """From now on b reads nothing of where agents are."""
    pair.stores[1].is_reachable = False


@pytest.mark.parametrize(
    ("estimate", "replicas", "reason"),
    [
        (fits(7), 7, ""),
        (answering(message="no nodes here"), BY_POOLS, "cannot tell: “no nodes here”"),
        (answering(), BY_POOLS, "the answer of the agent of cluster member1 is wrong"),
        (answering(1, 2), BY_POOLS, "the answer of the agent of cluster member1 is wrong"),
        (answering(-1), BY_POOLS, "the answer of the agent of cluster member1 is wrong"),
        (never, BY_POOLS, "the agent of cluster member1 did not answer in time"),
    ],
)
async def test_an_agent_at_a_peer_answers_as_if_it_were_here(
    pair: Pair, estimate: Estimate, replicas: int, reason: str
) -> None:
    async with agent_of(pair.a, await pair.a.enrolled("member1"), estimate):
        await until_known(pair.b)
        found, why = await estimated(pair.b)
        assert (found, reason in why) == (replicas, True), why
        assert (await estimated(pair.a))[0] == replicas


async def test_an_agent_at_a_peer_places(pair: Pair) -> None:
    async with agent_of(pair.a, await pair.a.enrolled("member1")) as agent:
        await until_known(pair.b)
        for place, said in (
            (on_no_node("no room"), "“no room”"),
            (lambda _: PlaceReply(unplaced=4), "must sum to the 3 replicas"),
        ):
            agent.place = place
            decision = (await scheduled(pair.b, binding(), node_timeout_seconds=60)).decision
            (placement,) = decision.node_placements
            assert (placement.unplaced, said in placement.message) == (3, True), placement
            await pair.b.ask("DeleteBinding", namespace="shop", name="cart")


async def test_an_agent_that_is_not_there_any_more_is_asked_again_later(pair: Pair) -> None:
    caller = await pair.a.enrolled("member1")
    async with agent_of(pair.a, caller):
        await until_known(pair.b)
        cut_off(pair)
    await until_connected(pair.a, is_connected=False)
    assert "connected" in (await estimated(pair.b))[1]
    async with FakeAgent(AgentStream(caller, "member1")) as agent:
        agent.estimate = fits(7)
        await agent.connect()
        assert "connected" in (await estimated(pair.b))[1]
        pair.clocks[1].advance(REMEMBERED_SECONDS)
        assert await estimated(pair.b) == (7, "")


async def test_an_agent_that_moved_is_asked_where_it_is_now(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask, holders = PeerChannels.ask, pair.b.plane.parts.presences
    caller = await pair.a.enrolled("member1")
    async with pair.third() as (third, _):

        async def is_learnt() -> bool:
            await asyncio.sleep(0.01)
            peer = holders.holder("member1")
            return peer is not None and str(peer.endpoint) == str(third.plane.endpoint)

        async def learn_meanwhile(*given: Any) -> Any:
            try:
                return await ask(*given)
            except Unavailable:
                pair.stores[1].is_reachable = True
                await until(is_learnt, bool)
                raise

        async with agent_of(pair.a, caller):
            await until_known(pair.b)
            cut_off(pair)
        await until_connected(pair.a, is_connected=False)
        monkeypatch.setattr(PeerChannels, "ask", learn_meanwhile)
        async with FakeAgent(AgentStream(at(third, caller), "member1"), epoch=2) as moved:
            moved.estimate = fits(5)
            await moved.connect()
            assert await estimated(pair.b) == (5, "")


async def test_a_peer_that_is_gone_is_left_alone_for_a_while(pair: Pair) -> None:
    caller = await pair.a.enrolled("member1")
    async with pair.third() as (third, _), agent_of(third, caller):
        listen = {"listen": str(third.plane.endpoint)}
        await until_known(pair.b)
        cut_off(pair)
    assert "cannot be reached" in (await estimated(pair.b))[1]
    async with (
        pair.third(**listen) as (back, _),
        FakeAgent(AgentStream(at(back, caller), "member1"), epoch=2) as agent,
    ):
        agent.estimate = fits(7)
        await agent.connect()
        assert "cannot be reached" in (await estimated(pair.b))[1]

        async def later() -> tuple[int, str]:
            pair.clocks[1].advance(REMEMBERED_SECONDS)
            return await estimated(pair.b)

        await until(later, lambda found: found == (7, ""))


async def test_a_peer_that_takes_calls_and_says_nothing_costs_little(pair: Pair) -> None:
    """A listener that nobody accepts from: packets go in and nothing comes out."""
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        endpoint = f"127.0.0.1:{deaf.getsockname()[1]}"
        async with agent_of(pair.a, await pair.a.enrolled("member1"), fits(7)):
            await until_known(pair.b)
            pair.stores[0].is_reachable = False
            await pair.b.sql(
                "UPDATE replica SET endpoint = $1 WHERE endpoint = $2",
                endpoint,
                str(pair.a.plane.endpoint),
            )

            async def why() -> str:
                pair.clocks[1].advance(REMEMBERED_SECONDS)
                return (await estimated(pair.b))[1]

            said = await until(why, lambda reason: endpoint in reason)
            assert said.endswith("cannot be reached")


async def test_a_peer_lets_in_nobody_whose_credential_ended_until_another_is_made(
    pair: Pair,
) -> None:
    async with agent_of(pair.a, await pair.a.enrolled("member1"), fits(7)) as agent:
        await until_known(pair.b)
        bearer = pair.b.plane.parts.replicas.bearer
        ((row,),) = await pair.a.sql(
            "SELECT to_jsonb(one)::text FROM credential one WHERE id = $1", bearer.split(".")[0]
        )
        assert '"replica"' in row
        assert bearer.split(".")[1] not in row
        await pair.a.sql(
            "UPDATE credential SET revoked_at = now() WHERE id = $1", bearer.split(".")[0]
        )
        pair.clocks[0].advance(31)
        assert "credential" in (await estimated(pair.b))[1]
        # Long before its end each control plane makes another one.
        pair.clocks[1].advance(RENEW_SECONDS)
        await agent.beat()
        assert await until(lambda: estimated(pair.b), lambda found: found[0] == 7) == (7, "")
        assert pair.b.plane.parts.replicas.bearer != bearer


async def test_many_questions_share_one_connection(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialled: list[str] = []

    def dialling(endpoint: str, *given: Any) -> Any:
        dialled.append(endpoint)
        return dial(endpoint, *given)

    monkeypatch.setattr(parts, "dial", dialling)
    names = [f"member{number}" for number in range(1, 21)]
    async with pair.third() as (third, _):
        callers = await asyncio.gather(*(third.enrolled(name) for name in names))
        agents = [
            agent_of(pair.a, caller, fits(3), name)
            for name, caller in zip(names, callers, strict=True)
        ]
        for agent in agents:
            await agent.__aenter__()
        await third.follow()
        for name in names:
            await until(lambda of=name: estimated(third, of), lambda found: found == (3, ""))
        answers = await asyncio.gather(*(estimated(third, name) for name in names))
        assert set(answers) == {(3, "")}
        assert dialled == [str(pair.a.plane.endpoint)]
        for agent in agents:
            await agent.__aexit__(None, None, None)
