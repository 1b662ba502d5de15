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
from federation.rpc.guards import Guard, GuardedCall, Reading
from federation.rpc.large_requests import LargeRequests
from federation.rpc.limits import CallerShares, SharedLimit
from federation.rpc.measures import CallMeasures
from federation.rpc.permissions import methods_for, permit
from federation.rpc.strangers import Strangers
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
        shares: CallerShares | None = None,
    ) -> None:
        self._refusals = refusals
        self.now = clock
        self.measures = CallMeasures()
        self._identity = identity
        self.deadline_seconds = deadline_seconds
        self._unproven = strangers()
        self._open = {method: strangers() for method in OPEN_METHODS}
        self._lookups = asyncio.Semaphore(LOOKUPS_AT_ONCE)
        self.shares = shares or CallerShares()
        self.large = LargeRequests()
        # By their paths: as many as there are methods.
        self._guarded: dict[str, Handler] = {}

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler | None:
        method = handler_call_details.method
        guarded = self._guarded.get(method)
        if guarded is not None:
            return guarded
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        guarded = self._guarded[method] = Guard(handler=handler, method=method, gate=self).guarded()
        return guarded

    def recognized(self, call: GuardedCall) -> Principal | None:
        """Return a caller that is known without the store. Raises PermissionRefused."""
        bearer = presented_by(call.context)
        if not bearer or call.method in OPEN_METHODS:
            return None
        principal = self._identity.recognized(bearer, call.address)
        if principal is not None:
            admitted(call.method, principal)
        return principal

    @asynccontextmanager
    async def entered(self, call: GuardedCall) -> AsyncGenerator[Reading]:
        """Let in a caller that is not recognized, for as long as its call lasts.

        Yields what its request is read within. Raises FederationError for a call that is not let
        in.
        """
        if call.method in OPEN_METHODS:
            async with self._open[call.method].call(call.peer) as place:
                yield place.reading
            return
        bearer = presented_by(call.context)
        if self._identity.is_known(bearer) or certificate_of(call.context):
            principal = await self._admit(call)
        else:
            # A caller of somebody else, who may be slow, holds no place at the database.
            lookup = None if self._identity.is_of_others(bearer) else self._lookups
            async with self._unproven.call(call.peer, lookup):
                principal = await self._admit(call)
        with self.shares.call(call.method, principal, call.peer):
            yield partial(self.large.reading, call.peer)

    @contextmanager
    def place(
        self, method: str, principal: Principal, address: str, also: SharedLimit | None = None
    ) -> Iterator[None]:
        """Let in a call from this process, which asks for somebody. Raises FederationError."""
        admitted(method, principal)
        with self.shares.call(method, principal, address, also):
            yield

    async def admit_again(self, call: GuardedCall) -> None:
        """Check that a caller may still call. Raises FederationError."""
        if call.method not in OPEN_METHODS:
            await self._admit(call)

    async def _admit(self, call: GuardedCall) -> Principal:
        """Raises FederationError."""
        if certificate := certificate_of(call.context):
            principal = self._identity.of_certificate(certificate)
        else:
            try:
                async with asyncio.timeout(self.deadline_seconds):
                    principal = await self._identity.identify(bearer_of(call.context), call.address)
            except TimeoutError as error:
                raise DeadlineMissed from error
        admitted(call.method, principal)
        return principal

    def refuse(self, call: GuardedCall, error: Exception, *, is_let_in: bool) -> None:
        """Have a refusal recorded, and a change that failed."""
        if self._refusals is None:
            return
        audited = current_call()
        if audited is None:
            bearer = presented_by(call.context)
            audited = call_of(call.method, caller_if_known(), call.address, bearer)
        record = refusal_of(call.method, audited, error, is_let_in=is_let_in)
        if record is not None:
            sparingly = is_sparse(audited, error, is_let_in=is_let_in)
            self._refusals.refused(record, sparingly=sparingly)

    def revocation(self) -> asyncio.Future[None] | None:
        """Return what is done once the caller's token is revoked; None for other callers."""
        principal = caller_if_known()
        if principal is None or principal.kind is not PrincipalKind.TOKEN:
            return None
        return self._identity.revocation(principal.credential_id)


def bearer_of(context: Context) -> str:
    """Return the credential of a call's ``authorization: Bearer`` metadata."""
    values = [value for key, value in context.invocation_metadata() or () if key == AUTHORIZATION]
    if not values:
        raise Unauthenticated("the call carries no credential: send `authorization: Bearer TOKEN`")
    scheme, _, credential = str(values[0]).partition(" ")
    if len(values) > 1 or scheme.lower() != SCHEME or not credential.strip():
        raise Unauthenticated("authorization must be given once, as `Bearer TOKEN`")
    return credential.strip()


def presented_by(context: Context) -> str:
    """Return the same; empty without one, or with several."""
    try:
        return bearer_of(context)
    except Unauthenticated:
        return ""


def certificate_of(context: Context) -> bytes:
    """Return the client certificate that the handshake verified, of a call without a bearer.

    Empty if there is none. Ports that verify none ask for none.
    """
    if any(key == AUTHORIZATION for key, _ in context.invocation_metadata() or ()):
        return b""
    presented: Sequence[bytes] = tuple(context.auth_context().get("x509_pem_cert", ()))
    return presented[0] if presented else b""
