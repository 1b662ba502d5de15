"""Committed decisions per second through gRPC: server, database, load and agents on one machine.

100 clusters of 500 nodes as shipped agents report them, and 1,000 and with --full 10,000 that the
control plane finds in its database; workloads of six sizes, 5 of 100 large; PostgreSQL writes
through to the disk. Prints figures beside their goals, and what PostgreSQL alone commits; must not
judge anything else.

    bench_decisions.py [SECONDS]
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import grpc

from federation.model.placement import Placement, SpreadConstraint, SpreadField
from federation.v1.scheduling_pb2 import OUTCOME_SCHEDULED, ScheduleBatchItem
from lab.benchmarks.measuring import (
    IS_QUICK,
    OPTIONS,
    TELLING_STALLS,
    arguments,
    chosen,
    show_stalls,
)
from lab.benchmarks.members import (
    CALL_SECONDS,
    PATIENT,
    TINY,
    agents_there,
    federation,
    report_all,
)
from lab.benchmarks.stored_fleets import fill
from lab.callers import ALONE, Caller
from lab.databases import connect, connected
from lab.fleet import pod_size
from lab.planes import Planes, Postgres, durable_postgres, running_planes
from lab.processes import cpu_seconds, family_seconds
from lab.programs import clean_up_when_ended, own_folder
from lab.verdicts import Verdicts, at_least, at_most
from lab.workloads import AGGREGATED, workload_message

SECONDS = chosen(10.0, quick=1.0)
CLUSTERS = chosen(100, quick=20)
STORED = chosen((1000,), quick=(), full=(1000, 10_000))
IN_FLIGHT, BATCH, BATCHES_AT_ONCE = 32, chosen(100, quick=10), 2
CONNECTIONS = 8
STALL_GOAL_MILLIS = 50.0
TRANSACTIONS = """
    SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()
"""

FIGURES = Verdicts("bench_decisions")


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is asked for. ``batch`` of 0: single calls, ``in_flight`` of them at any time."""

    name: str
    goal: float
    in_flight: int = IN_FLIGHT
    batch: int = 0
    everywhere: bool = False
    p99_millis: float = 0.0


SINGLE = Load(name="single calls, 32 in flight", goal=300, p99_millis=150)
AGGREGATED_LOAD = Load(
    name=f"batches of {BATCH}, Aggregated", goal=800, in_flight=BATCHES_AT_ONCE, batch=BATCH
)
EVERYWHERE = replace(
    AGGREGATED_LOAD, name=f"batches of {BATCH}, all clusters", goal=250, everywhere=True
)
LOADS = (SINGLE, AGGREGATED_LOAD, EVERYWHERE)
# A decision over a thousand clusters and more takes its time, and a call ends after two minutes.
FEW_EVERYWHERE = replace(EVERYWHERE, name="batches of 5, all clusters", batch=5)
STORED_LOADS = (SINGLE, AGGREGATED_LOAD, FEW_EVERYWHERE)


def binding(number: int, load: Load) -> Any:
    """A few replicas for at most five clusters, or many for all of them."""
    name = f"{load.name.split()[-1].lower()}-{number}"
    if load.everywhere:
        # Many replicas fit everywhere only while they are tiny.
        return workload_message(name, TINY, 1000)
    spread = (SpreadConstraint(by=SpreadField.CLUSTER, min_groups=1, max_groups=5),)
    few = Placement(replica_scheduling=AGGREGATED, spread_constraints=spread)
    return workload_message(name, pod_size(number), 5 + number % 6, placement=few)


