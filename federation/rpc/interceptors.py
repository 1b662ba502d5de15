"""What every call passes first: who calls, whether that is allowed, its deadline, its errors.

Must not know what any method does; which methods need which credential is all it is told.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import secrets
import time
from collections import Counter
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    Awaitable,
    Callable,
    Coroutine,
    Iterator,
    Sequence,
)
from contextlib import (
    AbstractAsyncContextManager,
    aclosing,
    asynccontextmanager,
    contextmanager,
    nullcontext,
    suppress,
)
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, cast

import grpc

from federation.model.audit import AuditRecord
from federation.model.errors import (
    DeadlineMissed,
    FederationError,
    InvalidRequest,
    LimitExceeded,
    PluginFailed,
    Unauthenticated,
    Unavailable,
)
from federation.rpc.auditing import audit, call_of, refusal_of
from federation.rpc.caller_limits import LimitedCallers
from federation.rpc.decoding import decoded, deserializer_of
from federation.rpc.large_requests import LargeRequests, Undecoded
from federation.rpc.measures import CallMeasures, code_name
from federation.rpc.permissions import Audience, check_scope, methods_for, permit
from federation.rpc.status import EndedElsewhere, end_with, status_of
from federation.rpc.strangers import Strangers, host_of
from federation.rpc.traced import traced
from federation.rpc.visibility import as_seen
from federation.services.audited_calls import current_call
from federation.services.members.identity import Identity
from federation.services.troubles import tell_plugin_failure
from federation.services.values import Principal, PrincipalKind

AUTHORIZATION = "authorization"
SCHEME = "bearer"
OPEN_METHODS = methods_for(Audience.ANYBODY)
LOOKUPS_AT_ONCE = 4
# One in use, and others that end just now or broke unnoticed.
STREAMS_PER_AGENT = 4
# Of callers that are no agents, watches included: each call is kept in memory while it is served.
CALLS_PER_CONNECTION, CALLS_IN_ALL = 1_000, 4_000
# gRPC says of a deadline that has passed that up to a millisecond of it is left.
ROUNDED_UP_SECONDS = 0.001
NO_LIMIT = nullcontext()
UNREAD = (LimitExceeded, Unauthenticated)
# How often the caller of a stream is looked at again; mostly that is remembered.
ADMITTED_SECONDS = 5.0

Context = grpc.aio.ServicerContext[Any, Any]
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"  # Generic in the stubs only.
Continuation: TypeAlias = "Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]]"

Reading: TypeAlias = Callable[[], AbstractAsyncContextManager[None]]

logger = logging.getLogger(__name__)
_caller: ContextVar[Principal] = ContextVar("caller")


def caller() -> Principal:
    """Who makes the call that is being served; only inside a method that needs a credential."""
    return _caller.get()


def call_as(principal: Principal) -> None:
    """From now on ``caller`` answers this one, in the context that runs."""
    _caller.set(principal)


def admitted(method: str, principal: Principal) -> None:
    """``call_as``, where they may call this method; also who may not is named in the audit.

    Raises PermissionRefused.
    """
    call_as(principal)
    permit(method, principal)


def seconds_left(context: Context) -> float | None:
    """Until the deadline of a call, None when its caller gave none."""
    left: float | None = context.time_remaining()
    return left


class Gate(grpc.aio.ServerInterceptor):
    """Admits a call by its credential before its request is read, and answers for its errors.

    A unary call without a deadline gets ``deadline_seconds``; a stream of answers lives as long as
    its caller's credential, agents' streams as long as those who look after them let them.
    """

    def __init__(
        self,
        identity: Identity,
        *,
        deadline_seconds: float = 30.0,
        strangers: Callable[[], Strangers] = Strangers,
        record: Callable[[AuditRecord], None] | None = None,
    ) -> None:
        self._record = record
        self.measures = CallMeasures()
        self._identity = identity
        self._deadline_seconds = deadline_seconds
        self._unproven = strangers()
        self._open = {method: strangers() for method in OPEN_METHODS}
        self._lookups = asyncio.Semaphore(LOOKUPS_AT_ONCE)
        self._streams: Counter[str] = Counter()
        self._calls: Counter[str] = Counter()
        self._limited = LimitedCallers()
        self._large = LargeRequests()

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler | None:
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        return Guard(
            handler=handler,
            method=handler_call_details.method,
            deadline_seconds=self._deadline_seconds,
            entered=partial(self._entered, handler_call_details),
            admit=partial(self._admit_again, handler_call_details),
            revocation=self._revocation,
            refused=partial(self._refused, handler_call_details),
            measures=self.measures,
            large=self._large,
        ).guarded()

    @asynccontextmanager
    async def _entered(
        self, details: grpc.HandlerCallDetails, context: Context
    ) -> AsyncGenerator[Reading]:
        """For as long as the call lasts; gives what to read its request within.

        Raises FederationError for a call that is not let in.
        """
        peer = context.peer()
        if details.method in OPEN_METHODS:
            async with self._open[details.method].call(peer) as place:
                yield place.reading
            return
        bearer = presented_by(details)
        principal = self._identity.recognized(bearer, host_of(peer)) if bearer else None
        if principal is not None:
            admitted(details.method, principal)
        elif self._identity.is_known(bearer) or certificate_of(details, context):
            principal = await self._admit(details, context)
        else:
            # Who asks somebody else, who may be slow, keeps no place before the database.
            lookup = nullcontext() if self._identity.is_of_others(bearer) else self._lookups
            async with self._unproven.call(peer), lookup:
                principal = await self._admit(details, context)
        with self._counted(principal, peer), self._limited.call(principal):
            yield partial(self._large.reading, peer)

    async def _admit(self, details: grpc.HandlerCallDetails, context: Context) -> Principal:
        """Raises FederationError."""
        if certificate := certificate_of(details, context):
            principal = self._identity.of_certificate(certificate)
        else:
            address = host_of(context.peer())
            try:
                async with asyncio.timeout(self._deadline_seconds):
                    principal = await self._identity.identify(bearer_of(details), address)
            except TimeoutError as error:
                raise DeadlineMissed from error
        admitted(details.method, principal)
        return principal

    async def _admit_again(self, details: grpc.HandlerCallDetails, context: Context) -> None:
        if details.method not in OPEN_METHODS:
            await self._admit(details, context)

    def _refused(self, details: grpc.HandlerCallDetails, peer: str, error: Exception) -> None:
        """Has a refusal recorded, and a change that failed."""
        call = current_call()
        if call is None:
            bearer = presented_by(details)
            call = call_of(details.method, _caller.get(None), host_of(peer), bearer)
        record = refusal_of(call, error)
        if record is not None and self._record is not None:
            self._record(record)

    def _revocation(self) -> asyncio.Future[None] | None:
        """Is done once the caller's token is revoked; None for who has none."""
        principal = _caller.get(None)
        if principal is None or principal.kind is not PrincipalKind.TOKEN:
            return None
        return self._identity.revocation(principal.credential_id)

    @contextmanager
    def _counted(self, principal: Principal, peer: str) -> Iterator[None]:
        """What is served is kept in memory: nobody has much of it at once."""
        if principal.kind is PrincipalKind.AGENT:
            cluster = principal.cluster
            text = f"the agent of cluster {cluster} has {STREAMS_PER_AGENT} streams already"
            with counted(self._streams, cluster, STREAMS_PER_AGENT, text):
                yield
            return
        if self._calls.total() >= CALLS_IN_ALL:
            raise LimitExceeded(f"{CALLS_IN_ALL} calls are served already; try again later")
        text = f"{CALLS_PER_CONNECTION} calls of this connection are served already"
        with counted(self._calls, peer, CALLS_PER_CONNECTION, text):
            yield


