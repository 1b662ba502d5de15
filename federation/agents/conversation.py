"""One agent's stream from its Hello to its end: what follows from each message.

Must not believe an agent: every message names the cluster of its credential, and a foreign one
ends the stream. One that breaks a rule is passed over, and the agent is told.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress

from federation.agents.interests import Interests
from federation.agents.messages import (
    beat_from_message,
    goodbye,
    hello_from_message,
    resync,
    sight_of,
    welcome_to_message,
)
from federation.agents.session import Session, Write
from federation.agents.sessions import Sessions
from federation.codec.echoes import echo_bytes, read_lost_plans
from federation.codec.reports import report_from_message
from federation.codec.violations import Violations
from federation.model.cluster import CapacityReport
from federation.model.errors import (
    Conflict,
    DeadlineMissed,
    FederationError,
    InvalidRequest,
    LimitExceeded,
    NotFound,
    PermissionRefused,
    PreconditionFailed,
    Unauthenticated,
    Unavailable,
)
from federation.model.node_plans import LostPlan
from federation.runtime import spans
from federation.runtime.spans import SpanSide
from federation.services.agent_values import AgentHello, WelcomeFacts
from federation.services.members.reports import Reporting
from federation.services.pace import Pace
from federation.services.threads import READING_REPORTS
from federation.services.troubles import TOLD_AGAIN_SECONDS, Trouble
from federation.services.values import Principal
from federation.v1.agents_pb2 import (
    Ack,
    ConnectRequest,
    ConnectResponse,
    Heartbeat,
    Report,
)

Requests = AsyncIterator[ConnectRequest]
Lose = Callable[[str, Sequence[LostPlan]], Awaitable[None]]

MAX_HASH_CHARACTERS = 128
# Thousands of resource names; what is reported, but for echoes, is part of every list of clusters.
MAX_REPORT_BYTES = 256 * 1024
# Reading more than this takes longer than the loop may stand still.
THREAD_BYTES = 64 * 1024
THREAD_ECHOES = 500
MAX_REFUSED_IN_A_ROW = 10
FLUSH_SECONDS = 2.0
# What an agent may say without being asked, in heartbeats; a message weighs another for so many
# bytes. Ours beat every few seconds, and report as often; a report with all echoes has 4 MiB.
SAID_AT_ONCE, SAID_PER_SECOND = 100.0, 20.0
HEARTBEAT_BYTES = 50_000
STREAMS_AT_ONCE, STREAMS_PER_SECOND = 30.0, 2.0
MAX_PACES = 20_000
TOLERATED_CLOCK_SECONDS = 5.0
# A new stream would end the same way until somebody acts.
LASTING = (PermissionRefused, PreconditionFailed, Conflict, NotFound, Unauthenticated)

logger = logging.getLogger(__name__)


class Inbox:
    """The newest report that is not stored yet: a newer one replaces an older that still waits.

    Kept as it came: an agent that sends faster than can be stored costs no reading of its reports.
    """

    def __init__(self) -> None:
        self._report: Report | None = None
        self._changed = asyncio.Event()
        self._closed = False
        self.is_idle = True

    def put(self, report: Report) -> None:
        waiting = self._report
        if waiting is None or waiting.sequence < report.sequence:
            self._report = report
            self.is_idle = False
            self._changed.set()

    def close(self) -> None:
        """What waits is still taken."""
        self._closed = True
        self._changed.set()

    async def take(self) -> Report | None:
        """The next report, None when there will be none. Taking one settles the one before."""
        if self._report is None:
            self.is_idle = True
        while self._report is None and not self._closed:
            self._changed.clear()
            await self._changed.wait()
        report, self._report = self._report, None
        return report


class Conversations:
    """The agents' streams of this process."""

    def __init__(
        self, sessions: Sessions, reporting: Reporting, interests: Interests, lose: Lose
    ) -> None:
        """``lose`` is told of promises by plan that a cluster's agent cannot keep any more."""
        self._sessions = sessions
        self._lose = lose
        self._reporting = reporting
        self._interests = interests
        self._streams: dict[str, Pace] = {}
        # Some fail while others are stored: that one is does not mean that it is over.
        self._unstored = Trouble(logger, "reports not stored", again_seconds=TOLD_AGAIN_SECONDS)

    def welcome_again(self, cluster: str) -> None:
        """Tell a connected agent that its cluster's resource model, or the pace, changed."""
        session = self._sessions.get(cluster)
        if session is not None:
            facts = self._reporting.welcome(cluster)
            session.heartbeat_seconds = facts.heartbeat_seconds
            session.send(welcome_to_message(facts))

    async def converse(self, agent: Principal, requests: Requests, write: Write) -> None:
        """Serve one stream of a cluster's agent; returns when the agent hangs up.

        Raises what ends the stream; the agent is told Goodbye before, if dialling again is no use.
        """
        cluster = agent.cluster
        await asyncio.sleep(self._streams_of(cluster).spend(1, time.monotonic()))
        try:
            hello = await self._hello(cluster, requests)
            facts = await self._reporting.connected(cluster, hello, agent.credential_id)
            session = Session(
                cluster,
                hello.epoch,
                credential_id=agent.credential_id,
                opened_at=facts.server_time,
                heartbeat_seconds=facts.heartbeat_seconds,
                takes_place_requests=hello.takes_place_requests,
                sees_nodes=not hello.sees_no_nodes,
            )
            self._sessions.open(session)
        except LASTING as error:
            await write(goodbye(error))
            raise
        session.send(welcome_to_message(facts))
        fields = {"cluster": cluster, "epoch": hello.epoch}
        logger.info("agent connected", extra={"fields": fields})
        _check_clock(hello, facts, fields)
        try:
            await self._serve(session, requests, write)
        finally:
            if self._sessions.close(session):
                self._reporting.disconnected(cluster, session.epoch)
            reason = session.error.message if session.error else "the agent hung up"
            logger.info("agent disconnected", extra={"fields": {**fields, "reason": reason}})
        if session.error is not None:
            raise session.error

    def _streams_of(self, cluster: str) -> Pace:
        """How often an agent may begin a stream: each is written to the store."""
        if len(self._streams) > MAX_PACES:
            self._streams.clear()
        now = time.monotonic()
        return self._streams.setdefault(
            cluster, Pace(at_once=STREAMS_AT_ONCE, per_second=STREAMS_PER_SECOND, now=now)
        )

    async def _serve(self, session: Session, requests: Requests, write: Write) -> None:
        """Listen, store and write side by side until one of them ends the session."""
        inbox = Inbox()
        storing = asyncio.create_task(self._store(session, inbox))
        writing = asyncio.create_task(session.write_all(write))
        listening = asyncio.create_task(self._listen(session, inbox, requests))
        ended = asyncio.create_task(session.ended.wait())
        telling = asyncio.create_task(self._interests.tell(session))
        workers = (listening, storing, writing, telling)
        try:
            await asyncio.wait({*workers, ended}, return_when=asyncio.FIRST_COMPLETED)
            if listening.done() and listening.exception() is None:
                # The agent has said all; what it still waits for are our answers.
                inbox.close()
                await asyncio.wait({storing, ended}, return_when=asyncio.FIRST_COMPLETED)
            for worker in workers:
                _end_by(session, worker)
            session.end()
            await asyncio.wait({writing}, timeout=FLUSH_SECONDS)
        finally:
            for task in (*workers, ended):
                task.cancel()
            await asyncio.gather(*workers, ended, return_exceptions=True)
        for worker in workers:
            if not worker.cancelled() and (error := worker.exception()) is not None:
                raise error

    async def _hello(self, cluster: str, requests: Requests) -> AgentHello:
        request = await self._next(cluster, requests)
        if request is None or request.WhichOneof("message") != "hello":
            raise InvalidRequest.of("message", "the first message of a stream must be hello")
        if request.hello.ByteSize() > THREAD_BYTES:
            return await READING_REPORTS.run(hello_from_message, request.hello)
        return hello_from_message(request.hello)

    async def _next(self, cluster: str, requests: Requests) -> ConnectRequest | None:
        """The next message, None after the last; silence and a foreign name are refused."""
        silence_seconds = self._reporting.silence_seconds
        try:
            async with asyncio.timeout(silence_seconds):
                request = await anext(requests, None)
        except TimeoutError:
            raise DeadlineMissed(
                f"the agent of cluster {cluster} was silent for {silence_seconds:g} s"
            ) from None
        if request is not None and request.cluster != cluster:
            raise PermissionRefused(
                f"the credential belongs to cluster {cluster!r} "
                f"and the message names cluster {request.cluster!r}"
            )
        return request

    async def _listen(self, session: Session, inbox: Inbox, requests: Requests) -> None:
        """Who says more than its pace waits to be read: what it sends stays where it is."""
        pace = Pace(at_once=SAID_AT_ONCE, per_second=SAID_PER_SECOND, now=time.monotonic())
        while (request := await self._next(session.cluster, requests)) is not None:
            kind = request.WhichOneof("message") or "message"
            if kind == "hello":
                raise InvalidRequest.of("hello", "comes once, at the start of a stream")
            is_asked_for = False
            try:
                is_asked_for = self._take(session, inbox, request)
            except InvalidRequest as error:
                session.refuse(kind, error)
            weight = 0.0 if is_asked_for else 1.0 + request.ByteSize() / HEARTBEAT_BYTES
            await asyncio.sleep(pace.spend(weight, time.monotonic()))

    def _take(self, session: Session, inbox: Inbox, request: ConnectRequest) -> bool:
        """Whether the message is an answer that somebody waits for."""
        match request.WhichOneof("message"):
            case "report":
                self._see(session, request.report)
                inbox.put(request.report)
            case "heartbeat":
                self._beat(session, inbox, request.heartbeat)
            case "place_reply":
                return session.answer(request.place_reply)
            case "place_replies":
                return session.answer_all(request.place_replies.replies)
            case "estimate_reply":
                return session.answer(request.estimate_reply)
            case "credential_stored":
                session.confirm(request.credential_stored.credential_id)
            case _:
                rule = "must be one that this control plane knows; is it older than the agent?"
                raise InvalidRequest.of("message", rule)
        return False

    def _see(self, session: Session, message: Report) -> None:
        found = Violations()
        sight = sight_of(message, "report", found)
        found.check()
        if sight is not None:
            self._reporting.see(session.cluster, sight)

    def _beat(self, session: Session, inbox: Inbox, message: Heartbeat) -> None:
        beat = beat_from_message(message)
        in_step = self._reporting.heartbeat(
            session.cluster, beat.sequence, beat.content_hash, beat.agent_time, beat.sight
        )
        # A report on its way to the store is not missing.
        if not in_step and inbox.is_idle:
            session.send(resync("the stored report is not the one the heartbeat names"))

    async def _store(self, session: Session, inbox: Inbox) -> None:
        """Store reports one after the other; one that is refused or lost is asked for anew."""
        refused = 0
        while (message := await inbox.take()) is not None:
            try:
                with spans.span(
                    "agent report", SpanSide.CONSUMER, fedsched__cluster=session.cluster
                ):
                    report = await _report(session, message)
                    # Before the report is stored: one that is not is asked for again.
                    await self._lose(session.cluster, read_lost_plans(message))
                    await self._reporting.accept(session.cluster, report)
            except InvalidRequest as error:
                session.refuse("report", error)
            except Conflict as error:
                refused += 1
                if refused >= MAX_REFUSED_IN_A_ROW:
                    raise
                session.send(resync(error.message))
            except (Unavailable, LimitExceeded) as error:
                # The next heartbeat finds the report missing and asks for it again.
                self._unstored.met(error, cluster=session.cluster)
            else:
                refused = 0
                session.send(ConnectResponse(ack=Ack(sequence=report.sequence)))


