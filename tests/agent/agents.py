"""An agent in this process between a fake API server and a control plane that the test plays.

Must not look into the agent: it is known by what it says on its stream, its ports and its writes.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp

from estimator.app import run
from estimator.settings import OPTIONS, run_settings
from federation.v1.agents_pb2 import (
    BindingInterest,
    EstimateReply,
    EstimateRequest,
    Hello,
    InterestUpdate,
    PlaceReply,
    PlaceRequest,
    Report,
    Resync,
    Share,
)
from federation.v1.resource_pb2 import NodeClaim, ReplicaRequirements
from lab.agent_streams import Exchange, Line, exchange, welcome
from lab.binders import cluster_of
from lab.kubeapi.resources import Document
from lab.kubeapi.server import KubeApiServer
from lab.patience import PATIENCE_SECONDS, until

CLUSTER = "member1"
START = 1_700_000_123.0


def listening(ports: Mapping[str, int]) -> dict[str, str]:
    """Options that name a port, or an address."""
    return {
        name: str(port) if name.endswith("_port") else f"127.0.0.1:{port}"
        for name, port in ports.items()
    }


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Clock:
    """A clock that stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now


class Member:
    """A cluster and its agent: what is in the cluster, and what the agent says and is told."""

    def __init__(
        self, server: KubeApiServer, plane: Exchange, clock: Clock, ports: Mapping[str, int]
    ) -> None:
        self.server = server
        self.plane = plane
        self.clock = clock
        self.ports = ports
        self.line: Line
        self.lines: list[Line] = []
        self.agent: asyncio.Task[None]
        self.stopping = asyncio.Event()
        self._numbers = itertools.count(1)
        self.version = 0

    def put(self, *documents: Document) -> None:
        for document in documents:
            self.server.cluster.put(document)

    def remove(self, *documents: Document) -> None:
        for document in documents:
            self.server.cluster.remove(document)

    async def welcome(self, **pace: Any) -> Hello:
        """Take the agent's next stream, and welcome it; what it said."""
        self.line = await self.plane.next_line()
        self.lines.append(self.line)
        said = (await self.line.receive_next("hello")).hello
        await self.line.send(welcome=welcome(**pace))
        return said

    def hang_up(self) -> None:
        """End the streams that are open."""
        for line in self.lines:
            if not line.ended.is_set():
                line.end()

    async def next_report(self) -> Report:
        """The next report that comes without being asked for."""
        return (await self.line.receive_next("report")).report

    async def report(self, holds: Callable[[Report], bool] = lambda _: True) -> Report:
        """The first report that holds; reports are asked for until one does.

        Without ``holds`` it may be one that was made a moment before.
        """

        async def ask() -> Report:
            await self.line.send(resync=Resync())
            return (await self.line.receive_next("report")).report

        return await until(ask, holds)

    async def tell(
        self, *bindings: BindingInterest, whole: bool = False, removed: tuple[str, ...] = ()
    ) -> Report:
        """Tell the agent which bindings to look for; the first report that answers."""
        self.version += 1
        update = InterestUpdate(
            version=self.version, whole=whole, bindings=bindings, removed=removed
        )
        await self.line.send(interest=update)
        return await self.report(lambda report: report.interest_version == self.version)

    async def place(
        self, binding: str, *shares: Share, planned: bool = False, decision: str = ""
    ) -> PlaceReply:
        request = PlaceRequest(
            request_id=str(next(self._numbers)),
            decision_id=decision,
            binding=binding,
            shares=shares,
            planned=planned,
        )
        await self.line.send(place_request=request)
        reply = (await self.line.receive_next("place_reply")).place_reply
        assert reply.request_id == request.request_id
        return reply

    async def estimate(self, **question: Any) -> EstimateReply:
        request = EstimateRequest(request_id=str(next(self._numbers)), **question)
        await self.line.send(estimate_request=request)
        reply = (await self.line.receive_next("estimate_reply")).estimate_reply
        assert reply.request_id == request.request_id
        return reply

    async def answers(self) -> None:
        """Wait until every port takes connections."""

        async def is_open(port: int) -> bool:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionError:
                return self.agent.done()
            writer.close()
            return True

        for port in self.ports.values():
            await until(partial(is_open, port), bool)
        if self.agent.done():
            await self.agent

    async def post(self, verb: str, body: Any) -> Any:
        """The answer of the agent's extender."""
        async with aiohttp.ClientSession() as session:
            url = f"http://127.0.0.1:{self.ports['extender_listen']}/{verb}"
            async with session.post(url, json=body) as response:
                return await response.json(content_type=None)


