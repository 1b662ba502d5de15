"""One cluster that has no agent: its status told to the control plane, as an agent would.

Must not claim to see nodes: it places nothing and estimates nothing exactly.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import grpc
import grpc.aio

from estimator.control_plane.enrolment import ClusterIdentity, enrol, refusal
from estimator.control_plane.reconnecting import MAX_AFTER_SECONDS, Reconnecting, wait_until
from federation.bridge.clusters import report_of
from federation.bridge.echoes import Evidence
from federation.bridge.karmada import KarmadaCluster, ReadyReplicas
from federation.client import Client
from federation.codec.interests import interests_from_message
from federation.codec.reports import report_to_message
from federation.codec.timestamps import timestamp_from_seconds
from federation.model.echoes import Interest
from federation.model.errors import (
    FederationError,
    InvalidRequest,
    PermissionRefused,
    Unauthenticated,
    Unavailable,
)
from federation.runtime.backoff import Backoff
from federation.v1 import resource_pb2
from federation.v1.agents_pb2 import (
    ConnectRequest,
    ConnectResponse,
    CredentialStored,
    EstimateReply,
    Heartbeat,
    Hello,
    InterestUpdate,
    PlaceReplies,
    PlaceReply,
    PlaceRequest,
    Welcome,
)
from federation.v1.agents_pb2_grpc import AgentsStub

# What a bridge says that it is, where agents say their release.
AGENT_VERSION: Final = "karmada-bridge"
REPORT_SECONDS: Final = 1.0
# How long a first report waits for Karmada's bindings, and for the interests of a stream.
LISTED_SECONDS: Final = 30.0
INTEREST_SECONDS: Final = 5.0
WELCOME_SECONDS: Final = 20.0
NO_NODES: Final = "no agent sees this cluster's nodes: its status comes from Karmada"
MOST_QUEUED: Final = 256

_Call: TypeAlias = grpc.aio.StreamStreamCall[ConnectRequest, ConnectResponse]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """How the control plane is reached, and what time it is: Unix seconds, and a steady clock.

    Members report once ``listed`` is set: from then on what is ready is known.
    """

    client: Client
    channel: Callable[[], grpc.aio.Channel]
    version: str
    clock: Callable[[], float]
    monotonic: Callable[[], float]
    listed: asyncio.Event


def speaks_for_itself(cluster: resource_pb2.Cluster) -> bool:
    """Whether an agent, and no bridge, spoke for it last."""
    return not cluster.status.agent.version.startswith(AGENT_VERSION)


class Member:
    """Speaks for one cluster until stopped, or until an agent of its own takes over."""

    def __init__(
        self,
        line: Line,
        cluster: KarmadaCluster,
        message: resource_pb2.Cluster,
        troubled: Callable[[str], None],
    ) -> None:
        """``troubled`` is told once why a status cannot be reported."""
        self.reported = asyncio.Event()
        self._troubled = troubled
        self._trouble = ""
        self._line = line
        self._cluster = cluster
        self._message = message
        self._evidence = Evidence()
        self._interests: dict[str, Interest] = {}
        self._interest_version = 0
        self._credential = ""
        self._epoch = 0
        self._sequence = 0
        self._acknowledged = 0
        self._model_hash = ""
        self._heartbeat_seconds = 10.0
        self._sent_hash = ""
        self._changed = asyncio.Event()
        # Everything that is looked for was said on this stream.
        self._is_told = asyncio.Event()
        self._outgoing: asyncio.Queue[ConnectRequest] = asyncio.Queue(MOST_QUEUED)

    def put(self, cluster: KarmadaCluster, message: resource_pb2.Cluster) -> None:
        """The cluster as it is now."""
        if message.status.resource_summary != self._message.status.resource_summary:
            self._evidence.totals_changed()
        self._cluster, self._message = cluster, message
        self._changed.set()

    def tell_ready(self, binding: str, replicas: ReadyReplicas) -> None:
        """Note the replicas of a binding that are ready there, says Karmada."""
        if self._evidence.tell(binding, replicas, self._line.monotonic()):
            self._changed.set()

    async def run(self) -> None:
        """Until cancelled, or taken over. Raises PermissionRefused: it will not be let in."""
        backoff = Backoff()
        await wait_until(self._line.listed, LISTED_SECONDS)
        while True:
            pause_seconds: float | None = None
            try:
                if not self._credential:
                    await self._enrol()
                await self._stream(backoff)
            except Unauthenticated:
                self._credential = ""
            except PermissionRefused:
                raise
            except Reconnecting as asked:
                backoff.reset()
                pause_seconds = backoff.within(min(asked.after_seconds, MAX_AFTER_SECONDS))
                name = self._cluster.name
                logger.info("cluster %s: %s; dialling again in %.1f s", name, asked, pause_seconds)
            except FederationError as error:
                logger.debug("cluster %s: %s", self._cluster.name, error.message)
            await asyncio.sleep(backoff.next_seconds() if pause_seconds is None else pause_seconds)

    async def _enrol(self) -> None:
        cluster, line = self._cluster, self._line
        made = await line.client.create_join_token(cluster.name, ttl_seconds=600)
        enrolled = await enrol(
            line.channel(),
            ClusterIdentity(
                uid=cluster.identity,
                kubernetes_version=self._message.status.kubernetes_version,
            ),
            cluster=cluster.name,
            token=made.token,
            version=line.version,
        )
        # An agent of its own that has joined by now is not driven out.
        if speaks_for_itself(await line.client.get_cluster(cluster.name)):
            raise PermissionRefused("an agent of its own speaks for it")
        self._credential = enrolled.credential
        # One that joins from now on has a newer session, as agents number theirs by the clock.
        self._epoch = max(self._epoch, enrolled.last_epoch) + 1
        self._sequence = self._acknowledged = 0

    async def _stream(self, backoff: Backoff) -> None:
        """One stream, until it ends; raises why it did."""
        metadata = (("authorization", f"Bearer {self._credential}"),)
        call = AgentsStub(self._line.channel()).Connect(metadata=metadata)
        self._outgoing = asyncio.Queue(MOST_QUEUED)
        self._sent_hash, self._interests, self._interest_version = "", {}, 0
        self._is_told.clear()
        workers: list[asyncio.Task[None]] = []
        try:
            await call.write(self._said(hello=self._hello()))
            async with asyncio.timeout(WELCOME_SECONDS):
                self._take(await _next(call))
            backoff.reset()
            workers = [
                asyncio.create_task(work)
                for work in (self._read(call), self._write(call), self._report())
            ]
            await asyncio.wait(workers, return_when=asyncio.FIRST_COMPLETED)
            # When several fail, reading knows why.
            await asyncio.wait(workers[:1], timeout=1.0)
            for worker in workers:
                if worker.done():
                    worker.result()
        except grpc.aio.AioRpcError as error:
            raise refusal(error, "the stream ended") from error
        except (TimeoutError, asyncio.InvalidStateError) as error:
            raise Unavailable("the stream to the control plane broke") from error
        finally:
            call.cancel()
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    def _hello(self) -> Hello:
        return Hello(
            epoch=self._epoch,
            acknowledged_sequence=self._acknowledged,
            agent_version=self._line.version,
            kubernetes_version=self._message.status.kubernetes_version,
            placer="none",
            api_enablements=self._message.status.api_enablements,
            agent_time=timestamp_from_seconds(self._line.clock()),
            takes_place_requests=True,
            sees_no_nodes=True,
        )

    async def _read(self, call: _Call) -> None:
        while True:
            self._take(await _next(call))

    async def _write(self, call: _Call) -> None:
        while True:
            await call.write(await self._outgoing.get())

    def _take(self, message: ConnectResponse) -> None:
        match message.WhichOneof("message"):
            case "welcome":
                self._be_welcomed(message.welcome)
            case "ack":
                self._acknowledged = message.ack.sequence
                self.reported.set()
            case "resync":
                self._sent_hash = ""
                self._changed.set()
            case "interest":
                self._look_for(message.interest)
            case "place_request":
                self._say(place_reply=_not_placed(message.place_request))
            case "place_requests":
                replies = map(_not_placed, message.place_requests.requests)
                self._say(place_replies=PlaceReplies(replies=replies))
            case "estimate_request":
                request_id = message.estimate_request.request_id
                self._say(estimate_reply=EstimateReply(request_id=request_id, message=NO_NODES))
            case "new_credential":
                self._credential = message.new_credential.credential
                credential_id = self._credential.partition(".")[0]
                self._say(credential_stored=CredentialStored(credential_id=credential_id))
            case "refusal":
                refused = message.refusal
                name = self._cluster.name
                logger.warning("cluster %s: its %s: %s", name, refused.kind, refused.reason)
                self.reported.set()
            case "reconnect":
                raise Reconnecting(message.reconnect.reason, message.reconnect.after_seconds)
            case "goodbye":
                raise PermissionRefused(message.goodbye.reason)

    def _be_welcomed(self, welcome: Welcome) -> None:
        if welcome.model_hash != self._model_hash:
            self._model_hash, self._sent_hash = welcome.model_hash, ""
        self._heartbeat_seconds = max(welcome.heartbeat_seconds, REPORT_SECONDS)
        self._changed.set()

    def _look_for(self, message: InterestUpdate) -> None:
        try:
            update = interests_from_message(message)
        except InvalidRequest as error:
            logger.warning("cluster %s: %s", self._cluster.name, error.message)
            return
        is_first = not self._interest_version
        are_taken_over = self._evidence.take_over(update)
        if update.whole:
            self._interests = {}
        for binding in update.removed:
            self._interests.pop(binding, None)
        self._interests.update((each.binding, each) for each in update.interests)
        if update.version:
            self._interest_version = update.version
        if update.is_complete:
            self._is_told.set()
        # What is not there yet changes no report.
        told = (*update.removed, *(each.binding for each in update.interests))
        if is_first or are_taken_over or any(map(self._evidence.has, told)):
            self._changed.set()

    async def _report(self) -> None:
        """A report when there is news, at most one a second; else a heartbeat.

        The first one waits until it is known which bindings are looked for: a report without
        echoes would have the control plane count twice what is promised and there.
        """
        await wait_until(self._is_told, INTEREST_SECONDS)
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._heartbeat_seconds):
                    await self._changed.wait()
            self._changed.clear()
            self._tell()
            await asyncio.sleep(REPORT_SECONDS)

    def _tell(self) -> None:
        line = self._line
        is_ready = any(
            each.type == "Ready" and each.status == "True"
            for each in self._message.status.conditions
        )
        self._evidence.count(line.monotonic(), is_ready=is_ready)
        try:
            report = report_of(
                self._message,
                model_hash=self._model_hash,
                interest_version=self._interest_version,
                echoes=self._evidence.echoes(self._interests),
                now=line.clock(),
            )
            self._trouble = ""
        except InvalidRequest as error:
            trouble = f"the status of cluster {self._cluster.name}: {error.message}"
            if trouble != self._trouble:
                self._troubled(trouble)
            self._trouble, report = trouble, None
        if report is None:
            # Nothing is known of it: unknown, and no longer waited for.
            self.reported.set()
            self._beat()
            return
        if report.content_hash == self._sent_hash:
            self._beat()
            return
        self._sequence += 1
        self._sent_hash = report.content_hash
        numbered = replace(report, epoch=self._epoch, sequence=self._sequence)
        self._say(report=report_to_message(numbered))

    def _beat(self) -> None:
        self._say(
            heartbeat=Heartbeat(
                agent_time=timestamp_from_seconds(self._line.clock()),
                sequence=self._sequence,
                content_hash=self._sent_hash,
            )
        )

    def _say(self, **message: Any) -> None:
        try:
            self._outgoing.put_nowait(self._said(**message))
        except asyncio.QueueFull as error:
            raise Unavailable("the control plane does not read the stream") from error

    def _said(self, **message: Any) -> ConnectRequest:
        return ConnectRequest(cluster=self._cluster.name, **message)


async def _next(call: _Call) -> ConnectResponse:
    message = await call.read()
    if isinstance(message, ConnectResponse):
        return message
    code, text = await call.code(), await call.details()
    if code is grpc.StatusCode.UNAUTHENTICATED:
        raise Unauthenticated(text)
    raise Unavailable(text or "the control plane closed the stream")


def _not_placed(request: PlaceRequest) -> PlaceReply:
    return PlaceReply(
        request_id=request.request_id,
        unplaced=sum(max(0, share.replicas) for share in request.shares),
        message=NO_NODES,
    )
