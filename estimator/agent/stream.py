"""One stream to the control plane, from Hello to its end.

Must not decide what to report or where to place: the agent does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

import grpc
import grpc.aio

from estimator.agent.agent import Agent
from estimator.agent.answers import Estimating, Orders, Outbox
from estimator.agent.channel import PlaneClocks
from estimator.agent.enrolment import reason_of, refusal
from estimator.agent.messages import (
    enablement_messages,
    first_heartbeat_message,
    heartbeat_message,
    hello_message,
    report_message,
    rhythm_from_welcome,
    sight_message,
    stored_message,
)
from estimator.sight import Visibility
from federation.codec.interests import interests_from_message
from federation.codec.timestamps import seconds_from_timestamp, timestamp_from_seconds
from federation.model.errors import (
    FederationError,
    InvalidRequest,
    PermissionRefused,
    PreconditionFailed,
    Unauthenticated,
    Unavailable,
)
from federation.v1.agents_pb2 import (
    ConnectRequest,
    ConnectResponse,
    Hello,
    InterestUpdate,
    NewCredential,
    Refusal,
    Welcome,
)
from federation.v1.agents_pb2_grpc import AgentsStub

WELCOME_TIMEOUT_SECONDS: Final = 20.0
DRAIN_SECONDS: Final = 5.0
# A goodbye's status comes right after it.
STATUS_SECONDS: Final = 1.0
# What to look for comes right after the welcome. A report that does not know it would make the
# control plane count twice what is promised and there.
INTEREST_SECONDS: Final = 0.2
LOOK_SECONDS: Final = 1.0

# What ends a stream without a goodbye and would end the next one, too.
LASTING: Final = frozenset({grpc.StatusCode.PERMISSION_DENIED})

Call: TypeAlias = grpc.aio.StreamStreamCall[ConnectRequest, ConnectResponse]

logger = logging.getLogger(__name__)


class Bearer(Protocol):
    """The credential that streams are opened with."""

    @property
    def credential(self) -> str: ...

    async def replace(self, credential: str, expires_at: float) -> None:
        """Use another from now on; stored when this returns. ``expires_at`` in Unix seconds.

        Raises PreconditionFailed and Unavailable, and goes on with the one it had.
        """
        ...


async def unknown_apis() -> frozenset[tuple[str, str]] | None:
    """Nothing is known of the cluster's APIs."""
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Speaker:
    """The speaker: the cluster, its credential, and its Hello but for the epoch.

    ``apis`` gives (groupVersion, kind) pairs, None when they are not known. ``placer`` is who puts
    pods where room was promised: none, extender or binder. A first report waits at most
    ``interest_seconds`` for what to look for. Changes are looked for every second, or after
    ``news`` is set where there is one. ``answered`` is called once a report was taken or
    passed over. Troubles of the stream are logged at ``trouble_level``.
    """

    cluster: str
    bearer: Bearer
    agent_version: str
    kubernetes_version: Callable[[], str]
    apis: Callable[[], Awaitable[frozenset[tuple[str, str]] | None]] = unknown_apis
    placer: str = "none"
    sees_nodes: bool = True
    interest_seconds: float = INTEREST_SECONDS
    news: asyncio.Event | None = None
    answered: Callable[[], None] = lambda: None
    trouble_level: int = logging.WARNING
    clocks: PlaneClocks = field(default_factory=PlaneClocks)


