"""Agents of clusters over real gRPC that report, and answer, what a test says.

    agent = await FakeAgent.joined(plane, "a", cores=6)    joined, said hello, reported
    await agent.report(cores=4, pods={"shop/web": 2})      another report; what it sees of promises
    agent.place = on_nodes("n1")                           how orders are answered; None: never
    agent.estimate = fits(3)                               how exact questions are answered
    agent.orders, agent.questions, agent.refusals          what it was asked and told

Reports are values of the agents' own kind (``CapacityReport``), written by the code of real agents.
``agent.report(whole)`` takes any: ``capacity`` makes some, and the estimator's own code makes
them of nodes and pods.
Must not decide what is right: an agent says what it is told to say.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, Self

import grpc

from federation.codec.reports import report_to_message
from federation.model.cluster import CapacityReport, NodeSummary, ResourceSummary
from federation.model.shapes import Echo, request_shape
from federation.v1.agents_pb2 import (
    BindingInterest,
    EstimateReply,
    EstimateRequest,
    NodeShare,
    PlaceReplies,
    PlaceReply,
    PlaceRequest,
    Refusal,
    Sight,
)
from lab.control_planes import AgentStream, Caller, RunningControlPlane, heartbeat, hello
from lab.patience import PATIENCE_SECONDS
from lab.reports import nodes

GIB = 1 << 30
NODE_GIBIBYTES = 64
SNAPSHOT_SECONDS = 1_700_000_000.0
# How often an agent is heard that waits for an answer to its report.
BEAT_SECONDS = 5.0

Place = Callable[[PlaceRequest], PlaceReply | None]
Estimate = Callable[[EstimateRequest], EstimateReply | None]


def on_nodes(*names: str, claimed: bool = False) -> Place:
    """Put all replicas of a share on one node, the shares in turn on these nodes.

    With ``claimed`` nodes are kept for what was promised by plan.
    """

    def place(order: PlaceRequest) -> PlaceReply:
        shares = [
            NodeShare(
                node=names[number % len(names)],
                component=share.component,
                replicas=share.replicas,
                score=70,
            )
            for number, share in enumerate(order.shares)
        ]
        return PlaceReply(nodes=shares, strategy="MostAllocated", claimed=claimed and order.planned)

    return place


def on_no_node(message: str = "no node has capacity") -> Place:
    """Answer that no replica was placed."""

    def place(order: PlaceRequest) -> PlaceReply:
        return PlaceReply(unplaced=sum(share.replicas for share in order.shares), message=message)

    return place


def never(_: object) -> None:
    """Answer nothing."""


def fits(replicas: int) -> Estimate:
    """Answer that so many replicas of every shape fit."""

    def estimate(question: EstimateRequest) -> EstimateReply:
        return EstimateReply(replicas=[replicas] * max(1, len(question.shapes)))

    return estimate


def capacity(
    cores: int = 4, *, node_count: int = 1, pods: int = 110, **amounts: int
) -> CapacityReport:
    """A report of equal nodes, each with so many free cores, 64 GiB and further amounts."""
    amounts = {"cpu": 1000 * cores, "memory": NODE_GIBIBYTES * GIB, "pods": pods} | amounts
    return CapacityReport(
        epoch=1,
        sequence=1,
        snapshot_time=SNAPSHOT_SECONDS,
        summary=ResourceSummary(
            allocatable={name: amount * node_count for name, amount in amounts.items()},
            allocated=dict.fromkeys(amounts, 0),
        ),
        nodes=NodeSummary(total=node_count, ready=node_count, graded=node_count),
        pools=nodes(node_count, **amounts),
    )


class FakeAgent:
    """The agent of one cluster; use ``joined`` to make one, and ``leave`` or ``async with``."""

    def __init__(self, stream: AgentStream, epoch: int = 1, placer: str = "none") -> None:
        self.placer = placer
        self.cluster = stream.cluster
        self.place: Place = on_nodes(f"{stream.cluster}-n1")
        self.estimate: Estimate = never
        # Why it does not see its cluster; empty: it does.
        self.blind = ""
        self.orders: list[PlaceRequest] = []
        self.questions: list[EstimateRequest] = []
        self.refusals: list[Refusal] = []
        self.resyncs: list[str] = []
        self.interest: dict[str, BindingInterest] = {}
        self._interest_version = 0
        self._stream = stream
        self._epoch = epoch
        self._sequence = 0
        self._acknowledged = 0
        self._report = capacity()
        self._content_hash = ""
        self._echoes: dict[str, tuple[Echo, ...]] = {}
        self._changed = asyncio.Condition()
        self._saying = asyncio.Lock()
        self._reading: asyncio.Task[None] | None = None
        self._is_welcome = self._is_dismissed = False
        self._ending = ""

    @property
    def caller(self) -> Caller:
        """What it dials with, to dial another control plane."""
        return self._stream.agent

    @classmethod
    async def joined(
        cls,
        plane: RunningControlPlane,
        cluster: str,
        report: CapacityReport | None = None,
        *,
        cores: int = 4,
        placer: str = "none",
        **options: Any,
    ) -> Self:
        """The agent of a cluster that joins now, connected, with its first report stored."""
        agent = cls(AgentStream(await plane.enrolled(cluster), cluster), placer=placer)
        await agent.connect()
        await agent.report(report or capacity(cores, **options))
        return agent

    async def connect(self) -> None:
        """Open a stream and say hello; dial again where it ends at once, as agents do."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not await self._dial():
                assert not self._is_dismissed, f"{self.cluster}: {self._ending}"
                await self.leave()

    async def _dial(self) -> bool:
        """Return whether the control plane bids welcome."""
        await self._stream.__aenter__()
        self._is_welcome = self._is_dismissed = False
        await self._say(hello=hello(self._epoch, placer=self.placer, takes_place_requests=True))
        self._reading = asyncio.create_task(self._read())
        async with self._changed:
            await self._changed.wait_for(lambda: self._is_welcome or self._has_ended)
        return self._is_welcome

    async def leave(self) -> None:
        """End the stream without a word, as a network does."""
        await self._stream.__aexit__()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    async def restart(self, plane: RunningControlPlane | None = None) -> None:
        """Go, and come back as a new process, perhaps to another control plane."""
        await self.leave()
        if plane is not None:
            secret = self._stream.agent.metadata[0][1].removeprefix("Bearer ")
            self._stream = AgentStream(plane.caller(secret), self.cluster)
        self._epoch, self._sequence, self._acknowledged = self._epoch + 1, 0, 0
        self.interest.clear()
        self._interest_version = 0
        await self.connect()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.leave()

    async def report(
        self,
        report: CapacityReport | None = None,
        *,
        cores: int | None = None,
        sees: Mapping[str, Mapping[str, int] | int] | None = None,
        request: Mapping[str, int] | None = None,
        requests: Mapping[str, Mapping[str, int]] | None = None,
        components: Mapping[str, int] | None = None,
        **options: Any,
    ) -> None:
        """Send a report and return when it is stored; without arguments the last one anew.

        ``sees`` are all pods by binding, bound or as ``bound``, ``unbound`` and ``finished``, each
        pod of ``request`` (a core), or of ``requests`` by binding. The report waits until the
        control plane looks for them.
        With ``components`` the bindings are workloads of these: bound pods by component.
        """
        if report is not None or cores is not None:
            self._report = report or capacity(cores or 0, **options)
        if sees is not None:
            self._echoes.clear()
        for binding, count in (sees or {}).items():
            counts: Any = {"bound": count} if isinstance(count, int) else count
            shape = request_shape((requests or {}).get(binding) or request or {"cpu": 1000})
            self._echoes[binding] = tuple(
                Echo(binding=binding, component=component, shape=shape, bound=bound)
                for component, bound in (components or {}).items()
            ) or (Echo(binding=binding, shape=shape, **counts),)
        await self.until_sought(sees or ())
        refused, is_stored = len(self.refusals), False
        while not is_stored and len(self.refusals) == refused:
            is_stored = await self._send_report(refused)

    async def _send_report(self, refused: int) -> bool:
        """Send the report under a new number; return False where it is asked for again."""
        self._sequence += 1
        sequence, asked = self._sequence, len(self.resyncs)
        current = replace(
            self._report,
            epoch=self._epoch,
            sequence=sequence,
            interest_version=self._interest_version,
            content_hash="",
            echoes=tuple(
                echo
                for binding, echoes in self._echoes.items()
                if binding in self.interest
                for echo in echoes
            ),
        )
        message = report_to_message(current)
        message.sight.CopyFrom(self._sight)
        self._content_hash = message.content_hash
        await self._say(report=message)
        await self._until_answered(
            lambda: (
                self._acknowledged >= sequence
                or len(self.refusals) > refused
                or len(self.resyncs) > asked
            )
        )
        return self._acknowledged >= sequence

    async def _until_answered(self, holds: Callable[[], bool]) -> None:
        """Wait, and send heartbeats: a report that could not be stored is missed at the next."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not holds():
                try:
                    async with asyncio.timeout(BEAT_SECONDS):
                        await self._until(holds)
                except TimeoutError:
                    await self.beat()

    async def beat(self) -> None:
        """Send a heartbeat that stands for the last report."""
        beat = heartbeat(self._sequence, self._content_hash)
        beat.sight.CopyFrom(self._sight)
        await self._say(heartbeat=beat)

    async def until_sought(self, bindings: Collection[str]) -> None:
        """Return when the control plane has said that it looks for pods of all these bindings."""
        await self._until(lambda: set(bindings) <= self.interest.keys())

    async def until_asked(self, count: int = 1) -> None:
        """Return when so many orders came."""
        await self._until(lambda: len(self.orders) >= count)

    async def answer(self, order: PlaceRequest, place: Place) -> None:
        """Answer an order that ``place`` was told not to answer."""
        await self._answer_orders([order], place)

    @property
    def _sight(self) -> Sight:
        return Sight(blind=bool(self.blind), message=self.blind)

    async def _say(self, **message: Any) -> None:
        # A stream takes one message at a time.
        async with self._saying:
            await self._stream.say(**message)

    async def _until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS), self._changed:
            await self._changed.wait_for(lambda: holds() or self._has_ended)
        assert holds(), f"the stream of {self.cluster} ended: {self._ending}"

    @property
    def _has_ended(self) -> bool:
        return self._reading is None or self._reading.done()

    async def _read(self) -> None:
        self._ending = "by the control plane"
        try:
            while (message := await self._stream.next(None)) is not None:
                async with self._changed:
                    await self._take(message)
                    self._changed.notify_all()
        except grpc.aio.AioRpcError as error:
            self._ending = error.details() or ""
        async with self._changed:
            self._reading = None
            self._changed.notify_all()

    async def _take(self, message: Any) -> None:
        match message.WhichOneof("message"):
            case "welcome":
                self._is_welcome = True
            case "ack":
                self._acknowledged = max(self._acknowledged, message.ack.sequence)
            case "goodbye" | "reconnect" as kind:
                self._is_dismissed = kind == "goodbye"
                self._ending = getattr(message, kind).reason
            case "refusal":
                self.refusals.append(message.refusal)
            case "resync":
                self.resyncs.append(message.resync.reason)
            case "interest":
                self._note_interest(message.interest)
            case "place_request":
                await self._take_orders([message.place_request])
            case "place_requests":
                await self._take_orders(message.place_requests.requests)
            case "estimate_request":
                await self._take_question(message.estimate_request)

    def _note_interest(self, interest: Any) -> None:
        if interest.whole:
            self.interest.clear()
        self.interest |= {sought.binding: sought for sought in interest.bindings}
        for binding in interest.removed:
            self.interest.pop(binding, None)
            self._echoes.pop(binding, None)
        self._interest_version = interest.version

    async def _take_orders(self, orders: Collection[PlaceRequest]) -> None:
        self.orders += orders
        await self._answer_orders(orders, self.place)

    async def _answer_orders(self, orders: Collection[PlaceRequest], place: Place) -> None:
        replies = []
        for order in orders:
            reply = place(order)
            if reply is not None:
                reply.request_id = order.request_id
                replies.append(reply)
        if replies:
            await self._say(place_replies=PlaceReplies(replies=replies))

    async def _take_question(self, question: EstimateRequest) -> None:
        self.questions.append(question)
        reply = self.estimate(question)
        if reply is not None:
            reply.request_id = question.request_id
            await self._say(estimate_reply=reply)
