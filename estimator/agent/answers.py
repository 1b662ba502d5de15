"""Answers of the agent to estimate and place requests, and the bounded queue of outgoing messages.

Must not hold up the stream: reports and heartbeats go on while estimates are counted.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from estimator.agent.agent import Agent
from estimator.agent.messages import (
    asked_for,
    order_from_message,
    place_reply,
    refused_plan,
)
from estimator.estimation.exact import ExactEstimates
from federation.codec.requirements import read_components, read_requirements
from federation.codec.violations import Violations
from federation.model.errors import FederationError
from federation.model.workload import NodeClaim
from federation.v1.agents_pb2 import (
    ConnectRequest,
    EstimateReply,
    EstimateRequest,
    PlaceReplies,
    PlaceReply,
    PlaceRequest,
)

MAX_REPLIES: Final = 128


class Outbox:
    """Replies go first because somebody waits for them; a newer report replaces an unsent one."""

    def __init__(self) -> None:
        # An overflowing deque drops its oldest reply: that question's time is up first.
        self._replies: deque[ConnectRequest] = deque(maxlen=MAX_REPLIES)
        self._report: ConnectRequest | None = None
        self._heartbeat: ConnectRequest | None = None
        self._closed = False
        self._changed = asyncio.Event()

    def put_reply(self, message: ConnectRequest) -> None:
        self._replies.append(message)
        self._changed.set()

    def put_report(self, message: ConnectRequest) -> None:
        self._report = message
        self._changed.set()

    def put_heartbeat(self, message: ConnectRequest) -> None:
        """Sent after a waiting report, which it may name."""
        self._heartbeat = message
        self._changed.set()

    def close(self) -> None:
        """Hand out the waiting messages, and then no further ones."""
        self._closed = True
        self._changed.set()

    async def take(self) -> ConnectRequest | None:
        """The next message to send, None when there will be none."""
        while True:
            if self._replies:
                return self._replies.popleft()
            if self._report is not None:
                message, self._report = self._report, None
                return message
            if self._heartbeat is not None:
                message, self._heartbeat = self._heartbeat, None
                return message
            if self._closed:
                return None
            self._changed.clear()
            await self._changed.wait()


# More at a time would only make all of them late.
MAX_RUNNING: Final = 16
# Fewer take less than 5 ms: not worth a thread.
SHAPES_PER_THREAD: Final = 20

Send = Callable[[ConnectRequest], None]


class Estimating:
    """The questions of one stream that are being answered."""

    def __init__(self, cluster: str, agent: Agent, send: Send) -> None:
        self._cluster = cluster
        self._agent = agent
        self._send = send
        self._running: set[asyncio.Task[None]] = set()

    def start(self, request: EstimateRequest) -> None:
        """Answer as soon as it is known; at once, when that is so already."""
        if len(self._running) >= MAX_RUNNING:
            why = f"{MAX_RUNNING} questions are being answered already"
            self._reply(EstimateReply(request_id=request.request_id, message=why))
            return
        task = asyncio.create_task(self._answer(request))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def stop(self) -> None:
        """Give up what is not answered yet."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _answer(self, request: EstimateRequest) -> None:
        reply = EstimateReply(request_id=request.request_id)
        self._agent.measures.questions["estimate"] += 1
        with asked_for("estimate", request):
            try:
                answer = await self._estimated(request)
                reply.replicas.extend(answer.replicas)
                self._agent.asked(answer.claims)
            except FederationError as error:
                reply.message = error.message
        self._reply(reply)

    async def _estimated(self, request: EstimateRequest) -> ExactAnswer:
        exact = self._agent.exact()
        light = len(request.shapes) < SHAPES_PER_THREAD and not (
            request.components or request.assumed
        )
        if light:
            return estimates(exact, request)
        return await asyncio.to_thread(estimates, exact, request)

    def _reply(self, reply: EstimateReply) -> None:
        self._send(ConnectRequest(cluster=self._cluster, estimate_reply=reply))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactAnswer:
    """One number a shape, or the one number of sets; and which nodes were asked about."""

    replicas: list[int]
    claims: list[NodeClaim | None]


def estimates(exact: ExactEstimates, request: EstimateRequest) -> ExactAnswer:
    """The answer to a question; safe in any thread. Raises InvalidRequest."""
    violations = Violations()
    assumed = [
        read_components(workload.components, f"assumed[{place}].components", violations)
        for place, workload in enumerate(request.assumed)
    ]
    components = read_components(request.components, "components", violations)
    shapes = [
        read_requirements(shape, f"shapes[{position}]", violations)
        for position, shape in enumerate(request.shapes)
    ]
    violations.check()
    if components:
        replicas = [exact.sets(components, assumed)]
        shapes = [component.requirements for component in components]
    else:
        replicas = exact.replicas_of_each(shapes, assumed)
    return ExactAnswer(replicas=replicas, claims=[shape.node_claim for shape in shapes])


# Answers that travel together; a large one goes with those before it.
REPLIES_TOGETHER: Final = 16
LARGE_REPLY_BYTES: Final = 128 * 1024


class Orders:
    """Answers by ``put_reply``, in the order asked."""

    def __init__(
        self, cluster: str, agent: Agent, put_reply: Callable[[ConnectRequest], None]
    ) -> None:
        self._cluster = cluster
        self._agent = agent
        self._put_reply = put_reply

    async def place(self, requests: Iterable[PlaceRequest]) -> None:
        """Answer some together: who asked for the first does not wait for the last."""
        replies: list[PlaceReply] = []
        for request in requests:
            if replies:
                # What beats and reports goes on meanwhile.
                await asyncio.sleep(0)
            replies.append(self._placed(request))
            if len(replies) == REPLIES_TOGETHER or replies[-1].ByteSize() > LARGE_REPLY_BYTES:
                self._reply(replies)
                replies = []
        if replies:
            self._reply(replies)

    def _placed(self, request: PlaceRequest) -> PlaceReply:
        self._agent.measures.questions["place"] += 1
        with asked_for("place", request):
            try:
                plan = self._agent.place(order_from_message(request))
            except FederationError as error:
                plan = refused_plan(request, error.message)
        return place_reply(request.request_id, plan)

    def _reply(self, replies: Sequence[PlaceReply]) -> None:
        if len(replies) == 1:
            self._put_reply(ConnectRequest(cluster=self._cluster, place_reply=replies[0]))
        else:
            together = PlaceReplies(replies=replies)
            self._put_reply(ConnectRequest(cluster=self._cluster, place_replies=together))
