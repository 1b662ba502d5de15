"""What every call passes first: who calls, whether that is allowed, its deadline, its errors.

Must not know what any method does; which methods need which credential is all it is told.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import TypeAlias

import grpc

from federation.codec.rights import Audience
from federation.model.errors import DeadlineMissed, Unauthenticated
from federation.rpc.auditing import Refusals, call_of, is_sparse, refusal_of
from federation.rpc.calls import Context, Handler, call_as, caller_if_known
from federation.rpc.guards import Guard, Reading
from federation.rpc.large_requests import LargeRequests
from federation.rpc.limits import CallerShares, SharedLimit
from federation.rpc.measures import CallMeasures
from federation.rpc.permissions import methods_for, permit
from federation.rpc.strangers import Strangers, host_of
from federation.services.audited_calls import current_call
from federation.services.members.identity import Identity
from federation.services.values import Principal, PrincipalKind

AUTHORIZATION = "authorization"
SCHEME = "bearer"
OPEN_METHODS = methods_for(Audience.ANYBODY)
LOOKUPS_AT_ONCE = 4

Continuation: TypeAlias = "Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]]"


logger = logging.getLogger(__name__)


def admitted(method: str, principal: Principal) -> None:
    """``call_as``, where they may call this method; also who may not is named in the audit.

    Raises PermissionRefused.
    """
    call_as(principal)
    permit(method, principal)


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
        refusals: Refusals | None = None,
        clock: Callable[[], float] = time.time,
        limits: CallerShares | None = None,
    ) -> None:
        self._refusals = refusals
        self._clock = clock
        self.measures = CallMeasures()
        self._identity = identity
        self._deadline_seconds = deadline_seconds
        self._unproven = strangers()
        self._open = {method: strangers() for method in OPEN_METHODS}
        self._lookups = asyncio.Semaphore(LOOKUPS_AT_ONCE)
        self.limits = limits or CallerShares()
        self.large = LargeRequests()

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
            large=self.large,
            clock=self._clock,
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
            lookup = None if self._identity.is_of_others(bearer) else self._lookups
            async with self._unproven.call(peer, lookup):
                principal = await self._admit(details, context)
        with self.limits.call(details.method, principal, peer):
            yield partial(self.large.reading, peer)

    @contextmanager
    def place(
        self, method: str, principal: Principal, address: str, also: SharedLimit | None = None
    ) -> Iterator[None]:
        """Let in a call from this process, which asks for somebody. Raises FederationError."""
        admitted(method, principal)
        with self.limits.call(method, principal, address, also):
            yield

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

    def _refused(
        self, details: grpc.HandlerCallDetails, peer: str, error: Exception, *, is_let_in: bool
    ) -> None:
        """Has a refusal recorded, and a change that failed."""
        if self._refusals is None:
            return
        call = current_call()
        if call is None:
            bearer = presented_by(details)
            call = call_of(details.method, caller_if_known(), host_of(peer), bearer)
        record = refusal_of(details.method, call, error, is_let_in=is_let_in)
        if record is not None:
            sparingly = is_sparse(call, error, is_let_in=is_let_in)
            self._refusals.refused(record, sparingly=sparingly)

    def _revocation(self) -> asyncio.Future[None] | None:
        """Is done once the caller's token is revoked; None for who has none."""
        principal = caller_if_known()
        if principal is None or principal.kind is not PrincipalKind.TOKEN:
            return None
        return self._identity.revocation(principal.credential_id)


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