@contextmanager
def counted(counts: Counter[str], key: str, most: int, text: str) -> Iterator[None]:
    """One more of a key meanwhile. Raises LimitExceeded with the text."""
    if counts[key] >= most:
        raise LimitExceeded(text)
    counts[key] += 1
    try:
        yield
    finally:
        counts[key] -= 1
        if not counts[key]:
            del counts[key]


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """One call's handler, with its request checked, its deadline kept and its errors answered.

    To gRPC every method takes a stream: the request of one that does not would be read, whole,
    before anybody is asked whether the caller may make it.
    """

    handler: Handler
    method: str
    deadline_seconds: float
    entered: Callable[[Context], AbstractAsyncContextManager[Reading]]
    admit: Callable[[Context], Awaitable[None]]
    revocation: Callable[[], asyncio.Future[None] | None]
    refused: Callable[[str, Exception], None]
    measures: CallMeasures
    large: LargeRequests

    def guarded(self) -> Handler:
        # What comes in a stream is read no faster than its agent may say it.
        waits = not self.handler.request_streaming
        read = self.handler.request_deserializer
        deserialize = deserializer_of(self.method, read, waits=waits)
        codec = (deserialize, self.handler.response_serializer)
        make: Any = grpc.stream_stream_rpc_method_handler
        behaviour: Any
        if self.handler.unary_unary is not None:
            make, behaviour = grpc.stream_unary_rpc_method_handler, self._unary_unary
        elif self.handler.unary_stream is not None:
            behaviour = self._unary_stream
        elif self.handler.stream_stream is not None:
            behaviour = self._stream_stream
        else:
            # Our protos declare none, as nothing here would bound what such a stream brings.
            raise TypeError(f"{self.method} takes a stream and gives a single answer")
        guarded: Handler = make(behaviour, *codec)
        return guarded

    async def _unary_unary(self, requests: AsyncIterable[Any], context: Context) -> Any:
        behaviour: Any = self.handler.unary_unary

        async def work(reading: Reading) -> Any:
            with traced(self.method, context):
                answer = await behaviour(await self._only(requests, reading, context), context)
                principal = _caller.get(None)
                sees_all = principal is None or not principal.scope.namespaces
                return answer if sees_all else await as_seen(answer, principal)

        return await self._served(context, work)

    async def _unary_stream(self, requests: AsyncIterable[Any], context: Context) -> None:
        behaviour = self.handler.unary_stream

        async def work(reading: Reading) -> None:
            request = await self._only(requests, reading, context)
            admit = partial(self.admit, context)
            await while_admitted(relay(behaviour, request, context), admit, self.revocation())

        await self._served(context, work)

    async def _stream_stream(self, requests: AsyncIterable[Any], context: Context) -> None:
        behaviour = self.handler.stream_stream

        async def work(_: Reading) -> None:
            async with aclosing(each_decoded(requests)) as stream:
                await relay(behaviour, stream, context)

        await self._served(context, work)

    async def _only(self, requests: AsyncIterable[Any], reading: Reading, context: Context) -> Any:
        """The one request of a call that is no stream."""
        async with reading():
            async with aclosing(stream_of(requests)) as stream:
                request = await anext(stream, None)
            if isinstance(request, Undecoded):
                request = await self.large.decoded(request)
        if request is None:
            raise InvalidRequest.of("", "the call carries no request", reason="UNDECODABLE")
        message, principal = decoded(request), _caller.get(None)
        await audit(self.method, message, principal, host_of(context.peer()))
        if principal is not None:
            check_scope(self.method, message, principal)
        return message

    async def _served(self, context: Context, work: Callable[[Reading], Awaitable[Any]]) -> Any:
        started, code = time.perf_counter(), grpc.StatusCode.OK.name
        try:
            answer = await self._answered(context, work)
        except grpc.aio.AbortError:
            code = code_name(context.code())
            raise
        except asyncio.CancelledError:
            code = grpc.StatusCode.CANCELLED.name
            raise
        else:
            code = code_name(context.code())
            return answer
        finally:
            is_stream = self.handler.request_streaming or self.handler.response_streaming
            seconds = None if is_stream else time.perf_counter() - started
            self.measures.end(self.method, code, seconds)

    async def _answered(self, context: Context, work: Callable[[Reading], Awaitable[Any]]) -> Any:
        left = seconds_left(context)
        # gRPC itself keeps the deadline of a caller who gave one.
        unlimited = self.handler.response_streaming or left is not None
        limit = None if unlimited else asyncio.timeout(self.deadline_seconds)
        try:
            refuse_late(left)
            async with limit or NO_LIMIT, self.entered(context) as reading:
                return await work(reading)
        except EndedElsewhere as ended:
            status = ended.status
        except grpc.aio.AbortError:
            # A service that is not ours has ended its call.
            raise
        except Exception as error:  # noqa: BLE001 - the one place where errors are answered
            missed = limit is not None and isinstance(error, TimeoutError) and limit.expired()
            answered = DeadlineMissed() if missed else error
            status = answer_to(answered, self.method)
            self.refused(context.peer(), answered)
            release_frames(error)
            if isinstance(error, UNREAD):  # Or too large.
                self.large.came()
        end_with(context, status)
        return None


