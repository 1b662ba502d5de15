"""How much of the code one request crosses: files, functions, and calls from file to file.

Runs a control plane on real ports in this process, on an embedded PostgreSQL, and counts what is
called under ``federation`` between a request and its answer, generated stubs left out. A request
is made several times and the smallest count is taken: background work falls into some of them. The
one cluster reports 500 nodes as a shipped agent does.

    python -m lab.trace_calls [--list]
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType

from federation.v1.resource_pb2 import ReplicaRequirements
from lab.callers import Caller
from lab.control_planes import running_control_plane
from lab.fake_agents import FakeAgent
from lab.fleet import report_of
from lab.planes import durable_postgres
from lab.programs import own_folder, parser
from lab.verdicts import Verdicts
from lab.workloads import DUPLICATED, workload_message

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


async def traced(tracer: Tracer, url: str, folder: Path) -> dict[str, Calls]:
    async with running_control_plane(url, folder) as running:
        admin = running.admin
        async with await FakeAgent.joined(running, CLUSTER, report_of(0)) as agent:
            return {
                "Schedule of one replica": await smallest(tracer, lambda n: scheduled(admin, n)),
                "EstimateReplicas of one shape": await smallest(
                    tracer, lambda n: estimated(admin, n)
                ),
                "a report, to the store": await smallest(
                    tracer, lambda n: agent.report(report_of(n + 2))
                ),
            }


async def scheduled(admin: Caller, number: int) -> None:
    binding = workload_message(f"b{number}", {"cpu": 10}, scheduling=DUPLICATED, uid="")
    answer = await admin.ask("Schedule", binding=binding)
    assert answer.decision.clusters, answer


async def estimated(admin: Caller, number: int) -> None:
    shape = ReplicaRequirements(resource_request={"cpu": f"{number + 1}m"})
    await admin.ask("EstimateReplicas", shapes=[shape])


def main(*, with_names: bool) -> None:
    logging.disable(logging.WARNING)
    tracer = Tracer()
    with own_folder("trace") as folder, durable_postgres(folder) as postgres:
        tracer.install()
        try:
            counted = asyncio.run(traced(tracer, postgres.url, folder))
        finally:
            sys.setprofile(None)
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
    options = parser("trace_calls", __doc__)
    options.add_argument(
        "--list", action="store_true", help="name every function, and how often it is called"
    )
    main(with_names=options.parse_args().list)
