"""Callers of a control plane, wherever it runs: each rpc by its name, over a connection of its own.

Must not know better than a client would, nor import a server.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from functools import cache
from typing import Any, Final

import grpc
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.message import Message

from federation.rpc.served import SERVICES
from federation.v1.agents_pb2 import ConnectRequest
from federation.v1.agents_pb2_grpc import AgentsStub
from federation.v1.clusters_pb2_grpc import ClustersStub
from federation.v1.estimates_pb2_grpc import EstimatesStub
from federation.v1.scheduling_pb2_grpc import SchedulingStub
from federation.v1.simulation_pb2_grpc import SimulationStub
from lab.patience import PATIENCE_SECONDS

SECONDS: Final = PATIENCE_SECONDS
# Without it all channels of a process to one address share a connection.
ALONE: Final = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0))
ENROLLED_AT_ONCE: Final = 32


def bearer(token: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token}"),)


class Caller:
    """Calls with one credential (or none), and a deadline that every call has."""

    def __init__(
        self, channel: grpc.aio.Channel, token: str | None, seconds: float = SECONDS
    ) -> None:
        self.metadata = bearer(token) if token is not None else ()
        self.channel = channel
        self.clusters: Any = ClustersStub(channel)
        self.agents: Any = AgentsStub(channel)
        self.estimates: Any = EstimatesStub(channel)
        self.scheduling: Any = SchedulingStub(channel)
        self.simulation: Any = SimulationStub(channel)
        self._seconds = seconds
        self._methods: dict[str, Any] = {}

    async def call(self, method: Any, request: Message) -> Any:
        return await method(request, timeout=self._seconds, metadata=self.metadata)

    async def ask(self, method: str, /, **fields: Any) -> Any:
        """Call a method by its name alone, with the fields of its request."""
        return await self.send(method, unary_methods()[method][1](**fields))

    async def send(self, method: str, request: Message) -> Any:
        """Call a method by its name alone."""
        call = self._methods.get(method)
        if call is None:
            path, kind, answer = unary_methods()[method]
            call = self._methods[method] = self.channel.unary_unary(
                path,
                request_serializer=kind.SerializeToString,
                response_deserializer=answer.FromString,
            )
        return await self.call(call, request)

    def watch(self, method: str, /, **fields: Any) -> Any:
        """The stream of a method that goes on telling, by its name alone."""
        path, kind, answer = methods(is_stream=True)[method]
        call: Any = self.channel.unary_stream(
            path, request_serializer=kind.SerializeToString, response_deserializer=answer.FromString
        )
        return call(kind(**fields), timeout=self._seconds, metadata=self.metadata)

    async def clusters_listed(self) -> list[Any]:
        """All clusters, page by page."""
        page = await self.ask("ListClusters", page_size=1000)
        listed = list(page.clusters)
        while page.next_page_token:
            page = await self.ask("ListClusters", page_size=1000, page_token=page.next_page_token)
            listed += page.clusters
        return listed


class BlockingCaller:
    """Calls of a program without an event loop, with one credential (or none)."""

    def __init__(self, channel: grpc.Channel, token: str | None, seconds: float = SECONDS) -> None:
        self._channel = channel
        self._fields: Any = {
            "metadata": bearer(token) if token is not None else (),
            "timeout": seconds,
        }

    def ask(self, method: str, /, **fields: Any) -> Any:
        """Call a method by its name alone, with the fields of its request."""
        path, kind, answer = unary_methods()[method]
        call = self._channel.unary_unary(
            path, request_serializer=kind.SerializeToString, response_deserializer=answer.FromString
        )
        return call(kind(**fields), **self._fields)

    def enroll(self, cluster: str) -> str:
        """The credential of the agent of a cluster that joins now."""
        made = self.ask("CreateJoinToken", cluster=cluster)
        uid = f"uid-of-{cluster}"
        issued = self.ask("EnrollCluster", cluster=cluster, token=made.token, cluster_uid=uid)
        return str(issued.credential)

    def connect(self, said: Iterator[ConnectRequest]) -> Any:
        """The messages that an agent hears who says this."""
        agents: Any = AgentsStub(self._channel)
        return agents.Connect(said, **self._fields)


def unary_methods() -> dict[str, tuple[str, type[Message], type[Message]]]:
    """The path, the class of the request and of the answer of each unary method, by its name."""
    return methods(is_stream=False)


@cache
def methods(*, is_stream: bool) -> dict[str, tuple[str, type[Message], type[Message]]]:
    """The same of methods with one request, whose answers are a stream or one."""
    return {
        method.name: (
            f"/{service}/{method.name}",
            message_factory.GetMessageClass(method.input_type),
            message_factory.GetMessageClass(method.output_type),
        )
        for service in SERVICES
        for method in descriptor_pool.Default().FindServiceByName(service).methods
        if not method.client_streaming and method.server_streaming == is_stream
    }


@asynccontextmanager
async def calling(
    endpoint: str, token: str | None, seconds: float = SECONDS
) -> AsyncIterator[Caller]:
    """A caller on a connection of its own, in plain text."""
    async with grpc.aio.insecure_channel(endpoint, ALONE) as channel:
        yield Caller(channel, token, seconds)


async def enrolled(endpoint: str, token: str, names: Iterable[str]) -> dict[str, str]:
    """The credentials of the agents of clusters that join now, by cluster."""
    free = asyncio.Semaphore(ENROLLED_AT_ONCE)
    async with calling(endpoint, token) as admin, calling(endpoint, None) as anybody:

        async def enroll(name: str) -> tuple[str, str]:
            async with free:
                made = await admin.ask("CreateJoinToken", cluster=name)
                uid = f"uid-of-{name}"
                issued = await anybody.ask(
                    "EnrollCluster", cluster=name, token=made.token, cluster_uid=uid
                )
                return name, issued.credential

        return dict(await asyncio.gather(*map(enroll, names)))
