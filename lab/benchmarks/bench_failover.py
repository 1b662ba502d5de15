"""A region of 20 of 100 clusters is lost: how fast its bindings are moved, and what it costs.

2,000 bindings are there, and as many replicas elsewhere that the rate allows them half a minute.
Prints figures beside their goals; must not judge anything else.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from federation.v1.resource_pb2 import ResourceBinding
from federation.v1.scheduling_pb2 import ScheduleBatchItem
from lab.benchmarks.measuring import chosen
from lab.benchmarks.members import (
    CALL_SECONDS,
    Agent,
    await_ready,
    federation,
)
from lab.callers import Caller, calling
from lab.fleet import cluster_name, pod_size
from lab.planes import Planes
from lab.processes import cpu_seconds
from lab.programs import clean_up_when_ended, own_folder
from lab.verdicts import Verdicts, at_most
from lab.workloads import workload_message

CLUSTERS, LOST = chosen((100, 20), quick=(20, 4))
MOVED = chosen(2_000, quick=20)
ELSEWHERE = MOVED // 10
PERCENT, REPLICAS_ELSEWHERE = chosen(40, quick=100), 40
LOST_SECONDS, REPORT_SECONDS, LOOK_SECONDS = chosen(10.0, quick=4.0), 1.0, 0.5
FLAGS = (
    "--heartbeat-seconds=1",
    f"--lost-seconds={LOST_SECONDS:g}",
    f"--failover-percent={PERCENT}",
)
SPAN_SECONDS = 20.0
BATCH = 200

FIGURES = Verdicts("bench_failover")


def binding(number: int) -> ResourceBinding:
    """One that runs already: the first of them in clusters that will be lost."""
    is_lost = number < MOVED
    cluster = number % LOST if is_lost else LOST + number % (CLUSTERS - LOST)
    replicas = 1 if is_lost else REPLICAS_ELSEWHERE
    runs = {cluster_name(cluster): replicas}
    return workload_message(f"web-{number:05}", pod_size(number), replicas, uid="", runs=runs)


async def adopt(caller: Caller) -> None:
    for first in range(0, MOVED + ELSEWHERE, BATCH):
        numbers = range(first, min(first + BATCH, MOVED + ELSEWHERE))
        items = [ScheduleBatchItem(binding=binding(number)) for number in numbers]
        await caller.ask("ScheduleBatch", items=items)


async def overcommitted(caller: Caller) -> int:
    return sum(
        condition.type == "OverCommitted"
        for each in await caller.clusters_listed()
        for condition in each.status.conditions
    )


async def measure(planes: Planes, credentials: Mapping[str, str]) -> None:
    (plane,), endpoint = planes.all, planes.endpoints[0]
    agents = [
        Agent(number, endpoint, each, REPORT_SECONDS)
        for number, each in enumerate(credentials.values())
    ]
    async with calling(endpoint, planes.token, CALL_SECONDS) as caller:
        tasks = [asyncio.create_task(each.live()) for each in agents]
        await await_ready(planes, CLUSTERS)
        await adopt(caller)
        await end(tasks[:LOST])
        began, cpu, worst = time.time(), cpu_seconds(plane.pid), 0
        # How many had left, and when.
        seen: list[tuple[float, int]] = []
        while not seen or seen[-1][1] < MOVED:
            await asyncio.sleep(LOOK_SECONDS)
            worst = max(worst, await overcommitted(caller))
            status = (await caller.ask("GetFailover")).status
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
        own_folder("bench") as folder,
        federation(folder, 1, CLUSTERS, FLAGS) as (planes, _, credentials),
    ):
        FIGURES.section(f"{LOST} of {CLUSTERS} clusters are lost, with {MOVED} bindings")
        asyncio.run(measure(planes, credentials))


if __name__ == "__main__":
    clean_up_when_ended()
    main()
