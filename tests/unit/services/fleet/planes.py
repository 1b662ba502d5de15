"""Control planes over one database, for tests of what each learns of the other."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

from federation.model.echoes import Owner
from federation.model.reservations import Share
from federation.model.workload import ReplicaRequirements
from federation.services.fleet.journal_reader import Following
from federation.services.fleet.registry import FleetOwner
from federation.services.journal import (
    BindingChanged,
    ClusterShares,
    StoredReservations,
    new_nonce,
    nonces_by_cluster,
)
from federation.services.members.join import Registration
from federation.services.members.lifecycle import Membership
from federation.services.members.reports import Reporting, ReportTimes
from federation.store.postgres import PostgresStore
from lab.reports import echo, nodes
from lab.services import UnsteadyStore, make_report

SMALL = {"cpu": 100}
OWNER = Owner("apps/v1", "Deployment", "shop", "web")


class Streams:
    """Implements AgentStreams."""

    def dismiss(self, cluster: str, error: Exception) -> None:
        """Nobody is connected."""


class Clock:
    def now(self) -> float:
        return 1000.0

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Plane:
    """One control plane: its fleet, and what it commits."""

    def __init__(self, store: PostgresStore) -> None:
        self.store = UnsteadyStore(store)
        self.fleet = FleetOwner(self.store)
        self.following = Following(self.store, self.fleet)
        self.registration = Registration(self.store, self.fleet)
        self.membership = Membership(self.store, self.fleet, Streams())
        self.reporting = Reporting(
            self.store,
            self.fleet,
            Clock(),
            ReportTimes(batch_seconds=0.0),
            following=self.following,
        )

    async def decide(
        self, name: str, replicas: Mapping[str, int], *, is_applied: bool = True
    ) -> BindingChanged:
        """Replicas by cluster; none: it lets go."""
        async with self.store.transaction() as tx:
            versions = await tx.journal.lock(sorted(replicas))
            await self.following.catch_up(tx, versions)
            change = self._change(name, replicas)
            await tx.journal.advance(
                {n: each.version for n, each in change.clusters.items()},
                nonces_by_cluster([change]),
            )
            await tx.reservations.put([self._row(change)], {})
            await tx.journal.append([change])
        if is_applied:
            self.fleet.apply(change)
        return change

    def _change(self, name: str, replicas: Mapping[str, int]) -> BindingChanged:
        share = Share(requirements=ReplicaRequirements(request=SMALL), replicas=1)
        return BindingChanged(
            namespace="shop",
            name=name,
            uid=f"uid-{name}",
            owner=OWNER,
            decision=f"decision of {name} {dict(replicas)}",
            nonce=new_nonce(),
            clusters={
                cluster: ClusterShares(
                    version=self.fleet.ledger(cluster).version + 1,
                    shares=(share._replace(replicas=count),) if count else (),
                )
                for cluster, count in replicas.items()
            },
        )

    def _row(self, change: BindingChanged) -> StoredReservations:
        held = {
            cluster: self.fleet.ledger(cluster).of_binding(change.key)
            for cluster in self.fleet.holdings(change.key)
        }
        for cluster, given in change.clusters.items():
            ledger = self.fleet.ledger(cluster).decided(change.key, change.decision, given.shares)
            held[cluster] = ledger.of_binding(change.key) if given.shares else ()
        return StoredReservations(
            namespace=change.namespace,
            name=change.name,
            uid=change.uid,
            owner=change.owner,
            reservations=tuple(each for name in sorted(held) for each in held[name]),
        )

    async def report(self, cluster: str, sequence: int, bound: Mapping[str, int]) -> None:
        report = replace(
            make_report(sequence),
            pools=nodes(4, cpu=1000),
            interest_version=self.fleet.ledger(cluster).version,
            echoes=tuple(echo(f"shop/{name}", SMALL, count) for name, count in bound.items()),
        )
        await self.reporting.accept(cluster, report)


async def settle(*planes: Plane) -> None:
    for each in planes:
        await each.following.follow()


def assert_equal(one: Plane, other: Plane) -> None:
    assert one.fleet.snapshot.names == other.fleet.snapshot.names
    assert one.fleet.snapshot.ledgers == other.fleet.snapshot.ledgers
    assert one.fleet.snapshot.states == other.fleet.snapshot.states
    assert one.fleet.snapshot.outstanding == other.fleet.snapshot.outstanding
    assert (one.fleet.owners, one.fleet.uids) == (other.fleet.owners, other.fleet.uids)
    assert not one.fleet.behind()
