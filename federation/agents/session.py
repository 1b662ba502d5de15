"""One agent's open stream: what is sent over it, what was asked and waits for an answer.

Must not know of other agents' streams.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from federation.agents.messages import (
    estimate_request_to_message,
    estimates_from_message,
    new_credential_to_message,
    node_plan_from_message,
    numbered,
    place_request_to_message,
    refusal_to_message,
    traced,
)
from federation.model.errors import (
    DeadlineMissed,
    FederationError,
    InvalidRequest,
    LimitExceeded,
    Unavailable,
)
from federation.model.node_plans import NodePlan, PlaceOrder
from federation.runtime import spans
from federation.runtime.futures import fail
from federation.runtime.spans import SpanSide
from federation.services.values import ExactQuestion, IssuedCredential
from federation.v1.agents_pb2 import (
    ConnectResponse,
    EstimateReply,
    EstimateRequest,
    PlaceReply,
    PlaceRequest,
    PlaceRequests,
)

logger = logging.getLogger(__name__)


MAX_OUTGOING = 256
MAX_ASKED = 128
# Of orders that travel together; agents take messages of 4 MiB.
TOGETHER_BYTES = 1024 * 1024

# Why Unavailable: what tells a peer that asks that another control plane may have the agent.
NOT_CONNECTED = "NOT_CONNECTED"

Reply = TypeVar("Reply", PlaceReply, EstimateReply)
Answer = TypeVar("Answer")
Write = Callable[[ConnectResponse], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ask(Generic[Reply, Answer]):
    """A question that waits for its answer; ``read`` raises InvalidRequest for nonsense."""

    kind: type[Reply]
    read: Callable[[Reply], Answer]
    answer: asyncio.Future[Answer]


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A credential that was sent to an agent; ``at`` is in Unix seconds."""

    credential_id: str
    at: float


