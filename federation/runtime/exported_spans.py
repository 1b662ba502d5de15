"""Spans sent over OTLP, with OpenTelemetry's exporter.

Must not be imported unless traces are asked for: the SDK is an extra, and loads slowly. Must not
make anything of what is not sent but its place in its trace: that is most of all calls.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar, Token
from functools import lru_cache
from importlib.metadata import version
from types import TracebackType
from typing import Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from federation.runtime.spans import UNTOLD, Span, SpanSide, Value

KINDS: Final = {
    SpanSide.INTERNAL: SpanKind.INTERNAL,
    SpanSide.SERVER: SpanKind.SERVER,
    SpanSide.CLIENT: SpanKind.CLIENT,
    SpanSide.CONSUMER: SpanKind.CONSUMER,
}
# W3C Trace Context: version, trace, span, flags, and what later versions append.
TRACEPARENT_FORM: Final = re.compile(
    r"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?",
    re.ASCII,
)
FIRST_VERSION: Final = "00"
# W3C's has 55 characters; a longer one is of a version that nobody has written yet.
MOST_TRACEPARENT_CHARACTERS: Final = 128
SAMPLED_FLAG: Final = 1
# A trace is sent where its id's lower half is below its part of all: as OpenTelemetry's sampler
# decides, so that programs with one ratio agree.
ID_BITS: Final = 64
ID_MASK: Final = (1 << ID_BITS) - 1
SCOPE: Final = InstrumentationScope("fedsched")
SENT: Final = TraceFlags(TraceFlags.SAMPLED)
UNSET: Final = Status()
FAILED: Final = Status(StatusCode.ERROR)


class TracePlace:
    """A span's place: its trace, itself, and whether they are sent."""

    __slots__ = ("is_sent", "span_id", "trace_id")

    def __init__(self, trace_id: int, span_id: int, *, is_sent: bool) -> None:
        self.trace_id = trace_id
        self.span_id = span_id
        self.is_sent = is_sent

    def context(self, *, is_remote: bool) -> SpanContext:
        """As the exporter takes it."""
        return SpanContext(self.trace_id, self.span_id, is_remote, SENT)


_here: ContextVar[TracePlace | None] = ContextVar("place", default=None)


class OpenTelemetry:
    """A tracer of ``spans``; ``close`` sends what is left."""

    def __init__(self, processor: SpanProcessor, *, resource: Resource, ratio: float) -> None:
        self._processor = processor
        self._resource = resource
        self._bound = round(ratio * (1 << ID_BITS))

    def span(
        self, name: str, kind: SpanSide, parent: str | None, attributes: Mapping[str, Value]
    ) -> AbstractContextManager[Span]:
        of = _here.get() if parent is None else _place_of(parent)
        if of is not None and of.is_sent:
            return Told(self, name, kind, of, attributes, is_remote=parent is not None)
        if of is None:
            trace_id = random.getrandbits(128)
            if trace_id & ID_MASK < self._bound:
                return Told(self, name, kind, TracePlace(trace_id, 0, is_sent=True), attributes)
            of = TracePlace(trace_id, random.getrandbits(ID_BITS), is_sent=False)
        elif parent is None:
            return UNTOLD
        return Unsent(of, kind)

    def tell(
        self, name: str, parent: object, since_ns: int, attributes: Mapping[str, Value]
    ) -> None:
        if isinstance(parent, TracePlace) and parent.is_sent:
            told = Told(self, name, SpanSide.INTERNAL, parent, attributes)
            told.end(since_ns)

    def send(
        self, told: Told, since_ns: int, attributes: Mapping[str, Value], status: Status
    ) -> None:
        """A span that is over."""
        of = told.parent
        ended = ReadableSpan(
            told.name,
            told.place.context(is_remote=False),
            of.context(is_remote=told.is_remote) if of.span_id else None,
            self._resource,
            attributes,
            kind=KINDS[told.kind],
            status=status,
            start_time=since_ns,
            end_time=time.time_ns(),
            instrumentation_scope=SCOPE,
        )
        self._processor.on_end(ended)

    def current(self) -> object | None:
        here = _here.get()
        return here if here is not None and here.is_sent else None

    def traceparent(self) -> str:
        here = _here.get()
        if here is None:
            return ""
        return f"{FIRST_VERSION}-{here.trace_id:032x}-{here.span_id:016x}-{here.is_sent:02x}"

    def ids(self) -> Mapping[str, str]:
        here = _here.get()
        if here is None:
            return {}
        return {"trace_id": f"{here.trace_id:032x}", "span_id": f"{here.span_id:016x}"}

    def close(self) -> None:
        self._processor.shutdown()


