"""What waits for room: how fast it queues, how soon it is placed, and what it costs at rest.

100 full clusters of 500 nodes as shipped agents report them, and 10,000 bindings of 50 wants that
wait, and again of 5,000 wants; PostgreSQL writes through to the disk. Then one cluster after the
other reports room for one replica; at last the control plane is killed, and starts again. Prints
figures beside their goals; must not judge anything else.
"""

from __future__ import annotations

import asyncio
import random
import re
import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import cache
from typing import Any
from urllib.request import urlopen

import grpc

from federation.model.cluster import CapacityReport
from federation.v1.agents_pb2 import ConnectRequest, PlaceReplies, PlaceReply
from federation.v1.scheduling_pb2 import ScheduleBatchItem
from lab.benchmarks.measuring import chosen, percentile
from lab.benchmarks.members import CALL_SECONDS, HELLO, await_ready, federation
from lab.callers import Caller, calling
from lab.fleet import MIB, FleetPlan, ReportingCluster, cluster_name, dumped, message_of
from lab.planes import Plane, Planes
from lab.processes import cpu_seconds, resident_mebibytes
from lab.programs import clean_up_when_ended, own_folder
from lab.verdicts import Verdicts, at_least, at_most
from lab.workloads import workload_message

CLUSTERS = chosen(100, quick=10)
FEW_WANTS, MANY_WANTS = chosen((50, 5000), quick=(10, 40))
FULL = FleetPlan(distinct=chosen(8, quick=2), fill=1.0)
WAITING = chosen(10_000, quick=50)
ROUNDS = chosen(CLUSTERS - 1, quick=3)
MANY_ROUNDS = chosen(20, quick=2)
REST_SECONDS = chosen(10.0, quick=1.0)
BATCH, BATCHES_AT_ONCE = 500, 2
# The millicores of the largest replica; others ask for up to 49 less, and for memory up to 99 MiB.
MAX_CPU = 1000

FIGURES = Verdicts("bench_queue")


@cache
def reports(number: int) -> tuple[CapacityReport, CapacityReport]:
    """What an agent reports of a full cluster, and once a pod of MAX_CPU has gone."""
    cluster = ReportingCluster.of(dumped(FULL, number))
    full = cluster.report()
    cache = cluster.member.cache
    nodes = {
        node.name
        for node in cache.snapshot().table.nodes
        if node.ready and not node.unschedulable and not node.taints
    }
    cache.remove_pod(
        next(
            pod.uid
            for pod in cache.pods()
            if pod.node in nodes and pod.request.get("cpu") == MAX_CPU
        )
    )
    return full, cluster.report()


class Agent:
    """A full cluster, whose agent notes when it is told of replicas to place."""

    def __init__(self, number: int, caller: Caller, sequence: int = 0) -> None:
        self._number = number
        self._call = caller.agents.Connect(metadata=caller.metadata)
        self._sequence = sequence
        self._saying = asyncio.Lock()
        self.told = asyncio.Event()
        # The binding that it was told of last.
        self.binding = ""

    async def say(self, **message: Any) -> None:
        async with self._saying:
            await self._call.write(ConnectRequest(cluster=cluster_name(self._number), **message))

    async def report(self, *, has_room: bool) -> None:
        self._sequence += 1
        made = reports(self._number % FULL.distinct)[has_room]
        made = replace(made, sequence=self._sequence, snapshot_time=time.time())
        await self.say(report=message_of(cluster_name(self._number), made).report)

    async def listen(self) -> None:
        while (message := await self._call.read()) is not grpc.aio.EOF:
            kind = message.WhichOneof("message")
            asked = []
            if kind == "place_request":
                asked = [message.place_request]
            elif kind == "place_requests":
                asked = list(message.place_requests.requests)
            if asked:
                self.binding = asked[-1].binding
                self.told.set()
                replies = [PlaceReply(request_id=each.request_id) for each in asked]
                await self.say(place_replies=PlaceReplies(replies=replies))