async def drive(endpoints: Sequence[str], token: str, load: Load, seconds: float) -> None:
    """Ask for as long as that; prints decisions a second and how long calls took."""
    callers = [Caller(grpc.aio.insecure_channel(e, ALONE), token, CALL_SECONDS) for e in endpoints]
    took_seconds: list[float] = []
    clusters: list[int] = []
    began = time.monotonic()
    numbers = iter(range(round(time.time() * 1000), sys.maxsize))

    async def ask(caller: Caller) -> None:
        made = [binding(next(numbers), load) for _ in range(load.batch or 1)]
        items = [ScheduleBatchItem(binding=each) for each in made]
        asked = time.monotonic()
        if load.batch:
            answer = await caller.ask("ScheduleBatch", items=items)
        else:
            answer = await caller.ask("Schedule", binding=made[0])
        took_seconds.append(time.monotonic() - asked)
        for each in answer.results if load.batch else [answer]:
            assert each.decision.outcome == OUTCOME_SCHEDULED, each.decision.reason
            clusters.append(len(each.decision.clusters))

    async def keep_asking(place: int) -> None:
        while time.monotonic() < began + seconds:
            await ask(callers[place % len(callers)])

    await asyncio.gather(*(keep_asking(place) for place in range(load.in_flight)))
    lasted = time.monotonic() - began
    for caller in callers:
        await caller.channel.close()
    cuts = statistics.quantiles(took_seconds, n=100)
    figures = {
        "decisions": len(clusters),
        "per_second": len(clusters) / lasted,
        "p50_millis": cuts[49] * 1000,
        "p99_millis": cuts[98] * 1000,
        "clusters": statistics.fmean(clusters),
    }
    print(json.dumps(figures), flush=True)


async def commits_per_second(url: str, seconds: float) -> float:
    """One-row transactions on connections at once, as pgbench would."""
    connections = [await connect(url) for _ in range(CONNECTIONS)]
    await connections[0].execute("CREATE TABLE IF NOT EXISTS bench_commits (n bigint)")
    until = time.monotonic() + seconds

    async def keep_committing(connection: Any) -> int:
        count = 0
        while time.monotonic() < until:
            await connection.execute("INSERT INTO bench_commits VALUES (1)")
            count += 1
        return count

    done = await asyncio.gather(*map(keep_committing, connections))
    for connection in connections:
        await connection.close()
    return sum(done) / seconds


def program(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "lab.benchmarks.bench_decisions", *arguments]


