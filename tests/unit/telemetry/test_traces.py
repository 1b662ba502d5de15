"""Traces: which spans there are of a decision, within whose, and what is never traced."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import suppress
from contextvars import copy_context
from typing import Any

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from estimator.agent.messages import asked_for
from federation.agents.messages import place_request_to_message
from federation.agents.session import Session
from federation.model.errors import InvalidRequest, PreconditionFailed
from federation.model.node_plans import PlaceOrder
from federation.rpc.traced import traced
from federation.runtime import spans
from federation.runtime.exported_spans import OpenTelemetry
from federation.runtime.logs import JsonFormatter
from federation.v1.agents_pb2 import ConnectResponse
from federation.v1.scheduling_pb2 import ScheduleRequest
from lab.control_planes import SECONDS, RunningControlPlane, refused, report
from lab.patience import until
from tests.api.calls import binding
from tests.unit.rpc.conftest import running

__all__ = ["running"]

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED, UNSAMPLED = f"00-{TRACE}-{SPAN}-01", f"00-{TRACE}-{SPAN}-00"


@pytest.fixture
def exported() -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    tracer = OpenTelemetry(SimpleSpanProcessor(exporter), resource=Resource({}), ratio=1.0)
    spans.trace_with(tracer)
    yield exporter
    spans.trace_with(None)
    tracer.close()


def traced_as(exporter: InMemorySpanExporter, trace: str = TRACE) -> dict[str, Any]:
    """The spans of a trace by name."""
    return {
        span.name: span
        for span in exporter.get_finished_spans()
        if f"{span.context.trace_id:032x}" == trace
    }


async def schedule(running: RunningControlPlane, traceparent: str, **changed: Any) -> Any:
    admin = running.admin
    return await admin.scheduling.Schedule(
        ScheduleRequest(binding=binding("traced", **changed)),
        timeout=SECONDS,
        metadata=(*admin.metadata, ("traceparent", traceparent)),
    )


async def test_a_decision_is_one_trace_within_its_callers_span(
    running: RunningControlPlane, exported: InMemorySpanExporter
) -> None:
    async def names() -> set[str]:
        await asyncio.sleep(0.01)
        return set(traced_as(exported))

    wanted = {"federation.v1.Scheduling/Schedule", "decision"}
    wanted |= {f"decision.{phase}" for phase in ("read", "decide", "commit")}
    async with running.connected("member1", report=report()):
        answer = await schedule(running, SAMPLED)
        # gRPC ends a call's span a moment after its caller has heard the answer.
        await until(names, wanted.issubset)
    found = traced_as(exported)
    rpc = found["federation.v1.Scheduling/Schedule"]
    assert f"{rpc.parent.span_id:016x}" == SPAN
    assert rpc.attributes["rpc.response.status_code"] == "OK"
    for name in wanted - {rpc.name}:
        assert found[name].parent.span_id == rpc.context.span_id
        assert found[name].end_time >= found[name].start_time >= rpc.start_time
    assert found["decision"].attributes["fedsched.result"] == "scheduled"
    assert found["decision"].attributes["fedsched.decision"] == answer.decision.id


async def test_what_its_caller_does_not_send_is_not_sent_either(
    running: RunningControlPlane, exported: InMemorySpanExporter
) -> None:
    async with running.connected("member1", report=report()):
        await schedule(running, UNSAMPLED)
    assert not traced_as(exported)


async def test_strangers_choose_nothing_that_is_sent(
    running: RunningControlPlane, exported: InMemorySpanExporter
) -> None:
    stranger = running.caller("0123456789abcdef.wrong")
    call = stranger.scheduling.Schedule(
        ScheduleRequest(),
        timeout=SECONDS,
        metadata=(*stranger.metadata, ("traceparent", SAMPLED)),
    )
    await refused(call)
    assert not traced_as(exported)


class Called:
    """The context of a call."""

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return (("traceparent", SAMPLED),)


@pytest.mark.parametrize(
    ("error", "code", "is_failure"),
    [
        (InvalidRequest.of("field", "is wrong"), "INVALID_ARGUMENT", False),
        (RuntimeError("ours"), "INTERNAL", True),
        (None, "OK", False),
    ],
)
def test_only_faults_that_are_not_the_callers_are_errors(
    exported: InMemorySpanExporter, error: Exception | None, code: str, *, is_failure: bool
) -> None:
    def serve() -> None:
        with suppress(InvalidRequest, RuntimeError), traced("/s/M", Called()):
            if error is not None:
                raise error

    # As each call is served in a task of its own.
    copy_context().run(serve)
    span = traced_as(exported)["s/M"]
    assert span.attributes["rpc.response.status_code"] == code
    assert (not span.status.is_ok and not span.status.is_unset) is is_failure
    assert ("error.type" in span.attributes) is is_failure


async def test_agents_are_asked_within_the_span_of_who_asks(
    exported: InMemorySpanExporter,
) -> None:
    session = Session("member1", 1)
    order = PlaceOrder(decision_id="d1", binding_key="shop/cart", shares=())
    sent: asyncio.Queue[ConnectResponse] = asyncio.Queue()
    with spans.span("asks", parent=SAMPLED):
        asking = asyncio.create_task(session.place(order, SECONDS))
    writing = asyncio.create_task(session.write_all(sent.put))
    question = (await sent.get()).place_request
    with asked_for("place", question):
        pass
    session.end()
    await asyncio.gather(asking, writing, return_exceptions=True)
    found = {span.kind.name: span for span in exported.get_finished_spans()}
    asks, calls, works = found["INTERNAL"], found["CLIENT"], found["CONSUMER"]
    assert calls.name == works.name == "agent place"
    assert f"{works.context.trace_id:032x}" == TRACE
    assert works.parent.span_id == calls.context.span_id
    assert calls.parent.span_id == asks.context.span_id


def test_lines_of_a_log_name_the_trace(exported: InMemorySpanExporter) -> None:
    record = logging.LogRecord("federation", logging.INFO, __file__, 1, "told", None, None)
    assert TRACE not in JsonFormatter().format(record)
    with spans.span("works", parent=SAMPLED):
        assert f'"trace_id": "{TRACE}"' in JsonFormatter().format(record)


@pytest.mark.parametrize("parent", ["", "nonsense", "x" * 10_000, "00-0-0-01", "00-" + "é" * 52])
def test_what_is_no_traceparent_begins_a_trace(exported: InMemorySpanExporter, parent: str) -> None:
    with spans.span("works", parent=parent):
        pass
    (span,) = exported.get_finished_spans()
    assert span.parent is None


def test_nobody_traces_unless_asked() -> None:
    with spans.span("works", parent=SAMPLED) as span:
        span.note(result="done")
        assert spans.current() is None
        assert spans.carried() == ()
        assert spans.ids() == {}
        order = PlaceOrder(decision_id="d1", binding_key="shop/cart", shares=())
        assert not place_request_to_message("1", order).place_request.traceparent


def test_traces_without_opentelemetry_say_which_extra_is_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(_: str) -> None:
        raise ModuleNotFoundError(name="opentelemetry")

    monkeypatch.setattr(spans, "import_module", missing)
    with (
        pytest.raises(PreconditionFailed, match=r"fedsched\[otel\]"),
        spans.sent_to("http://127.0.0.1:4318", "federation", "here", ratio=1.0),
    ):
        pass
