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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from federation.codec.bindings import binding_to_message
from federation.codec.reports import report_to_message
from federation.model.cluster import CapacityReport, NodeSummary, ReportedPools, ResourceSummary
from federation.model.placement import (
    Binding,
    DivisionPreference,
    Placement,
    ReplicaScheduling,
    SchedulingType,
    SpreadConstraint,
    SpreadField,
)
from federation.model.pools.building import partition_nodes
from federation.model.reported_pools import reported_pools
from federation.model.shapes import Echo, request_shape
from federation.model.workload import ReplicaRequirements
from federation.v1.agents_pb2 import (
    ConnectRequest,
    Heartbeat,
    Hello,
    NodeShare,
    PlaceReply,
    PlaceRequest,
)
from federation.v1.agents_pb2_grpc import AgentsStub
from federation.v1.clusters_pb2 import ListClustersRequest
from federation.v1.clusters_pb2_grpc import ClustersStub
from federation.v1.scheduling_pb2 import (
    OUTCOME_SCHEDULED,
    ScheduleBatchItem,
    ScheduleBatchRequest,
    ScheduleRequest,
)
from federation.v1.scheduling_pb2_grpc import SchedulingStub
from tests.benchmarks.bench_agents import cpu_seconds
from tests.chaos.members import CONNECTION_OF_ITS_OWN, enrolled
from tests.chaos.planes import Planes, durable_postgres, running_planes
from tests.databases import connect
from tests.fleets import MIB, MIXES, ClusterPlan, PackingStrategy, node_columns, packed_clusters

SECONDS = 10.0
CLUSTERS, CELLS, NODES = 100, 64, 600
IN_FLIGHT, BATCH, BATCHES_AT_ONCE = 32, 100, 2
CONNECTIONS = 8
DISTINCT = 20
REPORT_SECONDS = 5.0
# Hung up agents stay known for the whole measurement.
PATIENT = ("--heartbeat-seconds=3600",)
CALL_SECONDS = 120.0
DIVIDED = SchedulingType.DIVIDED
REQUEST = {"cpu": 10, "memory": 32 * MIB}


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


@cache
def cluster_pools(number: int) -> ReportedPools:
    """Those of a cluster three tenths full."""
    plan = ClusterPlan(
        mix=MIXES[number % len(MIXES)],
        nodes=NODES,
        packing=PackingStrategy.LEAST_ALLOCATED,
        seed=number,
        fills=(0.3,),
    )
    ((_, free_rn),) = packed_clusters(plan)
    return reported_pools(partition_nodes(node_columns(np.maximum(free_rn, 0)), CELLS, []).pools)


def capacity_report(number: int, sequence: int = 1) -> CapacityReport:
    pools = cluster_pools(number % DISTINCT)
    totals = {
        name: sum(
            minimum * count
            for minimum, count in zip(
                pools.minimums[row * len(pools.counts) : (row + 1) * len(pools.counts)],
                pools.counts,
                strict=True,
            )
        )
        for row, name in enumerate(pools.resources)
    }
    nodes = sum(pools.counts)
    return CapacityReport(
        epoch=1,
        sequence=sequence,
        snapshot_time=time.time(),
        summary=ResourceSummary(allocatable=totals, allocated=dict.fromkeys(totals, 0)),
        nodes=NodeSummary(total=nodes, ready=nodes, graded=nodes),
        pools=pools,
    )


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


