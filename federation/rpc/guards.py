"""One call's handler with what surrounds it: its request read and checked, its errors answered.

Must not know who may call what; it is told who was admitted.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeAlias, cast

import grpc

from federation.codec.timestamps import SERVER_TIME_KEY
from federation.model.access import EVERYTHING, Scope
from federation.model.errors import (
    DeadlineMissed,
    FederationError,
    InvalidRequest,
    LimitExceeded,
    PluginFailed,
    Unauthenticated,
    Unavailable,
)
from federation.rpc.auditing import audit, audit_unread
from federation.rpc.calls import Context, Handler, caller_if_known, refuse_late, seconds_left
from federation.rpc.decoding import MAX_REQUEST_BYTES, decoded, deserializer_of
from federation.rpc.large_requests import LargeRequests, Undecoded
from federation.rpc.limits import CallerShares, give_back
from federation.rpc.measures import CallMeasures, code_name
from federation.rpc.permissions import check_scope
from federation.rpc.status import EndedElsewhere, end_with, status_of
from federation.rpc.strangers import host_of
from federation.rpc.traced import traced
from federation.rpc.visibility import as_seen
from federation.services.members.identity import OUTAGE_SECONDS
from federation.services.troubles import tell_plugin_failure
from federation.services.values import Principal

logger = logging.getLogger(__name__)


NO_LIMIT = nullcontext()
UNREAD = (LimitExceeded, Unauthenticated)
# How often the caller of a stream is looked at again; mostly that is remembered.
ADMITTED_SECONDS = 5.0

Reading: TypeAlias = Callable[[], AbstractAsyncContextManager[None]]


class Entrance(Protocol):
    """The gate, as one call passes it; ``GuardedCall`` says who comes, and from where."""

    shares: CallerShares
    large: LargeRequests
    measures: CallMeasures
    deadline_seconds: float

    def now(self) -> float: ...

    def recognized(self, call: GuardedCall) -> Principal | None:
        """Return a caller that is known without the store. Raises PermissionRefused."""
        ...

    def entered(self, call: GuardedCall) -> AbstractAsyncContextManager[Reading]:
        """Let in any other caller for as long as its call lasts. Raises FederationError."""
        ...

    async def admit_again(self, call: GuardedCall) -> None: ...

    def revocation(self) -> asyncio.Future[None] | None: ...

    def refuse(self, call: GuardedCall, error: Exception, *, is_let_in: bool) -> None:
        """Record the error that a call ended with: ahead of the gate, or behind it."""
        ...


@dataclass(slots=True, kw_only=True, eq=False)
class GuardedCall:
    """One call of a method; ``principal`` is None until its caller is let in."""

    method: str
    context: Context
    peer: str
    address: str
    principal: Principal | None = None

    @property
    def scope(self) -> Scope:
        return EVERYTHING if self.principal is None else self.principal.scope


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """One method's handler, with requests checked, deadlines kept and errors answered.

    To gRPC every method takes a stream. The request of a method that takes none would be read,
    whole, ahead of the question whether its caller may call.
    """

    handler: Handler
    method: str
    gate: Entrance

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

        async def work(call: GuardedCall, reading: Reading) -> Any:
            with traced(self.method, context):
                answer = await behaviour(await self._only(requests, reading, call), context)
                # Callers show how old something is: their own clocks may differ.
                context.set_trailing_metadata(((SERVER_TIME_KEY, f"{self.gate.now():.6f}"),))
                if call.scope == EVERYTHING:
                    return answer
                return await as_seen(answer, call.principal)

        return await self._served(context, work)

    async def _unary_stream(self, requests: AsyncIterable[Any], context: Context) -> None:
        behaviour = self.handler.unary_stream

        async def work(call: GuardedCall, reading: Reading) -> None:
            request = await self._only(requests, reading, call)
            admit = partial(self.gate.admit_again, call)
            answers = relay(behaviour, request, context)
            await while_admitted(answers, admit, self.gate.revocation())

        await self._served(context, work)

    async def _stream_stream(self, requests: AsyncIterable[Any], context: Context) -> None:
        behaviour = self.handler.stream_stream

        async def work(_: GuardedCall, __: Reading) -> None:
            async with aclosing(each_decoded(requests)) as stream:
                await relay(behaviour, stream, context)

        await self._served(context, work)

    async def _only(self, requests: AsyncIterable[Any], reading: Reading, call: GuardedCall) -> Any:
        """Return the one request of a call that is no stream."""
        principal, address = call.principal, call.address
        try:
            message = await self._read(requests, reading, principal)
            await audit(self.method, message, principal, address)
        except BaseException:  # Where its deadline ends it, too.
            audit_unread(self.method, principal, address)
            raise
        if principal is not None:
            check_scope(self.method, message, principal)
        return message

    async def _read(
        self, requests: AsyncIterable[Any], reading: Reading, principal: Principal | None
    ) -> Any:
        async with reading():
            stream = stream_of(requests)
            try:
                request = await anext(stream, None)
            finally:
                await stream.aclose()
            if isinstance(request, Undecoded):
                actor = "" if principal is None else principal.actor
                request = await self.gate.large.decoded(request, actor)
        if request is None:
            # To who sent one that gRPC does not take it says so itself, and to us nothing.
            rule = f"the call carries no request, or one of more than {MAX_REQUEST_BYTES} bytes"
            raise InvalidRequest.of("", rule, reason="UNDECODABLE")
        return decoded(request)

    async def _served(self, context: Context, work: CallWork) -> Any:
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
            self.gate.measures.end(self.method, code, seconds)

    async def _answered(self, context: Context, work: CallWork) -> Any:
        seconds = seconds_left(context)
        # gRPC itself keeps the deadline of a caller who gave one.
        unlimited = self.handler.response_streaming or seconds is not None
        limit = None if unlimited else asyncio.timeout(self.gate.deadline_seconds)
        peer = context.peer()
        call = GuardedCall(method=self.method, context=context, peer=peer, address=host_of(peer))
        is_let_in = False
        try:
            refuse_late(seconds)
            async with limit or NO_LIMIT:
                call.principal = self.gate.recognized(call)
                if call.principal is None:
                    async with self.gate.entered(call) as reading:
                        is_let_in, call.principal = True, caller_if_known()
                        return await work(call, reading)
                shares = self.gate.shares.take(self.method, call.principal, call.peer)
                try:
                    is_let_in = True
                    return await work(call, partial(self.gate.large.reading, call.peer))
                finally:
                    give_back(shares)
        except EndedElsewhere as ended:
            status = ended.status
        except grpc.aio.AbortError:
            # A service that is not ours has ended its call.
            raise
        except Exception as error:  # noqa: BLE001 - the one place where errors are answered
            missed = limit is not None and isinstance(error, TimeoutError) and limit.expired()
            answered = DeadlineMissed() if missed else error
            status = answer_to(answered, self.method, call.scope)
            self.gate.refuse(call, answered, is_let_in=is_let_in)
            release_frames(error)
            if isinstance(error, UNREAD):  # Or too large.
                self.gate.large.came()
        end_with(context, status)
        return None


# What a call does once it is let in, with what its request is read within.
CallWork: TypeAlias = Callable[[GuardedCall, Reading], Awaitable[Any]]


async def while_admitted(
    work: Coroutine[Any, Any, None],
    admit: Callable[[], Awaitable[None]],
    revocation: asyncio.Future[None] | None = None,
) -> None:
    """Ends the work, and raises, once its caller is not admitted any more, or nobody could tell for
    as long as a caller is believed without the store.
    """
    working, admitted_at = asyncio.create_task(work), time.monotonic()
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
            try:
                await admit()
                admitted_at = time.monotonic()
            except (Unavailable, DeadlineMissed):
                # The store may be away, and nobody can tell now: a later look will.
                if time.monotonic() - admitted_at > OUTAGE_SECONDS:
                    raise
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


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


def answer_to(error: Exception, method: str, scope: Scope = EVERYTHING) -> Any:
    """The status that a call ends with for an error, as who may see the scope reads it.

    What nobody expected is logged, not told.
    """
    if isinstance(error, PluginFailed):
        tell_plugin_failure(error)
    if isinstance(error, FederationError) and type(error) is not FederationError:
        return status_of(error, scope)
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
