"""What a control plane costs while a thousand agents are connected and speak at its pace.

Every agent has a connection of its own; one heartbeat in ten comes with a changed report. Prints
figures; must not judge them.

    bench_agents.py [AGENTS] [SECONDS]
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
from collections import Counter
from typing import Any

import asyncpg

from federation.v1.agents_pb2 import Heartbeat
from lab.benchmarks.measuring import OPTIONS, arguments, chosen
from lab.benchmarks.members import PLAN, Agent, is_ready
from lab.callers import Caller, calling, enrolled
from lab.databases import connect
from lab.fleet import cluster_name, report_of
from lab.planes import Planes, Postgres, durable_postgres, running_planes
from lab.processes import cpu_seconds
from lab.programs import clean_up_when_ended, own_folder
from lab.verdicts import Verdicts

AGENTS, SECONDS = chosen((1000, 60.0), quick=(30, 2.0))
REPORT_EVERY = 10
FIGURES = Verdicts("bench_agents")
COMMITS = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
# All reports of one transaction have one time.
BATCHES = "SELECT count(DISTINCT received_at) FROM cluster_capacity"


class PacedAgent(Agent):
    """Beats at the pace it was told, reports now and then, and counts what it hears."""

    def __init__(self, number: int, endpoint: str, credential: str, heard: Counter[str]) -> None:
        super().__init__(number, endpoint, credential, complain=lambda _: heard.update(["ended"]))
        self._heard = heard
        self._pace_seconds = 10.0

    async def _hear(self, call: Any, message: Any) -> None:
        kind = message.WhichOneof("message")
        self._heard[kind] += 1
        if kind == "welcome":
            self._pace_seconds = message.welcome.heartbeat_seconds

    async def _speak(self, call: Any) -> None:
        sequence, beat = 1, random.randrange(REPORT_EVERY)
        content_hash = await self._report(call, sequence)
        await asyncio.sleep(random.uniform(0, self._pace_seconds))
        while True:
            beat += 1
            if beat % REPORT_EVERY == 0:
                sequence += 1
                content_hash = await self._report(call, sequence)
            told = Heartbeat(sequence=sequence, content_hash=content_hash)
            told.agent_time.GetCurrentTime()
            await self._say(call, heartbeat=told)
            self._heard["beats"] += 1
            await asyncio.sleep(self._pace_seconds)

    async def _report(self, call: Any, sequence: int) -> str:
        """A report of 500 nodes, each unlike the one before it; its hash."""
        return await self._say_report(call, report_of(self._number + sequence, sequence, PLAN))


async def live_all(endpoint: str, credentials: dict[str, str]) -> None:
    """All agents, until standard input ends; prints what they heard whenever a line comes in."""
    heard: Counter[str] = Counter()
    agents = [
        asyncio.create_task(PacedAgent(number, endpoint, credential, heard).live())
        for number, credential in enumerate(credentials.values())
    ]
    while await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps(heard), flush=True)
    for agent in agents:
        agent.cancel()
    await asyncio.gather(*agents, return_exceptions=True)


async def cost(plane: int, database: asyncpg.Connection) -> dict[str, float]:
    """CPU seconds of the control plane and of PostgreSQL, and the commits until now."""
    backends = await database.fetch("SELECT pid FROM pg_stat_activity")
    return {
        "plane": cpu_seconds(plane),
        "postgres": cpu_seconds(*(row["pid"] for row in backends)),
        "commits": await database.fetchval(COMMITS),
    }


async def connected(caller: Caller) -> tuple[int, int]:
    """How many clusters are connected, and how many Ready."""
    listed = await caller.clusters_listed()
    return sum(each.status.agent.connected for each in listed), sum(map(is_ready, listed))


def counted(agents: subprocess.Popen[str]) -> Counter[str]:
    assert agents.stdin is not None
    assert agents.stdout is not None
    print(file=agents.stdin, flush=True)
    return Counter(json.loads(agents.stdout.readline()))


async def measure(planes: Planes, postgres: Postgres, count: int, seconds: float) -> None:
    (plane,), token = planes.all, planes.token
    database = await connect(postgres.url)
    async with calling(plane.endpoint, token) as caller:
        began = time.monotonic()
        names = [cluster_name(number) for number in range(count)]
        credentials = await enrolled(plane.endpoint, token, names)
        FIGURES.section(f"{count:,} agents on streams of their own")
        FIGURES.row("all joined after", time.monotonic() - began, "s")
        program = [sys.executable, "-m", "lab.benchmarks.bench_agents", "--agents", plane.endpoint]
        agents = subprocess.Popen(  # noqa: ASYNC220 - our own program
            [*program, *OPTIONS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert agents.stdin is not None
        print(json.dumps(credentials), file=agents.stdin, flush=True)
        began = time.monotonic()
        while (await connected(caller))[0] < count:  # noqa: ASYNC110 - asked for
            await asyncio.sleep(1)
        detail = f"their first reports in {await database.fetchval(BATCHES)} transactions"
        FIGURES.row("all connected after", time.monotonic() - began, "s", detail=detail)
        # A round of heartbeats, so that the first reports are written and the pace is told.
        await asyncio.sleep(2 * count / 50)
        before, heard_before = await cost(plane.pid, database), counted(agents)
        began = time.monotonic()
        await asyncio.sleep(seconds)
        after, heard_after = await cost(plane.pid, database), counted(agents)
        lasted = time.monotonic() - began
        there, ready = await connected(caller)
        agents.stdin.close()
        agents.wait()
    await database.close()
    heard = heard_after - heard_before
    spent = {name: after[name] - before[name] for name in after}
    FIGURES.row("heartbeats", heard["beats"] / lasted, "/s", detail=f"over {lasted:.0f} s")
    commits = f"{spent['commits']} commits in all"
    FIGURES.row("reports stored", heard["ack"] / lasted, "/s", detail=commits)
    FIGURES.row("control plane, of one core", 100 * spent["plane"] / lasted, "%")
    FIGURES.row("PostgreSQL's servers, of one core", 100 * spent["postgres"] / lasted, "%")
    ended = f"streams ended {heard_after['ended']}"
    FIGURES.row("asked to send again", heard["resync"], detail=ended)
    FIGURES.row("connected", there, detail=f"{ready} of {count} Ready")


def main(count: int, seconds: float) -> None:
    with (
        own_folder("bench") as folder,
        durable_postgres(folder) as postgres,
        running_planes(folder, 1, postgres.url) as planes,
    ):
        asyncio.run(measure(planes, postgres, count, seconds))


if __name__ == "__main__":
    clean_up_when_ended()
    if sys.argv[1:2] == ["--agents"]:
        asyncio.run(live_all(sys.argv[2], json.loads(sys.stdin.readline())))
    else:
        given = arguments()
        main(int(given[0]) if given else AGENTS, float(given[1]) if len(given) > 1 else SECONDS)