@asynccontextmanager
async def running_agent(
    state: Path,
    clock: Clock | None = None,
    stopping: asyncio.Event | None = None,
    **flags: Any,
) -> AsyncIterator[asyncio.Task[None]]:
    """``estimator run`` with these flags, until the end of the block."""
    loaded = OPTIONS.load(
        flags={"cluster": CLUSTER, **flags}, environment={}, document={}, source=""
    )
    settings = run_settings(loaded, state)
    if clock is not None:
        settings = replace(settings, clock=clock, monotonic=clock)
    stopping = stopping or asyncio.Event()
    running = asyncio.create_task(run(settings, stopping))
    try:
        yield running
    except BaseException:
        # A test that failed does not wait until the agent has said everything.
        running.cancel()
        raise
    finally:
        stopping.set()
        await asyncio.gather(running, return_exceptions=True)


@asynccontextmanager
async def joined(state: Path, *documents: Document, **flags: Any) -> AsyncIterator[Member]:
    """An agent that has joined and was welcomed, in a cluster with these objects."""
    async with joining(state, *documents, **flags) as member:
        await member.welcome()
        await member.tell(whole=True)
        yield member


@asynccontextmanager
async def joining(
    state: Path, *documents: Document, ports: tuple[str, ...] = (), **flags: Any
) -> AsyncIterator[Member]:
    """An agent that dials a control plane. ``ports`` names the options of what it serves."""
    numbers = {name: free_port() for name in ports}
    clock = Clock()
    with KubeApiServer(cluster_of(*documents)) as server:
        async with exchange() as plane:
            flags = {
                "kubeconfig": str(server.kubeconfig(state / "kubeconfig")),
                "endpoint": (plane.endpoint,),
                "insecure": "true",
                "join_token": "token",
                **listening(numbers),
                **flags,
            }
            member = Member(server, plane, clock, numbers)
            async with running_agent(state, clock, member.stopping, **flags) as member.agent:
                yield member
                member.hang_up()


@asynccontextmanager
async def serving(
    state: Path,
    *documents: Document,
    ports: tuple[str, ...] = ("extender_listen",),
    **flags: Any,
) -> AsyncIterator[Member]:
    """An agent without a control plane that answers on its ports."""
    with KubeApiServer(cluster_of(*documents)) as server:
        member = Member(server, Exchange(), Clock(), {name: free_port() for name in ports})
        flags = {
            "kubeconfig": str(server.kubeconfig(state / "kubeconfig")),
            **listening(member.ports),
            **flags,
        }
        async with running_agent(state, member.clock, member.stopping, **flags) as member.agent:
            await member.answers()
            yield member


async def ended(agent: asyncio.Task[None]) -> None:
    """Wait for the end of an agent; raises what it ended with."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        await agent


def share(
    replicas: int, cpu: str = "1", *, memory: str = "0", component: str = "", **claim: Any
) -> Share:
    """Replicas of this size; ``claim`` has the fields of their node claim."""
    amounts = {"cpu": cpu} if memory == "0" else {"cpu": cpu, "memory": memory}
    requirements = ReplicaRequirements(resource_request=amounts)
    if claim:
        requirements.node_claim.CopyFrom(NodeClaim(**claim))
    return Share(component=component, replicas=replicas, replica_requirements=requirements)


def counts(report: Report) -> dict[str, tuple[int, int, int]]:
    """Bound, waiting and finished pods of each binding."""
    found: dict[str, tuple[int, int, int]] = {}
    for echo in report.echoes:
        bound, unbound, finished = found.get(echo.binding, (0, 0, 0))
        found[echo.binding] = (bound + echo.bound, unbound + echo.unbound, finished + echo.finished)
    return found
