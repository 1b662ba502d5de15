"""Questions to agents wherever they are connected: here, else at the peer that holds the stream.

Must not wait for a peer longer than the caller waits, nor try one again that just failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Protocol

import grpc

from federation.agents.messages import (
    estimate_request_to_message,
    estimates_from_message,
    node_plan_from_message,
    place_request_to_message,
)
from federation.agents.session import NOT_CONNECTED
from federation.agents.sessions import Sessions
from federation.client.failures import error_of
from federation.model.errors import DeadlineMissed, InvalidRequest, Unavailable
from federation.model.node_plans import NodePlan, PlaceOrder
from federation.runtime import spans
from federation.runtime.spans import SpanSide
from federation.services.journal_ports import Replica
from federation.services.ports import Clock
from federation.services.values import ExactQuestion
from federation.v1.agents_pb2 import EstimateReply, PlaceReply
from federation.v1.peers_pb2 import AskAgentRequest, AskAgentResponse
from federation.v1.peers_pb2_grpc import PeersStub

CONNECT_SECONDS = 0.5
# A peer that cannot be reached, or an agent that is not where it was said to be, costs nobody
# else's time for so long.
REMEMBERED_SECONDS = 1.0
# Calls under way on a channel that nobody uses any more may take so long.
CLOSE_SECONDS = 5.0
# Peers that come back are found again as soon as failures are forgotten. The least pause between
# two tries is also what gRPC gives one of them.
CHANNEL_OPTIONS = (
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", int(1000 * CONNECT_SECONDS)),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
)

Dial = Callable[[str], grpc.aio.Channel]


def dial(endpoint: str, ca_pem: bytes | None, name: str) -> grpc.aio.Channel:
    """A channel to a peer; plain text without a CA.

    ``name`` is the one that its certificate is for, empty: its host.
    """
    if ca_pem is None:
        return grpc.aio.insecure_channel(endpoint, CHANNEL_OPTIONS)
    named = (("grpc.ssl_target_name_override", name),) if name else ()
    return grpc.aio.secure_channel(
        endpoint, grpc.ssl_channel_credentials(ca_pem), (*CHANNEL_OPTIONS, *named)
    )


class Whereabouts(Protocol):
    """Which peer serves an agent's stream."""

    def holder(self, cluster: str) -> Replica | None: ...


class PeerCredentials(Protocol):
    """What peers let us in with, and where they are."""

    @property
    def bearer(self) -> str: ...

    @property
    def endpoints(self) -> Collection[str]: ...


class PeerChannels:
    """One kept connection for every peer that was asked. ``dial`` makes the channel to one."""

    def __init__(self, dial: Dial, credentials: PeerCredentials, clock: Clock) -> None:
        self._dial = dial
        self._credentials = credentials
        self._clock = clock
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._avoided_until: dict[str, float] = {}

    async def ask(
        self, endpoint: str, request: AskAgentRequest, timeout_seconds: float
    ) -> AskAgentResponse:
        """Raises Unavailable, at once where a peer just could not be reached, or DeadlineMissed."""
        gone = Unavailable(f"the control plane at {endpoint} cannot be reached")
        if self._clock.now() < self._avoided_until.get(endpoint, 0.0):
            raise gone
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + timeout_seconds
        channel = await self._channel(endpoint)
        if not await _is_ready(channel, min(CONNECT_SECONDS, timeout_seconds)):
            self._avoid(endpoint)
            raise gone
        try:
            with spans.span(
                "federation.v1.Peers/AskAgent", SpanSide.CLIENT, server__address=endpoint
            ):
                answer: AskAgentResponse = await PeersStub(channel).AskAgent(
                    request,
                    timeout=max(0.0, ends_at - loop.time()),
                    metadata=(
                        ("authorization", f"Bearer {self._credentials.bearer}"),
                        *spans.carried(),
                    ),
                )
        except grpc.aio.AioRpcError as failure:
            error = error_of(failure)
            if isinstance(error, DeadlineMissed):
                raise DeadlineMissed(
                    f"the agent of cluster {request.cluster} did not answer in time"
                ) from failure
            if channel.get_state() is not grpc.ChannelConnectivity.READY:
                self._avoid(endpoint)
            raise Unavailable(error.message, reason=error.reason) from failure
        return answer

    async def redial(self) -> None:
        """Dial again for each next call: the authority of peers may be another one by now."""
        channels, self._channels = self._channels, {}
        await asyncio.gather(*(channel.close(CLOSE_SECONDS) for channel in channels.values()))

    async def close(self) -> None:
        for channel in self._channels.values():
            await channel.close()
        self._channels.clear()

    async def _channel(self, endpoint: str) -> grpc.aio.Channel:
        known = self._channels.get(endpoint)
        if known is None:
            known = self._channels[endpoint] = self._dial(endpoint)
            kept = {endpoint, *self._credentials.endpoints}
            for left in self._channels.keys() - kept:
                await self._channels.pop(left).close()
                self._avoided_until.pop(left, None)
        return known

    def _avoid(self, endpoint: str) -> None:
        self._avoided_until[endpoint] = self._clock.now() + REMEMBERED_SECONDS


