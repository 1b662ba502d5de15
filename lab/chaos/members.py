"""Member clusters that only exist in memory, each with an agent on a real stream.

Must not know what control planes decide: callers tell what to run, streams what to look for.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import grpc
import numpy as np

from federation.capacity.cluster_room import ReportId
from federation.codec.interests import interests_from_message
from federation.codec.reports import report_to_message
from federation.model.cluster import CapacityReport, NodeSummary, ResourceSummary
from federation.model.echoes import Interest
from federation.model.reported_pools import reported_pools
from federation.v1.agents_pb2 import (
    ConnectRequest,
    EstimateReply,
    Heartbeat,
    Hello,
    NodeShare,
    PlaceReply,
    PlaceRequest,
)
from federation.v1.agents_pb2_grpc import AgentsStub
from lab.callers import ALONE, bearer
from lab.chaos.slow_ledger import SeenReport
from lab.packed_clusters import RESOURCES, Int64Array
from lab.patience import PATIENCE_SECONDS
from lab.planes import Planes
from lab.simulator_cluster import Order, Placer, Pod, SimulatedCluster, Snapshot

DIAL_AGAIN_SECONDS, POLL_SECONDS = 0.2, 0.02


class Member:
    """A cluster, its scheduler, and its agent, which dials any control plane that is there.

    Every report that was ever sent is in ``sent``. Pods of bindings in ``held`` are not placed.
    """

    def __init__(
        self,
        name: str,
        allocatable_rn: Int64Array,
        sent: dict[tuple[str, ReportId], SeenReport],
        seed: int,
        placer: Placer = Placer.LEAST_ALLOCATED,
        report_seconds: float = 0.5,
    ) -> None:
        self.name = name
        self.cluster = SimulatedCluster(
            name=name,
            allocatable_rn=allocatable_rn,
            free_rn=allocatable_rn.copy(),
            placer=placer,
        )
        self.held: set[str] = set()
        self.acknowledged = 0
        self.streams = 0
        self._sent = sent
        self._random = random.Random(seed)
        self._choices = np.random.default_rng(seed)
        self._report_seconds = report_seconds
        self._interests: dict[str, Interest] = {}
        self._version = 0
        self._news = asyncio.Event()
        # A stream takes one message at a time.
        self._saying = asyncio.Lock()
        self._call: Any = None
        self._speaks = asyncio.Event()
        self._speaks.set()

    def run(self, order: Order) -> None:
        self.cluster.run(order)

    def remove(self, binding: str) -> None:
        self.cluster.remove(binding)

    def pods_of(self, binding: str) -> list[Pod]:
        return [pod for pod in self.cluster.pods if pod.binding == binding]

    def crash(self) -> None:
        """The agent ends and starts again: it knows nothing of what it was told."""
        self.cluster.crash()
        self._interests, self._version = {}, 0
        if self._call is not None:
            self._call.cancel()

    def fall_silent(self) -> None:
        """The cluster goes on, and nobody hears of it."""
        self._speaks.clear()
        if self._call is not None:
            self._call.cancel()

    def speak(self) -> None:
        """The agent dials again."""
        self._speaks.set()

    async def live(self, endpoints: Callable[[], list[str]], credential: str) -> None:
        """Be connected to one of them at a time, for ever."""
        placing = asyncio.create_task(self._place())
        try:
            while await self._speaks.wait():
                known = endpoints()
                if known:
                    await self._converse(self._random.choice(known), credential)
                await asyncio.sleep(self._random.uniform(0.02, DIAL_AGAIN_SECONDS))
        finally:
            placing.cancel()

    async def _converse(self, endpoint: str, credential: str) -> None:
        """One stream, until it ends, however it does."""
        async with grpc.aio.insecure_channel(endpoint, ALONE) as channel:
            stub: Any = AgentsStub(channel)
            self._call = stub.Connect(metadata=bearer(credential))
            self.streams += 1
            parts = [asyncio.create_task(self._listen()), asyncio.create_task(self._speak())]
            try:
                await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for part in parts:
                    part.cancel()
                ended = await asyncio.gather(*parts, return_exceptions=True)
                self._call.cancel()
        for error in ended:
            expected = (grpc.RpcError, asyncio.CancelledError, asyncio.InvalidStateError)
            if isinstance(error, Exception) and not isinstance(error, expected):
                raise error

    async def _speak(self) -> None:
        epoch = self.cluster.epoch
        placer = "extender" if self.cluster.follows_claims else "none"
        await self._say(hello=Hello(epoch=epoch, agent_version="chaos", placer=placer))
        while True:
            snapshot = self.cluster.snapshot()
            report = report_of(snapshot, self.cluster)
            self._sent[self.name, snapshot.report] = SeenReport(
                report=snapshot.report,
                pools=snapshot.pools,
                interest_version=snapshot.interest_version,
                echoes=snapshot.echoes,
            )
            message = report_to_message(report)
            await self._say(report=message)
            beat = Heartbeat(sequence=message.sequence, content_hash=message.content_hash)
            beat.agent_time.GetCurrentTime()
            await self._say(heartbeat=beat)
            self._news.clear()
            pause = self._report_seconds * self._random.uniform(0.5, 1.5)
            try:
                await asyncio.wait_for(self._news.wait(), pause)
            except TimeoutError:
                continue

    async def _listen(self) -> None:
        while (message := await self._call.read()) is not grpc.aio.EOF:
            kind = message.WhichOneof("message")
            if kind == "interest":
                self._look_for(message.interest)
            elif kind == "place_request":
                await self._say(place_reply=self._plan(message.place_request))
            elif kind == "estimate_request":
                reply = EstimateReply(
                    request_id=message.estimate_request.request_id, message="no such luck"
                )
                await self._say(estimate_reply=reply)
            elif kind == "ack":
                self.acknowledged = max(self.acknowledged, message.ack.sequence)
            elif kind == "resync":
                self._news.set()

    async def _say(self, **message: Any) -> None:
        async with self._saying:
            await self._call.write(ConnectRequest(cluster=self.name, **message))

    def _look_for(self, message: Any) -> None:
        update = interests_from_message(message)
        if update.whole:
            self._interests = {}
        for binding in update.removed:
            self._interests.pop(binding, None)
        self._interests |= {each.binding: each for each in update.interests}
        self._version = update.version
        self.cluster.told(self._version, list(self._interests.values()))
        self._news.set()

    def _plan(self, request: PlaceRequest) -> PlaceReply:
        """Any node: nobody here goes by it."""
        return PlaceReply(
            request_id=request.request_id,
            nodes=[
                NodeShare(node="node-0", component=share.component, replicas=share.replicas)
                for share in request.shares
                if share.replicas
            ],
            strategy="none",
        )

    async def _place(self) -> None:
        """The cluster's scheduler: some of what waits goes to nodes now, some later."""
        while True:
            await asyncio.sleep(self._random.uniform(0.02, 0.3))
            waiting = [pod for pod in self.cluster.waiting if pod.binding not in self.held]
            if waiting:
                some = self._random.sample(waiting, self._random.randint(1, len(waiting)))
                self.cluster.place(some, self._choices)