def driven(endpoints: Sequence[str], token: str, load: Load, seconds: float) -> Mapping[str, float]:
    """The load from a process of its own."""
    given = json.dumps(
        {"endpoints": endpoints, "token": token, "load": load.name, "seconds": seconds}
    )
    done = subprocess.run(
        program("--load", *OPTIONS), input=given, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    figures: Mapping[str, float] = json.loads(done.stdout)
    return figures


class Cost(NamedTuple):
    """CPU seconds of the control plane and of PostgreSQL, and transactions, since they started; or
    those of one decision.
    """

    plane: float
    postgres: float
    transactions: float

    @classmethod
    def now(cls, plane_pid: int, postgres: Postgres) -> Cost:
        transactions = asyncio.run(transactions_ended(postgres.url))
        return cls(cpu_seconds(plane_pid), family_seconds(postgres.pid), transactions)

    def each_since(self, before: Cost, decisions: float) -> Cost:
        each = [(now - then) / decisions for now, then in zip(self, before, strict=True)]
        return Cost(*each)


async def transactions_ended(url: str) -> int:
    """Reads of one statement are counted too."""
    async with connected(url) as connection:
        return int(await connection.fetchval(TRANSACTIONS))


def show(load: Load, figures: Mapping[str, float], each: Cost, *, has_goal: bool = True) -> None:
    """``each``: what a decision costs."""
    FIGURES.row(
        load.name,
        figures["per_second"],
        "/s",
        goal=at_least(load.goal) if has_goal else None,
        detail=f"{figures['clusters']:.1f} clusters each",
    )
    goal = at_most(load.p99_millis) if has_goal and load.p99_millis else None
    detail = f"p50 {figures['p50_millis']:.1f} ms"
    FIGURES.row(f"{load.name}, p99", figures["p99_millis"], "ms", goal=goal, detail=detail)
    FIGURES.row(
        f"{load.name}, CPU a decision",
        each.plane * 1000,
        "ms",
        detail=f"PostgreSQL {each.postgres * 1000:.2f} ms in {each.transactions:.2f} transactions",
    )


def measure_one(folder: Path, seconds: float, *, connected: bool) -> None:
    with federation(folder, 1, CLUSTERS) as (planes, postgres, credentials):
        how = "connected, answer and report" if connected else "hung up after one report"
        FIGURES.section(f"one control plane, {CLUSTERS} clusters; agents {how}")
        if not connected:
            asyncio.run(report_all(planes, credentials))
            measure_loads(planes, postgres, seconds)
            return
        with agents_there(planes, credentials):
            measure_loads(planes, postgres, seconds)


def measure_stored(folder: Path, seconds: float, clusters: int) -> None:
    """No agent is there: the reports are found in the database."""
    with durable_postgres(folder) as postgres:
        asyncio.run(fill(postgres.url, clusters, 0))
        with running_planes(folder, 1, postgres.url, PATIENT) as planes:
            FIGURES.section(f"one control plane, {clusters:,} clusters in its database")
            measure_loads(planes, postgres, seconds, STORED_LOADS, has_goals=False)


def measure_loads(
    planes: Planes,
    postgres: Postgres,
    seconds: float,
    loads: Sequence[Load] = LOADS,
    *,
    has_goals: bool = True,
) -> None:
    (plane,) = planes.all
    for load in loads:
        before = Cost.now(plane.pid, postgres)
        figures = driven(planes.endpoints, planes.token, load, seconds)
        cost = Cost.now(plane.pid, postgres).each_since(before, figures["decisions"])
        show(load, figures, cost, has_goal=has_goals)
    commits = asyncio.run(commits_per_second(postgres.url, seconds / 2))
    detail = f"on {CONNECTIONS} connections"
    FIGURES.row("PostgreSQL alone, one-row commits", commits, "/s", detail=detail)


def measure_two(folder: Path, seconds: float) -> None:
    """One and both of two control planes, so that what is there is the same."""
    with federation(folder, 2, CLUSTERS) as (planes, _, credentials):
        asyncio.run(report_all(planes, credentials))
        one, two = (
            driven(planes.endpoints[:count], planes.token, SINGLE, seconds)["per_second"]
            for count in (1, 2)
        )
        FIGURES.section("two control planes on this machine; agents hung up after one report")
        detail = f"one {one:.0f}/s, both {two:.0f}/s"
        FIGURES.row(f"{SINGLE.name}, both of one", two / one, goal=at_least(0.8), detail=detail)


def measure_other(folder: Path, seconds: float) -> None:
    """All agents are connected to the first of two control planes, and the second decides."""
    with federation(folder, 2, CLUSTERS, TELLING_STALLS) as (planes, postgres, credentials):
        reporting, deciding = planes.all
        with agents_there(planes, credentials):
            FIGURES.section(f"{CLUSTERS} clusters report to another control plane")
            deciding.newest_lines()
            before = Cost.now(deciding.pid, postgres), cpu_seconds(reporting.pid)
            figures = driven([deciding.endpoint], planes.token, SINGLE, seconds)
            decisions = figures["decisions"]
            show(SINGLE, figures, Cost.now(deciding.pid, postgres).each_since(before[0], decisions))
            millis = (cpu_seconds(reporting.pid) - before[1]) / decisions * 1000
            FIGURES.row("CPU a decision of the one with the agents", millis, "ms")
            show_stalls(FIGURES, deciding.newest_lines(), STALL_GOAL_MILLIS)


def main(seconds: float) -> None:
    measures: list[Callable[[Path], None]] = [
        partial(measure_one, seconds=seconds, connected=connected)
        for connected in ((True,) if IS_QUICK else (False, True))
    ]
    measures += [partial(measure_stored, seconds=seconds, clusters=each) for each in STORED]
    if not IS_QUICK:
        measures += [partial(each, seconds=seconds) for each in (measure_two, measure_other)]
    for measure in measures:
        with own_folder("bench") as folder:
            measure(folder)


if __name__ == "__main__":
    clean_up_when_ended()
    if sys.argv[1:2] == ["--load"]:
        asked = json.loads(sys.stdin.read())
        load = next(load for load in (*LOADS, *STORED_LOADS) if load.name == asked["load"])
        asyncio.run(drive(asked["endpoints"], asked["token"], load, asked["seconds"]))
    else:
        main(float(arguments()[0]) if arguments() else SECONDS)
