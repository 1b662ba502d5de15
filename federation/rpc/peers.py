"""Peers: questions that another control plane asks an agent of ours.

Must not know what is asked: it hands over the message and the time that is left.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from federation.rpc.calls import Context, seconds_left
from federation.v1.peers_pb2 import AskAgentRequest, AskAgentResponse
from federation.v1.peers_pb2_grpc import PeersServicer as Servicer

# For a peer that says nothing of its time; all of ours do.
MOST_SECONDS = 10.0

# Asks the agent within so many seconds; raises Unavailable and DeadlineMissed.
AskAgent: TypeAlias = Callable[[AskAgentRequest, float], Awaitable[AskAgentResponse]]


class PeersServicer(Servicer):
    """Implements federation.v1.Peers."""

    def __init__(self, ask: AskAgent) -> None:
        self._ask = ask

    async def AskAgent(self, request: AskAgentRequest, context: Context) -> AskAgentResponse:
        left = seconds_left(context)
        return await self._ask(request, MOST_SECONDS if left is None else max(0.0, left))