def report_of(snapshot: Snapshot, cluster: SimulatedCluster) -> CapacityReport:
    nodes = cluster.free_rn.shape[1]
    allocatable_r = cluster.allocatable_rn.sum(axis=1)
    used_r = allocatable_r - cluster.free_rn.sum(axis=1)
    return CapacityReport(
        epoch=snapshot.report.epoch,
        sequence=snapshot.report.sequence,
        snapshot_time=time.time(),
        summary=ResourceSummary(
            allocatable=_amounts(allocatable_r),
            allocated=_amounts(used_r),
            allocating={},
        ),
        nodes=NodeSummary(total=nodes, ready=nodes, graded=nodes),
        pools=reported_pools(snapshot.pools),
        interest_version=snapshot.interest_version,
        echoes=snapshot.echoes,
    )


def _amounts(amount_r: Int64Array) -> dict[str, int]:
    return dict(zip(RESOURCES, amount_r.tolist(), strict=True))


@asynccontextmanager
async def living(
    members: Mapping[str, Member], planes: Planes, credentials: Mapping[str, str]
) -> AsyncIterator[list[asyncio.Task[None]]]:
    """The agents of all members, each heard once, as long as the block lasts."""
    tasks = [
        asyncio.create_task(each.live(lambda: planes.endpoints, credentials[name]))
        for name, each in members.items()
    ]
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not all(each.acknowledged for each in members.values()):  # noqa: ASYNC110 - told by streams
                await asyncio.sleep(POLL_SECONDS)
        yield tasks
    finally:
        await end(*tasks)


async def end(*tasks: asyncio.Task[None]) -> None:
    """Cancel tasks; raise what failed in them."""
    for task in tasks:
        task.cancel()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    if failed := [each for each in ended if isinstance(each, Exception)]:
        raise ExceptionGroup("parts of the simulation failed", failed)
