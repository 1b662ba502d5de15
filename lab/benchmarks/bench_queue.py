"""What waits for room: how fast it queues, how soon it is placed, and what it costs at rest.

100 full clusters, and 10,000 bindings of 50 wants that wait; PostgreSQL writes through to the disk.
Then one cluster after the other reports room for one replica; at last the control plane is killed,
and starts again. Prints figures beside their goals; must not judge anything else.
"""

from __future__ import annotations

import asyncio
import random
import re
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import grpc

from federation.codec.bindings import binding_to_message
from federation.codec.reports import report_to_message
from federation.model.cluster import CapacityReport, NodeSummary, ResourceSummary
from federation.model.placement import Binding, Placement, ReplicaScheduling, SchedulingType
from federation.model.workload import ReplicaRequirements
from federation.v1.agents_pb2 import ConnectRequest, PlaceReplies, PlaceReply
from federation.v1.agents_pb2_grpc import AgentsStub
from federation.v1.scheduling_pb2 import ListQueueRequest, ScheduleBatchItem, ScheduleBatchRequest
from federation.v1.scheduling_pb2_grpc import SchedulingStub
from lab.benchmarks.measuring import chosen, cpu_seconds, percentile, show
from lab.benchmarks.members import CALL_SECONDS, HELLO, await_ready, cluster_name, federation
from lab.chaos.members import CONNECTION_OF_ITS_OWN
from lab.chaos.planes import Planes
from lab.ending import clean_up_when_ended
from lab.services import one_node

CLUSTERS, WANTS = 100, 50
WAITING = chosen(10_000, quick=1_000)
ROUNDS = chosen(CLUSTERS - 1, quick=10)
REST_SECONDS = chosen(10.0, quick=2.0)
BATCH, BATCHES_AT_ONCE = 500, 2
# What the largest of the replicas asks for; the smallest asks for one less for each other want.
MOST_CPU = 1000
MEMORY, PODS = 1 << 40, 100_000
DYNAMIC = ReplicaScheduling(type=SchedulingType.DIVIDED, dynamic=True)


def report(number: int, sequence: int, free_cpu: int) -> Any:
    """A cluster of one node, with so much of it free."""
    free = {"cpu": free_cpu, "memory": MEMORY, "pods": PODS}
    made = CapacityReport(
        epoch=1,
        sequence=sequence,
        snapshot_time=time.time(),
        summary=ResourceSummary(allocatable=free, allocated=dict.fromkeys(free, 0)),
        nodes=NodeSummary(total=1, ready=1, graded=1),
        pools=one_node(free),
        content_hash=f"{number}-{sequence}",
    )
    return report_to_message(made)


class Agent:
    """A full cluster, whose agent notes when it is told of replicas to place."""

    def __init__(self, number: int, call: Any, sequence: int = 0) -> None:
        self._number = number
        self._call = call
        self._sequence = sequence
        self._saying = asyncio.Lock()
        self.told = asyncio.Event()
        # The binding that it was told of last.
        self.binding = ""

    async def say(self, **message: Any) -> None:
        async with self._saying:
            await self._call.write(ConnectRequest(cluster=cluster_name(self._number), **message))

    async def report(self, free_cpu: int) -> None:
        self._sequence += 1
        await self.say(report=report(self._number, self._sequence, free_cpu))

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


def binding(number: int) -> Any:
    want = number % WANTS
    return binding_to_message(
        Binding(
            namespace="bench",
            name=f"waits-{number}",
            replicas=1,
            priority=number % 7,
            requirements=ReplicaRequirements(request={"cpu": MOST_CPU - want}),
            placement=Placement(replica_scheduling=DYNAMIC),
        )
    )


async def enqueue(endpoint: str, token: str) -> float:
    """How long it takes until all wait."""
    metadata = (("authorization", f"Bearer {token}"),)
    batches = iter(range(0, WAITING, BATCH))
    async with grpc.aio.insecure_channel(endpoint) as channel:
        stub: Any = SchedulingStub(channel)

        async def keep_asking() -> None:
            for first in batches:
                numbers = range(first, min(first + BATCH, WAITING))
                items = [ScheduleBatchItem(binding=binding(number)) for number in numbers]
                request = ScheduleBatchRequest(items=items)
                answer = await stub.ScheduleBatch(request, metadata=metadata, timeout=CALL_SECONDS)
                assert all(each.queued for each in answer.results)

        began = time.monotonic()
        await asyncio.gather(*(keep_asking() for _ in range(BATCHES_AT_ONCE)))
        return time.monotonic() - began


