"""Everything at once on one control plane: whether one kind of work keeps another from its turn.

300 agents report, 20 callers watch, 5,000 bindings of 500 sizes are outstanding; 100 estimates of
shapes never seen before and 20 schedules a second come at their times, whatever became of those
before. Then an agent floods, too. Prints how long calls take beside how long they take alone, and
for how long the event loop stood still.

    bench_mixed.py [--quick | --full] [SECONDS]
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import grpc

from federation.v1.clusters_pb2 import WatchClustersRequest
from federation.v1.resource_pb2 import ReplicaRequirements
from federation.v1.scheduling_pb2 import ScheduleBatchItem, WatchBindingsRequest
from lab.attack.attackers import FLOOD_SECONDS as ATTACK_SECONDS
from lab.attack.attackers import flood_of_heartbeats
from lab.attack.target import Target
from lab.benchmarks.measuring import (
    CORES,
    TELLING_STALLS,
    arguments,
    chosen,
    percentile,
    show_stalls,
)
from lab.benchmarks.members import CALL_SECONDS, UNSEEN, agents_there, federation, reason_of
from lab.callers import Caller, calling
from lab.fleet import cluster_name, pod_size, varied_size
from lab.planes import Planes
from lab.processes import cpu_seconds, family_seconds
from lab.programs import beside, clean_up_when_ended, own_folder
from lab.verdicts import Verdicts, at_most
from lab.workloads import workload_message

AGENTS, WATCHERS = chosen((300, 20), quick=(20, 2), full=(1000, 50))
ESTIMATES_PER_SECOND, SCHEDULES_PER_SECOND = 100.0, 20.0
OUTSTANDING, BATCH = chosen(5000, quick=100), 100
NAMES = [cluster_name(number) for number in range(AGENTS)]
SIZES = [varied_size(number) for number in range(500)]
REPLICAS = 6
SECONDS = chosen(60.0, quick=2.0, full=600.0)
IDLE_CALLS = chosen(100, quick=10)
FLOOD_SECONDS = chosen(30.0, quick=2.0, full=60.0)
FLOOD_BEFORE_SECONDS = chosen(5.0, quick=1.0)
# As often as agents report at the pace that control planes tell by themselves.
REPORT_SECONDS = 10.0
SETTLE_SECONDS = chosen(2 * REPORT_SECONDS, quick=1.0)
ESTIMATE_P50, ESTIMATE_P99, SCHEDULE_P99 = 2.0, 15.0, 3.0
MAX_CPU_SHARE, MAX_STALL_MILLIS, MAX_CHANGE = 0.5, 50.0, 0.2

FIGURES = Verdicts("bench_mixed")


@dataclass(slots=True, eq=False)
class Calls:
    """How long calls of one kind took, in milliseconds, and what became of the others."""

    millis: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)

    async def one(self, call: Callable[[], Any], due: float) -> None:
        """``due``: when it was to begin, in seconds of the loop's clock."""
        try:
            await call()
        except grpc.aio.AioRpcError as error:
            self.errors[f"{error.code().name}: {error.details()}"] += 1
        else:
            self.millis.append((asyncio.get_running_loop().time() - due) * 1000)

    def percentile(self, percent: int) -> float:
        return percentile(self.millis, percent) if len(self.millis) > 1 else float("inf")


