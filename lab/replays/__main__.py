"""Decisions made under load, with failures among them, and all of them made again.

Callers schedule on several control planes while a cluster is lost, urgent bindings preempt others,
and a control plane and PostgreSQL are killed. Then everything is replayed: asked of a control plane
one by one, from an exported trace by a program that knows no database, and the same once everything
was started anew. A what-if of that trace with nothing changed has to come to the same, too. Must
not judge promises: ``lab.chaos`` does. Exits with 1 where one is not equal.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc

from federation.codec.bindings import binding_to_message
from federation.model.placement import Binding
from federation.store.engine import CONNECTION_ERRORS
from federation.v1.scheduling_pb2 import ScheduleBatchItem
from lab.callers import Caller, calling, enrolled
from lab.chaos.agreement import asked, exported
from lab.chaos.audit import opened
from lab.chaos.callers import DEADLINE_SECONDS, RETRIED, SCHEDULINGS, Controller
from lab.chaos.glances import LOST, preempted
from lab.chaos.havoc import Plan, carried_out, member_nodes
from lab.chaos.losses import PACE
from lab.chaos.members import Member, end, living
from lab.chaos.preempting import filler, urgent
from lab.chaos.slow_ledger import SeenReport
from lab.patience import PATIENCE_SECONDS
from lab.planes import Planes, Postgres
from lab.programs import clean_up_when_ended, own_folder, parser
from lab.verdicts import Result, Verdicts
from lab.workloads import workload

# Few who change all the time what they ask for, and some who pour in much that is small.
CALLERS, POURERS = 4, 4
POURED_AT_ONCE, POURED_GONE = 40, 2
RAIN, POURED = "rain", {"cpu": 100, "memory": 64 << 20}
LOOK_SECONDS = 0.2
# A longer storm than that has stopped.
MOST_SECONDS = 3600.0
COUNT = "SELECT count(*) FROM decision"
MOVED = """
    SELECT count(*) FROM decision
    WHERE array_to_string(triggers, ' ') LIKE '%fedsched.io/unreachable%'