async def place_one_by_one(agents: Sequence[Agent]) -> list[float]:
    """From each report of room for one replica to the order to place it, in milliseconds. The first
    cluster stays full.
    """
    took = []
    for each in random.sample(list(agents[1:]), ROUNDS):
        each.told.clear()
        began = time.monotonic()
        await each.report(MOST_CPU)
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
    metadata = (("authorization", f"Bearer {token}"),)
    async with grpc.aio.insecure_channel(endpoint) as channel:
        stub: Any = SchedulingStub(channel)
        asked = ListQueueRequest(page_size=500)
        listed = await stub.ListQueue(asked, metadata=metadata, timeout=CALL_SECONDS)
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
    async with grpc.aio.insecure_channel(plane.endpoint, CONNECTION_OF_ITS_OWN) as channel:
        stub: Any = AgentsStub(channel)
        agent = Agent(0, stub.Connect(metadata=(("authorization", f"Bearer {credential}"),)), 1000)
        await agent.say(hello=HELLO)
        await agent.report(MOST_CPU)
        listening = asyncio.create_task(agent.listen())
        await agent.told.wait()
        placed, cpu = time.monotonic(), cpu_seconds(plane.pid) - cpu
        listening.cancel()
    show("started again after a kill", f"{serves - killed:.1f} s")
    in_order = after == before and agent.binding == before[0]
    seconds = placed - serves
    show(
        f"first of {WAITING} placed since then",
        f"{seconds:.1f} s",
        goal="<= 5 s, in order",
        kept=seconds <= 5 and in_order,
    )
    show("CPU of the control plane until then", f"{cpu:.1f} s")


async def rest(pid: int) -> float:
    """What part of a core the control plane takes while nothing happens."""
    await asyncio.sleep(1.0)
    before = cpu_seconds(pid)
    await asyncio.sleep(REST_SECONDS)
    return (cpu_seconds(pid) - before) / REST_SECONDS


async def measure(planes: Planes, credentials: Mapping[str, str]) -> None:
    (plane,), endpoint = planes.all, planes.endpoints[0]
    async with AsyncExitStack() as open_channels, asyncio.TaskGroup() as listening:
        agents, tasks = [], []
        for number, credential in enumerate(credentials.values()):
            channel = await open_channels.enter_async_context(
                grpc.aio.insecure_channel(endpoint, CONNECTION_OF_ITS_OWN)
            )
            stub: Any = AgentsStub(channel)
            call = stub.Connect(metadata=(("authorization", f"Bearer {credential}"),))
            agents.append(Agent(number, call))
            await agents[-1].say(hello=HELLO)
            await agents[-1].report(0)
            tasks.append(listening.create_task(agents[-1].listen()))
        await await_ready(planes, CLUSTERS)
        empty = await rest(plane.pid)
        before = cpu_seconds(plane.pid)
        seconds = await enqueue(endpoint, planes.token)
        per_second = WAITING / seconds
        each = (cpu_seconds(plane.pid) - before) / WAITING * 1000
        show("enqueueing one", f"{each:.2f} ms of CPU")
        show("enqueued", f"{per_second:.0f}/s", goal=">= 1500/s", kept=per_second >= 1500)
        await asyncio.sleep(2.0)
        full = await rest(plane.pid) - empty
        show(
            f"{WAITING} waiting, nothing changes",
            f"{full * 100:.2f} % of a core",
            goal="<= 0.5 % more",
            kept=full <= 0.005,
        )
        tried = await asyncio.to_thread(evaluations, plane.web)
        took = await place_one_by_one(agents)
        tried = await asyncio.to_thread(evaluations, plane.web) - tried
        median, worst = statistics.median(took), percentile(took, 99)
        show(
            "room to first order, median", f"{median:.0f} ms", goal="<= 100 ms", kept=median <= 100
        )
        show("room to first order, p99", f"{worst:.0f} ms", goal="<= 300 ms", kept=worst <= 300)
        each = tried / ROUNDS
        show(
            "evaluations for one placed",
            f"{each:.1f}",
            goal=f"<= {WANTS} + 1",
            kept=each <= WANTS + 1,
        )
        for task in tasks:
            task.cancel()
    await restart(planes, next(iter(credentials.values())))


def main() -> None:
    with (
        tempfile.TemporaryDirectory(prefix="fedsched-bench-", dir="/var/tmp") as folder,
        federation(Path(folder), 1, CLUSTERS) as (planes, _, credentials),
    ):
        print(f"{WAITING} bindings of {WANTS} wants wait for {CLUSTERS} full clusters")
        asyncio.run(measure(planes, credentials))


if __name__ == "__main__":
    clean_up_when_ended()
    main()
