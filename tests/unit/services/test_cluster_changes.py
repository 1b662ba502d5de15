"""What the other replicas are told when a cluster joins, changes, changes hands, or goes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from federation.agents.sessions import Sessions
from federation.model.errors import NotFound
from federation.model.reservations import Reservation
from federation.model.workload import ReplicaRequirements
from federation.services.agent_values import AgentHello
from federation.services.fleet.registry import FleetOwner
from federation.services.journal import (
    Change,
    ClusterChanged,
    LedgerVersion,
    Position,
    ReportAdvanced,
    StoredReservations,
)
from federation.services.members.join import Registration
from federation.services.members.lifecycle import Membership
from federation.services.members.reports import Reporting
from federation.store.postgres import PostgresStore
from lab.services import join, make_report


class Told:
    """The changes since it was asked last."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self._position = Position()

    async def changes(self) -> list[Change]:
        async with self._store.reading() as read:
            entries = await read.journal.read(self._position, 100)
        if entries:
            self._position = entries[-1].position
        return [entry.change for entry in entries]


@pytest.fixture
def told(store: PostgresStore) -> Told:
    return Told(store)


@pytest.fixture
async def membership(
    store: PostgresStore, fleet: FleetOwner, registration: Registration, told: Told
) -> Membership:
    """Two clusters, ``a`` and ``b``, and a binding that holds something in both."""
    for name in ("a", "b"):
        await join(registration, name)
    async with store.transaction() as tx:
        await tx.reservations.put([holding("a", "b")], {})
    assert await told.changes() == [ClusterChanged(cluster="a"), ClusterChanged(cluster="b")]
    return Membership(store, fleet, Sessions())


def holding(*clusters: str) -> StoredReservations:
    return StoredReservations(
        namespace="shop",
        name="web",
        reservations=tuple(
            Reservation(
                binding="shop/web",
                cluster=cluster,
                requirements=ReplicaRequirements(request={"cpu": 1000}),
                replicas=2,
                decisions=("d1",),
            )
            for cluster in clusters
        ),
    )


async def held(store: PostgresStore) -> list[str]:
    async with store.reading() as read:
        rows = await read.reservations.all()
    return [each.cluster for row in rows for each in row.reservations]


async def test_a_cordon_is_told_once(membership: Membership, told: Told) -> None:
    await membership.cordon("a", cordoned=True)
    assert await told.changes() == [ClusterChanged(cluster="a")]
    await membership.cordon("a", cordoned=True)
    assert await told.changes() == []
    await membership.cordon("a", cordoned=False)
    assert await told.changes() == [ClusterChanged(cluster="a")]


async def test_another_spec_is_told_and_the_same_is_not(
    membership: Membership, registration: Registration, told: Told
) -> None:
    cluster = (await registration.get_cluster("a")).cluster
    wanted = replace(cluster, region="north")
    await registration.update_cluster(wanted, None, now=1e6)
    assert await told.changes() == [ClusterChanged(cluster="a")]
    await registration.update_cluster(wanted, None, now=1e6)
    assert await told.changes() == []


async def test_a_revocation_is_told(membership: Membership, told: Told) -> None:
    await membership.revoke("a")
    assert await told.changes() == [ClusterChanged(cluster="a")]


async def test_a_deletion_is_told_and_takes_promises_along(
    membership: Membership, store: PostgresStore, told: Told
) -> None:
    await membership.delete("a", force=True)
    assert await told.changes() == [ClusterChanged(cluster="a", deleted=True)]
    assert await held(store) == ["b"]
    with pytest.raises(NotFound):
        await membership.delete("a", force=True)
    assert await told.changes() == []


async def test_a_replacement_is_a_version_of_the_ledger(
    membership: Membership,
    registration: Registration,
    reporting: Reporting,
    store: PostgresStore,
    told: Told,
) -> None:
    async with store.transaction() as tx:
        before = (await tx.journal.lock(["a"]))["a"]
    await membership.replace("a", "uid-of-another")
    (change,) = await told.changes()
    assert isinstance(change, ClusterChanged)
    assert change == ClusterChanged(cluster="a", emptied=before.version + 1, nonce=change.nonce)
    async with store.transaction() as tx:
        after = (await tx.journal.lock(["a"]))["a"]
    assert after == LedgerVersion(change.emptied, change.nonce)
    assert await held(store) == ["b"]
    issued = await join(registration, "a", cluster_uid="uid-of-another")
    await reporting.connected("a", AgentHello(epoch=1), issued.id)
    await reporting.accept("a", make_report(1))
    report = ReportAdvanced(cluster="a", version=before.version + 2, epoch=1, sequence=1)
    newest = (await told.changes())[-1]
    assert isinstance(newest, ReportAdvanced)
    assert replace(newest, nonce=0) == report
