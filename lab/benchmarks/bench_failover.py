"""A region of 20 of 100 clusters is lost: how fast its bindings are moved, and what it costs.

2,000 bindings are there, and as many replicas elsewhere that the rate allows them half a minute.
Prints figures beside their goals; must not judge anything else.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc

from federation.codec.bindings import binding_to_message
from federation.model.placement import Binding, Placement, ReplicaScheduling, SchedulingType
from federation.model.workload import ReplicaRequirements, TargetCluster
from federation.v1.clusters_pb2 import ListClustersRequest
from federation.v1.clusters_pb2_grpc import ClustersStub
from federation.v1.failover_pb2 import FailoverStatus, GetFailoverRequest
from federation.v1.failover_pb2_grpc import FailoverStub
from federation.v1.resource_pb2 import ResourceBinding
from federation.v1.scheduling_pb2 import (
    ScheduleBatchItem,
    ScheduleBatchRequest,
)
from federation.v1.scheduling_pb2_grpc import SchedulingStub
from lab.benchmarks.measuring import chosen, cpu_seconds
from lab.benchmarks.members import (
    CALL_SECONDS,
    Agent,
    await_ready,
    federation,
)
from lab.chaos.planes import Planes
from lab.ending import clean_up_when_ended
from lab.fleet import cluster_name, pod_size
from lab.verdicts import Verdicts, at_most

CLUSTERS, LOST = chosen((100, 20), quick=(20, 4))
MOVED = chosen(2_000, quick=100)
ELSEWHERE = MOVED // 10
PERCENT, REPLICAS_ELSEWHERE = chosen(40, quick=100), 40
LOST_SECONDS, REPORT_SECONDS, LOOK_SECONDS = chosen(10.0, quick=4.0), 1.0, 0.5
FLAGS = (
    "--heartbeat-seconds=1",
    f"--lost-seconds={LOST_SECONDS:g}",
    f"--failover-percent={PERCENT}",
)
SPAN_SECONDS = 20.0
DYNAMIC = ReplicaScheduling(type=SchedulingType.DIVIDED, dynamic=True)
BATCH = 200

FIGURES = Verdicts("bench_failover")


def binding(number: int) -> ResourceBinding:
    """One that runs already: the first of them in clusters that will be lost."""
    is_lost = number < MOVED
    cluster = number % LOST if is_lost else LOST + number % (CLUSTERS - LOST)
    replicas = 1 if is_lost else REPLICAS_ELSEWHERE
    return binding_to_message(
        Binding(
            namespace="bench",
            name=f"web-{number:05}",
            replicas=replicas,
            requirements=ReplicaRequirements(request=pod_size(number)),
            placement=Placement(replica_scheduling=DYNAMIC),
            clusters=(TargetCluster(name=cluster_name(cluster), replicas=replicas),),
        )
    )


class Caller:
    """The admin of a control plane."""

    def __init__(self, planes: Planes, channel: grpc.aio.Channel) -> None:
        self._metadata = (("authorization", f"Bearer {planes.token}"),)
        self.scheduling: Any = SchedulingStub(channel)
        self.clusters: Any = ClustersStub(channel)
        self.failover: Any = FailoverStub(channel)

    async def call(self, method: Any, request: Any) -> Any:
        return await method(request, metadata=self._metadata, timeout=CALL_SECONDS)

    async def adopt(self) -> None:
        for first in range(0, MOVED + ELSEWHERE, BATCH):
            numbers = range(first, min(first + BATCH, MOVED + ELSEWHERE))
            items = [ScheduleBatchItem(binding=binding(number)) for number in numbers]
            await self.call(self.scheduling.ScheduleBatch, ScheduleBatchRequest(items=items))

    async def status(self) -> FailoverStatus:
        found: FailoverStatus = (
            await self.call(self.failover.GetFailover, GetFailoverRequest())
        ).status
        return found

    async def overcommitted(self) -> int:
        request = ListClustersRequest(page_size=1000)
        listed = await self.call(self.clusters.ListClusters, request)
        return sum(
            condition.type == "OverCommitted"
            for each in listed.clusters
            for condition in each.status.conditions
        )


async def measure(planes: Planes, credentials: Mapping[str, str]) -> None:
    (plane,), endpoint = planes.all, planes.endpoints[0]
    agents = [
        Agent(number, endpoint, each, REPORT_SECONDS)
        for number, each in enumerate(credentials.values())
    ]
    async with grpc.aio.insecure_channel(endpoint) as channel:
        caller = Caller(planes, channel)
        tasks = [asyncio.create_task(each.live()) for each in agents]
        await await_ready(planes, CLUSTERS)
        await caller.adopt()
        await end(tasks[:LOST])
        began, cpu, worst = time.time(), cpu_seconds(plane.pid), 0
        # How many had left, and when.
        seen: list[tuple[float, int]] = []
        while not seen or seen[-1][1] < MOVED:
            await asyncio.sleep(LOOK_SECONDS)
            worst = max(worst, await caller.overcommitted())
            status = await caller.status()
            if len(status.evacuated) == LOST:
                # What has moved is held there, too, until its eviction ends.
                held = sum(each.bindings for each in status.evacuated)
                seen.append((time.time(), MOVED - held + status.eviction_count))
        cost = (cpu_seconds(plane.pid) - cpu) / MOVED * 1000
        await end(tasks[LOST:])
    rate = status.replicas_per_minute
    took, due = seen[-1][0] - seen[0][0], MOVED / rate * 60
    most = max(
        moved - before
        for began_at, before in seen
        for at, moved in seen
        if 0 <= at - began_at <= SPAN_SECONDS
    )
    # A second may be saved, and one be lent.
    allowed = rate / 60 * (SPAN_SECONDS + 2)
    FIGURES.row("lost after a silence", seen[0][0] - began, "s")
    FIGURES.row(f"{MOVED} bindings moved", took, "s", goal=at_most(due * 1.1 + 2))
    FIGURES.row(f"bindings within {SPAN_SECONDS:g} s", most, goal=at_most(allowed))
    FIGURES.row("over-committed clusters", worst, goal=at_most(0))
    FIGURES.row("a move, with all else, CPU", cost, "ms")


async def end(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    with suppress(asyncio.CancelledError):
        await asyncio.gather(*tasks, return_exceptions=True)


def main() -> None:
    with (
        tempfile.TemporaryDirectory(prefix="fedsched-bench-", dir="/var/tmp") as folder,
        federation(Path(folder), 1, CLUSTERS, FLAGS) as (planes, _, credentials),
    ):
        FIGURES.section(f"{LOST} of {CLUSTERS} clusters are lost, with {MOVED} bindings")
        asyncio.run(measure(planes, credentials))


if __name__ == "__main__":
    clean_up_when_ended()
    main()