def binding(number: int, wants: int) -> Any:
    want = number % wants
    request = {"cpu": MAX_CPU - want % FEW_WANTS, "memory": (1 + want // FEW_WANTS) * MIB}
    return workload_message(f"waits-{number}", request, uid="", priority=number % 7)


async def enqueue(endpoint: str, token: str, wants: int) -> float:
    """How long it takes until all wait."""
    batches = iter(range(0, WAITING, BATCH))
    async with calling(endpoint, token, CALL_SECONDS) as caller:

        async def keep_asking() -> None:
            for first in batches:
                numbers = range(first, min(first + BATCH, WAITING))
                items = [ScheduleBatchItem(binding=binding(number, wants)) for number in numbers]
                answer = await caller.ask("ScheduleBatch", items=items)
                assert all(each.queued for each in answer.results)

        began = time.monotonic()
        await asyncio.gather(*(keep_asking() for _ in range(BATCHES_AT_ONCE)))
        return time.monotonic() - began


async def place_one_by_one(agents: Sequence[Agent], rounds: int) -> list[float]:
    """From each report of room for one replica to the order to place it, in milliseconds. The first
    cluster stays full.
    """
    took = []
    for each in random.sample(list(agents[1:]), rounds):
        each.told.clear()
        began = time.monotonic()
        await each.report(has_room=True)
        await each.told.wait()
        took.append((time.monotonic() - began) * 1000)
        await asyncio.sleep(0.1)
    return took


def evaluations(web: str) -> int:
    """How many waiting bindings were tried so far; the page is made once a second at most."""
    time.sleep(1.1)
    with urlopen(f"{web}/metrics", timeout=CALL_SECONDS) as page:
        text = page.read().decode()
    found = re.search(r"^fedsched_queue_wakes_total ([0-9.]+)", text, re.MULTILINE)
    assert found is not None
    return int(float(found[1]))


async def first_in_queue(endpoint: str, token: str) -> list[str]:
    """Of those that wait, in order."""
    async with calling(endpoint, token, CALL_SECONDS) as caller:
        listed = await caller.ask("ListQueue", page_size=500)
        return [f"{each.namespace}/{each.name}" for each in listed.bindings]


async def restart(planes: Planes, credential: str) -> None:
    """Killed, and started again: when whoever comes first is placed, by one agent that dials."""
    (plane,) = planes.all
    before = await first_in_queue(plane.endpoint, planes.token)
    plane.kill()
    killed = time.monotonic()
    plane.start()
    serves, cpu = time.monotonic(), cpu_seconds(plane.pid)
    after = await first_in_queue(plane.endpoint, planes.token)
    async with calling(plane.endpoint, credential) as caller:
        agent = Agent(0, caller, 1000)
        await agent.say(hello=HELLO)
        await agent.report(has_room=True)
        listening = asyncio.create_task(agent.listen())
        await agent.told.wait()
        placed, cpu = time.monotonic(), cpu_seconds(plane.pid) - cpu
        listening.cancel()
    FIGURES.row("started again after a kill", serves - killed, "s")
    in_order = after == before and agent.binding == before[0]
    FIGURES.row(
        f"first of {WAITING:,} placed since then",
        placed - serves,
        "s",
        goal=at_most(5),
        detail="in order" if in_order else "NOT IN ORDER",
    )
    FIGURES.row("CPU of the control plane until then", cpu, "s")


async def rest(pid: int) -> float:
    """What part of a core the control plane takes while nothing happens."""
    await asyncio.sleep(1.0)
    before = cpu_seconds(pid)
    await asyncio.sleep(REST_SECONDS)
    return (cpu_seconds(pid) - before) / REST_SECONDS


async def measure(planes: Planes, credentials: Mapping[str, str], wants: int) -> None:
    (plane,), endpoint = planes.all, planes.endpoints[0]
    async with AsyncExitStack() as open_channels, asyncio.TaskGroup() as listening:
        agents, tasks = [], []
        for number, credential in enumerate(credentials.values()):
            caller = await open_channels.enter_async_context(calling(endpoint, credential))
            agents.append(Agent(number, caller))
            await agents[-1].say(hello=HELLO)
            await agents[-1].report(has_room=False)
            tasks.append(listening.create_task(agents[-1].listen()))
        await await_ready(planes, CLUSTERS)
        await measure_queueing(plane, planes.token, wants)
        await measure_placing(plane, agents, wants)
        for task in tasks:
            task.cancel()


async def measure_queueing(plane: Plane, token: str, wants: int) -> None:
    empty = await rest(plane.pid)
    before = cpu_seconds(plane.pid)
    seconds = await enqueue(plane.endpoint, token, wants)
    cpu_millis = (cpu_seconds(plane.pid) - before) / WAITING * 1000
    FIGURES.row("enqueueing one, CPU", cpu_millis, "ms")
    FIGURES.row("enqueued", WAITING / seconds, "/s", goal=at_least(1500))
    await asyncio.sleep(2.0)
    percent = 100 * (await rest(plane.pid) - empty)
    what = f"{WAITING:,} waiting, nothing changes, more of a core"
    FIGURES.row(what, percent, "%", goal=at_most(0.5))


async def measure_placing(plane: Plane, agents: Sequence[Agent], wants: int) -> None:
    rounds = ROUNDS if wants == FEW_WANTS else MANY_ROUNDS
    tried = await asyncio.to_thread(evaluations, plane.web)
    memory, cpu = resident_mebibytes(plane.pid), cpu_seconds(plane.pid)
    took = await place_one_by_one(agents, rounds)
    cpu_millis = (cpu_seconds(plane.pid) - cpu) / rounds * 1000
    memory = resident_mebibytes(plane.pid) - memory
    tried = await asyncio.to_thread(evaluations, plane.web) - tried
    median = statistics.median(took)
    FIGURES.row("room to first order, median", median, "ms", goal=at_most(100))
    FIGURES.row("room to first order, p99", percentile(took, 99), "ms", goal=at_most(300))
    FIGURES.row("evaluations for one placed", tried / rounds, goal=at_most(wants + 1))
    FIGURES.row("CPU for one report and one placed", cpu_millis, "ms")
    FIGURES.row(f"memory more after {rounds} reports", memory, "MiB")


def main() -> None:
    for wants in (FEW_WANTS, MANY_WANTS):
        with (
            own_folder("bench") as folder,
            federation(folder, 1, CLUSTERS) as (planes, _, credentials),
        ):
            FIGURES.section(
                f"{WAITING:,} bindings of {wants:,} wants wait for {CLUSTERS} full clusters"
            )
            asyncio.run(measure(planes, credentials, wants))
            if wants == FEW_WANTS:
                asyncio.run(restart(planes, next(iter(credentials.values()))))


if __name__ == "__main__":
    clean_up_when_ended()
    main()
