"""Answers the control plane's questions about what fits now, in threads, some at a time.

Must not hold up the stream: reports and heartbeats go on while estimates are counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from estimator.agent import Agent
from estimator.control_plane.messages import asked_for
from estimator.estimation.exact import ExactEstimates
from federation.codec.requirements import read_components, read_requirements
from federation.codec.violations import Violations
from federation.model.errors import FederationError
from federation.model.workload import NodeClaim
from federation.v1.agents_pb2 import ConnectRequest, EstimateReply, EstimateRequest

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
    found = Violations()
    assumed = [
        read_components(workload.components, f"assumed[{place}].components", found)
        for place, workload in enumerate(request.assumed)
    ]
    components = read_components(request.components, "components", found)
    shapes = [
        read_requirements(shape, f"shapes[{position}]", found)
        for position, shape in enumerate(request.shapes)
    ]
    found.check()
    if components:
        replicas = [exact.sets(components, assumed)]
        shapes = [component.requirements for component in components]
    else:
        replicas = exact.replicas_of_each(shapes, assumed)
    return ExactAnswer(replicas=replicas, claims=[shape.node_claim for shape in shapes])
