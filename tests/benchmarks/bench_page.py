"""What the page costs: each view of a fleet of 1,000 clusters with 50,000 bindings, 5,000 of which
wait, and 50 open pages while clusters change.

Prints figures beside their goals; must not judge anything else.
"""

from __future__ import annotations

import asyncio
import socket
import statistics
import tempfile
import time
from collections.abc import Sequence
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import grpc

from federation.model.waiting import WaitState
from federation.services.waiting_ports import NewWait
from federation.store.engine import create_engine
from federation.store.postgres import PostgresStore
from federation.v1.clusters_pb2 import CordonClusterRequest
from federation.v1.clusters_pb2_grpc import ClustersStub
from federation.v1.scheduling_pb2 import ListDecisionsRequest
from federation.v1.scheduling_pb2_grpc import SchedulingStub
from tests.benchmarks.bench_fleet_memory import PATIENT, cluster_name, fill, parts
from tests.benchmarks.measuring import TELLING_STALLS, chosen, cpu_seconds, show, show_stalls
from tests.benchmarks.members import CALL_SECONDS
from tests.chaos.planes import Plane, durable_postgres

CLUSTERS = chosen(1000, quick=100)
BINDINGS = chosen(50_000, quick=500)
WAITING = chosen(5000, quick=100)
ROUNDS = chosen(15, quick=3)
OPEN_PAGES = 50
OPEN_SECONDS = chosen(20.0, quick=2.0)
CHANGE_EVERY_SECONDS = 0.5
VIEW_GOAL_MILLIS, STALL_GOAL_MILLIS = 100.0, 50.0
# Of a core, by all open pages together.
OPEN_GOAL_PERCENT = 10.0


async def queue_up(url: str, count: int) -> None:
    """So many of the bindings wait."""
    engine = create_engine(url)
    store = PostgresStore(engine)
    async with store.reading() as read:
        found = await read.bindings.page("", None, count)
    for some in parts(found):
        async with store.transaction() as tx:
            stored = await tx.bindings.find([(each.namespace, each.name) for each in some])
            waits = [
                NewWait(
                    binding_id=each.id,
                    namespace=each.binding.namespace,
                    name=each.binding.name,
                    priority=0,
                    remainder=2,
                    short_of="cpu in 900 clusters",
                    state=WaitState.GATED,
                    gate="bench",
                )
                for each in stored.values()
            ]
            for each in waits:
                await tx.waiting.gate(each)
    await engine.dispose()


async def a_decision(endpoint: str, token: str) -> str:
    metadata = (("authorization", f"Bearer {token}"),)
    async with grpc.aio.insecure_channel(endpoint) as channel:
        stub: Any = SchedulingStub(channel)
        request = ListDecisionsRequest(page_size=1)
        answer = await stub.ListDecisions(request, metadata=metadata, timeout=CALL_SECONDS)
        return str(answer.decisions[0].id)


def show_views(port: int, pid: int, views: Sequence[str]) -> None:
    """How long each takes to be answered, and how much CPU of it is ours."""
    for view in views:
        millis, size = [], 0
        before = cpu_seconds(pid)
        for _ in range(ROUNDS):
            began = time.perf_counter()
            size = max(size, len(got(port, view)))
            millis.append((time.perf_counter() - began) * 1000)
        cpu = (cpu_seconds(pid) - before) * 1000 / ROUNDS
        took = statistics.median(millis)
        show(
            view.partition("&")[0][:34],
            f"{took:.0f} ms",
            goal=f"<= {VIEW_GOAL_MILLIS:g} ms",
            kept=took <= VIEW_GOAL_MILLIS,
        )
        print(f"    {cpu:.0f} ms of CPU, {size / 1024:.0f} KiB")


def got(port: int, path: str) -> bytes:
    connection = HTTPConnection("127.0.0.1", port, timeout=CALL_SECONDS)
    connection.request("GET", path)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    assert answer.status == 200, (path, answer.status, body[:500])
    return body


async def open_pages(port: int, pages: int) -> None:
    """Each loads itself anew when it is told to."""

    async def keep_open(number: int) -> None:
        path = ("/ui/", f"/ui/cluster?name={cluster_name(number)}", "/ui/queue")[number % 3]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /ui/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        try:
            while line := await reader.readline():
                if line.startswith(b"event: changed"):
                    await asyncio.to_thread(got, port, path)
        finally:
            writer.close()

    await asyncio.gather(*map(keep_open, range(pages)))


async def change(endpoint: str, token: str) -> None:
    metadata = (("authorization", f"Bearer {token}"),)
    async with grpc.aio.insecure_channel(endpoint) as channel:
        stub: Any = ClustersStub(channel)
        for number in range(10**6):
            request = CordonClusterRequest(name=cluster_name(1), cordoned=number % 2 == 0)
            await stub.CordonCluster(request, metadata=metadata, timeout=CALL_SECONDS)
            await asyncio.sleep(CHANGE_EVERY_SECONDS)


async def share_of_a_core(plane: Plane, token: str, port: int, pages: int) -> float:
    """While clusters change, in percent."""
    tasks = [asyncio.create_task(change(plane.endpoint, token))]
    if pages:
        tasks.append(asyncio.create_task(open_pages(port, pages)))
    await asyncio.sleep(1.0)
    before = cpu_seconds(plane.pid)
    await asyncio.sleep(OPEN_SECONDS)
    share = 100 * (cpu_seconds(plane.pid) - before) / OPEN_SECONDS
    for each in tasks:
        assert not each.done(), each.result()
        each.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return share


def main() -> None:
    with (
        tempfile.TemporaryDirectory(prefix="fedsched-bench-", dir="/var/tmp") as folder,
        durable_postgres(Path(folder)) as postgres,
        socket.create_server(("127.0.0.1", 0)) as chosen_port,
    ):
        asyncio.run(fill(postgres.url, CLUSTERS, BINDINGS))
        asyncio.run(queue_up(postgres.url, WAITING))
        print(f"{CLUSTERS:,} clusters, {BINDINGS:,} bindings, of which {WAITING:,} wait")
        state, port = Path(folder) / "state", chosen_port.getsockname()[1]
        chosen_port.close()
        arguments = (*PATIENT, *TELLING_STALLS, f"--web-listen=127.0.0.1:{port}")
        plane = Plane(0, postgres.url, state, arguments)
        plane.start()
        token = (state / "admin.token").read_text(encoding="ascii").strip()
        decision = asyncio.run(a_decision(plane.endpoint, token))
        plane.newest_lines()
        show_views(
            port,
            plane.pid,
            [
                *("/ui/", "/ui/?sort=fullest", f"/ui/cluster?name={cluster_name(1)}"),
                *("/ui/bindings", "/ui/binding?namespace=team-00&name=workload-000000"),
                *("/ui/queue", f"/ui/decision?id={decision}", "/ui/ask?cpu=1&memory=1Gi"),
                *("/ui/plans", "/ui/about", "/ui/gangs", "/ui/compare", "/ui/what-if"),
            ],
        )
        show_stalls(plane.newest_lines(), STALL_GOAL_MILLIS)
        without = asyncio.run(share_of_a_core(plane, token, port, 0))
        share = asyncio.run(share_of_a_core(plane, token, port, OPEN_PAGES)) - without
        show(
            f"{OPEN_PAGES} open pages",
            f"{share:.1f} % of a core",
            goal=f"<= {OPEN_GOAL_PERCENT:g} %",
            kept=share <= OPEN_GOAL_PERCENT,
        )
        plane.stop()


if __name__ == "__main__":
    main()
