"""Clusters fall silent until they are lost, and whoever moves what runs there is killed meanwhile;
at the end one is drained by a plan, and whoever carries that out is killed; then the fleet is full,
something urgent preempts what runs, and whoever keeps the queue is killed; and where it is to last,
many of random priorities preempt each other, while whoever it may be is killed.

Rounds, one cluster each; victims and pauses follow from the seed. Must not ask a control plane what
it has done: the database says that, and the members say what runs.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from federation.capacity.cluster_room import ReportId
from federation.codec.bindings import binding_to_message
from federation.model.placement import Binding
from federation.store.engine import CONNECTION_ERRORS
from federation.v1.scheduling_pb2 import OUTCOME_SCHEDULED
from lab.callers import calling, enrolled
from lab.chaos.agreement import disagreements, replay
from lab.chaos.audit import Audit, opened
from lab.chaos.callers import RETRIED, SCHEDULINGS
from lab.chaos.glances import (
    Look,
    Watched,
    approve_drain,
    evicted_from,
    look_at,
    read_rows,
    read_unfixed,
    wrong_rows,
    wrong_steps,
    wrongly_gone,
)
from lab.chaos.havoc import Plan, carried_out
from lab.chaos.members import Member, end, living
from lab.chaos.preempting import (
    AT_LAST,
    FILLERS,
    MOST_REPLICAS,
    OF_A_NAMESPACE,
    OF_ALL,
    OF_THE_URGENT,
    Moved,
    filled,
    filler,
    judged,
    may_shrink,
    rivals,
    too_fast,
    urgent,
    wrong_victims,
)
from lab.chaos.slow_ledger import SeenReport
from lab.packed_clusters import GIB
from lab.patience import PATIENCE_SECONDS
from lab.planes import Plane, Planes, Postgres
from lab.simulator_cluster import Order
from lab.verdicts import Result
from lab.workloads import BY_FIXED_WEIGHTS, workload

EVICTION_SECONDS = 600.0
# Fewer clusters than the breaker counts, and about one binding moved a second.
PACE = (
    # On a busy machine an agent may not be heard for some seconds, and plans would be of others.
    *("--heartbeat-seconds=3", "--report-seconds=1", "--lost-seconds=10"),
    *(f"--eviction-seconds={EVICTION_SECONDS:g}", "--failover-percent=100"),
    f"--preempted-replicas={OF_ALL}",
    f"--preempted-replicas-of-namespace={OF_A_NAMESPACE}",
)
CLUSTERS, NODES, CORES, BINDINGS, REPLICAS = 4, 10, 8, 12, 4
LOOK_SECONDS = 0.1
HANG_SECONDS = 6.0


def lose(folder: Path, plan: Plan) -> Result:
    def work(planes: Planes, postgres: Postgres) -> Coroutine[Any, Any, Result]:
        return _Losses(folder, planes, postgres, plan).run()

    return carried_out(folder, plan, work, PACE)


class _Losses:
    """One run."""

    def __init__(self, folder: Path, planes: Planes, postgres: Postgres, plan: Plan) -> None:
        self._folder = folder
        self._planes = planes
        self._postgres = postgres
        self._plan = plan
        self._random = random.Random(plan.seed)
        sent: dict[tuple[str, ReportId], SeenReport] = {}
        self._audit = Audit(sent=sent)
        node = [1000 * CORES, 32 * GIB, 30, 100 * GIB, 0]
        self._members = {
            name: Member(name, np.array([node] * NODES).T, sent, seed=plan.seed + place)
            for place, name in enumerate(f"member{number + 1}" for number in range(CLUSTERS))
        }
        self._bindings = {each.key: each for each in map(_binding, range(BINDINGS))}
        self._seen: Look | None = None
        self._silent: frozenset[str] = frozenset()
        self._lost: frozenset[str] = frozenset()
        self._not_begun: set[str] = set()
        self._moves: set[Moved] = set()
        self._must_run = False
        self._counts = Counter[str]()
        self._longest_takeover = 0.0
        self._violations: list[str] = []

    async def run(self) -> Result:
        planes = self._planes
        credentials = await enrolled(planes.endpoints[0], planes.token, self._members)
        async with opened(self._postgres.url) as database:
            await self._audit.begin(database)
        began = time.monotonic()
        controlling = asyncio.create_task(self._control())
        async with living(self._members, planes, credentials):
            try:
                for binding in self._bindings.values():
                    await self._schedule(binding)
                while time.monotonic() - began < self._plan.seconds or not self._counts["rounds"]:
                    await self._round()
                await self._until(
                    lambda look: not look.lost and not look.evictions and self._runs()
                )
                await self._drain()
                await self._preempt()
                if self._plan.seconds:
                    await self._contend()
            finally:
                await end(controlling)
        return await self._judge(time.monotonic() - began)

    async def _round(self) -> None:
        """One cluster is lost, half of what moves is not begun elsewhere, and the mover is hit."""
        look = await self._until(lambda look: self._runs() and not look.lost)
        held = Counter(name for each in look.placed.values() for name in each.shares)
        name = self._random.choice(sorted(held))
        moving = sorted(key for key, each in look.placed.items() if name in each.shares)
        self._not_begun = set(moving[::2])
        self._members[name].fall_silent()
        self._silent = frozenset({name})
        await self._until(lambda look: name in look.lost and look.evictions > 0)
        kills = not self._counts["holders killed"] or self._random.random() < 0.7
        await self._hit("failover", kills=kills)
        await self._until(
            lambda look: not any(name in each.shares for each in look.placed.values())
        )
        if self._random.random() < 0.5:
            await asyncio.to_thread(self._postgres.restart)
        await self._until(lambda look: evicted_from(look, name) <= self._not_begun)
        self._silent = frozenset()
        self._members[name].speak()
        await self._until(lambda look: not look.lost and not look.evictions)
        self._not_begun.clear()
        self._counts["rounds"] += 1

    async def _drain(self) -> None:
        """A plan empties a cluster, and who carries it out is killed in the middle of that: another
        one goes on, every step is done once, and everything runs all the time.
        """
        look = await self._until(lambda look: self._runs() and not look.lost)
        held = Counter(name for each in look.placed.values() for name in each.shares)
        name = self._random.choice(sorted(held))
        before = {key for key, each in look.placed.items() if name in each.shares}
        self._must_run = True
        await approve_drain(self._planes.endpoints[0], self._planes.token, name)
        await self._until(lambda look: {"moving", "pending"} <= {each.state for each in look.steps})
        await self._hit("plans", kills=True)
        look = await self._until(
            lambda look: not look.evictions and all(each.has_ended for each in look.steps)
        )
        self._must_run = False
        unfixed = await read_unfixed(self._postgres.url)
        weighted = [
            key
            for key, each in self._bindings.items()
            if each.placement.replica_scheduling == BY_FIXED_WEIGHTS
        ]
        self._violations += wrong_steps(look.steps, name, before, look.placed, unfixed, weighted)
        self._counts["steps of a plan"] = len(look.steps)

    async def _preempt(self) -> None:
        """Full of what is not urgent, the fleet has room for what is; who keeps the queue is killed
        while that waits for the room.
        """
        fillers = [filler(number) for number in range(FILLERS)]
        self._bindings |= {each.key: each for each in (*fillers, urgent())}
        for each in fillers:
            await self._schedule(each)
        # So much that the urgent one cannot fit beside them.
        full = CLUSTERS * NODES * CORES - BINDINGS * REPLICAS - OF_THE_URGENT
        look = await self._until(
            lambda look: filled(look.placed) > full and self._is_calm(look, fillers)
        )
        before = filled(look.placed)
        await self._schedule(urgent())
        look = await self._until(lambda look: look.preempted > 0)
        await self._hit("queue", kills=True)
        look = await self._until(
            lambda look: (
                bool(look.placed[urgent().key].shares)
                and not look.leaving
                and self._is_calm(look, self._bindings.values())
            )
        )
        async with opened(self._postgres.url) as database:
            rows = await read_rows(database)
        self._violations += wrong_victims(look.placed, rows, look.preempted, before)
        self._counts["replicas preempted"] = look.preempted

    async def _contend(self) -> None:
        """Rivals ask for room, and for more or less of it, at any control plane; at last there is
        enough for all, and nobody waits or leaves any more.
        """
        every = rivals(self._random)
        self._bindings |= {each.key: each for each in every}
        asking = [asyncio.create_task(self._ask_twice(every[first::3])) for first in range(3)]
        while not all(each.done() for each in asking):
            await asyncio.sleep(self._random.uniform(1.0, 3.0))
            plane = self._random.choice(self._planes.all)
            hit = self._postgres.restart if self._random.random() < 0.2 else plane.restart
            await asyncio.to_thread(hit)
            self._counts["kills while rivals asked"] += 1
        await asyncio.gather(*asking)
        await self._check_waiting()
        for each in every:
            await self._schedule(replace(each, replicas=AT_LAST))
        fillers = [filler(number) for number in range(FILLERS)]
        for each in fillers:
            await self._delete(each)
        await self._until(
            lambda look: (
                not look.leaving
                and all(sum(look.placed[each.key].shares.values()) == AT_LAST for each in every)
                and self._is_calm(look, self._bindings.values())
            )
        )
        await self._check_waiting()
        every_binding = self._bindings | {each.key: each for each in fillers}
        async with opened(self._postgres.url) as database:
            wrong, losses = await judged(database, every_binding)
        self._violations += wrong
        self._counts["losses to rivals"] = sum("/rival-" in each.by for each in losses)
        self._counts["losses of rivals"] = sum("/rival-" in each.victim for each in losses)

    async def _ask_twice(self, every: Sequence[Binding]) -> None:
        """For each, and then for another number of replicas of each."""
        for each in every:
            await self._schedule(each)
        for each in every:
            replicas = self._random.randint(each.min_available or 1, MOST_REPLICAS)
            await self._schedule(replace(each, replicas=replicas))

    async def _check_waiting(self) -> None:
        async with opened(self._postgres.url) as database:
            self._violations += wrong_rows(await read_rows(database))

    async def _hit(self, duty: str, *, kills: bool) -> None:
        """Who has the duty is killed, or hangs for a while; another one must go on."""
        look = await self._until(lambda look: look.holder(duty).endpoint != "")
        holder = look.holder(duty)
        (plane,) = [each for each in self._planes.all if each.endpoint == holder.endpoint]
        began = time.monotonic()
        self._counts["holders killed" if kills else "holders that hung"] += 1
        hitting = asyncio.create_task(asyncio.to_thread(plane.restart) if kills else _hang(plane))
        await self._until(lambda now: now.holder(duty).id not in {"", holder.id})
        self._longest_takeover = max(self._longest_takeover, time.monotonic() - began)
        await hitting

    async def _until(self, holds: Callable[[Look], bool]) -> Look:
        """Raises TimeoutError, with what was seen last."""
        look = None
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while True:
                    if (seen := self._seen) is not None:
                        look = seen
                        if holds(seen):
                            return seen
                    self._seen = None
                    while self._seen is None:  # noqa: ASYNC110 - told by the database
                        await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError as error:
            raise TimeoutError(f"what was seen last: {look}") from error

    async def _control(self) -> None:
        """Look, judge, and let members run what is asked of them, again and again."""
        known: dict[str, Watched] = {}
        while True:
            with suppress(*CONNECTION_ERRORS):
                silent = self._silent
                async with opened(self._postgres.url) as database:
                    while True:
                        # Who is silent from the begin of a look to its end.
                        look = await look_at(database)
                        await self._audit.follow(database)
                        silent &= self._silent
                        self._judge_look(look, known, silent)
                        self._obey(look)
                        self._seen, silent = look, self._silent
                        await asyncio.sleep(LOOK_SECONDS)
            await asyncio.sleep(LOOK_SECONDS)

    def _judge_look(self, look: Look, known: dict[str, Watched], silent: frozenset[str]) -> None:
        for key, placed in look.placed.items():
            if key not in self._bindings:
                continue
            before = known.get(key)
            bound = self._bound(self._bindings[key].uid)
            if self._must_run and sum(bound.values()) < REPLICAS:
                self._violations.append(f"{key} has {dict(bound)} pods on nodes: {placed}")
            moves = placed.moved.items()
            self._moves |= {Moved(at, key, name, count) for name, (at, count) in moves}
            if before is not None:
                if not may_shrink(key):
                    self._violations += wrongly_gone(before, placed, silent, bound)
                evicted, were = placed.evicted.keys(), before.placed.evicted.keys()
                self._counts["evictions"] += len(evicted - were)
                self._counts["taken back"] += len((were - evicted) & placed.shares.keys())
            known[key] = Watched(placed=placed, silent=silent)
        self._counts["looks"] += 1
        self._counts["clusters lost"] += len(look.lost - self._lost)
        self._lost = look.lost

    def _bound(self, uid: str) -> Mapping[str, int]:
        return {
            name: sum(1 for pod in each.pods_of(uid) if pod.node is not None)
            for name, each in self._members.items()
        }

    def _obey(self, look: Look) -> None:
        """As a controller does: what an eviction names goes on until that has ended."""
        for key, placed in look.placed.items():
            binding = self._bindings.get(key)
            if binding is None:
                continue
            wanted = {**placed.evicted, **placed.shares}
            for name, member in self._members.items():
                if name not in wanted:
                    member.remove(binding.uid)
                    continue
                replicas = wanted[name]
                if key in self._not_begun:
                    replicas = min(replicas, len(member.pods_of(binding.uid)))
                order = Order(
                    binding=binding.uid,
                    decision=placed.decision,
                    requirements=binding.requirements,
                    replicas=replicas,
                )
                member.run(order)

    def _is_calm(self, look: Look, bindings: Iterable[Binding]) -> bool:
        """Whether these run just where they are."""
        return all(
            self._bound(each.uid) == {**dict.fromkeys(self._members, 0), **placed.shares}
            for each in bindings
            if (placed := look.placed.get(each.key)) is not None
        )

    def _runs(self) -> bool:
        """Whether every pod is on a node."""
        pods = [pod for each in self._members.values() for pod in each.cluster.pods]
        return len(pods) == BINDINGS * REPLICAS and all(pod.node is not None for pod in pods)

    async def _schedule(self, binding: Binding) -> None:
        """Again where nobody could answer: it is one binding, however often it is asked for."""
        answer = await self._call("Schedule", binding=binding_to_message(binding))
        assert answer.decision.outcome == OUTCOME_SCHEDULED or answer.queued, answer

    async def _delete(self, binding: Binding) -> None:
        """With its pods: who has looked before must not have them made again."""
        self._bindings.pop(binding.key)
        await self._call("DeleteBinding", namespace=binding.namespace, name=binding.name)
        for member in self._members.values():
            member.remove(binding.uid)

    async def _call(self, method: str, **fields: Any) -> Any:
        """What any control plane answers; None where what is to be deleted is gone."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                if endpoints := self._planes.endpoints:
                    async with calling(
                        self._random.choice(endpoints), self._planes.token
                    ) as caller:
                        try:
                            return await caller.ask(method, **fields)
                        except grpc.aio.AioRpcError as error:
                            if error.code() is grpc.StatusCode.NOT_FOUND:
                                return None
                            if error.code() not in RETRIED:
                                raise
                await asyncio.sleep(LOOK_SECONDS)

    async def _judge(self, lasted: float) -> Result:
        async with opened(self._postgres.url) as database:
            standing = await self._audit.finish(database)
        endpoints, token = self._planes.endpoints, self._planes.token
        found = await disagreements(endpoints, token, standing)
        replayed = await asyncio.to_thread(replay, self._folder, endpoints[0], token)
        found += replayed.violations
        found += too_fast(sorted(self._moves), BINDINGS * REPLICAS)
        audit = self._audit
        counts: dict[str, float] = {
            "seconds": round(lasted),
            **self._counts,
            "seconds of the longest takeover": self._longest_takeover,
            "PostgreSQL killed": self._postgres.kills,
            "decisions stored": len(standing.decisions),
            "replayed equal": replayed.equal,
            "promises checked": audit.checked,
            "over-committed reports": audit.overcommitted,
        }
        return Result(counts=counts, violations=[*found, *self._violations, *audit.violations])


async def _hang(plane: Plane) -> None:
    os.kill(plane.pid, signal.SIGSTOP)
    try:
        await asyncio.sleep(HANG_SECONDS)
    finally:
        os.kill(plane.pid, signal.SIGCONT)


def _binding(number: int) -> Binding:
    request, scheduling = {"cpu": 1000, "memory": GIB}, SCHEDULINGS[number % 3]
    more: Any = {"namespace": "shop", "priority": number % 4}
    return workload(f"web-{number}", request, REPLICAS, scheduling, **more)