class Entered:
    """What is within it has a place in a trace."""

    __slots__ = ("_token", "kind", "place")

    def __init__(self, place: TracePlace, kind: SpanSide) -> None:
        self.place = place
        self.kind = kind
        self._token: Token[TracePlace | None] | None = None

    def enter(self) -> None:
        self._token = _here.set(self.place)

    def leave(self) -> None:
        # A call has a context of its own, and what is logged of its error belongs to it.
        if self.kind is not SpanSide.SERVER and self._token is not None:
            _here.reset(self._token)


class Unsent(Entered):
    """A span that is not sent: what it asks of others is not sent there either."""

    __slots__ = ()

    def note(self, **attributes: Value) -> None:
        pass

    def fail(self, kind: str) -> None:
        pass

    def __enter__(self) -> Span:
        self.enter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.leave()


class Told(Entered):
    """A span that is sent when it ends, made of its times in one go."""

    __slots__ = ("_attributes", "_since_ns", "_status", "_tracer", "is_remote", "name", "parent")

    def __init__(
        self,
        tracer: OpenTelemetry,
        name: str,
        kind: SpanSide,
        parent: TracePlace,
        attributes: Mapping[str, Value],
        *,
        is_remote: bool = False,
    ) -> None:
        place = TracePlace(parent.trace_id, random.getrandbits(ID_BITS) or 1, is_sent=True)
        super().__init__(place, kind)
        self.name = name
        self.parent = parent
        self.is_remote = is_remote
        self._tracer = tracer
        self._attributes = dict(attributes)
        self._status = UNSET
        self._since_ns = 0

    def note(self, **attributes: Value) -> None:
        self._attributes |= attributes

    def fail(self, kind: str) -> None:
        self._attributes["error__type"] = kind
        self._status = FAILED

    def end(self, since_ns: int) -> None:
        """It began then, and is over."""
        named = {dotted(name): value for name, value in self._attributes.items()}
        self._tracer.send(self, since_ns, named, self._status)

    def __enter__(self) -> Span:
        self._since_ns = time.time_ns()
        self.enter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if isinstance(error, Exception) and self.kind is not SpanSide.SERVER:
            self.fail(type(error).__name__)
        self.leave()
        self.end(self._since_ns)


@lru_cache(maxsize=256)
def dotted(name: str) -> str:
    """A name as OpenTelemetry has it."""
    return name.replace("__", ".")


def _place_of(traceparent: str) -> TracePlace | None:
    """Of who called from elsewhere; None where that is no traceparent: its span begins a trace."""
    if len(traceparent) > MOST_TRACEPARENT_CHARACTERS:
        return None
    found = TRACEPARENT_FORM.fullmatch(traceparent.strip())
    if found is None or (found[1] == FIRST_VERSION and found[5]):
        return None
    is_sent = bool(int(found[4], 16) & SAMPLED_FLAG)
    return TracePlace(int(found[2], 16), int(found[3], 16), is_sent=is_sent)


def tracing_to(endpoint: str, *, service: str, instance: str, ratio: float) -> OpenTelemetry:
    """Spans go to an OTLP collector, over HTTP: as many of the traces that begin here as ``ratio``
    says, and of others those that their beginner sends. All else is set by OpenTelemetry's
    variables.
    """
    named = {
        "service.name": service,
        "service.instance.id": instance,
        "service.version": version("fedsched"),
    }
    exporter = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces")
    processor = BatchSpanProcessor(exporter)
    return OpenTelemetry(processor, resource=Resource.create(named), ratio=ratio)