class Agent:
    """An agent that claims to run whatever it is asked to place, and reports that."""

    def __init__(self, number: int, endpoint: str, credential: str) -> None:
        self._number = number
        self._name = cluster_name(number)
        self._endpoint = endpoint
        self._metadata = (("authorization", f"Bearer {credential}"),)
        self._running: dict[str, int] = {}
        self._sought: set[str] = set()
        self._version = 0
        self._news = asyncio.Event()
        # A stream takes one message at a time.
        self._saying = asyncio.Lock()

    async def live(self) -> None:
        async with grpc.aio.insecure_channel(self._endpoint, CONNECTION_OF_ITS_OWN) as channel:
            stub: Any = AgentsStub(channel)
            call = stub.Connect(metadata=self._metadata)
            await self._say(call, hello=Hello(epoch=1, agent_version="bench", placer="none"))
            await asyncio.gather(self._listen(call), self._speak(call))

    async def report_once(self, is_known: asyncio.Event) -> None:
        """Hello, one report, and away once it is known everywhere."""
        async with grpc.aio.insecure_channel(self._endpoint, CONNECTION_OF_ITS_OWN) as channel:
            stub: Any = AgentsStub(channel)
            call = stub.Connect(metadata=self._metadata)
            await self._say(call, hello=Hello(epoch=1, agent_version="bench", placer="none"))
            report = report_to_message(capacity_report(self._number))
            await self._say(call, report=report)
            while (await call.read()).WhichOneof("message") != "ack":
                pass
            await is_known.wait()
            await call.done_writing()

    async def _say(self, call: Any, **message: Any) -> None:
        async with self._saying:
            await call.write(ConnectRequest(cluster=self._name, **message))

    async def _listen(self, call: Any) -> None:
        while (message := await call.read()) is not grpc.aio.EOF:
            kind = message.WhichOneof("message")
            if kind == "place_request":
                await self._say(call, place_reply=self._placed(message.place_request))
            elif kind == "interest":
                self._look_for(message.interest)
            elif kind == "resync":
                self._news.set()

    async def _speak(self, call: Any) -> None:
        sequence = 0
        while True:
            sequence += 1
            shape = request_shape(REQUEST)
            report = replace(
                capacity_report(self._number, sequence),
                interest_version=self._version,
                echoes=tuple(
                    Echo(binding=each, shape=shape, bound=self._running[each])
                    for each in sorted(self._sought & self._running.keys())
                ),
            )
            message = report_to_message(report)
            await self._say(call, report=message)
            beat = Heartbeat(sequence=sequence, content_hash=message.content_hash)
            beat.agent_time.GetCurrentTime()
            await self._say(call, heartbeat=beat)
            self._news.clear()
            try:
                await asyncio.wait_for(self._news.wait(), REPORT_SECONDS)
            except TimeoutError:
                continue

    def _look_for(self, interest: Any) -> None:
        if interest.whole:
            self._sought = set()
        self._sought -= set(interest.removed)
        self._sought |= {each.binding for each in interest.bindings}
        self._version = interest.version

    def _placed(self, request: PlaceRequest) -> PlaceReply:
        self._running[request.binding] = sum(each.replicas for each in request.shares)
        nodes = [
            NodeShare(node="node-1", component=each.component, replicas=each.replicas, score=50)
            for each in request.shares
        ]
        return PlaceReply(request_id=request.request_id, nodes=nodes, strategy="MostAllocated")


async def run_agents(endpoint: str, credentials: Mapping[str, str]) -> None:
    """All of them, until they are ended."""
    agents = [Agent(number, endpoint, each) for number, each in enumerate(credentials.values())]
    await asyncio.gather(*(each.live() for each in agents))


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


def cluster_name(number: int) -> str:
    return f"member{number:03}"


def program(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "tests.benchmarks.bench_decisions", *arguments]


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


def show(load: Load, figures: Mapping[str, float], server_seconds: float) -> None:
    """``server_seconds``: CPU of the control plane for each decision."""
    per_second, p99 = figures["per_second"], figures["p99_millis"]
    kept = per_second >= load.goal and (not load.p99_millis or p99 <= load.p99_millis)
    goal = f">= {load.goal:g}/s" + (f", p99 <= {load.p99_millis:g} ms" if load.p99_millis else "")
    print(
        f"  {load.name:30} {per_second:7.0f}/s  p50 {figures['p50_millis']:6.1f} ms  "
        f"p99 {p99:6.1f} ms  {figures['clusters']:5.1f} clusters, "
        f"{server_seconds * 1000:5.2f} ms of CPU each   "
        f"goal {goal}: {'kept' if kept else 'MISSED'}"
    )


