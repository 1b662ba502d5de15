"""Spans sent over OTLP, with OpenTelemetry's SDK.

Must not be imported unless traces are asked for: the SDK is an extra, and loads slowly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any, Final

from opentelemetry import context as contexts
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import (
    INVALID_SPAN,
    Span,
    SpanKind,
    Status,
    StatusCode,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from federation.runtime.spans import TRACEPARENT, SpanSide, Value

KINDS: Final = {
    SpanSide.INTERNAL: SpanKind.INTERNAL,
    SpanSide.SERVER: SpanKind.SERVER,
    SpanSide.CLIENT: SpanKind.CLIENT,
    SpanSide.CONSUMER: SpanKind.CONSUMER,
}
# W3C's has 55 characters; a longer one is of a version that nobody has written yet.
MOST_TRACEPARENT_CHARACTERS: Final = 128
PROPAGATOR: Final = TraceContextTextMapPropagator()


class Told:
    """A span of OpenTelemetry's."""

    def __init__(self, span: Span) -> None:
        self._span = span

    def note(self, **attributes: Value) -> None:
        self._span.set_attributes(dotted(attributes))

    def fail(self, kind: str) -> None:
        self._span.set_attribute("error.type", kind)
        self._span.set_status(Status(StatusCode.ERROR))


class OpenTelemetry:
    """A tracer of ``spans``; ``close`` sends what is left."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("fedsched")

    @contextmanager
    def span(
        self, name: str, kind: SpanSide, parent: str | None, attributes: Mapping[str, Value]
    ) -> Iterator[Told]:
        made = self._tracer.start_span(
            name, context=_context(parent), kind=KINDS[kind], attributes=dotted(attributes)
        )
        token = contexts.attach(set_span_in_context(made))
        told = Told(made)
        try:
            yield told
        except Exception as error:
            if kind is not SpanSide.SERVER:
                told.fail(type(error).__name__)
            raise
        finally:
            # A call has a context of its own, and what is logged of its error belongs to it.
            if kind is not SpanSide.SERVER:
                contexts.detach(token)
            made.end()

    def tell(
        self, name: str, parent: object, since_ns: int, attributes: Mapping[str, Value]
    ) -> None:
        context: Any = parent
        self._tracer.start_span(
            name, context=context, start_time=since_ns, attributes=dotted(attributes)
        ).end()

    def current(self) -> object | None:
        return contexts.get_current() if get_current_span().is_recording() else None

    def traceparent(self) -> str:
        carrier: dict[str, str] = {}
        PROPAGATOR.inject(carrier)
        return carrier.get(TRACEPARENT, "")

    def ids(self) -> Mapping[str, str]:
        of = get_current_span().get_span_context()
        if not of.is_valid:
            return {}
        return {"trace_id": f"{of.trace_id:032x}", "span_id": f"{of.span_id:016x}"}

    def close(self) -> None:
        self._provider.shutdown()


def dotted(attributes: Mapping[str, Value]) -> dict[str, Value]:
    """Names as OpenTelemetry has them."""
    return {name.replace("__", "."): value for name, value in attributes.items()}


def _context(parent: str | None) -> contexts.Context | None:
    """That of who called from elsewhere; None: that of what is being done."""
    if parent is None:
        return None
    # What is no traceparent leaves this as it is: the span begins a trace.
    none: contexts.Context = set_span_in_context(INVALID_SPAN)
    if len(parent) > MOST_TRACEPARENT_CHARACTERS:
        return none
    return PROPAGATOR.extract({TRACEPARENT: parent}, none)


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
    provider = TracerProvider(
        resource=Resource.create(named),
        sampler=ParentBased(TraceIdRatioBased(ratio)),
        shutdown_on_exit=False,
    )
    exporter = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces")
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return OpenTelemetry(provider)