class Session:
    """One agent's open stream: what is to be sent to it and what it still has to answer.

    ``credential_id`` names the credential that the agent would dial again with; ``opened_at`` is
    in Unix seconds, ``heartbeat_seconds`` what the agent was told. An agent that
    ``takes_place_requests`` gets the orders that wait for it together; who does not ``sees_nodes``
    has nothing to say about them, nor anything fresher to report.
    """

    def __init__(
        self,
        cluster: str,
        epoch: int,
        *,
        credential_id: str = "",
        opened_at: float = 0.0,
        heartbeat_seconds: float = 0.0,
        takes_place_requests: bool = False,
        sees_nodes: bool = True,
    ) -> None:
        self.cluster = cluster
        self.epoch = epoch
        self.credential_id = credential_id
        self.opened_at = opened_at
        self.heartbeat_seconds = heartbeat_seconds
        self.sees_nodes = sees_nodes
        self.offered: Offer | None = None
        self.error: FederationError | None = None
        # Sends what the agent has to know before it chooses nodes for a binding.
        self.before_orders: Callable[[str], None] | None = None
        self._takes_place_requests = takes_place_requests
        # After None nothing is sent.
        self._outgoing: deque[ConnectResponse | None] = deque()
        self._is_filled = asyncio.Event()
        self._asked: dict[str, Ask[Any, Any]] = {}
        self._refused: set[str] = set()
        self._ids = itertools.count(1)
        self.ended = asyncio.Event()

    def send(self, message: ConnectResponse) -> None:
        """Queue a message; an agent that does not read loses its stream."""
        if self.ended.is_set():
            return
        if len(self._outgoing) >= MAX_OUTGOING:
            self.end(LimitExceeded(f"the agent of cluster {self.cluster} does not read its stream"))
            return
        self._put(message)

    async def place(self, order: PlaceOrder, timeout_seconds: float) -> NodePlan:
        """Raises Unavailable (gone, too busy, or talks nonsense) and DeadlineMissed."""
        self._prepare_order(order.binding_key)
        return await self._ask(
            partial(place_request_to_message, order=order),
            PlaceReply,
            partial(node_plan_from_message, self.cluster, order),
            timeout_seconds,
        )

    async def estimate(self, question: ExactQuestion, timeout_seconds: float) -> tuple[int, ...]:
        """Raises Unavailable (gone, too busy, cannot tell, or talks nonsense), DeadlineMissed."""
        return await self._ask(
            partial(estimate_request_to_message, question=question),
            EstimateReply,
            partial(estimates_from_message, self.cluster, question),
            timeout_seconds,
        )

    async def relay(
        self, question: EstimateRequest | PlaceRequest, kind: type[Reply], timeout_seconds: float
    ) -> Reply:
        """The agent's words for a peer, who reads them; raises Unavailable and DeadlineMissed."""
        if isinstance(question, PlaceRequest):
            self._prepare_order(question.binding)
        return await self._ask(
            partial(numbered, question), kind, lambda reply: reply, timeout_seconds
        )

    def _prepare_order(self, binding: str) -> None:
        if self.before_orders is not None and not self.ended.is_set():
            self.before_orders(binding)

    async def _ask(
        self,
        message: Callable[[str], ConnectResponse],
        kind: type[Reply],
        read: Callable[[Reply], Answer],
        timeout_seconds: float,
    ) -> Answer:
        if self.ended.is_set() or len(self._asked) >= MAX_ASKED:
            why = (
                "is gone" if self.ended.is_set() else f"has {MAX_ASKED} questions to answer already"
            )
            raise Unavailable(f"the agent of cluster {self.cluster} {why}")
        request_id = f"{self.epoch}-{next(self._ids)}"
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[Answer] = loop.create_future()
        self._asked[request_id] = Ask(kind=kind, read=read, answer=waiting)
        ending = loop.call_later(timeout_seconds, self._miss, waiting, timeout_seconds)
        asking = f"agent {kind.DESCRIPTOR.name.removesuffix('Reply').lower()}"
        try:
            with spans.span(asking, SpanSide.CLIENT, fedsched__cluster=self.cluster):
                self.send(traced(message(request_id)))
                return await waiting
        finally:
            ending.cancel()
            self._asked.pop(request_id, None)

    def _miss(self, waiting: asyncio.Future[Any], timeout_seconds: float) -> None:
        what = f"the agent of cluster {self.cluster} did not answer"
        fail(waiting, DeadlineMissed(f"{what} within {timeout_seconds:g} s"))

    def answer(self, reply: PlaceReply | EstimateReply) -> bool:
        """Hand an answer to who asked; whether somebody waited for it.

        Raises InvalidRequest for one that is not what was asked for: who asked hears that there is
        no answer, as when the agent says why it has none.
        """
        ask = self._asked.get(reply.request_id)
        if ask is None or not isinstance(reply, ask.kind):
            logger.debug("an answer came too late", extra={"fields": {"cluster": self.cluster}})
            return False
        is_first = not ask.answer.done()
        try:
            answer = ask.read(reply)
        except FederationError as error:
            wrong = isinstance(error, InvalidRequest)
            if is_first:
                what = f"the answer of the agent of cluster {self.cluster} is wrong"
                unanswered = Unavailable(f"{what}: {error.message}") if wrong else error
                fail(ask.answer, unanswered)
            if wrong:
                raise
            return is_first
        if is_first:
            ask.answer.set_result(answer)
        return is_first

    def answer_all(self, replies: Collection[PlaceReply]) -> bool:
        """Hand on answers that came together; whether somebody waited for each of them.

        The agent is told of a wrong one, and the others count.
        """
        are_asked_for = bool(replies)
        for reply in replies:
            try:
                are_asked_for &= self.answer(reply)
            except InvalidRequest as error:
                are_asked_for = False
                self.refuse("place_reply", error)
        return are_asked_for

    def refuse(self, kind: str, error: FederationError) -> None:
        """Tell the agent that a message of this kind was passed over, and why."""
        self.send(refusal_to_message(kind, error))
        if kind not in self._refused:
            # The others are in the agent's own log: it may send as many as it likes.
            self._refused.add(kind)
            fields = {"cluster": self.cluster, "kind": kind, "why": error.message}
            logger.warning("a message of the agent is wrong", extra={"fields": fields})

    def offer(self, issued: IssuedCredential, now: float) -> None:
        """Hand the agent another credential, which counts once it says that it is stored."""
        self.offered = Offer(credential_id=issued.id, at=now)
        self.send(new_credential_to_message(issued))

    def confirm(self, credential_id: str) -> None:
        """The agent has stored what it was offered."""
        if self.offered is not None and self.offered.credential_id == credential_id:
            self.credential_id, self.offered = credential_id, None

    def end(
        self, error: FederationError | None = None, *, farewell: ConnectResponse | None = None
    ) -> None:
        """Send what is queued, then ``farewell``, and nothing more; the first end counts.

        ``error`` becomes the status of the stream. Who waits for an answer is told at once.
        """
        if self.ended.is_set():
            return
        self.ended.set()
        self.error = error
        if farewell is not None:
            self._put(farewell)
        self._put(None)
        gone = Unavailable(f"the agent of cluster {self.cluster} went away before it answered")
        for ask in self._asked.values():
            fail(ask.answer, gone)

    async def write_all(self, write: Write) -> None:
        """Send what is queued until the end."""
        while True:
            while not self._outgoing:
                self._is_filled.clear()
                await self._is_filled.wait()
            message = self._outgoing.popleft()
            if message is None:
                return
            if self._takes_place_requests and message.HasField("place_request"):
                message = self._together(message)
            await write(message)

    def _put(self, message: ConnectResponse | None) -> None:
        self._outgoing.append(message)
        self._is_filled.set()

    def _together(self, first: ConnectResponse) -> ConnectResponse:
        """An order and those right behind it as one message, as far as they fit."""
        orders, size_bytes = [first.place_request], first.ByteSize()
        while self._outgoing:
            following = self._outgoing[0]
            if following is None or not following.HasField("place_request"):
                break
            size_bytes += following.ByteSize()
            if size_bytes > TOGETHER_BYTES:
                break
            orders.append(following.place_request)
            self._outgoing.popleft()
        together = ConnectResponse(place_requests=PlaceRequests(requests=orders))
        return together if len(orders) > 1 else first