class Asker:
    """Who estimates and schedules; no shape and no binding is asked for twice."""

    def __init__(self, caller: Caller, names: Sequence[str] = NAMES) -> None:
        self.caller = caller
        self._names = names
        self._numbers = count()
        self._choices = random.Random(1)

    async def estimate(self) -> None:
        number = next(self._numbers)
        request = {"cpu": f"{100 + number}m", "memory": f"{64 + number % 4000}Mi"}
        shapes = [ReplicaRequirements(resource_request=request)]
        await self.caller.ask("EstimateReplicas", shapes=shapes)

    async def schedule(self) -> None:
        await self.caller.ask("Schedule", binding=self.binding())

    async def promise(self, bindings: int) -> None:
        """So many whose pods no agent will see."""
        for start in range(0, bindings, BATCH):
            items = [
                ScheduleBatchItem(binding=self.binding(UNSEEN, self._choices.choice(SIZES)))
                for _ in range(min(BATCH, bindings - start))
            ]
            await self.caller.ask("ScheduleBatch", items=items)

    def binding(self, prefix: str = "", request: Mapping[str, int] | None = None) -> Any:
        """A few replicas in three clusters of its own; one of six sizes where none is named."""
        number = next(self._numbers)
        among = sorted(self._choices.sample(self._names, 3))
        size = request or pod_size(number)
        return workload_message(f"{prefix}{number}", size, REPLICAS, among=among)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What callers saw in a while, and how busy this machine was: shares of all its cores."""

    estimates: Calls
    schedules: Calls
    plane_share: float = 0.0
    postgres_share: float = 0.0


async def alone(asker: Asker) -> Figures:
    """One call at a time, with nothing else to do."""
    figures = Figures(estimates=Calls(), schedules=Calls())
    loop = asyncio.get_running_loop()
    for calls, call in ((figures.estimates, asker.estimate), (figures.schedules, asker.schedule)):
        for _ in range(IDLE_CALLS // 10):
            await call()
        for _ in range(IDLE_CALLS):
            await calls.one(call, loop.time())
    return figures


async def together(asker: Asker, seconds: float, plane: int, postgres: int) -> Figures:
    """Both kinds at their pace for as long."""
    estimates, schedules = Calls(), Calls()
    before = cpu_seconds(plane), family_seconds(postgres)
    began = time.monotonic()
    async with asyncio.TaskGroup() as calling:
        for calls, call, pace in (
            (estimates, asker.estimate, ESTIMATES_PER_SECOND),
            (schedules, asker.schedule, SCHEDULES_PER_SECOND),
        ):
            calling.create_task(_keep_calling(calls, call, pace, seconds))
    lasted = (time.monotonic() - began) * CORES
    return Figures(
        estimates=estimates,
        schedules=schedules,
        plane_share=(cpu_seconds(plane) - before[0]) / lasted,
        postgres_share=(family_seconds(postgres) - before[1]) / lasted,
    )


async def _keep_calling(
    calls: Calls, call: Callable[[], Coroutine[Any, Any, None]], pace: float, seconds: float
) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with asyncio.TaskGroup() as under_way:
        for number in range(int(seconds * pace)):
            due = began + number / pace
            await asyncio.sleep(due - loop.time())
            under_way.create_task(calls.one(call, due))


async def watch(endpoint: str, token: str, watchers: int) -> None:
    """Bindings and clusters, half of the watchers each, until this program is ended."""

    async def hear(number: int) -> None:
        async with calling(endpoint, token) as caller:
            watching, request = (
                (caller.scheduling.WatchBindings, WatchBindingsRequest())
                if number % 2
                else (caller.clusters.WatchClusters, WatchClustersRequest())
            )
            call = watching(request, metadata=caller.metadata)
            try:
                async for _ in call:
                    pass
            except grpc.aio.AioRpcError as error:
                print(f"a watcher's stream: {reason_of(error)}", flush=True)
                raise
            print("a watcher's stream: it was ended", flush=True)

    await asyncio.gather(*map(hear, range(watchers)))


def flood(endpoint: str, token: str, seconds: float) -> None:
    """One agent says far more than anybody needs to hear."""
    os.nice(10)
    target = Target(pid=0, endpoint=endpoint, web="", probes="", token=token, ca=None, issuer="")
    flood_of_heartbeats(target, seconds / ATTACK_SECONDS)


def compare(figures: Figures, idle: Figures) -> None:
    """With what calls took alone, and with the goals."""
    estimates, schedules = figures.estimates, figures.schedules
    for what, calls, percent, idle_millis, max_times in (
        ("estimate, p50", estimates, 50, idle.estimates.percentile(50), ESTIMATE_P50),
        ("estimate, p99", estimates, 99, idle.estimates.percentile(50), ESTIMATE_P99),
        ("schedule, p50", schedules, 50, idle.schedules.percentile(50), None),
        ("schedule, p99", schedules, 99, idle.schedules.percentile(99), SCHEDULE_P99),
    ):
        millis = calls.percentile(percent)
        goal = at_most(max_times * idle_millis) if max_times else None
        detail = f"{millis / idle_millis:.1f} x {idle_millis:.1f} ms alone"
        FIGURES.row(what, millis, "ms", goal=goal, detail=detail)
    show_errors(figures)
    share = figures.plane_share + figures.postgres_share
    FIGURES.row(f"CPU of {CORES} cores", 100 * share, "%", goal=at_most(100 * MAX_CPU_SHARE))
    FIGURES.note(
        f"control plane {figures.plane_share:.0%}, PostgreSQL {figures.postgres_share:.0%}"
    )


def show_errors(figures: Figures) -> None:
    errors = figures.estimates.errors + figures.schedules.errors
    FIGURES.row("calls that failed", errors.total(), goal=at_most(0))
    for error, times in errors.most_common(5):
        FIGURES.note(f"{times} x {error}")


def compare_flooded(flooded: Figures, loaded: Figures) -> None:
    for what, calls, before, percent in (
        ("estimate, p50", flooded.estimates, loaded.estimates, 50),
        ("estimate, p99", flooded.estimates, loaded.estimates, 99),
        ("schedule, p99", flooded.schedules, loaded.schedules, 99),
    ):
        millis, millis_before = calls.percentile(percent), before.percentile(percent)
        goal = at_most((1 + MAX_CHANGE) * millis_before)
        detail = f"{millis / millis_before - 1:+.1%}"
        FIGURES.row(what, millis, "ms", goal=goal, detail=detail)
    show_errors(flooded)


async def measure(planes: Planes, postgres: int, seconds: float) -> None:
    (plane,), endpoint, token = planes.all, planes.endpoints[0], planes.token
    async with calling(endpoint, token, CALL_SECONDS) as caller:
        asker = Asker(caller)
        idle = await alone(asker)
        FIGURES.section(f"{AGENTS} agents connected, one call at a time")
        for what, calls in (("estimate", idle.estimates), ("schedule", idle.schedules)):
            FIGURES.row(f"{what}, p50", calls.percentile(50), "ms")
            FIGURES.row(f"{what}, p99", calls.percentile(99), "ms")
        await asker.promise(OUTSTANDING)
        watching = [endpoint, token, WATCHERS]
        with beside("lab.benchmarks.bench_mixed", "--watch", given=watching):
            await asyncio.sleep(SETTLE_SECONDS)
            plane.newest_lines()
            loaded = await together(asker, seconds, plane.pid, postgres)
            FIGURES.section(
                f"{ESTIMATES_PER_SECOND:g} estimates and {SCHEDULES_PER_SECOND:g} schedules a "
                f"second for {seconds:g} s, {OUTSTANDING} bindings outstanding, {WATCHERS} watchers"
            )
            compare(loaded, idle)
            show_stalls(FIGURES, plane.newest_lines(), MAX_STALL_MILLIS)
            given = [endpoint, token, FLOOD_BEFORE_SECONDS + FLOOD_SECONDS]
            with beside("lab.benchmarks.bench_mixed", "--flood", given=given):
                await asyncio.sleep(FLOOD_BEFORE_SECONDS)
                flooded = await together(asker, FLOOD_SECONDS, plane.pid, postgres)
            FIGURES.section("the same beside an agent that sends 4,000 heartbeats a second")
            compare_flooded(flooded, loaded)


def main(seconds: float) -> None:
    with (
        own_folder("bench") as folder,
        federation(folder, 1, AGENTS, TELLING_STALLS) as (planes, postgres, credentials),
        agents_there(planes, credentials, REPORT_SECONDS),
    ):
        asyncio.run(measure(planes, postgres.pid, seconds))


if __name__ == "__main__":
    clean_up_when_ended()
    if "--watch" in sys.argv:
        asyncio.run(watch(*json.load(sys.stdin)))
    elif "--flood" in sys.argv:
        flood(*json.load(sys.stdin))
    else:
        main(float(arguments()[0]) if arguments() else SECONDS)
