"""What a control plane costs while a thousand agents are connected and speak at its pace.

Every agent has a connection of its own; one heartbeat in ten comes with a changed report. Prints
figures; must not judge them.

    bench_agents.py [AGENTS] [SECONDS]
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import grpc
from google.protobuf.timestamp_pb2 import Timestamp
from sqlalchemy import make_url

from federation.embedded_postgres.binaries import find_binaries
from federation.embedded_postgres.server import EmbeddedPostgres
from federation.store.migrate import upgrade
from federation.v1.agents_pb2 import ConnectRequest, Heartbeat, Hello, Report
from federation.v1.agents_pb2_grpc import AgentsStub
from federation.v1.clusters_pb2 import (
    CreateJoinTokenRequest,
    EnrollClusterRequest,
    ListClustersRequest,
)
from federation.v1.clusters_pb2_grpc import ClustersStub
from lab.benchmarks.measuring import OPTIONS, arguments, chosen, cpu_seconds
from lab.benchmarks.members import PLAN
from lab.databases import connect
from lab.ending import clean_up_when_ended
from lab.fleet import cluster_name, message_of, report_of
from lab.servers import started
from lab.verdicts import Verdicts

AGENTS, SECONDS = chosen((1000, 60.0), quick=(30, 2.0))
ENROLLED_AT_ONCE = 32
REPORT_EVERY = 10
FIGURES = Verdicts("bench_agents")
ALONE = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """CPU seconds of a process and its children, and the database's commits until now."""

    server_seconds: float
    postgres_seconds: float
    commits: int


def report(cluster: str, number: int, sequence: int) -> Report:
    """A report of 500 nodes, each unlike the one before it."""
    return message_of(cluster, report_of(number + sequence, sequence, PLAN)).report


def now() -> Timestamp:
    moment = Timestamp()
    moment.GetCurrentTime()
    return moment


class SimulatedAgent:
    """One agent: greets, reports, beats at the pace it was told, and counts what it hears."""

    def __init__(
        self, number: int, endpoint: str, cluster: str, credential: str, heard: Counter[str]
    ) -> None:
        self._number = number
        self._content_hash = ""
        self._endpoint = endpoint
        self._cluster = cluster
        self._metadata = (("authorization", f"Bearer {credential}"),)
        self._heard = heard
        self._pace_seconds = 10.0
        self._sequence = 1

    async def live(self) -> None:
        async with grpc.aio.insecure_channel(self._endpoint, ALONE) as channel:
            stub: Any = AgentsStub(channel)
            call = stub.Connect(metadata=self._metadata)
            await self._say(call, hello=Hello(epoch=1, agent_version="bench", placer="none"))
            listening = asyncio.create_task(self._listen(call))
            speaking = asyncio.create_task(self._speak(call))
            try:
                await asyncio.wait({listening, speaking}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                listening.cancel()
                speaking.cancel()
                ended = await asyncio.gather(listening, speaking, return_exceptions=True)
                self._heard["ended"] += not all(
                    isinstance(each, asyncio.CancelledError) for each in ended
                )

    async def _report(self, call: Any) -> None:
        message = report(self._cluster, self._number, self._sequence)
        self._content_hash = message.content_hash
        await self._say(call, report=message)

    async def _say(self, call: Any, **message: Any) -> None:
        await call.write(ConnectRequest(cluster=self._cluster, **message))

    async def _listen(self, call: Any) -> None:
        while (message := await call.read()) is not grpc.aio.EOF:
            kind = message.WhichOneof("message")
            self._heard[kind] += 1
            if kind == "welcome":
                self._pace_seconds = message.welcome.heartbeat_seconds

    async def _speak(self, call: Any) -> None:
        await self._report(call)
        beat = random.randrange(REPORT_EVERY)
        await asyncio.sleep(random.uniform(0, self._pace_seconds))
        while True:
            beat += 1
            if beat % REPORT_EVERY == 0:
                self._sequence += 1
                await self._report(call)
            await self._say(
                call,
                heartbeat=Heartbeat(
                    agent_time=now(),
                    sequence=self._sequence,
                    content_hash=self._content_hash,
                ),
            )
            self._heard["beats"] += 1
            await asyncio.sleep(self._pace_seconds)


async def live_all(endpoint: str, credentials: dict[str, str]) -> None:
    """All agents, until standard input ends; prints what they heard whenever a line comes in."""
    heard: Counter[str] = Counter()
    agents = [
        asyncio.create_task(SimulatedAgent(number, endpoint, name, credential, heard).live())
        for number, (name, credential) in enumerate(credentials.items())
    ]
    while await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps(heard), flush=True)
    for agent in agents:
        agent.cancel()
    await asyncio.gather(*agents, return_exceptions=True)


async def enrolled(channel: grpc.aio.Channel, token: str, names: list[str]) -> dict[str, str]:
    stub: Any = ClustersStub(channel)
    admin = (("authorization", f"Bearer {token}"),)
    free = asyncio.Semaphore(ENROLLED_AT_ONCE)

    async def enroll(name: str) -> tuple[str, str]:
        async with free:
            made = await stub.CreateJoinToken(
                CreateJoinTokenRequest(cluster=name), metadata=admin, timeout=60
            )
            request = EnrollClusterRequest(cluster=name, token=made.token, cluster_uid=name)
            return name, (await stub.EnrollCluster(request, timeout=60)).credential

    return dict(await asyncio.gather(*map(enroll, names)))


