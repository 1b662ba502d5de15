"""Questions to agents that another control plane holds, over real gRPC between the two."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import grpc
import pytest

from federation.agents.forwarding import (
    REMEMBERED_SECONDS,
    Forwarding,
    PeerChannels,
    answer_peer,
    dial,
)
from federation.agents.session import NOT_CONNECTED, Session
from federation.agents.sessions import Sessions
from federation.model.errors import DeadlineMissed, Unauthenticated, Unavailable
from federation.model.node_plans import PlaceOrder, ShareOrder
from federation.model.workload import ReplicaRequirements
from federation.rpc.interceptors import Gate
from federation.rpc.peers import PeersServicer
from federation.services.journal_ports import Replica
from federation.services.values import ExactQuestion, Principal, PrincipalKind
from federation.v1.agents_pb2 import ConnectResponse, EstimateReply, PlaceReply
from federation.v1.peers_pb2_grpc import add_PeersServicer_to_server
from lab.patience import PATIENCE_SECONDS

QUESTION = ExactQuestion(shapes=(ReplicaRequirements(request={"cpu": 1000}),))
ORDER = PlaceOrder(
    decision_id="d1",
    binding_key="shop/cart",
    shares=(ShareOrder(replicas=3, requirements=ReplicaRequirements()),),
)
SECONDS = PATIENCE_SECONDS
BEARER = "id.secret"

Say = Callable[[Session, ConnectResponse], None]


class ReplicasAlone:
    """Knows one bearer, a control plane's."""

    def is_known(self, bearer: str) -> bool:
        return bearer == BEARER

    def is_of_others(self, bearer: str) -> bool:
        return False

    def recognized(self, bearer: str, address: str) -> Principal | None:
        assert address
        return Principal(kind=PrincipalKind.REPLICA) if bearer == BEARER else None

    async def identify(self, bearer: str, address: str) -> Principal:
        assert address
        if bearer != BEARER:
            raise Unauthenticated
        return Principal(kind=PrincipalKind.REPLICA)


@dataclass
class StillClock:
    """Moves when told to."""

    time: float = 1000.0

    def now(self) -> float:
        return self.time


@dataclass
class Elsewhere:
    """Where agents are said to be, and what lets us in. Implements Whereabouts, Credentials."""

    holders: dict[str, Replica] = field(default_factory=dict)
    bearer: str = BEARER
    endpoints: tuple[str, ...] = ()
    asked: list[str] = field(default_factory=list)
    moves: dict[str, Replica] = field(default_factory=dict)

    def holder(self, cluster: str) -> Replica | None:
        self.asked.append(cluster)
        found = self.holders.get(cluster)
        self.holders.update(self.moves)
        return found


@dataclass
class Peer:
    """Another control plane: its streams, and where it is reached."""

    sessions: Sessions
    replica: Replica
    server: grpc.aio.Server


@asynccontextmanager
async def serving(address: str = "127.0.0.1:0") -> AsyncIterator[Peer]:
    sessions = Sessions()
    gate = Gate(ReplicasAlone())
    server = grpc.aio.server(interceptors=[gate])
    add_PeersServicer_to_server(PeersServicer(partial(answer_peer, sessions)), server)
    endpoint = f"127.0.0.1:{server.add_insecure_port(address)}"
    await server.start()
    try:
        yield Peer(
            sessions=sessions, replica=Replica(id=endpoint, endpoint=endpoint), server=server
        )
    finally:
        await server.stop(None)


@asynccontextmanager
async def connected(sessions: Sessions, cluster: str, say: Say) -> AsyncIterator[None]:
    """An agent that does ``say`` with whatever it is told."""
    session = Session(cluster, 1)
    sessions.open(session)

    async def hear(message: ConnectResponse) -> None:
        say(session, message)

    agent = asyncio.create_task(session.write_all(hear))
    try:
        yield
    finally:
        sessions.close(session)
        await agent


def estimating(*replicas: int, message: str = "") -> Say:
    def say(session: Session, heard: ConnectResponse) -> None:
        request = heard.estimate_request
        assert request.shapes[0].resource_request["cpu"] == "1"
        reply = EstimateReply(request_id=request.request_id, replicas=replicas, message=message)
        session.answer(reply)

    return say


