"""Orders of the control plane: nodes are chosen for the shares, and the answers go back together.

Must not hold up the event loop for longer than one order takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from estimator.agent import Agent
from estimator.control_plane.messages import (
    asked_for,
    order_from_message,
    place_reply,
    refused_plan,
)
from federation.model.errors import FederationError
from federation.v1.agents_pb2 import ConnectRequest, PlaceReplies, PlaceReply, PlaceRequest

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