@contextmanager
def federation(folder: Path, planes: int) -> Iterator[tuple[Planes, str, Mapping[str, str]]]:
    """Control planes, the database's address, and the credentials of the clusters' agents."""
    with (
        durable_postgres(folder) as postgres,
        running_planes(folder, planes, postgres.url, PATIENT) as started,
    ):
        names = [cluster_name(number) for number in range(CLUSTERS)]
        credentials = asyncio.run(enrolled(started.endpoints[0], started.token, names))
        yield started, postgres.url, credentials


async def await_ready(endpoints: Sequence[str], token: str) -> None:
    """Until every control plane has the reports of all clusters."""
    metadata = (("authorization", f"Bearer {token}"),)
    for endpoint in endpoints:
        async with grpc.aio.insecure_channel(endpoint) as channel:
            stub: Any = ClustersStub(channel)
            while True:
                listed = await stub.ListClusters(
                    ListClustersRequest(page_size=1000), metadata=metadata, timeout=CALL_SECONDS
                )
                ready = [
                    each.status.resource_summary.allocatable
                    and each.status.conditions[0].status == "True"
                    for each in listed.clusters
                ]
                if all(ready) and len(ready) == CLUSTERS:
                    break
                await asyncio.sleep(0.1)


@contextmanager
def agents_there(endpoint: str, credentials: Mapping[str, str]) -> Iterator[None]:
    process = subprocess.Popen(program("--agents"), stdin=subprocess.PIPE, text=True)
    assert process.stdin is not None
    print(json.dumps({"endpoint": endpoint, "credentials": credentials}), file=process.stdin)
    process.stdin.close()
    try:
        yield
    finally:
        process.terminate()
        process.wait()


async def report_all(planes: Planes, credentials: Mapping[str, str]) -> None:
    """To the first of the control planes; until all of them have the reports."""
    endpoint, is_known = planes.endpoints[0], asyncio.Event()
    agents = [Agent(number, endpoint, each) for number, each in enumerate(credentials.values())]
    async with asyncio.TaskGroup() as reporting:
        for each in agents:
            reporting.create_task(each.report_once(is_known))
        await await_ready(planes.endpoints, planes.token)
        is_known.set()


def measure_one(folder: Path, seconds: float, *, connected: bool) -> None:
    with federation(folder, 1) as (planes, url, credentials):
        how = "connected, answer and report" if connected else "hung up after one report"
        print(f"one control plane; agents {how}")
        if not connected:
            asyncio.run(report_all(planes, credentials))
            measure_loads(planes, url, seconds)
            return
        with agents_there(planes.endpoints[0], credentials):
            asyncio.run(await_ready(planes.endpoints, planes.token))
            measure_loads(planes, url, seconds)


def measure_loads(planes: Planes, url: str, seconds: float) -> None:
    (plane,) = planes.all
    for load in LOADS:
        before = cpu_seconds(plane.pid)
        figures = driven(planes.endpoints, planes.token, load, seconds)
        show(load, figures, (cpu_seconds(plane.pid) - before) / figures["decisions"])
    commits = asyncio.run(commits_per_second(url, seconds / 2))
    print(
        f"  {'PostgreSQL alone':30} {commits:7.0f} one-row commits/s on {CONNECTIONS} connections"
    )


def measure_two(folder: Path, seconds: float) -> None:
    """One and both of two control planes, so that what is there is the same."""
    with federation(folder, 2) as (planes, _, credentials):
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
    for connected in (False, True):
        with tempfile.TemporaryDirectory(prefix="fedsched-bench-", dir="/var/tmp") as folder:
            measure_one(Path(folder), seconds, connected=connected)
    with tempfile.TemporaryDirectory(prefix="fedsched-bench-", dir="/var/tmp") as folder:
        measure_two(Path(folder), seconds)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--load"]:
        asked = json.loads(sys.stdin.read())
        chosen = next(each for each in LOADS if each.name == asked["load"])
        asyncio.run(drive(asked["endpoints"], asked["token"], chosen, asked["seconds"]))
    elif sys.argv[1:2] == ["--agents"]:
        told = json.loads(sys.stdin.read())
        asyncio.run(run_agents(told["endpoint"], told["credentials"]))
    else:
        main(float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS)
