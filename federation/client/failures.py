"""Turns a failed call's status into the error tree, details included.

Must not decide about retries: the class says what a caller may do.
"""

from __future__ import annotations

from typing import cast

import grpc

from federation.model.errors import (
    AlreadyExists,
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
    Violation,
)

_ERRORS: dict[grpc.StatusCode, type[FederationError]] = {
    grpc.StatusCode.NOT_FOUND: NotFound,
    grpc.StatusCode.ALREADY_EXISTS: AlreadyExists,
    grpc.StatusCode.ABORTED: Conflict,
    grpc.StatusCode.FAILED_PRECONDITION: PreconditionFailed,
    grpc.StatusCode.UNAUTHENTICATED: Unauthenticated,
    grpc.StatusCode.PERMISSION_DENIED: PermissionRefused,
    grpc.StatusCode.RESOURCE_EXHAUSTED: LimitExceeded,
    grpc.StatusCode.UNAVAILABLE: Unavailable,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineMissed,
}


def error_of(failure: grpc.RpcError) -> FederationError:
    """The error a failed call stands for; raise it ``from`` the failure."""
    if not isinstance(failure, grpc.Call | grpc.aio.AioRpcError):
        return Unavailable(str(failure))
    code, text = failure.code(), failure.details() or ""
    reason, violations = _details(failure)
    if code is grpc.StatusCode.INVALID_ARGUMENT:
        return InvalidRequest(violations or [Violation(field="", rule=text)], reason=reason)
    known = _ERRORS.get(code)
    if known is None:
        return FederationError(f"{code.name}: {text}", reason=reason or code.name)
    error = known(text, reason=reason)
    if isinstance(error, Unavailable):
        # Our servers send details; what gRPC finds out by itself has none.
        error.is_answer = reason is not None
    return error


def _details(failure: grpc.Call | grpc.aio.AioRpcError) -> tuple[str | None, list[Violation]]:
    # Most calls do not fail, and nobody waits for what reads why.
    from google.rpc import error_details_pb2  # noqa: PLC0415 - see above
    from grpc_status import rpc_status  # noqa: PLC0415 - see above

    status = rpc_status.from_call(cast("grpc.Call", failure))
    reason: str | None = None
    violations: list[Violation] = []
    for detail in status.details if status is not None else ():
        info = error_details_pb2.ErrorInfo()
        bad = error_details_pb2.BadRequest()
        if detail.Unpack(info):
            reason = info.reason
        elif detail.Unpack(bad):
            violations += [
                Violation(field=each.field, rule=each.description) for each in bad.field_violations
            ]
    return reason, violations