def refuse_late(left: float | None) -> None:
    """Raises DeadlineMissed once no time is left: nobody would hear of what is done now."""
    if left is not None and left <= ROUNDED_UP_SECONDS:
        raise DeadlineMissed


async def while_admitted(
    work: Coroutine[Any, Any, None],
    admit: Callable[[], Awaitable[None]],
    revocation: asyncio.Future[None] | None = None,
) -> None:
    """Ends the work, and raises, once its caller is not admitted any more."""
    working = asyncio.create_task(work)
    awaited: set[asyncio.Future[None]] = {working}
    if revocation is not None:
        awaited.add(revocation)
    try:
        while True:
            done, _ = await asyncio.wait(
                awaited, timeout=ADMITTED_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
            if working in done:
                return working.result()
            awaited.difference_update(done)
            # The store may be away, and nobody can tell now: the next look will.
            with suppress(Unavailable, DeadlineMissed):
                await admit()
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


def bearer_of(details: grpc.HandlerCallDetails) -> str:
    """The credential of a call's ``authorization: Bearer`` metadata."""
    values = [value for key, value in details.invocation_metadata if key == AUTHORIZATION]
    if not values:
        raise Unauthenticated("the call carries no credential: send `authorization: Bearer TOKEN`")
    scheme, _, credential = str(values[0]).partition(" ")
    if len(values) > 1 or scheme.lower() != SCHEME or not credential.strip():
        raise Unauthenticated("authorization must be given once, as `Bearer TOKEN`")
    return credential.strip()


def presented_by(details: grpc.HandlerCallDetails) -> str:
    """The same; empty where there is none, or nobody can tell which."""
    try:
        return bearer_of(details)
    except Unauthenticated:
        return ""


def certificate_of(details: grpc.HandlerCallDetails, context: Context) -> bytes:
    """The client certificate that the handshake of its connection verified, of a call without a
    bearer; empty where there is none. Ports that verify none ask for none.
    """
    if any(key == AUTHORIZATION for key, _ in details.invocation_metadata):
        return b""
    presented: Sequence[bytes] = tuple(context.auth_context().get("x509_pem_cert", ()))
    return presented[0] if presented else b""


async def each_decoded(requests: AsyncIterable[Any]) -> AsyncGenerator[Any]:
    async with aclosing(stream_of(requests)) as stream:
        async for request in stream:
            yield decoded(request)


def stream_of(requests: AsyncIterable[Any]) -> AsyncGenerator[Any]:
    """What gRPC reads messages in; to be closed, as it keeps the last one in a cycle until then.

    The garbage collector, which counts objects, finds the few that are a message of megabytes late.
    """
    stream: Any = aiter(requests)
    return cast("AsyncGenerator[Any]", stream)


async def relay(behaviour: Any, request: Any, context: Context) -> None:
    """Run a streaming method of either style: one that yields answers or one that writes them."""
    if not inspect.isasyncgenfunction(behaviour):
        await behaviour(request, context)
        return
    async with aclosing(behaviour(request, context)) as answers:
        async for answer in answers:
            await context.write(answer)


def answer_to(error: Exception, method: str) -> Any:
    """The status that a call ends with for an error; what nobody expected is logged, not told."""
    if isinstance(error, PluginFailed):
        tell_plugin_failure(error)
    if isinstance(error, FederationError) and type(error) is not FederationError:
        return status_of(error)
    error_id = secrets.token_hex(6)
    logger.error(
        "unexpected error",
        exc_info=error,
        extra={"fields": {"error_id": error_id, "method": method}},
    )
    return status_of(FederationError(f"internal error {error_id}: the server's log says more"))


def release_frames(error: BaseException | None) -> None:
    """Forget what the functions that an error passed through knew, the request most of all.

    An error that came from a thread stands in a cycle with them. The frames themselves are left
    alone: to clear one ends a coroutine that waits there, which may serve others as well.
    """
    seen = set[int]()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        error.__traceback__ = None
        error = error.__cause__ or error.__context__
