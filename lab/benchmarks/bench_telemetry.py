"""What telling costs: CPU of a control plane for each decision, with and without traces; metrics.

Two control planes, each with a database of its own and told to trace or not, are driven by turns.
Prints figures beside their goals; must not judge anything else.

    bench_telemetry.py [SECONDS]
"""

from __future__ import annotations

import asyncio
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import copy_context
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection

import grpc

from federation.rpc.measures import CallMeasures
from federation.rpc.traced import traced
from federation.runtime import spans
from federation.runtime.measures import Distribution
from federation.services.scheduling.measures import PHASES, Moment
from lab.benchmarks.bench_decisions import CLUSTERS, SINGLE, driven
from lab.benchmarks.measuring import arguments, chosen
from lab.benchmarks.members import federation, report_all
from lab.processes import cpu_seconds
from lab.programs import clean_up_when_ended, own_folder
from lab.verdicts import Verdicts, at_most

SECONDS = chosen(4.0, quick=0.5)
ROUNDS = chosen(6, quick=1)
# All that begin here, and what is sent unless told otherwise.
RATIOS = chosen(("1", "0.1"), quick=("0.1",))
TRACES_GOAL_PERCENT, METRICS_GOAL_PERCENT = 3.0, 2.0
# What the quickest load takes for each decision on one core.
DECISION_SECONDS = 0.001
# The exporter's queue holds 2,048 spans.
SENT_AT_ONCE, PAUSE_SECONDS = 50, 0.02

FIGURES = Verdicts("bench_telemetry")


class Collector(BaseHTTPRequestHandler):
    """Takes what comes, and forgets it."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the library's
        """Say nothing."""


@contextmanager
def collector() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def cost_of_traces(ratio: str, seconds: float) -> None:
    """CPU of each decision with traces, less that without, as a part of that without."""
    with ExitStack() as stack:
        endpoint = stack.enter_context(collector())
        pairs = []
        for traces in ((), ("--trace-endpoint", endpoint, "--trace-ratio", ratio)):
            folder = stack.enter_context(own_folder("bench"))
            planes, _, credentials = stack.enter_context(federation(folder, 1, CLUSTERS, traces))
            asyncio.run(report_all(planes, credentials))
            pairs.append(planes)
        costs: tuple[list[float], list[float]] = ([], [])
        for number in range(2 * ROUNDS):
            planes = pairs[number % 2]
            before = cpu_seconds(planes.all[0].pid)
            figures = driven(planes.endpoints, planes.token, SINGLE, seconds)
            used = cpu_seconds(planes.all[0].pid) - before
            costs[number % 2].append(used / figures["decisions"])
    without, traced = map(statistics.median, costs)
    part = traced / without - 1
    FIGURES.row(
        f"traces, {float(ratio):.0%} sent, CPU more",
        100 * part,
        "%",
        goal=at_most(TRACES_GOAL_PERCENT),
        detail=f"{without * 1e6:.0f} us a decision, {traced * 1e6:.0f} us traced",
    )


def one_decision(number: int) -> None:
    """What a call with one decision tells, as its servicer, its queue and its batch do."""
    with traced("/federation.v1.Scheduling/Schedule", Called()):
        started, within = Moment(), spans.current()
        for phase in PHASES:
            if spans.are_told() and within is not None:
                spans.tell(f"decision.{phase}", within, started.unix_ns, fedsched__batch=12)
        if within is not None:
            names = {"fedsched__decision": f"d-{number}", "fedsched__result": "scheduled"}
            spans.tell("decision", within, started.unix_ns, **names)


class Called:
    """The context of a call that carries no trace."""

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return ()


def cost_of_spans(ratio: str) -> float:
    """Seconds of CPU that a decision by itself is traced for, encoding and sending included."""
    times = chosen(20_000, quick=5_000)

    def taken() -> float:
        began = time.process_time()
        for number in range(times):
            # As each call is served in a task of its own.
            copy_context().run(one_decision, number)
            if number % SENT_AT_ONCE == 0:
                time.sleep(PAUSE_SECONDS)
        return time.process_time() - began

    untold = taken()
    ours, theirs = Pipe()
    process = get_context("spawn").Process(target=collect, args=(theirs,), daemon=True)
    process.start()
    try:
        with spans.sent_to(ours.recv(), "federation", "bench", ratio=float(ratio)):
            told = taken()
    finally:
        process.kill()
    return (told - untold) / times


def collect(asker: Connection) -> None:
    """A collector whose CPU is not ours; tells where it is."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    asker.send(f"http://127.0.0.1:{server.server_port}")
    server.serve_forever()


def cost_of_counting() -> float:
    """Seconds of CPU that a decision by itself is counted for."""
    calls, durations = CallMeasures(), Distribution()
    phases = {phase: Distribution() for phase in PHASES}
    times = chosen(100_000, quick=10_000)
    began = time.process_time()
    for _ in range(times):
        started = Moment()
        calls.end("/federation.v1.Scheduling/Schedule", grpc.StatusCode.OK.name, 0.01)
        durations.add(started.seconds_since())
        for distribution in phases.values():
            distribution.add(Moment().seconds_since())
    return (time.process_time() - began) / times


def main(seconds: float) -> None:
    FIGURES.section("the cost of traces and metrics, single calls of 32 in flight")
    for ratio in RATIOS:
        by_itself = cost_of_spans(ratio)
        FIGURES.row(
            f"traces, {float(ratio):.0%} sent, by themselves",
            by_itself * 1e6,
            "us",
            detail=f"CPU a decision, {by_itself / DECISION_SECONDS:.2%} of a millisecond",
        )
        cost_of_traces(ratio, seconds)
    counting = cost_of_counting()
    FIGURES.row(
        "metrics, of a millisecond of CPU",
        100 * counting / DECISION_SECONDS,
        "%",
        goal=at_most(METRICS_GOAL_PERCENT),
        detail=f"{counting * 1e6:.1f} us a decision",
    )


if __name__ == "__main__":
    clean_up_when_ended()
    main(float(arguments()[0]) if arguments() else SECONDS)
