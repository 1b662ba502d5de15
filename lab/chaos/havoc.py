"""A federation under attack: everything runs, is killed and starts again, and is judged at the end.

Moments, victims and requests follow from the seed; how processes interleave does not.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import numpy as np

from federation.capacity.cluster_room import ReportId
from federation.store.engine import CONNECTION_ERRORS
from lab.callers import enrolled
from lab.chaos.agreement import check_told, disagreements
from lab.chaos.audit import Audit, opened
from lab.chaos.callers import ALIKE, BY_THE_QUEUE, NAMESPACE, Controller
from lab.chaos.glances import Row, in_order, lost, read_rows, wrong_rows
from lab.chaos.members import Member, end, living
from lab.chaos.slow_ledger import SeenReport
from lab.packed_clusters import GIB, Int64Array
from lab.planes import Planes, Postgres, durable_postgres, running_planes
from lab.verdicts import Result

# Nobody may become stale: agents dial again by themselves.
PACE = ("--heartbeat-seconds=10", "--report-seconds=10")
PAUSES = (1.0, 3.5)
JUDGE_SECONDS = 5.0
# Less than from one sweep of the queue to the next: nobody may need that.
PLACED_SECONDS = 150.0
MAKE_ROOM_SECONDS = 0.2
CLUSTERS, NODES = 5, 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much of everything, and for how long."""

    seconds: float = 120.0
    planes: int = 3
    callers: int = 8
    seed: int = 1


def wreak(folder: Path, plan: Plan) -> Result:
    def work(planes: Planes, postgres: Postgres) -> Coroutine[Any, Any, Result]:
        return _Havoc(planes, postgres, plan).run()

    return carried_out(folder, plan, work, PACE)


def carried_out(
    folder: Path,
    plan: Plan,
    work: Callable[[Planes, Postgres], Coroutine[Any, Any, Result]],
    pace: tuple[str, ...],
) -> Result:
    """What comes of the work, and what is wrong with how control planes ended and what they said.

    ``pace`` are settings of theirs.
    """
    with (
        durable_postgres(folder) as postgres,
        running_planes(folder, plan.planes, postgres.url, pace) as planes,
    ):
        result = asyncio.run(work(planes, postgres))
        codes = planes.stop()
    result.violations += [f"a control plane ended with {code}" for code in codes if code]
    for plane in planes.all:
        result.violations += plane.unexpected()
    return result


