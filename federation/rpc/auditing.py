"""Calls as the audit names them: who calls, from where, about what, and how it was refused.

Must not write anything, nor put a secret into a record: of a request it has the names and a digest.
"""

from __future__ import annotations

import hashlib
import re
from itertools import islice
from typing import Any, Final, Protocol

from federation.model.audit import AuditRecord
from federation.model.errors import (
    FederationError,
    LimitExceeded,
    PermissionRefused,
    Unauthenticated,
)
from federation.rpc.large_requests import is_large_request
from federation.rpc.permissions import PERMISSIONS
from federation.rpc.status import code_of, shortened
from federation.services.audited_calls import AuditedCall, audit_from_now, current_call
from federation.services.threads import DECODING
from federation.services.values import Principal

REASON_BYTES: Final = 400
NAME_BYTES: Final = 400
MOST_OBJECTS: Final = 1000
STRANGER: Final = "somebody unknown"
_CREDENTIAL_ID: Final = re.compile(r"[-a-z0-9]{1,40}", re.ASCII)


class Refusals(Protocol):
    """Where refusals are recorded; ``sparingly`` those that may come in any number."""

    def refused(self, record: AuditRecord, *, sparingly: bool) -> None: ...


async def audit(method: str, request: Any, principal: Principal | None, address: str) -> None:
    """What the call does from now on is recorded, where its method changes something."""
    permission = PERMISSIONS.get(method)
    if permission is None or not permission.changes or getattr(request, "preview", False):
        return
    call = call_of(method, principal, address)
    if permission.object is not None:
        objects = islice(permission.object.objects(request), MOST_OBJECTS)
        call.objects = tuple(shortened(str(named), NAME_BYTES) for named in objects if str(named))
    call.is_decided = permission.decides
    if is_large_request():
        call.request_sha256 = await DECODING.run(_digest, request)
    else:
        call.request_sha256 = _digest(request)
    audit_from_now(call)


def audit_unread(method: str, principal: Principal | None, address: str) -> None:
    """The call ends as a change that failed, where its method changes something: its request could
    not be read, and nobody knows what it is about.
    """
    if _changes(method):
        audit_from_now(call_of(method, principal, address))


def call_of(
    method: str, principal: Principal | None, address: str, bearer: str = ""
) -> AuditedCall:
    """A call of somebody who is known, or of who came with this bearer."""
    if principal is None:
        presented = bearer.partition(".")[0]
        actor, known_id = STRANGER, presented if _CREDENTIAL_ID.fullmatch(presented) else ""
    else:
        actor, known_id = str(principal), principal.credential_id
    return AuditedCall(
        actor=actor,
        is_known=principal is not None,
        credential_id=known_id,
        address=shortened(address, NAME_BYTES),
        method=method.removeprefix("/federation.v1."),
    )


def refusal_of(
    method: str, call: AuditedCall, error: Exception, *, is_let_in: bool
) -> AuditRecord | None:
    """The record of a refusal, or of a change that failed.

    None where it is neither: a read that failed for another reason.
    """
    is_refusal = isinstance(error, Unauthenticated | PermissionRefused)
    is_limit = isinstance(error, LimitExceeded) and not is_let_in
    is_change = current_call() is call if is_let_in else _changes(method)
    if not (is_refusal or is_limit or is_change):
        return None
    if not isinstance(error, FederationError) or type(error) is FederationError:
        return call.record(result="INTERNAL")
    reason = shortened(error.message, REASON_BYTES)
    return call.record(result=code_of(error).name, reason=reason)


def is_sparse(call: AuditedCall, error: Exception, *, is_let_in: bool) -> bool:
    """Whether such refusals may come in any number: of strangers, and of calls beyond a limit."""
    return not call.is_known or (isinstance(error, LimitExceeded) and not is_let_in)


def _changes(method: str) -> bool:
    permission = PERMISSIONS.get(method)
    return permission is not None and permission.changes


def _digest(request: Any) -> str:
    return hashlib.sha256(request.SerializeToString(deterministic=True)).hexdigest()
