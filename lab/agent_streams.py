"""A control plane on a loopback port whose side of every agent's stream a test plays itself.

Must not answer anything by itself but a request to join, which gets a credential.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
from google.protobuf.timestamp_pb2 import Timestamp

from federation.codec.models import model_to_messages
from federation.model.grades import DEFAULT_MODEL, ResourceModel, model_hash
from federation.v1.agents_pb2 import ConnectRequest, ConnectResponse, Welcome
from federation.v1.agents_pb2_grpc import AgentsServicer, add_AgentsServicer_to_server
from federation.v1.clusters_pb2 import EnrollClusterRequest, EnrollClusterResponse
from federation.v1.clusters_pb2_grpc import ClustersServicer, add_ClustersServicer_to_server
from lab.patience import PATIENCE_SECONDS

CREDENTIAL = "id.secret"
# Far enough away for a test.
NEVER_SECONDS = 600.0


def welcome(
    *,
    model: ResourceModel = DEFAULT_MODEL,
    heartbeat_seconds: float = NEVER_SECONDS,
    report_seconds: float = NEVER_SECONDS,
) -> Welcome:
    return Welcome(
        resource_models=model_to_messages(model),
        model_hash=model_hash(model) if model.grades else "",
        heartbeat_seconds=heartbeat_seconds,
        report_seconds=report_seconds,
    )


class Line:
    """One stream, seen from the control plane."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self.ended = asyncio.Event()
        self.metadata = dict(context.invocation_metadata())
        self.status: tuple[grpc.StatusCode, str] | None = None

    async def receive(self) -> ConnectRequest | None:
        """The agent's next message; None when it has said all."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            message = await self._context.read()
        return message if isinstance(message, ConnectRequest) else None

    async def receive_next(self, kind: str) -> ConnectRequest:
        """The agent's next message of a kind, whatever comes before."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                message = await self.receive()
                assert message is not None, f"the agent hung up before a {kind}"
                if message.WhichOneof("message") == kind:
                    return message

    async def send(self, **message: Any) -> None:
        await self._context.write(ConnectResponse(**message))

    def end(self, code: grpc.StatusCode = grpc.StatusCode.OK, details: str = "") -> None:
        self.status = (code, details)
        self.ended.set()


class Exchange(AgentsServicer, ClustersServicer):
    """The place where agents join and their streams arrive."""

    def __init__(self) -> None:
        self._lines: asyncio.Queue[Line] = asyncio.Queue()
        self.endpoint = ""
        self.joined: list[EnrollClusterRequest] = []

    async def EnrollCluster(  # noqa: N802 - grpc's name
        self, request: EnrollClusterRequest, _context: Any
    ) -> EnrollClusterResponse:
        self.joined.append(request)
        expiry = Timestamp(seconds=2**33)
        return EnrollClusterResponse(credential=CREDENTIAL, expire_time=expiry)

    async def next_line(self) -> Line:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self._lines.get()

    async def Connect(  # noqa: N802 - grpc's name
        self,
        request_iterator: Any,
        context: Any,
    ) -> None:
        line = Line(context)
        await self._lines.put(line)
        await line.ended.wait()
        assert line.status is not None
        code, details = line.status
        if code is not grpc.StatusCode.OK:
            await context.abort(code, details)


@asynccontextmanager
async def exchange() -> AsyncIterator[Exchange]:
    server = grpc.aio.server()
    opened = Exchange()
    add_AgentsServicer_to_server(opened, server)
    add_ClustersServicer_to_server(opened, server)
    opened.endpoint = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    try:
        yield opened
    finally:
        await server.stop(None)
