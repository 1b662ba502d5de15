"""Agents: the stream of one agent, handed to whoever converses with it.

Must not know what is said: it ties the stream to the cluster of the caller's credential.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol

import grpc

from federation.model.errors import Unavailable
from federation.rpc.calls import Context, caller
from federation.services.values import Principal
from federation.v1.agents_pb2 import ConnectRequest, ConnectResponse
from federation.v1.agents_pb2_grpc import AgentsServicer as Servicer

Write = Callable[[ConnectResponse], Awaitable[None]]


class Converse(Protocol):
    """Serves one stream until it ends; raises what ends it other than by hanging up."""

    async def __call__(
        self, agent: Principal, requests: AsyncIterator[ConnectRequest], write: Write
    ) -> None: ...


class AgentsServicer(Servicer):
    """Implements federation.v1.Agents."""

    def __init__(self, converse: Converse) -> None:
        self._converse = converse

    async def Connect(  # type: ignore[override]  # the stub knows generators, gRPC writers as well
        self, request_iterator: AsyncIterator[ConnectRequest], context: Context
    ) -> None:
        async def write(response: ConnectResponse) -> None:
            try:
                await context.write(response)
            except (grpc.RpcError, grpc.aio.BaseError) as error:
                raise Unavailable("the agent's stream broke") from error

        await self._converse(caller(), request_iterator, write)
