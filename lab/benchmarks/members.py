"""Members of the fleets that are measured: what they report, and their agents on real streams.

Must not know what is measured.

    members.py < WHERE    all agents in a process of their own, until they are ended
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import grpc

from estimator.agent.messages import order_from_message
from federation.model.cluster import CapacityReport
from federation.model.resources import CPU, MEMORY
from federation.model.shapes import Echo, Shape, request_shape
from federation.v1.agents_pb2 import (
    ConnectRequest,
    Heartbeat,
    Hello,
    NodeShare,
    PlaceReplies,
    PlaceReply,
    PlaceRequest,
)
from federation.v1.agents_pb2_grpc import AgentsStub
from lab.benchmarks.measuring import chosen
from lab.callers import ALONE, bearer, calling, enrolled
from lab.fleet import MIB, FleetPlan, cluster_name, message_of, report_of
from lab.planes import Planes, Postgres, durable_postgres, running_planes
from lab.programs import Beside, beside
from lab.servers import ROOT

# A pod so small that thousands of replicas fit everywhere.
TINY = {CPU: 10, MEMORY: 32 * MIB}
# Pods of such bindings are never seen.
UNSEEN = "unseen-"
REPORT_SECONDS = 5.0
DIAL_AGAIN_SECONDS = 1.0
# Hung up agents stay known for the whole measurement.
PATIENT = ("--heartbeat-seconds=3600",)
CALL_SECONDS = 120.0
HELLO = Hello(epoch=1, agent_version="bench", placer="none", takes_place_requests=True)
# All fleets that are measured: the report of a cluster is made once, and sent by several of them.
PLAN = FleetPlan(distinct=chosen(16, quick=4, full=32))


def capacity_report(number: int, sequence: int = 1) -> CapacityReport:
    """What the agent of a cluster three tenths full reports."""
    return report_of(number, sequence, PLAN)


class Agent:
    """An agent that claims to run whatever it is asked to place, and reports that.

    ``complain`` is told how each of its streams ended that it did not end itself.
    """

    def __init__(
        self,
        number: int,
        endpoint: str,
        credential: str,
        report_seconds: float = REPORT_SECONDS,
        *,
        name: str = "",
        plan: FleetPlan = PLAN,
        complain: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._complain = complain
        self._number = number
        self._report_seconds = report_seconds
        self._name = name or cluster_name(number)
        self._endpoint = endpoint
        self._metadata = bearer(credential)
        self._plan = plan
        # Replicas by shape of what each binding was placed with.
        self._running: dict[str, Counter[Shape]] = {}
        self._sought: set[str] = set()
        self._version = 0
        self._news = asyncio.Event()
        # A stream takes one message at a time.
        self._saying = asyncio.Lock()

    async def live(self) -> None:
        """Until it is ended; dials again when it is sent away, as many who dial at once are."""
        while True:
            await self._converse(lambda call: asyncio.gather(self._listen(call), self._speak(call)))
            await asyncio.sleep(random.uniform(0, DIAL_AGAIN_SECONDS))

    async def report_once(self, is_known: asyncio.Event) -> None:
        """Hello, one report, and away once it is known everywhere; dials again when sent away."""
        while not await self._converse(lambda call: self._report_once(call, is_known)):  # noqa: ASYNC110 - a stream tells
            await asyncio.sleep(random.uniform(0, DIAL_AGAIN_SECONDS))

    async def _converse(self, talk: Callable[[Any], Awaitable[object]]) -> bool:
        """Whether it came to its end on a stream of its own."""
        try:
            async with grpc.aio.insecure_channel(self._endpoint, ALONE) as channel:
                stub: Any = AgentsStub(channel)
                call = stub.Connect(metadata=self._metadata)
                await self._say(call, hello=HELLO)
                await talk(call)
                return True
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
            self._complain(f"an agent's stream: {reason_of(error)}")
            return False

    async def _report_once(self, call: Any, is_known: asyncio.Event) -> None:
        await self._say_report(call, report_of(self._number, plan=self._plan))
        while (message := await call.read()) is not grpc.aio.EOF:
            if message.WhichOneof("message") == "ack":
                await is_known.wait()
                await call.done_writing()
                return
        raise asyncio.InvalidStateError

    async def _say(self, call: Any, **message: Any) -> None:
        async with self._saying:
            await call.write(ConnectRequest(cluster=self._name, **message))

    async def _say_report(self, call: Any, report: CapacityReport) -> str:
        """Its hash."""
        message = message_of(self._name, report).report
        await self._say(call, report=message)
        return message.content_hash

    async def _listen(self, call: Any) -> None:
        while (message := await call.read()) is not grpc.aio.EOF:
            await self._hear(call, message)

    async def _hear(self, call: Any, message: Any) -> None:
        kind = message.WhichOneof("message")
        if kind == "place_request":
            await self._say(call, place_reply=self._placed(message.place_request))
        elif kind == "place_requests":
            replies = map(self._placed, message.place_requests.requests)
            await self._say(call, place_replies=PlaceReplies(replies=replies))
        elif kind == "interest":
            self._look_for(message.interest)
        elif kind == "resync":
            self._news.set()

    async def _speak(self, call: Any) -> None:
        sequence = 0
        # Agents that start at once do not report at once for ever.
        pause = random.uniform(0, self._report_seconds)
        while True:
            sequence += 1
            report = report_of(
                self._number,
                sequence,
                self._plan,
                interest_version=self._version,
                echoes=self._echoes(),
            )
            beat = Heartbeat(sequence=sequence, content_hash=await self._say_report(call, report))
            beat.agent_time.GetCurrentTime()
            await self._say(call, heartbeat=beat)
            self._news.clear()
            try:
                await asyncio.wait_for(self._news.wait(), pause)
            except TimeoutError:
                pause = self._report_seconds

    def _echoes(self) -> Iterator[Echo]:
        """All pods that were asked for and are looked for: each is on a node at once."""
        for binding in sorted(self._sought & self._running.keys()):
            for shape, replicas in self._running[binding].items():
                yield Echo(binding=binding, shape=shape, bound=replicas)

    def _look_for(self, interest: Any) -> None:
        if interest.whole:
            self._sought = set()
        self._sought -= set(interest.removed)
        self._sought |= {each.binding for each in interest.bindings}
        self._version = interest.version

    def _placed(self, request: PlaceRequest) -> PlaceReply:
        if UNSEEN not in request.binding:
            running = Counter[Shape]()
            for share in order_from_message(request).shares:
                running[request_shape(share.requirements.request)] += share.replicas
            self._running[request.binding] = running
        nodes = [
            NodeShare(node="node-1", component=each.component, replicas=each.replicas, score=50)
            for each in request.shares
        ]
        return PlaceReply(request_id=request.request_id, nodes=nodes, strategy="MostAllocated")


def reason_of(error: Exception) -> str:
    """Why a stream ended, in one line."""
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name}: {error.details()}".replace("\n", " ")
    return "it was ended"


@contextmanager
def federation(
    folder: Path,
    planes: int,
    clusters: int,
    arguments: tuple[str, ...] = (),
    checkout: Path = ROOT,
) -> Iterator[tuple[Planes, Postgres, Mapping[str, str]]]:
    """Control planes, their database, and the credentials of the clusters' agents."""
    with (
        durable_postgres(folder, checkout) as postgres,
        running_planes(folder, planes, postgres.url, (*PATIENT, *arguments), checkout) as started,
    ):
        names = [cluster_name(number) for number in range(clusters)]
        credentials = asyncio.run(enrolled(started.endpoints[0], started.token, names))
        yield started, postgres, credentials