class Forwarding:
    """Implements the services' AgentGateway and AgentEstimates for the agents of all replicas."""

    def __init__(
        self, sessions: Sessions, whereabouts: Whereabouts, channels: PeerChannels, clock: Clock
    ) -> None:
        self._sessions = sessions
        self._whereabouts = whereabouts
        self._channels = channels
        self._clock = clock
        self._missing_until: dict[str, float] = {}

    def sees_nodes(self, cluster: str) -> bool:
        if self._sessions.is_connected(cluster):
            return self._sessions.sees_nodes(cluster)
        if self._clock.now() < self._missing_until.get(cluster, 0.0):
            return False
        return self._whereabouts.holder(cluster) is not None

    async def place(self, cluster: str, order: PlaceOrder, timeout_seconds: float) -> NodePlan:
        """Raises Unavailable (not connected, gone, no sense) or DeadlineMissed."""
        if self._sessions.is_connected(cluster):
            return await self._sessions.place(cluster, order, timeout_seconds)
        question = place_request_to_message("", order).place_request
        request = AskAgentRequest(cluster=cluster, place=question)
        answer = await self._ask_elsewhere(request, timeout_seconds)
        try:
            return node_plan_from_message(cluster, order, answer.place)
        except InvalidRequest as error:
            raise _senseless(cluster, error) from error

    async def estimate(
        self, cluster: str, question: ExactQuestion, timeout_seconds: float
    ) -> tuple[int, ...]:
        """Raises Unavailable (not connected, gone, cannot tell, no sense) or DeadlineMissed."""
        if self._sessions.is_connected(cluster):
            return await self._sessions.estimate(cluster, question, timeout_seconds)
        asked = estimate_request_to_message("", question).estimate_request
        request = AskAgentRequest(cluster=cluster, estimate=asked)
        answer = await self._ask_elsewhere(request, timeout_seconds)
        try:
            return estimates_from_message(cluster, question, answer.estimate)
        except InvalidRequest as error:
            raise _senseless(cluster, error) from error

    async def _ask_elsewhere(
        self, request: AskAgentRequest, timeout_seconds: float
    ) -> AskAgentResponse:
        """At the peer that holds the stream; once more where it moved to meanwhile."""
        ends_at = asyncio.get_running_loop().time() + timeout_seconds
        asked = self._holder(request.cluster)
        try:
            return await self._channels.ask(asked.endpoint, request, timeout_seconds)
        except Unavailable as error:
            if error.reason != NOT_CONNECTED:
                raise
            left_seconds = ends_at - asyncio.get_running_loop().time()
            if self._sessions.is_connected(request.cluster):
                return await answer_peer(self._sessions, request, left_seconds)
            holder = self._whereabouts.holder(request.cluster)
            if holder is None or holder == asked:
                self._missing_until[request.cluster] = self._clock.now() + REMEMBERED_SECONDS
                raise
            return await self._channels.ask(holder.endpoint, request, left_seconds)

    def _holder(self, cluster: str) -> Replica:
        holder = self._whereabouts.holder(cluster)
        if holder is None or self._clock.now() < self._missing_until.get(cluster, 0.0):
            raise Unavailable(
                f"the agent of cluster {cluster} is not connected", reason=NOT_CONNECTED
            )
        return holder


async def answer_peer(
    sessions: Sessions, request: AskAgentRequest, timeout_seconds: float
) -> AskAgentResponse:
    """What an agent that is connected here says to a peer's question.

    Raises Unavailable, with reason NOT_CONNECTED when it is not here, DeadlineMissed, and
    InvalidRequest for a request without a question.
    """
    session = sessions.connected(request.cluster)
    match request.WhichOneof("question"):
        case "estimate":
            estimate = await session.relay(request.estimate, EstimateReply, timeout_seconds)
            return AskAgentResponse(estimate=estimate)
        case "place":
            plan = await session.relay(request.place, PlaceReply, timeout_seconds)
            return AskAgentResponse(place=plan)
        case None:
            raise InvalidRequest.of("question", "must be one that this control plane knows")


def _senseless(cluster: str, error: InvalidRequest) -> Unavailable:
    return Unavailable(f"the answer of the agent of cluster {cluster} is wrong: {error.message}")


async def _is_ready(channel: grpc.aio.Channel, seconds: float) -> bool:
    """Whether a peer is there; one that refuses is known at once, one that is silent in time."""
    failed = {
        grpc.ChannelConnectivity.TRANSIENT_FAILURE,
        grpc.ChannelConnectivity.SHUTDOWN,
    }
    try:
        async with asyncio.timeout(seconds):
            while (state := channel.get_state(try_to_connect=True)) not in failed:
                if state is grpc.ChannelConnectivity.READY:
                    return True
                await channel.wait_for_state_change(state)
    except TimeoutError:
        return False
    return False