def placing(**fields: Any) -> Say:
    def say(session: Session, heard: ConnectResponse) -> None:
        request = heard.place_request
        assert (request.decision_id, request.binding) == ("d1", "shop/cart")
        session.answer(PlaceReply(request_id=request.request_id, **fields))

    return say


def silent(session: Session, heard: ConnectResponse) -> None:
    """Never answers."""


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    async with serving() as found:
        yield found


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


@pytest.fixture
def here() -> Sessions:
    return Sessions()


@pytest.fixture
def elsewhere(peer: Peer) -> Elsewhere:
    return Elsewhere(holders={"member1": peer.replica}, endpoints=(peer.replica.endpoint,))


@pytest.fixture
async def forwarding(
    here: Sessions, elsewhere: Elsewhere, clock: StillClock
) -> AsyncIterator[Forwarding]:
    channels = PeerChannels(lambda endpoint: dial(endpoint, None, ""), elsewhere, clock)
    yield Forwarding(here, elsewhere, channels, clock)
    await channels.close()


async def test_an_agent_at_a_peer_answers_as_if_it_were_here(
    forwarding: Forwarding, peer: Peer
) -> None:
    async with connected(peer.sessions, "member1", estimating(7)):
        assert forwarding.sees_nodes("member1")
        assert await forwarding.estimate("member1", QUESTION, SECONDS) == (7,)


async def test_an_agent_at_a_peer_places(forwarding: Forwarding, peer: Peer) -> None:
    async with connected(peer.sessions, "member1", placing(unplaced=3, message="no room")):
        plan = await forwarding.place("member1", ORDER, SECONDS)
    assert (plan.cluster, plan.unplaced, plan.message) == ("member1", 3, "“no room”")


async def test_who_is_here_is_asked_here(
    forwarding: Forwarding, here: Sessions, elsewhere: Elsewhere
) -> None:
    async with connected(here, "member1", estimating(9)):
        assert await forwarding.estimate("member1", QUESTION, SECONDS) == (9,)
    assert elsewhere.asked == []


async def test_nobody_is_asked_of_whom_nobody_knows(forwarding: Forwarding) -> None:
    assert not forwarding.sees_nodes("member9")
    with pytest.raises(Unavailable, match="member9 is not connected"):
        await forwarding.estimate("member9", QUESTION, SECONDS)


async def test_what_an_agent_cannot_tell_is_told(forwarding: Forwarding, peer: Peer) -> None:
    async with connected(peer.sessions, "member1", estimating(message="no nodes here")):
        with pytest.raises(Unavailable, match="cannot tell: “no nodes here”"):
            await forwarding.estimate("member1", QUESTION, SECONDS)


@pytest.mark.parametrize("numbers", [(), (1, 2), (-1,)])
async def test_nonsense_from_afar_is_refused_here(
    forwarding: Forwarding, peer: Peer, numbers: tuple[int, ...]
) -> None:
    async with connected(peer.sessions, "member1", estimating(*numbers)):
        with pytest.raises(Unavailable, match="the answer of the agent of cluster member1 is wr"):
            await forwarding.estimate("member1", QUESTION, SECONDS)


async def test_a_plan_from_afar_must_be_for_what_was_asked(
    forwarding: Forwarding, peer: Peer
) -> None:
    async with connected(peer.sessions, "member1", placing(unplaced=4)):
        with pytest.raises(Unavailable, match="must sum to the 3 replicas"):
            await forwarding.place("member1", ORDER, SECONDS)


async def test_a_silent_agent_costs_the_callers_time_and_no_more(
    forwarding: Forwarding, peer: Peer
) -> None:
    async with connected(peer.sessions, "member1", silent), asyncio.timeout(SECONDS):
        with pytest.raises(DeadlineMissed, match="member1 did not answer"):
            await forwarding.estimate("member1", QUESTION, 0.2)


