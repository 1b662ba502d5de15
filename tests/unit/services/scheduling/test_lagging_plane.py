"""A control plane that lags behind: clusters that it has not read of yet have not left."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest

from federation.model.access import EVERYTHING
from federation.model.placement import Binding, ClusterAffinity, Placement
from federation.services.fleet.journal_reader import Following
from federation.services.fleet.registry import FleetOwner
from federation.services.members.join import Registration
from federation.services.members.lifecycle import Membership
from federation.services.members.reports import Reporting
from federation.services.ports import Transaction
from federation.services.scheduling import attempt, commit
from federation.services.scheduling.pipeline import DecisionPipeline
from federation.services.scheduling.working_copy import WorkingCopy
from federation.store.postgres import PostgresStore
from lab.databases import connect
from lab.services import (
    DYNAMIC,
    WEB,
    UnsteadyStore,
    apply,
    decided,
    join_and_report,
    make_report,
    shares,
)
from tests.unit.services.conftest import ControlPlane, Streams, held

OLD, NEW = "a", "xnew"
BOTH = replace(
    WEB,
    replicas=6,
    placement=Placement(
        affinity=ClusterAffinity(cluster_names=(OLD, NEW)), replica_scheduling=DYNAMIC
    ),
)


@pytest.fixture
async def added(
    one: ControlPlane,
    other: ControlPlane,
    store: PostgresStore,
    fleet: FleetOwner,
    registration: Registration,
    reporting: Reporting,
) -> None:
    """One has added a cluster and placed a binding there; the other has read nothing of it."""
    await join_and_report(registration, reporting, {NEW: make_report(7, cpu_millis=8000)})
    placed = await apply(one.deciders.scheduling, BOTH)
    assert decided(placed).keys() == {OLD, NEW}
    assert not other.fleet.has(NEW)


def scaled(more: int) -> Binding:
    return replace(BOTH, replicas=BOTH.replicas + more)


async def free(store: PostgresStore, *planes: ControlPlane) -> list[dict[str, int]]:
    """By plane, and by one that starts now: how many replicas of 1 core fit in each cluster."""
    fresh = FleetOwner(store)
    await fresh.load(grace_until=0.0)
    return [_free(fleet) for fleet in (*(plane.fleet for plane in planes), fresh)]


def _free(fleet: FleetOwner) -> dict[str, int]:
    working = WorkingCopy(fleet.snapshot)
    one_core = replace(WEB, name="asks", uid="", replicas=1)
    available = working.availability(one_core, None)
    return dict(zip(fleet.snapshot.names, available.replicas_c.tolist(), strict=True))


async def assert_equally_free(store: PostgresStore, *planes: ControlPlane) -> None:
    for plane in planes:
        await plane.follow()
    first, *others = await free(store, *planes)
    assert others == [first] * len(others)


async def ledger_version(store: PostgresStore, cluster: str = NEW) -> int:
    async with store.transaction() as tx:
        return (await tx.journal.lock([cluster]))[cluster].version


@pytest.mark.usefixtures("added")
async def test_a_share_in_a_cluster_that_was_not_heard_of_stays_when_its_binding_grows(
    one: ControlPlane, other: ControlPlane, store: PostgresStore
) -> None:
    before, version = await held(store), await ledger_version(store)
    grown = await apply(other.deciders.scheduling, scaled(1))
    assert "xnew is gone" not in str(grown.record.decision.trace)
    after = await held(store)
    assert after == decided(grown)
    assert sum(after.values()) == BOTH.replicas + 1
    assert all(after[name] >= count for name, count in before.items())
    assert await ledger_version(store) > version
    await assert_equally_free(store, one, other)


@pytest.mark.usefixtures("added")
async def test_a_preview_keeps_a_share_in_a_cluster_that_was_not_heard_of(
    one: ControlPlane, other: ControlPlane, store: PostgresStore
) -> None:
    before = await held(store)
    previewed = await other.deciders.previews.preview(scaled(1), adopt=False, wait=True)
    shown = shares(previewed.record.decision.clusters)
    assert all(shown[name] >= count for name, count in before.items())
    await other.deciders.previews.commit(previewed.token, None, EVERYTHING)
    assert await held(store) == shown
    await assert_equally_free(store, one, other)


@pytest.mark.usefixtures("added")
async def test_what_ends_where_nothing_was_heard_of_the_cluster_is_free_for_all(
    one: ControlPlane, other: ControlPlane, store: PostgresStore
) -> None:
    version = await ledger_version(store)
    await other.deciders.releases.delete("shop", "web")
    assert await held(store) == {}
    assert await ledger_version(store) == version + 1
    await assert_equally_free(store, one, other)


@pytest.mark.usefixtures("added")
async def test_a_release_names_a_cluster_that_was_not_heard_of(
    one: ControlPlane, other: ControlPlane, store: PostgresStore
) -> None:
    ended = await other.deciders.releases.release("shop", "web", clusters=[NEW])
    assert [each.cluster for each in ended] == [NEW]
    assert (await held(store)).keys() == {OLD}
    await assert_equally_free(store, one, other)


@pytest.mark.usefixtures("added")
async def test_a_name_that_was_given_again_is_not_of_the_cluster_that_left(
    one: ControlPlane,
    other: ControlPlane,
    store: PostgresStore,
    registration: Registration,
    reporting: Reporting,
) -> None:
    """Nothing is held there any more when the binding is asked for, and what runs there stays."""
    await other.follow()
    await Membership(store, one.fleet, Streams()).delete(NEW, force=True)
    await other.follow()
    assert not other.fleet.has(NEW)
    await join_and_report(registration, reporting, {NEW: make_report(8, cpu_millis=8000)})
    placed = decided(await apply(one.deciders.scheduling, scaled(2)))
    await one.deciders.releases.release("shop", "web", clusters=[NEW])
    grown = await apply(other.deciders.scheduling, scaled(3))
    assert all(decided(grown)[name] >= count for name, count in placed.items())
    assert await held(store) == decided(grown)
    await assert_equally_free(store, one, other)


@pytest.mark.usefixtures("added")
async def test_what_was_decided_without_a_cluster_that_was_not_heard_of_is_decided_again(
    one: ControlPlane,
    other: ControlPlane,
    store: PostgresStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The cluster is unknown once more when the decision is made, as while all is read anew."""
    before, forgotten = await held(store), list[str]()
    working = DecisionPipeline.working

    def forgetful(pipeline: DecisionPipeline) -> WorkingCopy:
        if pipeline is other.deciders.pipeline and not forgotten:
            forgotten.append(NEW)
            other.fleet.remove(NEW)
        return working(pipeline)

    monkeypatch.setattr(DecisionPipeline, "working", forgetful)
    grown = await apply(other.deciders.scheduling, scaled(1))
    assert forgotten == [NEW]
    assert all(decided(grown)[name] >= count for name, count in before.items())
    await assert_equally_free(store, one, other)