"""
IDS = "SELECT id::text FROM decision WHERE created_at < to_timestamp($1) ORDER BY created_at, id"
# More than is left beside all others.
URGENT_PRIORITY, URGENT_REPLICAS = 10, 80
# How many replays control planes are asked for one by one.
ASKED_ALONE = 500
# How many replays are asked for at once of a control plane.
ASKED_AT_ONCE = 4
# How it may end that a decision is not made again: it only says what a binding lost.
NO_INPUTS = "notKept"
# What is asked for once is not asked again.
LEFT = RETRIED | {grpc.StatusCode.NOT_FOUND, grpc.StatusCode.DEADLINE_EXCEEDED}
WRONG_ENDS = ("different", "forgotten", "plugin")


@dataclass(frozen=True, slots=True, kw_only=True)
class Storm:
    """How many decisions at least, and on how many control planes."""

    decisions: int = 10_000
    planes: int = 2
    seed: int = 1


def replay_storm(folder: Path, storm: Storm) -> Result:
    def work(planes: Planes, postgres: Postgres) -> Coroutine[Any, Any, Result]:
        return _Replays(folder, planes, postgres, storm).run()

    return carried_out(folder, Plan(planes=storm.planes, seed=storm.seed), work, PACE)


class _Replays:
    """One run."""

    def __init__(self, folder: Path, planes: Planes, postgres: Postgres, storm: Storm) -> None:
        self._folder = folder
        self._planes = planes
        self._postgres = postgres
        self._storm = storm
        self._random = random.Random(storm.seed)
        sent: dict[Any, SeenReport] = {}
        self._members = {
            name: Member(name, nodes, sent, seed=storm.seed + place)
            for place, (name, nodes) in enumerate(member_nodes(storm.seed))
        }
        self._callers = [
            Controller(number, storm.seed, self._endpoints, planes.token, self._members)
            for number in range(CALLERS)
        ]
        self._asking: dict[str, Caller] = {}
        self._counts: dict[str, float] = {}
        self._violations: list[str] = []

    async def run(self) -> Result:
        began = time.monotonic()
        await self._rage()
        self._counts["seconds of the storm"] = round(time.monotonic() - began)
        async with opened(self._postgres.url) as database:
            self._counts["decisions"] = await database.fetchval(COUNT)
            self._counts["moved off a lost cluster"] = await database.fetchval(MOVED)
            self._counts["replicas preempted"] = await preempted(database)
            until = int(await database.fetchval("SELECT floor(extract(epoch FROM now()))"))
            ids = [row["id"] for row in await database.fetch(IDS, until)]
        began = time.monotonic()
        await self._ask(self._random.sample(ids, min(ASKED_ALONE, len(ids))))
        first = await asyncio.to_thread(self._from_trace, "before", until)
        await asyncio.to_thread(self._what_if, "before")
        await asyncio.to_thread(self._postgres.restart)
        for plane in self._planes.all:
            await asyncio.to_thread(plane.restart)
        again = await asyncio.to_thread(self._from_trace, "after", until)
        self._counts["seconds of the replays"] = round(time.monotonic() - began)
        if first.get("sha256") != again.get("sha256"):
            self._violations.append("after the restart the replays come to something else")
        if first.get("equal", 0) + first.get(NO_INPUTS, 0) != len(ids):
            self._violations.append(f"of {len(ids)} decisions came {first}")
        return Result(counts=self._counts, violations=self._violations)

    def _endpoints(self) -> list[str]:
        return self._planes.endpoints

    async def _rage(self) -> None:
        """Until there are so many decisions, and every kind of failure was there."""
        planes, stopped = self._planes, asyncio.Event()
        credentials = await enrolled(planes.endpoints[0], planes.token, self._members)
        under_way: list[asyncio.Task[None]] = []
        async with living(self._members, planes, credentials):
            try:
                # Nobody could make room for the urgent without it.
                await self._fill()
                work = [each.call_until(stopped) for each in self._callers]
                work += [self._pour(number, stopped) for number in range(POURERS)]
                under_way += map(asyncio.create_task, [*work, self._press(stopped)])
                async with asyncio.timeout(MOST_SECONDS):
                    await self._fail()
                    await self._until(COUNT, self._storm.decisions)
            finally:
                stopped.set()
                await asyncio.gather(*under_way, return_exceptions=True)
                await asyncio.gather(*(each.close() for each in self._callers))
                await asyncio.gather(*(each.channel.close() for each in self._asking.values()))
                await end(*under_way)

    async def _fail(self) -> None:
        """A cluster is lost and comes back, and who decides and who stores is killed meanwhile."""
        await self._until(COUNT, self._storm.decisions // 4)
        member = self._random.choice(list(self._members.values()))
        member.fall_silent()
        await self._until(f"SELECT count(*) FROM ({LOST}) AS lost", 1)
        await self._until(MOVED, 1)
        await asyncio.to_thread(self._random.choice(self._planes.all).restart)
        member.speak()
        await self._until(COUNT, self._storm.decisions // 2)
        await asyncio.to_thread(self._postgres.restart)
        await self._until("SELECT coalesce(sum(replicas), 0) FROM preemption", 1)

    async def _until(self, query: str, least: int) -> None:
        while True:
            with suppress(*CONNECTION_ERRORS):
                async with opened(self._postgres.url) as database:
                    if await database.fetchval(query) >= least:
                        return
            await asyncio.sleep(LOOK_SECONDS)

    async def _fill(self) -> None:
        """Place what others may take replicas of, however often a call is lost."""
        asked = {"binding": binding_to_message(filler(0))}
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await self._call("Schedule", **asked) is None:  # noqa: ASYNC110 - lost calls
                await asyncio.sleep(LOOK_SECONDS)

    async def _press(self, stopped: asyncio.Event) -> None:
        """Something urgent after the other, which goes again."""
        number = 0
        while not stopped.is_set():
            number += 1
            made = replace(
                urgent(),
                name=f"urgent-{number}",
                uid=f"uid-of-urgent-{number}",
                replicas=URGENT_REPLICAS,
                priority=URGENT_PRIORITY,
            )
            await self._call("Schedule", binding=binding_to_message(made))
            await asyncio.sleep(LOOK_SECONDS)
            await self._delete(made.namespace, made.name)

    async def _pour(self, pourer: int, stopped: asyncio.Event) -> None:
        """Many bindings at a time, which are asked for again otherwise; a few of them go."""
        chance, serial = random.Random(f"{self._storm.seed}-{pourer}"), 0
        names: list[str] = []
        while not stopped.is_set():
            while len(names) < POURED_AT_ONCE:
                names.append(f"poured-{pourer}-{serial}")
                serial += 1
            items = [
                ScheduleBatchItem(binding=binding_to_message(_poured(name, chance)))
                for name in names
            ]
            await self._call("ScheduleBatch", items=items)
            for _ in range(POURED_GONE):
                gone = names.pop(chance.randrange(len(names)))
                await self._delete(RAIN, gone)

    async def _delete(self, namespace: str, name: str) -> None:
        await self._call("DeleteBinding", namespace=namespace, name=name)

    async def _call(self, method: str, **fields: Any) -> Any | None:
        """The answer, None where nobody could give one."""
        if not (endpoints := self._planes.endpoints):
            return None
        endpoint = self._random.choice(endpoints)
        caller = self._asking.get(endpoint)
        if caller is None:
            channel = grpc.aio.insecure_channel(endpoint)
            caller = Caller(channel, self._planes.token, DEADLINE_SECONDS)
            self._asking[endpoint] = caller
        try:
            return await caller.ask(method, **fields)
        except grpc.aio.AioRpcError as error:
            if error.code() not in LEFT:
                raise
            return None

    async def _ask(self, ids: list[str]) -> None:
        """Control planes make each again, a few at a time."""
        ends, left = Counter[str](), list(ids)
        async with asyncio.TaskGroup() as asking:
            for endpoint in self._planes.endpoints * ASKED_AT_ONCE:
                asking.create_task(self._ask_one_by_one(endpoint, left, ends))
        self._counts["asked of control planes"] = ends.total()
        self._counts["equal there"] = ends["equal"]
        self._counts["without inputs there"] = ends[NO_INPUTS]

    async def _ask_one_by_one(self, endpoint: str, left: list[str], ends: Counter[str]) -> None:
        async with calling(endpoint, self._planes.token) as caller:
            while left:
                number = left.pop()
                try:
                    answer = await caller.ask("ReplayDecision", id=number)
                except grpc.aio.AioRpcError as error:
                    if error.code() is not grpc.StatusCode.FAILED_PRECONDITION:
                        raise
                    ends[NO_INPUTS] += 1
                    continue
                ends["equal" if answer.equal else "different"] += 1
                if not answer.equal:
                    self._violations.append(f"replayed otherwise: {number}: {answer}")

    def _from_trace(self, when: str, until: int) -> dict[str, Any]:
        """What a program of its own says that has the file, and no database to ask."""
        endpoint, token = self._planes.endpoints[0], self._planes.token
        trace, error = exported(self._folder, when, endpoint, token, "--until", _stamp(until))
        told, error = ({}, error) if error else asked(self._folder, "replay", "--trace", trace)
        if error:
            self._violations.append(f"{when} the restart: {error}")
            return {}
        if wrong := {end: told[end] for end in WRONG_ENDS if told[end]}:
            self._violations.append(f"{wrong} {when} the restart: {told['unequal']}")
        self._counts[f"equal {when} a restart"] = told["equal"]
        self._counts[f"without inputs {when} it"] = told[NO_INPUTS]
        return told

    def _what_if(self, when: str) -> None:
        """With nothing changed, in one window, every decision comes out as it was."""
        trace = str(self._folder / f"{when}.trace")
        told, error = asked(self._folder, "what-if", trace, "--window", "0s")
        if error:
            self._violations.append(f"{when} the restart: {error}")
            return
        self._counts["of a what-if with nothing changed"] = told["decisions"]
        if told["different"]:
            self._violations.append(f"{told['different']} differ in it: {told['firstDifferent']}")


def _poured(name: str, chance: random.Random) -> Binding:
    """Nobody preempts it: who may lose what would be looked for among all of it, for minutes."""
    replicas, scheduling = chance.randint(1, 6), chance.choice(SCHEDULINGS)
    more: Any = {"namespace": RAIN, "priority": URGENT_PRIORITY}
    return workload(name, POURED, replicas, scheduling, **more)


def _stamp(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def main() -> int:
    options = parser("replays", __doc__)
    options.add_argument("--decisions", type=int, default=10_000)
    options.add_argument("--planes", type=int, default=2)
    options.add_argument("--seed", type=int, default=1)
    given = options.parse_args()
    storm = Storm(decisions=given.decisions, planes=given.planes, seed=given.seed)
    figures = Verdicts("replays")
    figures.section(f"{given.decisions:,} decisions of a storm, made again")
    with own_folder("replays") as folder:
        return replay_storm(folder, storm).show(figures)


if __name__ == "__main__":
    clean_up_when_ended()
    sys.exit(main())