def _check_clock(hello: AgentHello, facts: WelcomeFacts, fields: dict[str, object]) -> None:
    if hello.agent_time is None:
        return
    ahead = hello.agent_time - facts.server_time
    if abs(ahead) > TOLERATED_CLOCK_SECONDS:
        logger.warning(
            "the agent's clock is off", extra={"fields": {**fields, "ahead_seconds": round(ahead)}}
        )


async def _report(session: Session, message: Report) -> CapacityReport:
    found = Violations()
    size_bytes = message.ByteSize()
    if size_bytes > MAX_REPORT_BYTES:
        size_bytes -= await READING_REPORTS.run(echo_bytes, message)
    if size_bytes > MAX_REPORT_BYTES:
        rule = f"has {size_bytes} bytes beside its echoes: at most {MAX_REPORT_BYTES} are kept"
        found.add("report", rule)
    found.check()
    if size_bytes > THREAD_BYTES or len(message.echoes) > THREAD_ECHOES:
        report = await READING_REPORTS.run(report_from_message, message)
    else:
        report = report_from_message(message)
    if report.epoch != session.epoch:
        rule = f"must be the epoch of this stream's hello, {session.epoch}; it is {report.epoch}"
        found.add("epoch", rule)
    for field, name in (("modelHash", report.model_hash), ("contentHash", report.content_hash)):
        if len(name) > MAX_HASH_CHARACTERS:
            found.add(field, f"must have at most {MAX_HASH_CHARACTERS} characters")
    found.check()
    return report


def _end_by(session: Session, worker: asyncio.Task[None]) -> None:
    """End the session with the error of a worker that failed, if it did."""
    with suppress(asyncio.InvalidStateError, asyncio.CancelledError):
        error = worker.exception()
        if isinstance(error, FederationError):
            session.end(error, farewell=goodbye(error) if isinstance(error, LASTING) else None)