class Stream:
    """One stream. ``welcomed`` tells, after its end, whether it ever was a good one."""

    def __init__(self, agent: Agent, speaker: Speaker, stopping: asyncio.Event) -> None:
        self.welcomed = False
        self._agent = agent
        self._speaker = speaker
        self._stopping = stopping
        self._outbox = Outbox()
        self._estimating = Estimating(speaker.cluster, agent, self._outbox.put_reply)
        self._orders = Orders(speaker.cluster, agent, self._outbox.put_reply)
        self._report_now = asyncio.Event()
        self._paced = asyncio.Event()
        self._offer = asyncio.Event()
        self._offered: NewCredential | None = None

    async def run(self, channel: grpc.aio.Channel) -> None:
        """Returns when drained after a stop.

        Raises Unauthenticated when the credential is not taken, PermissionRefused when dialling
        again is of no use either, Reconnecting when that is asked for, Unavailable otherwise.
        """
        metadata = (("authorization", f"Bearer {self._speaker.bearer.credential}"),)
        call: Call = AgentsStub(channel).Connect(metadata=metadata)
        try:
            await self._greet(call)
            await self._converse(call)
        except grpc.aio.AioRpcError as error:
            raise refusal(error, "the stream to the control plane ended", LASTING) from error
        except asyncio.InvalidStateError as error:
            # What grpc raises for a write after the stream's end; its status says why.
            raise Unavailable("the stream to the control plane broke") from error
        finally:
            self._agent.measures.is_connected = False
            call.cancel()

    async def _greet(self, call: Call) -> None:
        apis = await self._speaker.apis()
        hello = Hello(
            epoch=self._agent.epoch,
            acknowledged_sequence=self._agent.acknowledged_sequence,
            agent_version=self._speaker.agent_version,
            kubernetes_version=self._speaker.kubernetes_version(),
            placer=self._speaker.placer,
            api_enablements=enablement_messages(apis or ()),
            agent_time=timestamp_from_seconds(self._agent.now()),
            sight=sight_message(self._agent.view()),
            takes_place_requests=True,
            sees_no_nodes=not self._speaker.sees_nodes,
        )
        try:
            async with asyncio.timeout(WELCOME_TIMEOUT_SECONDS):
                await call.write(hello_message(self._speaker.cluster, hello))
                await self._receive(call, await self._next(call))
        except TimeoutError:
            raise Unavailable("the control plane does not answer") from None
        if not self.welcomed:
            raise Unavailable("the control plane did not begin with a welcome")

    async def _converse(self, call: Call) -> None:
        """Read, write, report and beat side by side, until one of them ends it all."""
        writing = asyncio.create_task(self._write(call))
        reading = asyncio.create_task(self._read(call))
        workers = (
            reading,
            writing,
            asyncio.create_task(self._report()),
            asyncio.create_task(self._beat()),
            asyncio.create_task(self._look()),
            asyncio.create_task(self._renew()),
        )
        stopped = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({*workers, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if self._stopping.is_set():
                self._outbox.close()
                await asyncio.wait({reading, writing}, timeout=DRAIN_SECONDS)
                return
            # When both fail, reading knows why and writing only that.
            await asyncio.wait({reading}, timeout=1.0)
            for worker in workers:
                if worker.done():
                    worker.result()
        finally:
            for task in (*workers, stopped):
                task.cancel()
            await asyncio.gather(*workers, stopped, return_exceptions=True)
            await self._estimating.stop()

    async def _next(self, call: Call) -> ConnectResponse:
        message = await call.read()
        if isinstance(message, ConnectResponse):
            return message
        code = await call.code()
        if code is not grpc.StatusCode.OK:
            status = grpc.aio.AioRpcError(
                code, await call.initial_metadata(), await call.trailing_metadata(),
                await call.details(),
            )  # fmt: skip
            raise status
        raise Unavailable("the control plane closed the stream")

    async def _read(self, call: Call) -> None:
        while True:
            await self._receive(call, await self._next(call))

    async def _receive(self, call: Call, message: ConnectResponse) -> None:
        match message.WhichOneof("message"):
            case "welcome":
                self._be_welcomed(message.welcome)
            case "ack":
                self._agent.acknowledge(message.ack.sequence)
                self._speaker.answered()
            case "resync":
                logger.info("control plane asks for a report: %s", message.resync.reason)
                self._report_now.set()
            case "estimate_request":
                self._estimating.start(message.estimate_request)
            case "interest":
                await self._look_for(message.interest)
            case "place_request":
                await self._orders.place([message.place_request])
            case "place_requests":
                await self._orders.place(message.place_requests.requests)
            case "new_credential":
                self._offered = message.new_credential
                self._offer.set()
            case "refusal":
                self._note_refusal(message.refusal)
            case "reconnect":
                raise Reconnecting(message.reconnect.reason, message.reconnect.after_seconds)
            case "goodbye":
                raise await self._dismissed(call, message.goodbye.reason)
            case None:
                logger.warning("the control plane sent something this agent does not know")

    def _note_refusal(self, refused: Refusal) -> None:
        logger.warning(
            "the control plane passes over a %s of cluster %s: %s",
            refused.kind,
            self._speaker.cluster,
            refused.reason,
        )
        self._speaker.answered()

    def _be_welcomed(self, welcome: Welcome) -> None:
        regraded = self._agent.welcome(rhythm_from_welcome(welcome))
        self._paced.set()
        if self.welcomed:
            if regraded:
                self._report_now.set()
            return
        if self._agent.is_told:
            self._report_now.set()
        self.welcomed = True
        self._agent.measures.is_connected = True
        self._agent.measures.streams += 1
        logger.info("connected as cluster %s", self._speaker.cluster)
        server_time = seconds_from_timestamp(welcome.server_time)
        ahead = self._agent.now() - server_time if server_time else 0.0
        self._speaker.clocks.note(ahead)
        for explanation in self._speaker.clocks.differing():
            logger.log(self._speaker.trouble_level, "%s", explanation)

    async def _look_for(self, message: InterestUpdate) -> None:
        try:
            update = interests_from_message(message)
        except InvalidRequest as error:
            # Reports go on saying that they do not answer it.
            logger.warning("cannot look for what the control plane asks: %s", error.message)
            return
        was_told = self._agent.is_told
        await self._agent.look_for(update)
        if self._agent.is_told and not was_told:
            self._report_now.set()

    async def _dismissed(self, call: Call, reason: str) -> FederationError:
        """Why the stream ends for good: its status, which follows, tells what would help."""
        message = f"the control plane refuses: {reason}"
        try:
            async with asyncio.timeout(STATUS_SECONDS):
                while True:
                    await self._next(call)
        except grpc.aio.AioRpcError as error:
            if isinstance(refusal(error, message), Unauthenticated):
                return Unauthenticated(message)
            code, facts = reason_of(error)
            return PermissionRefused(message, reason=code, facts=facts)
        except (TimeoutError, Unavailable):
            logger.debug("no status came after the goodbye")
        return PermissionRefused(message)

    async def _write(self, call: Call) -> None:
        while (message := await self._outbox.take()) is not None:
            await call.write(message)
        await call.done_writing()

    async def _report(self) -> None:
        """A report whenever asked, and whenever the picture has changed at the beat of reports."""
        await wait_until(self._report_now, self._speaker.interest_seconds)
        self._report_now.set()
        while True:
            try:
                async with asyncio.timeout(self._agent.rhythm.report_seconds):
                    await self._report_now.wait()
            except TimeoutError:
                report = await self._agent.changed_report()
            else:
                self._report_now.clear()
                report = await self._agent.report()
            if report is not None:
                # A report of thousands of echoes takes a while to write.
                view, lost = self._agent.view(), self._agent.lost_plans()
                message = await asyncio.to_thread(
                    report_message, self._speaker.cluster, report, view, lost
                )
                self._agent.measures.reports += 1
                self._agent.measures.report_bytes = message.ByteSize()
                self._outbox.put_report(message)

    async def _look(self) -> None:
        """A report before its time when much has changed; a heartbeat when sight goes or comes."""
        was_blind = self._agent.view().is_blind
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if (news := self._speaker.news) is not None:
                await news.wait()
                news.clear()
            view = self._agent.view()
            if view.is_blind != was_blind:
                was_blind = view.is_blind
                self._tell_blindness(view)
                self._put_heartbeat()
            if self._agent.has_changed_much():
                self._report_now.set()

    def _tell_blindness(self, view: Visibility) -> None:
        if view.is_blind:
            logger.warning("blind for %.0f s: %s", view.age_seconds, view.why)
        else:
            logger.info("the cluster is seen again")

    async def _renew(self) -> None:
        """Store what credentials come, and say so: until then the control plane keeps the old."""
        while True:
            await self._offer.wait()
            self._offer.clear()
            if self._offered is None:
                continue
            expires_at = seconds_from_timestamp(self._offered.expire_time) or 0.0
            credential = self._offered.credential
            try:
                await self._speaker.bearer.replace(credential, expires_at)
            except (PreconditionFailed, Unavailable) as error:
                logger.warning("going on with the old credential: %s", error.message)
            else:
                self._outbox.put_reply(stored_message(self._speaker.cluster, credential))

    async def _beat(self) -> None:
        while True:
            await wait_until(self._paced, self._agent.rhythm.heartbeat_seconds)
            if self._paced.is_set():
                self._paced.clear()
                continue
            self._put_heartbeat()

    def _put_heartbeat(self) -> None:
        sent = self._agent.sent()
        if sent is not None:
            message = heartbeat_message(self._speaker.cluster, sent, self._agent.view())
            self._outbox.put_heartbeat(message)
        elif self._agent.is_unreported:
            message = first_heartbeat_message(self._speaker.cluster, self._agent.now())
            self._outbox.put_heartbeat(message)


MAX_AFTER_SECONDS: Final = 600.0


class Reconnecting(Exception):
    """The control plane asks to be dialled again, some time within ``after_seconds``."""

    def __init__(self, reason: str, after_seconds: float) -> None:
        super().__init__(reason)
        self.after_seconds = after_seconds


async def wait_until(event: asyncio.Event, seconds: float) -> None:
    """Wait until it is set, at most so long."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