async def cost(server: int, database: asyncpg.Connection) -> Cost:
    backends = await database.fetch("SELECT pid FROM pg_stat_activity")
    commits = await database.fetchval(
        "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
    )
    return Cost(
        server_seconds=cpu_seconds(server),
        postgres_seconds=cpu_seconds(*(row["pid"] for row in backends)),
        commits=commits,
    )


async def readiness(channel: grpc.aio.Channel, token: str) -> Counter[str]:
    stub: Any = ClustersStub(channel)
    found: Counter[str] = Counter()
    request = ListClustersRequest(page_size=1000)
    while True:
        metadata = (("authorization", f"Bearer {token}"),)
        page = await stub.ListClusters(request, metadata=metadata, timeout=60)
        for cluster in page.clusters:
            found[cluster.status.conditions[0].status] += 1
            found["connected"] += cluster.status.agent.connected
        if not page.next_page_token:
            return found
        request.page_token = page.next_page_token


def counted(agents: subprocess.Popen[str]) -> Counter[str]:
    assert agents.stdin is not None
    assert agents.stdout is not None
    print(file=agents.stdin, flush=True)
    return Counter(json.loads(agents.stdout.readline()))


async def measure(
    endpoint: str, token: str, server: int, database_url: str, count: int, seconds: float
) -> None:
    names = [cluster_name(number) for number in range(count)]
    database = await connect(database_url)
    async with grpc.aio.insecure_channel(endpoint) as channel:
        began = time.monotonic()
        credentials = await enrolled(channel, token, names)
        FIGURES.section(f"{count:,} agents on streams of their own")
        FIGURES.row("all joined after", time.monotonic() - began, "s")
        program = [
            sys.executable,
            "-m",
            "lab.benchmarks.bench_agents",
            "--agents",
            endpoint,
            *OPTIONS,
        ]
        agents = subprocess.Popen(  # noqa: ASYNC220 - our own program
            program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert agents.stdin is not None
        print(json.dumps(credentials), file=agents.stdin, flush=True)
        began = time.monotonic()
        while (await readiness(channel, token))["connected"] < count:  # noqa: ASYNC110 - asked for
            await asyncio.sleep(1)
        # All reports of one transaction have one time.
        batches = await database.fetchval(
            "SELECT count(DISTINCT received_at) FROM cluster_capacity"
        )
        lasted = time.monotonic() - began
        detail = f"their first reports in {batches} transactions"
        FIGURES.row("all connected after", lasted, "s", detail=detail)
        # A round of heartbeats, so that the first reports are written and the pace is told.
        await asyncio.sleep(2 * count / 50)
        before, heard_before = await cost(server, database), counted(agents)
        began = time.monotonic()
        await asyncio.sleep(seconds)
        after, heard_after = await cost(server, database), counted(agents)
        lasted = time.monotonic() - began
        found = await readiness(channel, token)
        agents.stdin.close()
        agents.wait()
    await database.close()
    heard = heard_after - heard_before
    commits = after.commits - before.commits
    server_share = (after.server_seconds - before.server_seconds) / lasted
    postgres_share = (after.postgres_seconds - before.postgres_seconds) / lasted
    FIGURES.row("heartbeats", heard["beats"] / lasted, "/s", detail=f"over {lasted:.0f} s")
    stored = heard["ack"] / lasted
    FIGURES.row("reports stored", stored, "/s", detail=f"{commits} commits in all")
    FIGURES.row("control plane, of one core", 100 * server_share, "%")
    FIGURES.row("PostgreSQL's servers, of one core", 100 * postgres_share, "%")
    detail = f"streams ended {heard_after['ended']}"
    FIGURES.row("asked to send again", heard["resync"], detail=detail)
    FIGURES.row("connected", found["connected"], detail=f"{found['True']} of {count} Ready")


def main(count: int, seconds: float) -> None:
    with tempfile.TemporaryDirectory(prefix="fedsched-bench-", dir="/var/tmp") as folder:
        binaries = find_binaries(None, os.environ.get("PATH", ""))
        postgres = EmbeddedPostgres(binaries, Path(folder) / "postgres")
        postgres.start()
        try:
            upgrade(postgres.url)
            arguments = ("--insecure", "--listen", "127.0.0.1:0", "--web-listen", "127.0.0.1:0")
            data = ("--data-dir", f"{folder}/state", "--log-level", "warning")
            with started(
                *arguments, *data, FEDERATION_DATABASE_URL=asyncpg_url(postgres)
            ) as server:
                endpoint = server.await_line(r"API +(\S+)")[1]
                token = Path(server.await_line(r"token +(\S+)")[1]).read_text().strip()
                pid = server.process.pid
                asyncio.run(measure(endpoint, token, pid, postgres.url, count, seconds))
        finally:
            postgres.discard()


def asyncpg_url(postgres: EmbeddedPostgres) -> str:
    return make_url(postgres.url).render_as_string(hide_password=False)


if __name__ == "__main__":
    clean_up_when_ended()
    if sys.argv[1:2] == ["--agents"]:
        asyncio.run(live_all(sys.argv[2], json.loads(sys.stdin.readline())))
    else:
        given = arguments()
        main(int(given[0]) if given else AGENTS, float(given[1]) if len(given) > 1 else SECONDS)
