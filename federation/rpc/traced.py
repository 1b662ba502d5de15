"""Calls as spans, with OpenTelemetry's names for rpcs.

Must not trace who is not let in: a stranger would choose what is sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
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
    return _told(method, context) if spans.are_told() else nullcontext()


@contextmanager
def _told(method: str, context: Any) -> Iterator[None]:
    parent = spans.carried_by(context.invocation_metadata() or ())
    names = {"rpc__system__name": "grpc", "rpc__method": method[1:]}
    with spans.span(method[1:], SpanSide.SERVER, parent, **names) as span:
        code = grpc.StatusCode.OK.name
        try:
            yield
        except EndedElsewhere as error:
            code = error.status.code.name
            raise
        except FederationError as error:
            code = code_of(error).name
            raise
        except Exception:
            code = grpc.StatusCode.INTERNAL.name
            raise
        finally:
            span.note(rpc__response__status_code=code)
            if code in FAILED:
                span.fail(code)
