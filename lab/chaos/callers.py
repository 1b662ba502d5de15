"""Controllers that schedule bindings of their own, ask again when nobody answers, and remember.

Must not look into the database: what they were told is what is compared with it.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import grpc

from federation.codec.bindings import binding_to_message
from federation.model.placement import Binding, Certificate, ReplicaScheduling
from federation.model.workload import ReplicaRequirements
from federation.v1.resource_pb2 import TargetCluster
from federation.v1.scheduling_pb2 import (
    OUTCOME_PARTIAL,
    OUTCOME_SCHEDULED,
    Decision,
    ScheduleBatchItem,
    ScheduleBatchResult,
    ScheduleResponse,
)
from lab.callers import ALONE, Caller
from lab.chaos.members import Member
from lab.packed_clusters import GIB
from lab.simulator_cluster import Order
from lab.workloads import AGGREGATED, BY_FIXED_WEIGHTS, DUPLICATED, DYNAMIC, workload

NAMESPACE = "shop"
DEADLINE_SECONDS = 10.0
# How long an answer may be late by the client's own doing.
GRACE_SECONDS = 2.0
# Somebody who gave up does not know what became of what was asked.
GIVE_UP_SECONDS = 45.0
PAUSE_SECONDS = 0.1
RETRIED = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.ABORTED}
MOST_BINDINGS = 12
PLACED = {OUTCOME_SCHEDULED, OUTCOME_PARTIAL}
# The key of what no request of a caller was answered with.
BY_THE_QUEUE = ""
SCHEDULINGS = (DYNAMIC, AGGREGATED, BY_FIXED_WEIGHTS, DUPLICATED)
CERTIFICATES = (None, None, Certificate.CAREFUL, Certificate.STRICT)
PRIORITIES = range(4)
# All of them want the same, and only few find room at once.
ALIKE = "alike-"
ALIKE_EACH, ALIKE_REPLICAS = 3, 8
ALIKE_REQUEST = {"cpu": 3000, "memory": 4 * GIB}


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledged:
    """A decision that a caller was told of, under the key it was asked with."""

    key: str
    binding: str
    decision: str
    clusters: Mapping[str, int]


@dataclass(slots=True, kw_only=True)
class Owned:
    """A binding of a caller, as it last asked for it and as ``before``, and where it runs as far as
    it was told.

    ``queued``: it was told that it waits, and has asked for nothing since.
    """

    binding: Binding
    before: Binding | None = None
    clusters: Mapping[str, int] = field(default_factory=dict)
    asked: dict[str, dict[str, Any]] = field(default_factory=dict)
    newest: str = ""
    queued: bool = False


class Controller:
    """One controller: one call at a time, to any control plane."""

    def __init__(
        self,
        number: int,
        seed: int,
        endpoints: Callable[[], list[str]],
        token: str,
        members: Mapping[str, Member],
    ) -> None:
        self.number = number
        self.acknowledged: list[Acknowledged] = []
        self.keys: Counter[str] = Counter()
        self.owned: dict[str, Owned] = {}
        self.deleted: set[str] = set()
        self.unknown: set[str] = set()
        self.together: list[list[str]] = []
        self.refused: Counter[str] = Counter()
        self.longest_seconds = 0.0
        self.violations: list[str] = []
        self._serial = itertools.count(1)
        self._random = random.Random(f"{seed}-{number}")
        self._endpoints = endpoints
        self._token = token
        self._members = members
        self._callers: dict[str, Caller] = {}

    async def call_until(self, stopped: asyncio.Event) -> None:
        deeds = (
            *(self._create, self._rescale, self._create_many, self._create_together),
            *(self._repeat, self._delete, self._look),
        )
        weights = (30, 35, 8, 8, 7, 12, 20)
        while not stopped.is_set():
            (deed,) = self._random.choices(deeds, weights)
            await deed()
            if self._random.random() < 0.04:
                await self._release()
            await asyncio.sleep(self._random.uniform(0, 0.05))

    async def ask_alike(self) -> None:
        """Bindings that want just the same as those of all callers, and differ in priority."""
        for _ in range(ALIKE_EACH):
            made = replace(
                self._made(ALIKE, ALIKE_REQUEST, SCHEDULINGS[0]),
                replicas=ALIKE_REPLICAS,
                certificate=None,
            )
            await self._schedule(Owned(binding=made))

    async def look(self) -> None:
        """Learn of all that wait."""
        for owned in [each for each in self.owned.values() if each.queued]:
            await self._follow(owned)

    async def make_room(self) -> None:
        """Delete one of those that do not wait."""
        await self.look()
        placed = [each for each in self.owned.values() if not each.queued]
        if placed:
            await self._delete(self._random.choice(placed))

    async def close(self) -> None:
        for caller in self._callers.values():
            await caller.channel.close()

    @property
    def told_to_wait(self) -> Mapping[str, str]:
        """Who was told by which decision that it waits, as far as is known."""
        return {key: each.newest for key, each in self.owned.items() if each.queued}

    async def _create(self) -> None:
        if len(self.owned) >= MOST_BINDINGS:
            await self._delete()
            return
        owned = Owned(binding=self._made())
        await self._schedule(owned)

    async def _rescale(self) -> None:
        """Other replicas, and now and then other requests."""
        owned = self._one()
        if owned is None:
            return
        before = owned.binding
        requirements = before.requirements
        if self._random.random() < 0.2:
            requirements = ReplicaRequirements(request=self._request())
        owned.before = before
        owned.binding = replace(
            before, replicas=self._random.randint(1, 8), requirements=requirements
        )
        await self._schedule(owned)

    async def _create_many(self) -> None:
        if len(self.owned) + 4 > MOST_BINDINGS:
            return
        made, keys = self._batch(4)
        answer = await self._call("ScheduleBatch", items=_items(made, keys))
        for place, (owned, key) in enumerate(zip(made, keys, strict=True)):
            if answer is None:
                self._lose(owned)
            else:
                await self._learn(owned, key, answer.results[place])

    async def _create_together(self) -> None:
        """All are placed, or none is and nothing is stored, whatever is killed meanwhile."""
        if len(self.owned) + 3 > MOST_BINDINGS:
            return
        made, keys = self._batch(3)
        self.together.append([each.binding.key for each in made])
        answer = await self._call("ScheduleBatch", items=_items(made, keys), atomic=True)
        results = list(answer.results) if answer is not None else []
        placed = [each for each in results if each.decision.outcome == OUTCOME_SCHEDULED]
        if placed and len(placed) < len(made):
            self.violations.append(f"half of an atomic batch was placed: {results}")
        elif placed:
            for owned, key, result in zip(made, keys, placed, strict=True):
                await self._learn(owned, key, result)
        elif answer is None:
            for owned in made:
                self._lose(owned)

    def _batch(self, count: int) -> tuple[list[Owned], list[str]]:
        made = [Owned(binding=self._made()) for _ in range(count)]
        return made, [self._key(each) for each in made]

    async def _repeat(self) -> None:
        """An old request with its key, after the binding has changed: the old answer, no more."""
        owned = self._one()
        if owned is None or not owned.asked:
            return
        key = self._random.choice(list(owned.asked))
        answer = await self._call("Schedule", **owned.asked[key])
        if answer is None:
            return
        told = [each for each in self.acknowledged if each.key == key]
        if [each.decision for each in told] != [answer.decision.id]:
            was = [each.decision for each in told]
            self.violations.append(f"{key} was answered {was}, then {answer.decision.id}")

    async def _delete(self, owned: Owned | None = None) -> None:
        owned = owned or self._one()
        if owned is None:
            return
        binding = owned.binding
        with _changing(self._members, owned):
            answer = await self._call("DeleteBinding", may_be_gone=True, **_named(owned))
            if answer is None:
                self._lose(owned)
            else:
                for name in owned.clusters:
                    self._members[name].remove(binding.uid)
                del self.owned[binding.key]
                self.deleted.add(binding.key)

    async def _release(self) -> None:
        """Once all pods run, a caller may do without the reservations."""
        owned = self._one()
        if owned is None or not owned.clusters:
            return
        binding = owned.binding
        if any(
            pod.binding == binding.uid
            for name in owned.clusters
            for pod in self._members[name].cluster.waiting
        ):
            return
        await self._call("ReleaseReservation", may_be_gone=True, **_named(owned))

    async def _schedule(self, owned: Owned) -> None:
        key = self._key(owned)
        request: dict[str, Any] = {
            "binding": binding_to_message(owned.binding),
            "idempotency_key": key,
        }
        with _changing(self._members, owned):
            answer = await self._call("Schedule", **request)
            if answer is None:
                self._lose(owned)
                return
            owned.asked[key] = request
            await self._learn(owned, key, answer)

    async def _look(self) -> None:
        """What has become of one that waits."""
        waiting = [each for each in self.owned.values() if each.queued]
        if waiting:
            await self._follow(self._random.choice(waiting))

    async def _follow(self, owned: Owned) -> None:
        """Learn that the queue placed it, if it did."""
        answer = await self._call("GetBinding", **_named(owned))
        if answer is None or answer.HasField("wait"):
            return
        with _changing(self._members, owned):
            self._learn_decision(owned, BY_THE_QUEUE, answer.decision)

    async def _learn(
        self, owned: Owned, key: str, answer: ScheduleResponse | ScheduleBatchResult
    ) -> None:
        """Remember also whether it waits."""
        owned.queued = answer.queued
        if isinstance(answer, ScheduleResponse) and answer.decision.outcome not in PLACED:
            # The queue may have placed what was asked before, since that was looked at.
            runs = shares(answer.binding.spec.clusters)
            if owned.before is not None and runs != owned.clusters:
                self._let_run(owned, owned.before, answer.decision, runs)
        self._learn_decision(owned, key, answer.decision)
        if answer.queued == (answer.decision.outcome == OUTCOME_SCHEDULED):
            # A decision that is told again is of then, and whether it waits is of now.
            now = await self._call("GetBinding", **_named(owned))
            if now is None:
                return
            if now.decision.id == answer.decision.id:
                self.violations.append(f"{key}: queued is {answer.queued} by {answer.decision}")
            owned.queued = now.HasField("wait")
            self._learn_decision(owned, BY_THE_QUEUE, now.decision)

    def _learn_decision(self, owned: Owned, key: str, decision: Decision) -> None:
        """Remember what was told, and let the clusters run it."""
        binding, clusters = owned.binding, shares(decision.clusters)
        self.acknowledged.append(
            Acknowledged(key=key, binding=binding.key, decision=decision.id, clusters=clusters)
        )
        self.owned[binding.key] = owned
        owned.newest = decision.id
        if decision.outcome in PLACED:
            self._let_run(owned, binding, decision, clusters)

    def _let_run(
        self, owned: Owned, binding: Binding, decision: Decision, clusters: Mapping[str, int]
    ) -> None:
        for name in owned.clusters.keys() - clusters.keys():
            self._members[name].remove(binding.uid)
        for name, replicas in clusters.items():
            order = Order(
                binding=binding.uid,
                decision=decision.id,
                requirements=binding.requirements,
                replicas=replicas,
            )
            self._members[name].run(order)
        owned.clusters = clusters

    def _lose(self, owned: Owned) -> None:
        """Nobody answered in time: what became of the binding is not known from here on."""
        self.unknown.add(owned.binding.key)
        self.owned.pop(owned.binding.key, None)

    async def _call(self, method: str, *, may_be_gone: bool = False, **fields: Any) -> Any | None:
        """The answer, or that what was named is gone; None when there was none for too long."""
        give_up, refused = time.monotonic() + GIVE_UP_SECONDS, Counter[str]()
        while time.monotonic() < give_up:
            endpoints = self._endpoints()
            if endpoints:
                began = time.monotonic()
                try:
                    return await self._caller(self._random.choice(endpoints)).ask(method, **fields)
                except grpc.aio.AioRpcError as error:
                    code = error.code()
                    self.refused[code.name] += 1
                    refused[f"{code.name}: {error.details()}"] += 1
                    if may_be_gone and code is grpc.StatusCode.NOT_FOUND:
                        return error
                    if code not in RETRIED:
                        self.violations.append(f"{method}: {code.name}: {error.details()}")
                        return None
                finally:
                    self._check_duration(method, time.monotonic() - began)
            await asyncio.sleep(self._random.uniform(0, PAUSE_SECONDS))
        self.violations.append(
            f"{method} was not answered within {GIVE_UP_SECONDS:g} s: {refused.most_common(5)}"
        )
        return None

    def _check_duration(self, method: str, seconds: float) -> None:
        self.longest_seconds = max(self.longest_seconds, seconds)
        if seconds > DEADLINE_SECONDS + GRACE_SECONDS:
            self.violations.append(f"{method} took {seconds:.1f} s: its caller was stuck")

    def _caller(self, endpoint: str) -> Caller:
        caller = self._callers.get(endpoint)
        if caller is None:
            channel = grpc.aio.insecure_channel(endpoint, ALONE)
            caller = Caller(channel, self._token, DEADLINE_SECONDS)
            self._callers[endpoint] = caller
        return caller

    def _one(self) -> Owned | None:
        return self._random.choice(list(self.owned.values())) if self.owned else None

    def _key(self, owned: Owned) -> str:
        """A key of its own for every request about the binding."""
        self.keys[owned.binding.key] += 1
        return f"{owned.binding.name}-{self.keys[owned.binding.key]}"

    def _made(
        self,
        prefix: str = "",
        request: Mapping[str, int] | None = None,
        scheduling: ReplicaScheduling | None = None,
    ) -> Binding:
        return workload(
            f"{prefix}caller{self.number}-{next(self._serial)}",
            request or self._request(),
            self._random.randint(1, 6),
            scheduling or self._random.choice(SCHEDULINGS),
            namespace=NAMESPACE,
            certificate=self._random.choice(CERTIFICATES),
            priority=self._random.choice(PRIORITIES),
        )

    def _request(self) -> Mapping[str, int]:
        cpu = self._random.choice([250, 500, 1000, 1000, 2000, 3000])
        return {"cpu": cpu, "memory": self._random.choice([1, 2, 4]) * GIB}


def _named(owned: Owned) -> dict[str, Any]:
    return {"namespace": owned.binding.namespace, "name": owned.binding.name}


def _items(made: Iterable[Owned], keys: Iterable[str]) -> list[ScheduleBatchItem]:
    return [
        ScheduleBatchItem(binding=binding_to_message(each.binding), idempotency_key=key)
        for each, key in zip(made, keys, strict=True)
    ]


def shares(clusters: Iterable[TargetCluster]) -> dict[str, int]:
    return {each.name: each.replicas for each in clusters}


@contextmanager
def _changing(members: Mapping[str, Member], owned: Owned) -> Iterator[None]:
    """While it lasts, and as long as the binding waits, no pod of it is placed: what is about to go
    must not come.

    Else replicas that a decision takes away may be bound after others were promised their room,
    which every scheduler beside ours can do, and which only the next report tells.
    """
    uid, owned.queued = owned.binding.uid, False
    for each in members.values():
        each.held.add(uid)
    try:
        yield
    finally:
        if not owned.queued:
            for each in members.values():
                each.held.discard(uid)
