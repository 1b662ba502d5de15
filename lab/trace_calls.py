"""How much of the code one request crosses: files, functions, and calls from file to file.

Runs a control plane on real ports in this process, on an embedded PostgreSQL, and counts what is
called under ``federation`` between a request and its answer, generated stubs left out. A request
is made several times and the smallest count is taken: background work falls into some of them. The
one cluster reports 500 nodes as a shipped agent does.

    python -m lab.trace_calls [--list]
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from federation.codec.bindings import binding_to_message
from federation.embedded_postgres.binaries import find_binaries
from federation.embedded_postgres.server import EmbeddedPostgres
from federation.model.placement import Binding, Placement
from federation.model.workload import ReplicaRequirements as RequestedReplica
from federation.store.migrate import upgrade
from federation.v1.agents_pb2 import NodeShare, PlaceReply
from federation.v1.estimates_pb2 import EstimateReplicasRequest
from federation.v1.resource_pb2 import ReplicaRequirements
from federation.v1.scheduling_pb2 import ScheduleRequest
from lab.callers import Caller
from lab.control_planes import AgentStream, running_control_plane
from lab.fleet import message_of, report_of
from lab.verdicts import Verdicts

PACKAGE = Path(__file__).resolve().parents[1] / "federation"
LEFT_OUT = (PACKAGE / "v1", PACKAGE / "client")
TIMES = 7
CLUSTER = "member1"

FIGURES = Verdicts("trace_calls")


@dataclass(slots=True, eq=False)
class Calls:
    """What was called, and how often. ``crossings`` are calls from one file to another."""

    functions: Counter[CodeType] = field(default_factory=Counter)
    crossings: int = 0

    @property
    def files(self) -> set[str]:
        return {code.co_filename for code in self.functions}


class Tracer:
    """Notes every call of our own code, in all threads, while somebody counts."""

    def __init__(self) -> None:
        self._calls: Calls | None = None
        self._ours: dict[CodeType, bool] = {}

    def install(self) -> None:
        """For this thread, and those that are started from now on."""
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    @contextmanager
    def counting(self) -> Iterator[Calls]:
        self._calls = calls = Calls()
        try:
            yield calls
        finally:
            self._calls = None

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        calls = self._calls
        if calls is None or event != "call" or not self._is_ours(frame.f_code):
            return
        calls.functions[frame.f_code] += 1
        caller = frame.f_back
        while caller is not None and not self._is_ours(caller.f_code):
            caller = caller.f_back
        if caller is not None and caller.f_code.co_filename != frame.f_code.co_filename:
            calls.crossings += 1

    def _is_ours(self, code: CodeType) -> bool:
        known = self._ours.get(code)
        if known is None:
            path = Path(code.co_filename)
            known = path.is_relative_to(PACKAGE) and not any(map(path.is_relative_to, LEFT_OUT))
            self._ours[code] = known
        return known


async def smallest(tracer: Tracer, ask: Callable[[int], Awaitable[object]]) -> Calls:
    """The fewest calls of several requests; the first ones warm caches and do not count."""
    counted: list[Calls] = []
    for number in range(2 * TIMES):
        # What the request before left to do in the background is done by then.
        await asyncio.sleep(0.3)
        with tracer.counting() as calls:
            await ask(number)
        if number >= TIMES:
            counted.append(calls)
    return min(counted, key=lambda each: (len(each.functions), each.crossings))


class AnsweringAgent:
    """Takes what it is asked to place, and waits for what is said of its reports."""

    def __init__(self, stream: AgentStream) -> None:
        self._stream = stream
        self._acknowledged = asyncio.Event()

    async def listen(self) -> None:
        """Until cancelled."""
        while (message := await self._stream.next()) is not None:
            kind = message.WhichOneof("message")
            if kind == "ack":
                self._acknowledged.set()
            elif kind == "place_request":
                asked = message.place_request
                nodes = [
                    NodeShare(node="n1", component=each.component, replicas=each.replicas)
                    for each in asked.shares
                ]
                reply = PlaceReply(request_id=asked.request_id, nodes=nodes, strategy="fixed")
                await self._stream.say(place_reply=reply)

    async def report(self, sequence: int) -> None:
        self._acknowledged.clear()
        message = message_of(CLUSTER, report_of(sequence, sequence))
        await self._stream.say(report=message.report)
        await self._acknowledged.wait()


async def traced(tracer: Tracer, url: str, folder: Path) -> dict[str, Calls]:
    async with (
        running_control_plane(url, folder) as running,
        running.connected(CLUSTER, report=message_of(CLUSTER, report_of(0)).report) as stream,
    ):
        admin, agent = running.admin, AnsweringAgent(stream)
        listening = asyncio.create_task(agent.listen())
        counted = {
            "Schedule of one replica": await smallest(tracer, lambda n: scheduled(admin, n)),
            "EstimateReplicas of one shape": await smallest(tracer, lambda n: estimated(admin, n)),
            "a report, to the store": await smallest(tracer, lambda n: agent.report(n + 2)),
        }
        listening.cancel()
        return counted


async def scheduled(admin: Caller, number: int) -> None:
    binding = binding_to_message(
        Binding(
            namespace="trace",
            name=f"b{number}",
            replicas=1,
            requirements=RequestedReplica(request={"cpu": 10}),
            placement=Placement(),
        )
    )
    answer: Any = await admin.call(admin.scheduling.Schedule, ScheduleRequest(binding=binding))
    assert answer.decision.clusters, answer


async def estimated(admin: Caller, number: int) -> None:
    shape = ReplicaRequirements(resource_request={"cpu": f"{number + 1}m"})
    await admin.call(admin.estimates.EstimateReplicas, EstimateReplicasRequest(shapes=[shape]))


def main(*, with_names: bool) -> None:
    logging.disable(logging.WARNING)
    tracer = Tracer()
    with tempfile.TemporaryDirectory(prefix="fedsched-trace-", dir="/var/tmp") as folder:
        data = Path(folder) / "postgres"
        data.mkdir(mode=0o700)
        postgres = EmbeddedPostgres(find_binaries(None, ""), data)
        postgres.start()
        try:
            upgrade(postgres.url)
            tracer.install()
            counted = asyncio.run(traced(tracer, postgres.url, Path(folder)))
        finally:
            sys.setprofile(None)
            postgres.discard()
    for name, calls in counted.items():
        FIGURES.section(name)
        FIGURES.row("files", len(calls.files))
        FIGURES.row("functions", len(calls.functions))
        FIGURES.row("calls between files", calls.crossings)
        for line in named(calls) if with_names else ():
            FIGURES.note(line)


def named(calls: Calls) -> Iterator[str]:
    """Every file, and how often each of its functions was called."""
    for file in sorted(calls.files):
        own = [
            (code.co_qualname, count)
            for code, count in calls.functions.items()
            if code.co_filename == file
        ]
        functions = ", ".join(f"{name} {count}" for name, count in sorted(own))
        total = sum(count for _, count in own)
        yield f"{Path(file).relative_to(PACKAGE)} {total}: {functions}"


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument(
        "--list", action="store_true", help="name every function, and how often it is called"
    )
    main(with_names=arguments.parse_args().list)
