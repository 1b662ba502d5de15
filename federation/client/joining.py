"""The calls about clusters that join, as ``Client.joining``.

Must not repeat what changes something: callers know whether that is harmless.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any

import grpc.aio

from federation.client.paging import listed
from federation.v1 import clusters_pb2, clusters_pb2_grpc, resource_pb2


class JoiningCalls:
    """Join tokens, and the clusters that are held until somebody accepts them."""

    def __init__(
        self, channel: grpc.aio.Channel, answer: Callable[[Any, object], Awaitable[Any]]
    ) -> None:
        self._stub = clusters_pb2_grpc.ClustersStub(channel)
        self._answer = answer

    async def tokens(self) -> list[clusters_pb2.JoinToken]:
        """Those that may still be used, by ascending id, without their secrets."""

        def rows(page: clusters_pb2.ListJoinTokensResponse) -> Iterable[clusters_pb2.JoinToken]:
            return page.tokens

        ask = partial(self._answer, self._stub.ListJoinTokens)
        return await listed(ask, clusters_pb2.ListJoinTokensRequest(), rows)

    async def revoke_token(self, token_id: str) -> clusters_pb2.JoinToken:
        """From now on nobody may join with it."""
        request = clusters_pb2.RevokeJoinTokenRequest(id=token_id)
        answer: clusters_pb2.RevokeJoinTokenResponse
        answer = await self._answer(self._stub.RevokeJoinToken, request)
        return answer.token

    async def accept(self, name: str) -> resource_pb2.Cluster:
        """Lets new replicas into a cluster that was held."""
        request = clusters_pb2.AcceptClusterRequest(name=name)
        answer: clusters_pb2.AcceptClusterResponse
        answer = await self._answer(self._stub.AcceptCluster, request)
        return answer.cluster

    async def reject(self, name: str) -> None:
        """Forgets a cluster that is held; its agent is sent away for good."""
        await self._answer(self._stub.RejectCluster, clusters_pb2.RejectClusterRequest(name=name))