async def test_an_agent_that_is_not_there_any_more_is_asked_again_later(
    forwarding: Forwarding, peer: Peer, clock: StillClock
) -> None:
    with pytest.raises(Unavailable) as caught:
        await forwarding.estimate("member1", QUESTION, SECONDS)
    assert caught.value.reason == NOT_CONNECTED
    async with connected(peer.sessions, "member1", estimating(7)):
        assert not forwarding.sees_nodes("member1")
        with pytest.raises(Unavailable):
            await forwarding.estimate("member1", QUESTION, SECONDS)
        clock.time += REMEMBERED_SECONDS
        assert await forwarding.estimate("member1", QUESTION, SECONDS) == (7,)


async def test_an_agent_that_moved_is_asked_where_it_is_now(
    forwarding: Forwarding, peer: Peer, elsewhere: Elsewhere
) -> None:
    async with serving() as other, connected(other.sessions, "member1", estimating(5)):
        elsewhere.moves["member1"] = other.replica
        assert await forwarding.estimate("member1", QUESTION, SECONDS) == (5,)


async def test_a_peer_that_is_gone_is_left_alone_for_a_while(
    forwarding: Forwarding, peer: Peer, clock: StillClock
) -> None:
    await peer.server.stop(None)
    with pytest.raises(Unavailable, match="cannot be reached"):
        await forwarding.estimate("member1", QUESTION, SECONDS)
    async with (
        serving(peer.replica.endpoint) as back,
        connected(back.sessions, "member1", estimating(7)),
        asyncio.timeout(SECONDS),
    ):
        with pytest.raises(Unavailable, match="cannot be reached"):
            await forwarding.estimate("member1", QUESTION, SECONDS)
        answer: tuple[int, ...] = ()
        while not answer:
            clock.time += REMEMBERED_SECONDS
            await asyncio.sleep(0)
            with suppress(Unavailable):
                answer = await forwarding.estimate("member1", QUESTION, SECONDS)
        assert answer == (7,)


async def test_a_peer_that_takes_calls_and_says_nothing_costs_half_a_second(
    here: Sessions, clock: StillClock
) -> None:
    """A listener that nobody accepts from: packets go in and nothing comes out."""
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        endpoint = f"127.0.0.1:{deaf.getsockname()[1]}"
        silent_peer = Elsewhere(holders={"member1": Replica(id="deaf", endpoint=endpoint)})
        channels = PeerChannels(lambda to: dial(to, None, ""), silent_peer, clock)
        forwarding = Forwarding(here, silent_peer, channels, clock)
        with pytest.raises(Unavailable, match="cannot be reached"):
            async with asyncio.timeout(SECONDS / 2):
                await forwarding.estimate("member1", QUESTION, SECONDS)
        await channels.close()


async def test_a_peer_is_not_asked_without_its_leave(
    forwarding: Forwarding, peer: Peer, elsewhere: Elsewhere
) -> None:
    elsewhere.bearer = "id.another"
    async with connected(peer.sessions, "member1", estimating(7)):
        with pytest.raises(Unavailable, match="credential"):
            await forwarding.estimate("member1", QUESTION, SECONDS)


async def test_many_questions_share_one_connection(
    here: Sessions, peer: Peer, elsewhere: Elsewhere, clock: StillClock
) -> None:
    dialled: list[str] = []

    def dialling(endpoint: str) -> grpc.aio.Channel:
        dialled.append(endpoint)
        return dial(endpoint, None, "")

    names = [f"member{number}" for number in range(50)]
    elsewhere.holders = dict.fromkeys(names, replace(peer.replica))
    channels = PeerChannels(dialling, elsewhere, clock)
    forwarding = Forwarding(here, elsewhere, channels, clock)
    opened = [connected(peer.sessions, name, estimating(3)) for name in names]
    for each in opened:
        await each.__aenter__()
    answers = await asyncio.gather(
        *(forwarding.estimate(name, QUESTION, SECONDS) for name in names)
    )
    assert answers == [(3,)] * len(names)
    assert dialled == [peer.replica.endpoint]
    for each in opened:
        await each.__aexit__(None, None, None)
    await channels.close()
