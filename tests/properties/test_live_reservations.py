"""Whatever callers, agents and control planes do in any order: promises hold in the real services.

Several sets of services share one real database in one process; the journal is replayed by the
independent checker after every step, and all sets must come to the same.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import asyncpg
import numpy as np
import pytest
from hypothesis import settings
from sqlalchemy.ext.asyncio import AsyncEngine

from federation.capacity.cluster_room import ReportId
from federation.model.errors import Conflict, NotFound, NotPlacedTogether
from federation.model.placement import (
    Binding,
    Certificate,
    DivisionPreference,
    Placement,
    ReplicaScheduling,
    SchedulingType,
)
from federation.model.workload import Component, NodeClaim, ReplicaRequirements, TargetCluster
from federation.scheduler.decision import Outcome
from federation.services.agent_values import AgentHello, Placer
from federation.services.members.join import Registration
from federation.services.values import Scheduled
from federation.store.postgres import PostgresStore
from lab.chaos.audit import Audit, open_database
from lab.chaos.members import report_of
from lab.chaos.slow_ledger import SeenReport, SlowLedger
from lab.packed_clusters import RESOURCES
from lab.promising import interests_of
from lab.services import join, reservations_of
from lab.simulator_cluster import ZONE_LABEL, Order, SimulatedCluster
from lab.simulator_cluster import Placer as Places
from lab.slow_packer import broken_promise
from tests import examples
from tests.replicas import Replica
from tests.stores import engine, store

__all__ = ["engine", "store"]

CLUSTERS = {"member1": Places.CLAIMS, "member2": Places.RANDOM, "member3": Places.LEAST_ALLOCATED}
REPLICAS, STEPS = 3, 45
SEEDS, FURTHER_SEEDS = 4, 30
DIVIDED, AGGREGATED = SchedulingType.DIVIDED, DivisionPreference.AGGREGATED
BY_CAPACITY = (
    ReplicaScheduling(type=DIVIDED, dynamic=True),
    ReplicaScheduling(type=DIVIDED, preference=AGGREGATED),
)
HEEDLESS = (ReplicaScheduling(type=DIVIDED), ReplicaScheduling())
PLACED = {Outcome.SCHEDULED, Outcome.PARTIAL}


@dataclass(slots=True, kw_only=True)
class Owned:
    """A binding as its owner last asked for it, and as it is."""

    binding: Binding
    clusters: tuple[TargetCluster, ...] = ()


@dataclass(slots=True, kw_only=True)
class Federation:
    """Replicas, clusters, bindings, and what happened."""

    store: PostgresStore
    database: asyncpg.Connection
    random: random.Random
    clusters: dict[str, SimulatedCluster]
    replicas: list[Replica]
    audit: Audit
    sent: dict[tuple[str, ReportId], SeenReport]
    owned: dict[str, Owned] = field(default_factory=dict)
    serial: int = 0
    placed: int = 0
    refused: int = 0
    together: dict[bool, int] = field(default_factory=lambda: {True: 0, False: 0})
    log: list[str] = field(default_factory=list)

    # What may happen

    async def submit(self) -> None:
        await self._schedule(self._new())

    async def submit_at_once(self) -> None:
        """Through different control planes, none of which knows of the others."""
        several = [self._new() for _ in range(self.random.randint(2, 6))]
        if self.owned:
            several.append(self._changed(self._one()))
        await asyncio.gather(*(self._schedule(each) for each in several))

    async def submit_together(self) -> None:
        """Atomic batches through different control planes, and others beside them."""
        batches = [[self._new() for _ in range(self.random.randint(2, 4))] for _ in range(2)]
        if self.owned:
            batches[0].append(self._changed(self._one()))
        await asyncio.gather(
            *(self._schedule_together(each) for each in batches), self._schedule(self._new())
        )

    async def change(self) -> None:
        if self.owned:
            await self._schedule(self._changed(self._one()))

    async def shrink(self) -> None:
        """I5: what a binding holds is free for it, however full the clusters are."""
        owned = self._one() if self.owned else None
        if owned is None or not owned.clusters or owned.binding.components:
            return
        binding = owned.binding
        running = sum(each.replicas for each in owned.clusters)
        if (
            running < 2
            or running != binding.replicas
            or binding.placement.replica_scheduling not in BY_CAPACITY
            or any(self._is_overcommitted(each.name) for each in owned.clusters)
            or not self._holds_everything(owned)
        ):
            return
        scheduled = await self._schedule(replace(binding, replicas=running - 1))
        assert scheduled is None or scheduled.record.decision.outcome is Outcome.SCHEDULED

    async def report(self) -> None:
        await self._report(self.random.choice(list(self.clusters)))

    async def place(self) -> None:
        """Some pods that wait get nodes."""
        cluster = self.random.choice(list(self.clusters.values()))
        waiting = cluster.waiting
        some = self.random.sample(waiting, self.random.randint(0, len(waiting)))
        cluster.place(some, np.random.default_rng(self.random.randrange(1 << 30)))

    async def release(self) -> None:
        if not self.owned:
            return
        binding = self._one().binding
        await self._quietly(self._any().releases.release(binding.namespace, binding.name))

    async def delete(self) -> None:
        if not self.owned:
            return
        owned = self._one()
        binding = owned.binding
        del self.owned[binding.key]
        await self._quietly(self._any().releases.delete(binding.namespace, binding.name))
        for cluster in self.clusters.values():
            cluster.remove(binding.uid)

    async def expire(self) -> None:
        """All leases run out."""
        await self.database.execute(
            "UPDATE reservation SET lease_expires_at = now() - interval '1 second' "
            "WHERE lease_expires_at IS NOT NULL"
        )
        await self._any().releases.expire_leases(self.store.transaction)
        left = "SELECT count(*) FROM reservation WHERE lease_expires_at IS NOT NULL"
        assert await self.database.fetchval(left) == 0

    async def crash(self) -> None:
        """A control plane is gone, and another one starts from what is stored."""
        self.replicas.pop(self.random.randrange(len(self.replicas))).pipeline.close()
        replica = Replica(self.store)
        await replica.start()
        self.replicas.append(replica)

    # What must hold

    async def check(self) -> None:
        for replica in self.replicas:
            await replica.following.follow()
        await self.audit.follow(self.database)
        assert self.audit.violations == []
        for ledger in self.audit.ledgers.values():
            assert ledger.violations == []
            for replica in self.replicas:
                self._check_cluster(replica, ledger)
        self._check_agreement()

    def _check_cluster(self, replica: Replica, slow: SlowLedger) -> None:
        """I4 and I6: what is outstanding is what the checker reckons, packed, or known not to."""
        name = slow.cluster
        ledger = replica.fleet.ledger(name)
        assert ledger.version == slow.version
        outstanding = Counter[tuple[str, str]]()
        for promise in ledger.outstanding():
            if promise.to_pack:
                outstanding[promise.binding, promise.component] += promise.to_pack
        expected = {promise.part: promise.replicas for promise in slow.demands()}
        if name in replica.knowing:
            assert outstanding == expected
        else:
            # What was adopted counts as not there until an agent speaks for it again.
            assert all(outstanding.get(part, 0) >= n for part, n in expected.items())
        snapshot = replica.fleet.snapshot
        room = snapshot.rooms.rooms[snapshot.positions[name]]
        assert room is not None
        assert broken_promise(room.pools, room.holdings) == ""
        assert room.overcommitted or not any(promise.unplaced for promise in room.holdings)
        assert room.overcommitted or slow.packs()

    def _check_agreement(self) -> None:
        """Whoever lived through everything knows the same."""
        first, *others = self.replicas
        for name in CLUSTERS:
            ledger = first.fleet.ledger(name)
            for other in others:
                theirs = other.fleet.ledger(name)
                assert theirs.bindings() == ledger.bindings()
                if name not in first.knowing or name not in other.knowing:
                    continue
                for key in ledger.bindings():
                    assert theirs.of_binding(key) == ledger.of_binding(key)
                assert theirs.order() == ledger.order()
                assert other.free_cells(name) == first.free_cells(name)

    # How it happens

    async def _schedule(self, binding: Binding) -> Scheduled | None:
        replica = self._any()
        try:
            scheduled = await replica.pipeline.submit(binding, adopt=False, wait=True)
        except Conflict:
            return None
        await self._take(replica, binding, scheduled)
        return scheduled

    async def _schedule_together(self, bindings: list[Binding]) -> None:
        """All are placed, or none, and of those that are not nothing is stored."""
        replica = self._any()
        submitted = replica.pipeline.submit_together((each, False, None) for each in bindings)
        answers = await asyncio.gather(*submitted, return_exceptions=True)
        placed = [
            each
            for each in answers
            if isinstance(each, Scheduled) and each.record.decision.outcome in PLACED
        ]
        self.together[bool(placed)] += 1
        if placed:
            for binding, scheduled in zip(bindings, placed, strict=True):
                await self._take(replica, binding, scheduled)
            return
        for answer in answers:
            if isinstance(answer, Scheduled):
                assert (answer.record.id, answer.binding) == ("", None)
            else:
                assert isinstance(answer, (Conflict, NotPlacedTogether))
        async with self.store.reading() as read:
            stored = await read.bindings.find([(each.namespace, each.name) for each in bindings])
        assert {f"{namespace}/{name}" for namespace, name in stored} <= self.owned.keys()

    async def _take(self, replica: Replica, binding: Binding, scheduled: Scheduled) -> None:
        """Remember what was decided, and let the clusters run it."""
        before = self.owned.get(binding.key)
        decision = scheduled.record.decision
        self.log.append(f"  {binding.key}: {decision.outcome} {decision.clusters}")
        had = before.clusters if before else binding.clusters
        is_placed = decision.outcome in PLACED
        assert scheduled.binding is not None
        # I8, and every other refusal: the old placement stays.
        assert scheduled.binding.clusters == (decision.clusters if is_placed else had)
        self.placed, self.refused = self.placed + is_placed, self.refused + (not is_placed)
        self.owned[binding.key] = Owned(binding=binding, clusters=scheduled.binding.clusters)
        if is_placed and not binding.components:
            await self._run(replica, binding, scheduled.record.id, had, decision.clusters)

    async def _run(
        self,
        replica: Replica,
        binding: Binding,
        decision: str,
        had: tuple[TargetCluster, ...],
        clusters: tuple[TargetCluster, ...],
    ) -> None:
        """The clusters are told; whose agent finds no node for a plan says so."""
        for gone in {each.name for each in had} - {each.name for each in clusters}:
            self.clusters[gone].remove(binding.uid)
        for target in clusters:
            cluster = self.clusters[target.name]
            order = Order(
                binding=binding.uid,
                decision=decision,
                requirements=binding.requirements,
                replicas=target.replicas,
            )
            cluster.run(order)
            if cluster.follows_claims and binding.uid in cluster.unplanned:
                await replica.releases.downgrade(
                    binding.namespace, binding.name, decision, target.name, "no room"
                )

    async def _report(self, name: str) -> None:
        """The agent is told what to look for, as one control plane knows it, or not yet."""
        cluster, replica = self.clusters[name], self._any()
        if self.random.random() < 0.7:
            ledger = replica.fleet.ledger(name)
            fleet = replica.fleet
            cluster.told(ledger.interest_version, interests_of(ledger, fleet.owners, fleet.uids))
        snapshot = cluster.snapshot()
        self.sent[name, snapshot.report] = SeenReport(
            report=snapshot.report,
            pools=snapshot.pools,
            interest_version=snapshot.interest_version,
            echoes=snapshot.echoes,
        )
        await replica.reporting.accept(name, report_of(snapshot, cluster))
        if snapshot.interest_version >= replica.fleet.ledger(name).interest_version:
            for each in self.replicas:
                each.knowing.add(name)

    async def _quietly(self, call: Awaitable[object]) -> None:
        """There may be nothing to end any more."""
        try:
            await call
        except (NotFound, Conflict) as error:
            self.log.append(f"  {error}")

    def _new(self) -> Binding:
        self.serial += 1
        choose = self.random.choice
        binding = Binding(
            namespace="shop",
            name=f"web{self.serial}",
            uid=f"uid-{self.serial}",
            replicas=self.random.randint(1, 9),
            requirements=self._requirements(),
            placement=Placement(
                replica_scheduling=choose((*BY_CAPACITY, *BY_CAPACITY, *HEEDLESS)),
                partial=self.random.random() < 0.2,
            ),
            certificate=choose((None, None, *Certificate)),
            lease_seconds=choose((None, None, None, 60)),
        )
        chance = self.random.random()
        if chance < 0.15:
            # It runs already.
            at = TargetCluster(name=choose(list(CLUSTERS)), replicas=binding.replicas)
            return replace(binding, clusters=(at,))
        if chance < 0.25:
            parts = [
                Component(
                    name=name,
                    replicas=self.random.randint(1, 3),
                    requirements=self._requirements(),
                )
                for name in ("leader", "worker")
            ]
            return replace(
                binding, components=tuple(parts), replicas=sum(each.replicas for each in parts)
            )
        return binding

    def _changed(self, owned: Owned) -> Binding:
        binding = owned.binding
        if binding.components:
            return binding
        if self.random.random() < 0.25:
            return replace(binding, requirements=self._requirements())
        return replace(binding, replicas=self.random.randint(1, 9))

    def _requirements(self) -> ReplicaRequirements:
        request = {"cpu": self.random.randint(1, 9), "memory": self.random.choice([0, 2, 5])}
        zone = NodeClaim(node_selector={ZONE_LABEL: "zone-1"})
        return ReplicaRequirements(
            request=request, node_claim=zone if self.random.random() < 0.2 else None
        )

    def _holds_everything(self, owned: Owned) -> bool:
        """Not after a release, nor when its lease ran out, nor of what it was refused to become."""
        held = {
            each.cluster: each.replicas
            for each in reservations_of(self.replicas[0].fleet, owned.binding.key)
            if each.requirements == owned.binding.requirements
        }
        return held == {each.name: each.replicas for each in owned.clusters}

    def _is_overcommitted(self, name: str) -> bool:
        return any(
            room is not None and bool(room.overcommitted)
            for replica in self.replicas
            for snapshot in [replica.fleet.snapshot]
            for room in [snapshot.rooms.rooms[snapshot.positions[name]]]
        )

    def _any(self) -> Replica:
        return self.random.choice(self.replicas)

    def _one(self) -> Owned:
        return self.random.choice(list(self.owned.values()))


def _cluster(name: str, placer: Places, seed: random.Random) -> SimulatedCluster:
    choices = np.random.default_rng(seed.randrange(1 << 30))
    most = np.array([40, 40, 12, 40, 3])[:, np.newaxis]
    allocatable_rn = choices.integers(1, most, (len(RESOURCES), seed.choice([3, 8, 20])))
    return SimulatedCluster(
        name=name,
        allocatable_rn=allocatable_rn,
        free_rn=allocatable_rn.copy(),
        placer=placer,
        budget=16,
        zones=2,
    )


@asynccontextmanager
async def federation(
    store: PostgresStore, database_url: str, seed: int
) -> AsyncIterator[Federation]:
    """Replicas of control planes, clusters that have reported, and the checker."""
    source = random.Random(seed)
    sent: dict[tuple[str, ReportId], SeenReport] = {}
    replicas = [Replica(store) for _ in range(REPLICAS)]
    first = replicas[0]
    registration = Registration(store, first.fleet)
    for name, placer in CLUSTERS.items():
        issued = await join(registration, name)
        follows = Placer.EXTENDER if placer is Places.CLAIMS else Placer.NONE
        hello = AgentHello(epoch=1, placer=follows)
        await first.reporting.connected(name, hello, issued.id)
    for replica in replicas:
        await replica.start()
        replica.knowing |= CLUSTERS.keys()
    database = await open_database(database_url)
    try:
        made = Federation(
            store=store,
            database=database,
            random=source,
            clusters={name: _cluster(name, each, source) for name, each in CLUSTERS.items()},
            replicas=replicas,
            audit=Audit(sent=sent),
            sent=sent,
        )
        await made.audit.begin(database)
        for name in CLUSTERS:
            await made._report(name)
        await made.check()
        yield made
    finally:
        for replica in replicas:
            replica.pipeline.close()
        await database.close()


HAPPENINGS: Mapping[Callable[[Federation], Awaitable[None]], int] = {
    Federation.submit: 6,
    Federation.submit_at_once: 6,
    Federation.submit_together: 4,
    Federation.change: 5,
    Federation.shrink: 4,
    Federation.report: 8,
    Federation.place: 6,
    Federation.release: 1,
    Federation.delete: 3,
    Federation.expire: 1,
    Federation.crash: 2,
}


def seeds() -> range:
    explores = settings.get_current_profile_name() == examples.EXPLORE
    return range(FURTHER_SEEDS if explores else SEEDS)


@pytest.mark.parametrize("seed", seeds())
async def test_promises_hold_whatever_happens(
    store: PostgresStore,
    engine: AsyncEngine,
    database_url: str,
    seed: int,
) -> None:
    async with federation(store, database_url, seed) as made:
        happenings = made.random.choices(list(HAPPENINGS), list(HAPPENINGS.values()), k=STEPS)
        for happening in happenings:
            made.log.append(happening.__name__)
            try:
                await happening(made)
                await made.check()
            except AssertionError as error:
                error.add_note("\n".join(made.log))
                raise
        await made.audit.finish(made.database)
        assert made.audit.violations == []
        assert made.placed > 5
        assert made.refused > 0
        assert made.audit.checked > 5
        assert made.together[True] + made.together[False] > 0
