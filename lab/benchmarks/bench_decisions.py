"""Committed decisions per second through gRPC: server, database, load and agents on one machine.

100 clusters of 64 cells with room for everything; PostgreSQL writes through to the disk. Prints
figures beside their goals, and what PostgreSQL alone commits; must not judge anything else.

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
from collections.abc import Mapping, Sequence
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
from lab.benchmarks.measuring import IS_QUICK, arguments, chosen, cpu_seconds, family_seconds
from lab.benchmarks.members import (
    CALL_SECONDS,
    REQUEST,
    agents_there,
    federation,
    report_all,
)
from lab.chaos.members import CONNECTION_OF_ITS_OWN
from lab.chaos.planes import Planes, Postgres
from lab.databases import connect
from lab.ending import clean_up_when_ended

SECONDS = chosen(10.0, quick=1.5)
CLUSTERS = 100
IN_FLIGHT, BATCH, BATCHES_AT_ONCE = 32, 100, 2
CONNECTIONS = 8
DIVIDED = SchedulingType.DIVIDED


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
    name="batches of 100, Aggregated", goal=800, in_flight=BATCHES_AT_ONCE, batch=BATCH
)
EVERYWHERE = replace(AGGREGATED, name="batches of 100, all clusters", goal=250, everywhere=True)
LOADS = (SINGLE, AGGREGATED, EVERYWHERE)


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
            requirements=ReplicaRequirements(request=REQUEST),
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
        program("--load"), input=given, capture_output=True, text=True, check=False
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


def show(load: Load, figures: Mapping[str, float], each: Cost) -> None:
    """``each``: what a decision costs."""
    per_second, p99 = figures["per_second"], figures["p99_millis"]
    kept = per_second >= load.goal and (not load.p99_millis or p99 <= load.p99_millis)
    goal = f">= {load.goal:g}/s" + (f", p99 <= {load.p99_millis:g} ms" if load.p99_millis else "")
    print(
        f"  {load.name:30} {per_second:7.0f}/s  p50 {figures['p50_millis']:6.1f} ms  "
        f"p99 {p99:6.1f} ms  {figures['clusters']:5.1f} clusters, "
        f"{each.plane * 1000:5.2f} ms of CPU each, PostgreSQL {each.postgres * 1000:5.2f} ms in "
        f"{each.transactions:.2f} transactions   goal {goal}: {'kept' if kept else 'MISSED'}"
    )


def measure_one(folder: Path, seconds: float, *, connected: bool) -> None:
    with federation(folder, 1, CLUSTERS) as (planes, postgres, credentials):
        how = "connected, answer and report" if connected else "hung up after one report"
        print(f"one control plane; agents {how}")
        if not connected:
            asyncio.run(report_all(planes, credentials))
            measure_loads(planes, postgres, seconds)
            return
        with agents_there(planes, credentials):
            measure_loads(planes, postgres, seconds)


def measure_loads(planes: Planes, postgres: Postgres, seconds: float) -> None:
    (plane,) = planes.all
    for load in LOADS:
        before = Cost.now(plane.pid, postgres)
        figures = driven(planes.endpoints, planes.token, load, seconds)
        show(load, figures, Cost.now(plane.pid, postgres).each_since(before, figures["decisions"]))
    commits = asyncio.run(commits_per_second(postgres.url, seconds / 2))
    print(
        f"  {'PostgreSQL alone':30} {commits:7.0f} one-row commits/s on {CONNECTIONS} connections"
    )


def measure_two(folder: Path, seconds: float) -> None:
    """One and both of two control planes, so that what is there is the same."""
    with federation(folder, 2, CLUSTERS) as (planes, _, credentials):
        asyncio.run(report_all(planes, credentials))
        one, two = (
            driven(planes.endpoints[:count], planes.token, SINGLE, seconds)["per_second"]
            for count in (1, 2)
        )
        ratio = two / one
        print("two control planes on this machine; agents hung up after one report")
        print(
            f"  {SINGLE.name:30} one {one:.0f}/s, both {two:.0f}/s: {ratio:.2f} of one   "
            f"goal >= 0.8: {'kept' if ratio >= 0.8 else 'MISSED'}"
        )


def main(seconds: float) -> None:
    # The README's figures are of agents that have hung up.
    for connected in (False,) if IS_QUICK else (False, True):
        with tempfile.TemporaryDirectory(prefix="fedsched-bench-", dir="/var/tmp") as folder:
            measure_one(Path(folder), seconds, connected=connected)
    if not IS_QUICK:
        with tempfile.TemporaryDirectory(prefix="fedsched-bench-", dir="/var/tmp") as folder:
            measure_two(Path(folder), seconds)


if __name__ == "__main__":
    clean_up_when_ended()
    if sys.argv[1:2] == ["--load"]:
        asked = json.loads(sys.stdin.read())
        load = next(each for each in LOADS if each.name == asked["load"])
        asyncio.run(drive(asked["endpoints"], asked["token"], load, asked["seconds"]))
    else:
        main(float(arguments()[0]) if arguments() else SECONDS)
