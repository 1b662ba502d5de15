"""Calls as spans, with OpenTelemetry's names for rpcs.

Must not trace who is not let in: a stranger would choose what is sent.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any, Final

import grpc

from federation.model.errors import FederationError
from federation.rpc.status import EndedElsewhere, code_of
from federation.runtime import spans
from federation.runtime.spans import SpanSide

# Whose fault is not the caller's.
FAILED: Final = frozenset(
    {"UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"}
)


def traced(method: str, context: Any) -> AbstractContextManager[None]:
    """While a call is served that is no stream, within the span of its caller."""
    return CallSpan(method, context) if spans.are_told() else nullcontext()


class CallSpan:
    """The span of one call, and how it ends. A class, as every call pays for it."""

    __slots__ = ("_span", "_within")

    def __init__(self, method: str, context: Any) -> None:
        parent = spans.carried_by(context.invocation_metadata() or ())
        names = {"rpc__system__name": "grpc", "rpc__method": method[1:]}
        self._within = spans.span(method[1:], SpanSide.SERVER, parent, **names)

    def __enter__(self) -> None:
        self._span = self._within.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        code = _code(error)
        self._span.note(rpc__response__status_code=code)
        if code in FAILED:
            self._span.fail(code)
        self._within.__exit__(kind, error, at)


def _code(error: BaseException | None) -> str:
    match error:
        case EndedElsewhere():
            return error.status.code.name
        case FederationError():
            return code_of(error).name
        case Exception():
            return grpc.StatusCode.INTERNAL.name
    return grpc.StatusCode.OK.name
