"""Errors as gRPC statuses: one table, and the details that go with a code.

Must not put anything of an unexpected error on the wire; those get a logged id in ``interceptors``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import grpc
from google.protobuf import any_pb2
from google.protobuf.message import Message
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

from federation.codec.hidden_names import hidden_in
from federation.model.access import EVERYTHING, Scope
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

DOMAIN = "fedsched"
CODES: Mapping[type[FederationError], grpc.StatusCode] = {
    FederationError: grpc.StatusCode.INTERNAL,
    InvalidRequest: grpc.StatusCode.INVALID_ARGUMENT,
    NotFound: grpc.StatusCode.NOT_FOUND,
    AlreadyExists: grpc.StatusCode.ALREADY_EXISTS,
    Conflict: grpc.StatusCode.ABORTED,
    PreconditionFailed: grpc.StatusCode.FAILED_PRECONDITION,
    Unauthenticated: grpc.StatusCode.UNAUTHENTICATED,
    PermissionRefused: grpc.StatusCode.PERMISSION_DENIED,
    LimitExceeded: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Unavailable: grpc.StatusCode.UNAVAILABLE,
    DeadlineMissed: grpc.StatusCode.DEADLINE_EXCEEDED,
}
# Clients refuse trailers of more than 8 KiB. The message travels twice (once percent-encoded) and
# the details base64-encoded, so these two keep a status below that.
MESSAGE_BYTES = 800
VIOLATIONS_BYTES = 3_000


class EndedElsewhere(Exception):
    """A call ends with a status that somebody else made, whole, and has told of."""

    def __init__(self, status: grpc.Status) -> None:
        super().__init__(status.details)
        self.status = status


def end_with(context: Any, status: grpc.Status) -> None:
    """The call ends with this status once its method returns.

    ``abort`` would do it by raising an error that gRPC also keeps in the call's state: a cycle with
    the frames it passes through, for every call that is refused. A collector that spares what
    outlives its looks (``serving``) never frees those that it sees half way.
    """
    context.set_trailing_metadata(status.trailing_metadata or ())
    context.set_code(status.code)
    context.set_details(status.details or "")


def code_of(error: FederationError) -> grpc.StatusCode:
    """The code of an error; a class without a row of its own has its nearest ancestor's."""
    return next(CODES[kind] for kind in type(error).__mro__ if kind in CODES)


def result_of(error: BaseException) -> str:
    """Return the name of the code that a call ends with, as metrics and the audit have it."""
    if isinstance(error, asyncio.CancelledError):
        return grpc.StatusCode.CANCELLED.name
    if not isinstance(error, FederationError):
        return grpc.StatusCode.INTERNAL.name
    return code_of(error).name


def status_of(error: FederationError, scope: Scope = EVERYTHING) -> grpc.Status:
    """What a call ends with, as who may see the scope reads it."""
    wire_status = wire_status_of(error)
    wire_status.message = hidden_in(wire_status.message, scope)
    return rpc_status.to_status(wire_status)


def wire_status_of(error: FederationError) -> status_pb2.Status:
    """The whole status: code, message, ErrorInfo, and BadRequest where fields broke rules."""
    details: list[Message] = [
        error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN, metadata=error.facts)
    ]
    if isinstance(error, InvalidRequest):
        details.append(_bad_request(error.violations))
    return status_pb2.Status(
        code=code_pb2.Code.Value(code_of(error).name),
        message=shortened(error.message, MESSAGE_BYTES),
        details=[_packed(detail) for detail in details],
    )


def _bad_request(violations: Sequence[Violation]) -> error_details_pb2.BadRequest:
    """Every violation that fits into the trailers, and how many more there are."""
    answer = error_details_pb2.BadRequest()
    left = VIOLATIONS_BYTES
    for number, violation in enumerate(violations):
        rule = shortened(violation.rule, MESSAGE_BYTES)
        field = shortened(violation.field, MESSAGE_BYTES)
        left -= len(rule.encode()) + len(field.encode()) + 8
        if left < 0:
            answer.field_violations.add(description=f"and {len(violations) - number} more")
            break
        answer.field_violations.add(field=field, description=rule)
    return answer


def shortened(text: str, limit_bytes: int) -> str:
    """At most so many bytes of a text, with what cannot be shown replaced."""
    if len(text) <= limit_bytes and text.isascii() and text.isprintable():
        return text
    # Other bytes than these are percent-encoded, three for one.
    plain = "".join(
        letter if letter.isprintable() or letter == "\n" else "\N{REPLACEMENT CHARACTER}"
        for letter in text[: limit_bytes + 1]
    )
    encoded = plain.encode(errors="replace")
    if len(encoded) <= limit_bytes:
        return plain
    return encoded[: limit_bytes - 3].decode(errors="ignore") + "..."


def _packed(detail: Message) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(detail)
    return packed
