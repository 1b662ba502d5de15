"""Spans: what is done for which caller, told to whoever traces it, and to nobody unless asked.

Must not import OpenTelemetry: ``exported_spans`` does, where a program is told to send traces.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from enum import Enum, auto
from importlib import import_module
from types import TracebackType
from typing import Final, Protocol, TypeAlias

from federation.model.errors import PreconditionFailed

TRACEPARENT: Final = "traceparent"

Value: TypeAlias = str | int | float
CallMetadata: TypeAlias = Sequence[tuple[str, str]]


class SpanSide(Enum):
    """Which side of a call a span is."""

    INTERNAL = auto()
    SERVER = auto()
    CLIENT = auto()
    # A message of a stream is worked on.
    CONSUMER = auto()


class Span(Protocol):
    """What is being done. One that an error leaves has failed."""

    def note(self, **attributes: Value) -> None:
        """What is known by now; ``__`` in a name stands for a dot."""
        ...

    def fail(self, kind: str) -> None:
        """It fails, with an error of this kind."""
        ...


class Tracing(Protocol):
    """Where spans go."""

    def span(
        self, name: str, kind: SpanSide, parent: str | None, attributes: Mapping[str, Value]
    ) -> AbstractContextManager[Span]: ...

    def tell(
        self, name: str, parent: object, since_ns: int, attributes: Mapping[str, Value]
    ) -> None: ...

    def current(self) -> object | None: ...

    def traceparent(self) -> str: ...

    def ids(self) -> Mapping[str, str]: ...


class _Untold:
    """A span that nobody hears of."""

    def note(self, **attributes: Value) -> None:
        pass

    def fail(self, kind: str) -> None:
        pass

    def __enter__(self) -> Span:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        pass


UNTOLD: Final = _Untold()
_tracer: Tracing | None = None


def trace_with(tracer: Tracing | None) -> None:
    """From now on spans go there; None: nowhere."""
    global _tracer  # noqa: PLW0603 - one program sends its traces to one place, or to none
    _tracer = tracer


def span(
    name: str, kind: SpanSide = SpanSide.INTERNAL, parent: str | None = None, **attributes: Value
) -> AbstractContextManager[Span]:
    """While something is done: within what is being done already, else within ``parent``, a W3C
    traceparent from elsewhere.
    """
    if _tracer is None:
        return UNTOLD
    return _tracer.span(name, kind, parent, attributes)


def tell(name: str, within: object | None, since_ns: int, **attributes: Value) -> None:
    """Of what was done from then (``time.time_ns``) until now, ``within`` what was ``current``."""
    if _tracer is not None and within is not None:
        _tracer.tell(name, within, since_ns, attributes)


def are_told() -> bool:
    """Whether anybody traces."""
    return _tracer is not None


def current() -> object | None:
    """What is being done now, where its trace is sent; else None."""
    return None if _tracer is None else _tracer.current()


def traceparent() -> str:
    """What is being done, in W3C's words for others; empty where nothing is traced."""
    return "" if _tracer is None else _tracer.traceparent()


def carried() -> tuple[tuple[str, str], ...]:
    """What a call to somebody else carries, so that its spans are within ours."""
    text = traceparent()
    return ((TRACEPARENT, text),) if text else ()


def carried_by(metadata: CallMetadata) -> str | None:
    """The traceparent that a call came with."""
    return next((str(value) for key, value in metadata if key == TRACEPARENT), None)


@contextmanager
def sent_to(endpoint: str, service: str, instance: str, *, ratio: float) -> Iterator[None]:
    """Spans go to an OTLP collector meanwhile; nowhere where ``endpoint`` is empty.

    Raises PreconditionFailed where OpenTelemetry is not installed.
    """
    if not endpoint:
        yield
        return
    try:
        exported = import_module("federation.runtime.exported_spans")
    except ModuleNotFoundError as error:
        raise PreconditionFailed(
            f"--trace-endpoint needs the extra otel ({error.name} is not installed): "
            "pip install 'fedsched[otel]'"
        ) from error
    tracer = exported.tracing_to(endpoint, service=service, instance=instance, ratio=ratio)
    trace_with(tracer)
    try:
        yield
    finally:
        trace_with(None)
        tracer.close()


def ids() -> Mapping[str, str]:
    """The trace and the span of what is being done, for lines of a log."""
    return {} if _tracer is None else _tracer.ids()