class _Havoc:
    """One run."""

    def __init__(self, planes: Planes, postgres: Postgres, plan: Plan) -> None:
        self._planes = planes
        self._postgres = postgres
        self._plan = plan
        self._random = random.Random(plan.seed)
        sent: dict[tuple[str, ReportId], SeenReport] = {}
        self._audit = Audit(sent=sent)
        self._members = {
            name: Member(name, nodes, sent, seed=plan.seed + place)
            for place, (name, nodes) in enumerate(member_nodes(plan.seed))
        }
        self._callers = [
            Controller(number, plan.seed, self._endpoints, planes.token, self._members)
            for number in range(plan.callers)
        ]
        self._violations: list[str] = []
        self._most_waiting = self._alike = 0
        self._crashes = 0
        self._recovering = asyncio.Lock()

    async def run(self) -> Result:
        planes, stopped = self._planes, asyncio.Event()
        credentials = await enrolled(planes.endpoints[0], planes.token, self._members)
        async with opened(self._postgres.url) as database:
            await self._audit.begin(database)
        began = time.monotonic()
        async with living(self._members, planes, credentials) as agents:
            calling = [asyncio.create_task(each.call_until(stopped)) for each in self._callers]
            judging = asyncio.create_task(self._keep_judging())
            try:
                await self._attack(began + self._plan.seconds, [*agents, *calling, judging])
                stopped.set()
                await asyncio.gather(*calling)
                await self._place_all()
            finally:
                stopped.set()
                await asyncio.gather(*calling, return_exceptions=True)
                await asyncio.gather(*(each.close() for each in self._callers))
                await end(*calling, judging)
        return await self._judge(time.monotonic() - began)

    def _endpoints(self) -> list[str]:
        return self._planes.endpoints

    async def _attack(self, until: float, watched: Sequence[asyncio.Task[None]]) -> None:
        """Kill one after the other; each starts again at once, beside what is killed next."""
        blows: list[asyncio.Task[None]] = []
        try:
            for kind in self._kinds():
                pause = self._random.uniform(*PAUSES)
                if time.monotonic() + pause > until or any(task.done() for task in watched):
                    break
                await asyncio.sleep(pause)
                blows.append(asyncio.create_task(self._strike(kind)))
        finally:
            await asyncio.gather(*blows)
        await asyncio.sleep(max(0.0, until - time.monotonic()))

    async def _strike(self, kind: str) -> None:
        standing = [each for each in self._planes.all if each.endpoint]
        if kind == "postgres":
            async with self._recovering:
                await asyncio.to_thread(self._postgres.restart)
        elif kind == "agent":
            self._crashes += 1
            self._random.choice(list(self._members.values())).crash()
        elif standing:
            await asyncio.to_thread(self._random.choice(standing).restart)
        with suppress(*CONNECTION_ERRORS):
            async with opened(self._postgres.url) as database:
                await self._check_waiting(database)

    def _kinds(self) -> Iterator[str]:
        yield from ("plane", "postgres", "agent")
        while True:
            yield self._random.choices(("plane", "postgres", "agent"), (60, 25, 15))[0]

    async def _keep_judging(self) -> None:
        """Now and then what was committed so far, so that little is left for the end."""
        while True:
            await asyncio.sleep(JUDGE_SECONDS)
            with suppress(*CONNECTION_ERRORS):
                async with opened(self._postgres.url) as database:
                    await self._audit.follow(database)

    async def _check_waiting(self, database: asyncpg.Connection) -> Sequence[Row]:
        """Nobody is lost who waits, and nobody waits for nothing."""
        before = self._told_to_wait()
        rows = await read_rows(database)
        told = dict(before & self._told_to_wait())
        self._violations += wrong_rows(rows) + lost(rows, told)
        self._most_waiting = max(self._most_waiting, sum(1 for row in rows if row.waits))
        return rows

    def _told_to_wait(self) -> set[tuple[str, str]]:
        """Bindings and decisions: what is asked for meanwhile is not in it before and after."""
        return {told for caller in self._callers for told in caller.told_to_wait.items()}

    async def _place_all(self) -> None:
        """Nobody asks for more, and others go: all that waits must be placed, in order."""
        await asyncio.gather(*(each.ask_alike() for each in self._callers))
        async with opened(self._postgres.url) as database:
            rows = await self._check_waiting(database)
            alike = [key for key in in_order(rows) if key.startswith(f"{NAMESPACE}/{ALIKE}")]
            deadline = time.monotonic() + PLACED_SECONDS
            while waiting := in_order(rows):
                if time.monotonic() > deadline:
                    self._violations.append(f"not placed after {PLACED_SECONDS:g} s: {waiting}")
                    break
                await asyncio.gather(*(each.make_room() for each in self._callers))
                await asyncio.sleep(MAKE_ROOM_SECONDS)
                rows = await self._check_waiting(database)
            await asyncio.gather(*(each.look() for each in self._callers))
            await self._audit.follow(database)
        self._alike = len(alike)
        entries = self._audit.placed
        placed = sorted(entries.keys() & alike, key=entries.__getitem__)
        if placed != alike:
            self._violations.append(f"of equal wants {alike} waited, placed were {placed}")

    async def _judge(self, lasted: float) -> Result:
        async with opened(self._postgres.url) as database:
            standing = await self._audit.finish(database)
        found = await disagreements(self._planes.endpoints, self._planes.token, standing)
        callers, audit = self._callers, self._audit
        violations = [*found, *(each for caller in callers for each in caller.violations)]
        violations += [*self._violations, *audit.violations]
        violations += check_told(callers, standing.decisions, standing.bindings, standing.decided)
        told = [each for caller in callers for each in caller.acknowledged]
        counts: dict[str, float] = {
            "seconds": round(lasted),
            "control planes killed": sum(each.kills for each in self._planes.all),
            "PostgreSQL killed": self._postgres.kills,
            "agents restarted": self._crashes,
            "streams of agents": sum(each.streams for each in self._members.values()),
            "reports": len(audit.sent),
            "reports with echoes": sum(1 for each in audit.sent.values() if each.echoes),
            "answers": len(told),
            "placed": sum(1 for each in told if each.clusters),
            "placed by the queue": sum(1 for each in told if each.key == BY_THE_QUEUE),
            "most that waited": self._most_waiting,
            "equal wants that waited": self._alike,
            "not placed": sum(1 for each in told if not each.clusters),
            "refused calls": sum((each.refused for each in callers), Counter()).total(),
            "seconds of the longest call": max(each.longest_seconds for each in callers),
            "never answered": sum(len(each.unknown) for each in callers),
            "decisions stored": len(standing.decisions),
            "promises checked": audit.checked,
            "over-committed reports": audit.overcommitted,
        }
        return Result(counts=counts, violations=violations)


def member_nodes(seed: int) -> Iterator[tuple[str, Int64Array]]:
    """Small ones, so that they fill up: CPU, memory, pods, storage, GPUs by node."""
    choices = np.random.default_rng(seed)
    for number in range(CLUSTERS):
        cores = choices.choice([2, 4, 8, 16], NODES)
        yield (
            f"member{number + 1}",
            np.stack(
                [
                    cores * 1000,
                    cores * 4 * GIB,
                    np.full(NODES, 30),
                    np.full(NODES, 100 * GIB),
                    np.zeros(NODES),
                ]
            ).astype(np.int64),
        )