@pytest.mark.usefixtures("added")
async def test_what_the_journal_tells_of_an_unknown_cluster_is_read(
    one: ControlPlane, other: ControlPlane, store: PostgresStore
) -> None:
    """The journal tells of a promise in a cluster after it was removed here without a reason."""
    await other.follow()
    other.fleet.remove(NEW)
    await apply(one.deciders.scheduling, scaled(2))
    await assert_equally_free(store, one, other)


async def test_an_old_entry_about_a_cluster_that_left_reads_nothing(
    one: ControlPlane, store: PostgresStore, registration: Registration, reporting: Reporting
) -> None:
    counted = UnsteadyStore(store)
    fleet = FleetOwner(counted)
    following = Following(counted, fleet)
    await following.load(grace_until=0.0)
    begun = fleet.position
    await join_and_report(registration, reporting, {NEW: make_report(7, cpu_millis=8000)})
    await apply(one.deciders.scheduling, BOTH)
    await Membership(store, one.fleet, Streams()).delete(NEW, force=True)
    await following.follow()
    fleet.position, read = begun, counted.transactions
    await following.follow()
    assert not fleet.has(NEW)
    # That for the deletion itself, and none for entries before it.
    assert counted.transactions == read + 1


async def test_a_cluster_that_is_added_while_all_are_being_locked_is_locked_too(
    one: ControlPlane,
    registration: Registration,
    reporting: Reporting,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    locked: list[frozenset[str]] = []
    lock_clusters = commit.lock_clusters

    async def locking(
        tx: Transaction, fleet: FleetOwner, following: Following, names: Collection[str]
    ) -> frozenset[str]:
        moved = await lock_clusters(tx, fleet, following, names)
        locked.append(frozenset(names))
        if len(locked) == 1:
            await join_and_report(registration, reporting, {NEW: make_report(7, cpu_millis=8000)})
        return moved

    monkeypatch.setattr(commit, "lock_clusters", locking)
    monkeypatch.setattr(attempt, "TRIES_WITHOUT_LOCKS", 0)
    assert decided(await apply(one.deciders.scheduling, BOTH)).keys() == {OLD, NEW}
    assert [NEW in names for names in locked] == [False, True]


async def test_a_share_stays_while_a_transaction_of_a_stranger_holds_the_journal_back(
    one: ControlPlane,
    other: ControlPlane,
    store: PostgresStore,
    registration: Registration,
    reporting: Reporting,
    database_url: str,
) -> None:
    stranger = await connect(database_url)
    await stranger.execute("BEGIN; SELECT pg_current_xact_id()")
    await join_and_report(registration, reporting, {NEW: make_report(7, cpu_millis=8000)})
    before = decided(await apply(one.deciders.scheduling, BOTH))
    await other.follow()
    assert not other.fleet.has(NEW)
    grown = decided(await apply(other.deciders.scheduling, scaled(1)))
    assert before.keys() == {OLD, NEW}
    assert all(grown[name] >= count for name, count in before.items())
    await stranger.close()
    await assert_equally_free(store, one, other)