@contextmanager
def agents_there(
    planes: Planes, credentials: Mapping[str, str], report_seconds: float = REPORT_SECONDS
) -> Iterator[Beside]:
    """All agents of a fleet, connected to the first control plane, in a process of their own."""
    where = [planes.endpoints[0], credentials, report_seconds, PLAN.distinct]
    with beside("lab.benchmarks.members", given=where) as agents:
        asyncio.run(await_ready(planes, len(credentials)))
        yield agents


async def await_ready(planes: Planes, clusters: int) -> None:
    """Until every control plane has the reports of all clusters."""
    for endpoint in planes.endpoints:
        async with calling(endpoint, planes.token, CALL_SECONDS) as caller:
            while sum(map(is_ready, await caller.clusters_listed())) != clusters:  # noqa: ASYNC110 - asked for
                await asyncio.sleep(0.1)


def is_ready(cluster: Any) -> bool:
    status = cluster.status
    return bool(status.resource_summary.allocatable) and status.conditions[0].status == "True"


async def report_all(planes: Planes, credentials: Mapping[str, str]) -> None:
    """To the first of the control planes; until all of them have the reports."""
    endpoint, is_known = planes.endpoints[0], asyncio.Event()
    agents = [Agent(number, endpoint, each) for number, each in enumerate(credentials.values())]
    async with asyncio.TaskGroup() as reporting:
        for each in agents:
            reporting.create_task(each.report_once(is_known))
        await await_ready(planes, len(credentials))
        is_known.set()


async def run_agents(
    endpoint: str, credentials: Mapping[str, str], report_seconds: float, distinct: int
) -> None:
    """All of them, until they are ended."""
    plan, complain = replace(PLAN, distinct=distinct), partial(print, flush=True)
    agents = [
        Agent(number, endpoint, credential, report_seconds, plan=plan, complain=complain)
        for number, credential in enumerate(credentials.values())
    ]
    await asyncio.gather(*(agent.live() for agent in agents))


if __name__ == "__main__":
    asyncio.run(run_agents(*json.load(sys.stdin)))
