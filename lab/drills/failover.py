"""The primary is killed and its standby promoted, or a backup is restored: what was told is kept.

Must not look into the database for more than which decisions it has: members say what finds no
node.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import grpc
import numpy as np

from federation.model.workload import ReplicaRequirements
from federation.store.migrate import upgrade
from federation.v1.scheduling_pb2 import OUTCOME_SCHEDULED
from lab.callers import calling, enrolled
from lab.chaos.members import Member, end, living
from lab.databases import connected
from lab.drills.servers import MovableAddress, Pair, Restorable, pair, restorable
from lab.packed_clusters import GIB
from lab.patience import until
from lab.planes import Planes, running_planes
from lab.servers import federation
from lab.simulator_cluster import Order
from lab.workloads import AGGREGATED, workload_message

CLUSTERS, NODES = 4, 25
REQUIREMENTS: Final = ReplicaRequirements(request={"cpu": 100, "memory": GIB // 16})


def members(cores: int = 32, nodes: int = NODES) -> dict[str, Member]:
    """By name. Their nodes are alike."""
    node = [cores * 1000, cores * 4 * GIB, 250, 100 * GIB, 0]
    nodes_rn = np.tile(np.array(node, dtype=np.int64)[:, None], (1, nodes))
    return {
        f"member{number}": Member(f"member{number}", nodes_rn, {}, seed=number)
        for number in range(CLUSTERS)
    }


def binding(name: str, replicas: int = 2) -> Any:
    size = REQUIREMENTS.request
    return workload_message(name, size, replicas, scheduling=AGGREGATED, namespace="drill")


CALLERS = 16
CALL_SECONDS = 10.0
PAUSE_SECONDS = 0.02
GOAL_SECONDS = 5.0
# By who says it: that a standby follows later.
WARNINGS = {"start": "decisions may be lost", "doctor": "standbys follow later"}
DECISIONS = "SELECT id::text FROM decision"
PACE = ("--heartbeat-seconds=2", "--report-seconds=1")


@dataclass(slots=True, kw_only=True)
class Load:
    """Callers that ask again and again; ``acknowledged`` decisions with when each was told."""

    planes: Planes
    members: dict[str, Member]
    acknowledged: dict[str, float] = field(default_factory=dict)
    failed: int = 0
    asked: int = 0
    refused: int = 0

    async def call(self, number: int, stopped: Callable[[], bool]) -> None:
        endpoint = self.planes.endpoints[number % len(self.planes.endpoints)]
        async with calling(endpoint, self.planes.token, CALL_SECONDS) as caller:
            while not stopped():
                self.asked += 1
                wanted = binding(f"drill-{self.asked}")
                try:
                    # What does not fit must not wait: it would be placed when nobody runs it.
                    answer = await caller.ask("Schedule", binding=wanted, wait=False)
                except grpc.aio.AioRpcError:
                    self.failed += 1
                    await asyncio.sleep(PAUSE_SECONDS)
                    continue
                if answer.decision.outcome == OUTCOME_SCHEDULED:
                    self.acknowledged[answer.decision.id] = time.monotonic()
                    run(self.members, wanted.metadata.uid, answer.decision)
                else:
                    self.refused += 1
                    await asyncio.sleep(PAUSE_SECONDS)

    async def until_told(self, count: int) -> None:
        """One call at a time, until so many decisions in all were told."""
        await self.call(0, lambda: len(self.acknowledged) >= count)

    async def until_refused(self, count: int) -> None:
        """One call at a time, until so many more found no room."""
        enough = self.refused + count
        await self.call(0, lambda: self.refused >= enough)


def run(members: dict[str, Member], uid: str, decision: Any) -> None:
    """A controller runs what was decided."""
    for share in decision.clusters:
        order = Order(
            binding=uid, decision=decision.id, requirements=REQUIREMENTS, replicas=share.replicas
        )
        members[share.name].run(order)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedOver:
    """What came of it. ``back_seconds`` is from the first command of who promotes to the first
    decision told since. ``warned_by``: who said before that something may be lost.
    """

    acknowledged: int
    before: int
    failed: int
    lost: int
    pending: int
    back_seconds: float
    synchronous: bool = True
    warned_by: frozenset[str] = frozenset()

    def broken(self) -> list[str]:
        """Which promises; what may be lost is lost with a warning only."""
        broken = []
        if self.lost and self.synchronous:
            broken.append("what was told is lost")
        if self.pending:
            broken.append("what was promised has no node")
        if self.back_seconds > GOAL_SECONDS:
            broken.append("decisions came back late")
        if self.warned_by != (frozenset() if self.synchronous else frozenset(WARNINGS)):
            broken.append("what may be lost was not said, or said in vain")
        return broken


def fail_over(folder: Path, *, synchronous: bool, seconds: float) -> FailedOver:
    """Load for ``seconds``, the failover, and load for as long again."""
    with pair(folder) as both:
        upgrade(both.primary_url)
        both.follow(synchronous=synchronous)
        address = MovableAddress(both.primary_sockets)
        with running_planes(folder, 2, address.url, PACE) as planes:
            warned_by = _warned_by(planes, address.url)
            result = asyncio.run(_drill(planes, both, address, seconds))
        address.close()
        return replace(result, synchronous=synchronous, warned_by=warned_by)


def _warned_by(planes: Planes, url: str) -> frozenset[str]:
    doctor = federation("doctor", FEDERATION_DATABASE_URL=url)
    says = {
        "start": "\n".join(line for plane in planes.all for line in plane.lines()),
        "doctor": doctor.stdout + doctor.stderr,
    }
    return frozenset(who for who, warning in WARNINGS.items() if warning in says[who])


async def _drill(planes: Planes, both: Pair, address: MovableAddress, seconds: float) -> FailedOver:
    there = members()
    credentials = await enrolled(planes.endpoints[0], planes.token, there)
    load, stopped = Load(planes=planes, members=there), asyncio.Event()
    async with living(there, planes, credentials):
        callers = [
            asyncio.create_task(load.call(number, stopped.is_set)) for number in range(CALLERS)
        ]
        try:
            await until(_count(load), lambda count: count > CALLERS)
            await asyncio.sleep(seconds)
            before = len(load.acknowledged)
            await asyncio.to_thread(both.kill_primary)
            began = time.monotonic()
            await asyncio.to_thread(both.promote)
            address.move(both.standby_sockets)
            # What was under way when the primary died may be told until now.
            moved = time.monotonic()
            told = await until(
                _count(load), lambda _: any(at > moved for at in load.acknowledged.values())
            )
            assert told
            back = min(at for at in load.acknowledged.values() if at > moved) - began
            await asyncio.sleep(seconds)
            stopped.set()
            await asyncio.gather(*callers)
            async with connected(both.standby_url) as database:
                kept = {row[0] for row in await database.fetch(DECISIONS)}
            pending = await until(pending_in(there), lambda count: count == 0)
        finally:
            await end(*callers)
    return FailedOver(
        acknowledged=len(load.acknowledged),
        before=before,
        failed=load.failed,
        lost=len(load.acknowledged.keys() - kept),
        pending=pending,
        back_seconds=back,
    )


def _count(load: Load) -> Any:
    async def count() -> int:
        await asyncio.sleep(PAUSE_SECONDS)
        return len(load.acknowledged)

    return count


def pending_in(there: dict[str, Member]) -> Any:
    """Pods without a node: what was promised twice finds none."""

    async def pending() -> int:
        await asyncio.sleep(PAUSE_SECONDS)
        return sum(len(each.cluster.waiting) for each in there.values())

    return pending


# Two of the cores of each node hold twenty replicas: two hundred bindings of two fill the fleet.
FEW_CORES, FEW_NODES = 2, 5
BEFORE, SINCE, FROZEN = 50, 50, 20


@dataclass(frozen=True, slots=True, kw_only=True)
class WentBack:
    """What came of it: decisions that were told before the backup, between it and the restore,
    while no agent had reported since, and afterwards until nothing fitted any more.
    """

    before: int
    since: int
    frozen: int
    after: int
    pending: int


def go_back(folder: Path) -> WentBack:
    with restorable(folder) as server:
        upgrade(server.url)
        address = MovableAddress(server.sockets)
        with running_planes(folder, 2, address.url, PACE) as planes:
            result = asyncio.run(_drill_restore(planes, server, address))
        address.close()
        return result


async def _drill_restore(planes: Planes, server: Restorable, address: MovableAddress) -> WentBack:
    there = members(FEW_CORES, FEW_NODES)
    credentials = await enrolled(planes.endpoints[0], planes.token, there)
    load = Load(planes=planes, members=there)
    async with living(there, planes, credentials):
        await load.until_told(BEFORE)
        await asyncio.to_thread(server.back_up)
        await load.until_told(BEFORE + SINCE)
        since = len(load.acknowledged) - BEFORE
        for member in there.values():
            member.fall_silent()
        await asyncio.to_thread(server.restore)
        address.move(server.restored_sockets)
        held = len(load.acknowledged)
        await load.until_refused(FROZEN)
        frozen = len(load.acknowledged) - held
        for member in there.values():
            member.speak()
        await load.until_told(held + frozen + 1)
        await load.until_refused(FROZEN)
        after = len(load.acknowledged) - held - frozen
        pending = await until(pending_in(there), lambda count: count == 0)
    return WentBack(before=BEFORE, since=since, frozen=frozen, after=after, pending=pending)
