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
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import grpc

from federation.codec.bindings import binding_to_message
from federation.model.placement import (
    Binding,
    DivisionPreference,
    Placement,
    ReplicaScheduling,
    SchedulingType,
    SpreadConstraint,
    SpreadField,
)
from federation.model.workload import ReplicaRequirements
from federation.v1.scheduling_pb2 import (
    OUTCOME_SCHEDULED,
    ScheduleBatchItem,
    ScheduleBatchRequest,
    ScheduleRequest,
)
from federation.v1.scheduling_pb2_grpc import SchedulingStub
from lab.benchmarks.measuring import (
    IS_QUICK,
    OPTIONS,
    TELLING_STALLS,
    arguments,
    chosen,
    cpu_seconds,
    family_seconds,
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
from lab.chaos.members import CONNECTION_OF_ITS_OWN
from lab.chaos.planes import Planes, Postgres, durable_postgres, running_planes
from lab.databases import connect
from lab.ending import clean_up_when_ended
from lab.fleet import pod_size
from lab.verdicts import Verdicts, at_least, at_most

SECONDS = chosen(10.0, quick=1.0)
CLUSTERS = chosen(100, quick=20)
STORED = chosen((1000,), quick=(), full=(1000, 10_000))
IN_FLIGHT, BATCH, BATCHES_AT_ONCE = 32, chosen(100, quick=10), 2
CONNECTIONS = 8
DIVIDED = SchedulingType.DIVIDED
STALL_GOAL_MILLIS = 50.0

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
AGGREGATED = Load(
    name=f"batches of {BATCH}, Aggregated", goal=800, in_flight=BATCHES_AT_ONCE, batch=BATCH
)
EVERYWHERE = replace(
    AGGREGATED, name=f"batches of {BATCH}, all clusters", goal=250, everywhere=True
)
LOADS = (SINGLE, AGGREGATED, EVERYWHERE)
# A decision over a thousand clusters and more takes its time, and a call ends after two minutes.
FEW_EVERYWHERE = replace(EVERYWHERE, name="batches of 5, all clusters", batch=5)
STORED_LOADS = (SINGLE, AGGREGATED, FEW_EVERYWHERE)


def binding(number: int, load: Load) -> Any:
    """A few replicas for at most five clusters, or many for all of them."""
    scheduling = ReplicaScheduling(type=DIVIDED, dynamic=True)
    spread: tuple[SpreadConstraint, ...] = ()
    if not load.everywhere:
        scheduling = ReplicaScheduling(type=DIVIDED, preference=DivisionPreference.AGGREGATED)
        spread = (SpreadConstraint(by=SpreadField.CLUSTER, min_groups=1, max_groups=5),)
    return binding_to_message(
        Binding(
            namespace="bench",
            name=f"{load.name.split()[-1].lower()}-{number}",
            uid=f"uid-of-{load.name}-{number}",
            replicas=1000 if load.everywhere else 5 + number % 6,
            # Many replicas fit everywhere only while they are tiny.
            requirements=ReplicaRequirements(request=TINY if load.everywhere else pod_size(number)),
            placement=Placement(replica_scheduling=scheduling, spread_constraints=spread),
        )
    )


async def drive(endpoints: Sequence[str], token: str, load: Load, seconds: float) -> None:
    """Ask for as long as that; prints decisions a second and how long calls took."""
    metadata = (("authorization", f"Bearer {token}"),)
    channels = [grpc.aio.insecure_channel(each, CONNECTION_OF_ITS_OWN) for each in endpoints]
    stubs: list[Any] = [SchedulingStub(channel) for channel in channels]
    took_seconds: list[float] = []
    clusters: list[int] = []
    began = time.monotonic()
    numbers = iter(range(round(time.time() * 1000), sys.maxsize))

    async def ask(stub: Any) -> None:
        if load.batch:
            items = [
                ScheduleBatchItem(binding=binding(next(numbers), load)) for _ in range(load.batch)
            ]
            request = ScheduleBatchRequest(items=items)
            call = stub.ScheduleBatch(request, metadata=metadata, timeout=CALL_SECONDS)
        else:
            single = ScheduleRequest(binding=binding(next(numbers), load))
            call = stub.Schedule(single, metadata=metadata, timeout=CALL_SECONDS)
        asked = time.monotonic()
        answer = await call
        took_seconds.append(time.monotonic() - asked)
        for each in answer.results if load.batch else [answer]:
            assert each.decision.outcome == OUTCOME_SCHEDULED, each.decision.reason
            clusters.append(len(each.decision.clusters))

    async def keep_asking(place: int) -> None:
        while time.monotonic() < began + seconds:
            await ask(stubs[place % len(stubs)])

    await asyncio.gather(*(keep_asking(place) for place in range(load.in_flight)))
    lasted = time.monotonic() - began
    for channel in channels:
        await channel.close()
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
    connection = await connect(url)
    ended: int = await connection.fetchval(
        "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = "
        "current_database()"
    )
    await connection.close()
    return ended


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


@contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="fedsched-bench-", dir="/var/tmp") as name:
        yield Path(name)


def main(seconds: float) -> None:
    for connected in (True,) if IS_QUICK else (False, True):
        with folder() as new:
            measure_one(new, seconds, connected=connected)
    for clusters in STORED:
        with folder() as new:
            measure_stored(new, seconds, clusters)
    if IS_QUICK:
        return
    for measure in (measure_two, measure_other):
        with folder() as new:
            measure(new, seconds)


if __name__ == "__main__":
    clean_up_when_ended()
    if sys.argv[1:2] == ["--load"]:
        asked = json.loads(sys.stdin.read())
        load = next(load for load in (*LOADS, *STORED_LOADS) if load.name == asked["load"])
        asyncio.run(drive(asked["endpoints"], asked["token"], load, asked["seconds"]))
    else:
        main(float(arguments()[0]) if arguments() else SECONDS)
