"""Two control planes over one database: whoever commits, both come to the same fleet."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from federation.model.echoes import Owner
from federation.model.reservations import Share
from federation.model.workload import ReplicaRequirements
from federation.services.fleet import journal_reader as module
from federation.services.fleet.journal_reader import Following
from federation.services.fleet.registry import FleetOwner
from federation.services.journal import (
    BindingChanged,
    Change,
    ClusterShares,
    StoredReservations,
    new_nonce,
    nonces_by_cluster,
)
from federation.services.members.join import Registration
from federation.services.members.lifecycle import Membership
from federation.services.members.reports import Reporting, ReportTimes
from federation.services.ports import Transaction
from federation.services.values import AgentHello, Placer
from federation.store.postgres import PostgresStore
from tests.patience import PATIENCE_SECONDS
from tests.reports import echo, kept, nodes
from tests.services import UnsteadyStore, join, make_report

SMALL = {"cpu": 100}
OWNER = Owner("apps/v1", "Deployment", "shop", "web")


class Streams:
    """Implements AgentStreams."""

    def dismiss(self, cluster: str, error: Exception) -> None:
        """Nobody is connected."""


class Clock:
    def now(self) -> float:
        return 1000.0


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


@pytest.fixture
async def planes(store: PostgresStore) -> tuple[Plane, Plane]:
    """Both know clusters a and b, which have reported."""
    one, other = Plane(store), Plane(store)
    for each in (one, other):
        await each.fleet.load(grace_until=2000.0)
    for name in ("a", "b"):
        issued = await join(one.registration, name)
        await one.reporting.connected(name, AgentHello(epoch=1, placer=Placer.BINDER), issued.id)
        await one.report(name, 1, {})
    await settle(one, other)
    return one, other


async def test_what_one_commits_the_other_knows(planes: tuple[Plane, Plane]) -> None:
    one, other = planes
    await one.decide("web", {"a": 3, "b": 2})
    await settle(other)
    assert_equal(one, other)
    assert other.fleet.holdings("shop/web") == ("a", "b")
    assert [each.replicas for each in other.fleet.reservations_of("shop/web")] == [3, 2]
    assert (other.fleet.owners, other.fleet.uids) == (
        {"shop/web": OWNER},
        {"shop/web": "uid-web"},
    )
    assert other.fleet.snapshot.rooms.planned_c.tolist() == [True, True]
    free = [int(each.cells.min_rk[0].min()) for each in other.fleet.snapshot.cells.pools if each]
    assert free == [700, 800]


async def test_any_mixture_leads_both_to_the_same(planes: tuple[Plane, Plane]) -> None:
    chance = random.Random(7)
    sequence = {"a": 1, "b": 1}
    for number in range(60):
        actor = chance.choice(planes)
        cluster = chance.choice("ab")
        if chance.random() < 0.3:
            sequence[cluster] += 1
            bound = {f"w{each}": chance.randint(0, 3) for each in range(4)}
            await actor.report(cluster, sequence[cluster], bound)
        else:
            clusters = [cluster] if chance.random() < 0.5 else ["a", "b"]
            await actor.decide(
                f"w{chance.randint(0, 3)}", {each: chance.randint(0, 4) for each in clusters}
            )
        if number % 7 == 0:
            await settle(chance.choice(planes))
    await settle(*planes)
    assert_equal(*planes)


async def test_a_control_plane_that_starts_later_has_the_same_promises(
    planes: tuple[Plane, Plane], store: PostgresStore
) -> None:
    one, _ = planes
    await one.decide("web", {"a": 3})
    await one.decide("db", {"a": 2, "b": 1})
    await one.report("a", 2, {"web": 2})
    await one.decide("web", {"a": 4})
    late = Plane(store)
    await late.fleet.load(grace_until=2000.0)
    await settle(one, late)
    assert late.fleet.snapshot.outstanding == one.fleet.snapshot.outstanding
    for name in "ab":
        known, again = one.fleet.ledger(name), late.fleet.ledger(name)
        assert again.interest_version == again.version
        assert replace(again, interest_version=known.interest_version) == known
    await one.decide("db", {"a": 5, "b": 0})
    await settle(late)
    assert late.fleet.holdings("shop/db") == one.fleet.holdings("shop/db") == ("a",)
    assert late.fleet.snapshot.outstanding == one.fleet.snapshot.outstanding


async def test_under_its_lock_a_ledger_is_caught_up_with_before_the_feed_tells(
    planes: tuple[Plane, Plane],
) -> None:
    one, other = planes
    await one.decide("web", {"a": 3})
    await one.report("a", 2, {"web": 1})
    position = other.fleet.position
    async with other.store.transaction() as tx:
        versions = await tx.journal.lock(["a"])
        await other.following.catch_up(tx, versions)
        assert other.fleet.ledger("a") == one.fleet.ledger("a")
        assert other.fleet.version("a") == versions["a"]
    assert other.fleet.position == position
    await settle(other)
    assert_equal(one, other)


async def test_what_comes_too_early_waits_for_its_turn(planes: tuple[Plane, Plane]) -> None:
    one, other = planes
    before = other.fleet.ledger("a")
    await one.decide("web", {"a": 3})
    later = await one.decide("db", {"a": 1})
    other.fleet.apply(later)
    assert other.fleet.ledger("a") == before
    assert other.fleet.behind() == ["a"]
    await settle(other)
    assert_equal(one, other)


async def test_a_gap_that_nothing_closes_is_read_again(
    planes: tuple[Plane, Plane], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = planes
    await one.decide("web", {"a": 3})
    later = await one.decide("db", {"a": 1})
    # As if the first had never been told.
    async with other.store.reading() as read:
        other.fleet.position = await read.journal.position()
    other.fleet.apply(later)
    await settle(other)
    assert other.fleet.behind() == ["a"]
    monkeypatch.setattr(module, "OUT_OF_ORDER_SECONDS", 0.0)
    await settle(other)
    assert not other.fleet.behind()
    assert other.fleet.snapshot.outstanding == one.fleet.snapshot.outstanding


async def test_a_report_that_another_overtook_is_passed_over(
    planes: tuple[Plane, Plane],
) -> None:
    one, other = planes
    await one.report("a", 2, {})
    await one.report("a", 3, {})
    await settle(other)
    assert_equal(one, other)
    newest = other.fleet.view("a").state.report
    assert newest is not None
    assert newest.sequence == 3


async def test_clusters_that_leave_join_and_change_hands_are_followed(
    planes: tuple[Plane, Plane],
) -> None:
    one, other = planes
    await one.decide("web", {"a": 3, "b": 1})
    await settle(other)
    await one.membership.delete("a", force=True)
    await join(one.registration, "a", cluster_uid="another")
    await join(one.registration, "c")
    await one.membership.replace("b", "new")
    await settle(one, other)
    assert_equal(one, other)
    assert other.fleet.snapshot.names == ("a", "b", "c")
    assert other.fleet.view("b").cluster.uid == "new"
    assert other.fleet.holdings("shop/web") == ()
    assert other.fleet.view("a").state.report is None
    await one.membership.delete("c", force=False)
    await one.membership.cordon("a", cordoned=True)
    await settle(one, other)
    assert_equal(one, other)
    assert other.fleet.view("a").cluster.cordoned


async def test_who_slept_longer_than_the_journal_remembers_reads_everything(
    planes: tuple[Plane, Plane], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = planes
    monkeypatch.setattr(module, "AWAY_SECONDS", 0.0)
    await one.decide("web", {"a": 3})
    async with one.store.transaction() as tx:
        await tx.journal.prune(-1.0, 1000)
    await other.following.follow()
    assert other.fleet.holdings("shop/web") == ("a",)
    await one.decide("web", {"a": 5})
    await settle(one, other)
    assert other.fleet.snapshot.outstanding == one.fleet.snapshot.outstanding


async def test_a_cluster_that_was_made_anew_is_no_older_state_of_the_store(
    planes: tuple[Plane, Plane], caplog: pytest.LogCaptureFixture
) -> None:
    one, other = planes
    await one.membership.delete("a", force=True)
    await join(one.registration, "a")
    async with other.store.transaction() as tx:
        versions = await tx.journal.lock(["a"])
        assert versions["a"].version < other.fleet.version("a").version
        await other.following.catch_up(tx, versions)
    assert other.fleet.version("a") == versions["a"]
    await settle(one, other)
    assert_equal(one, other)
    assert "went back" not in caplog.text


async def test_where_too_much_is_ahead_the_ledgers_are_read_as_a_whole(
    planes: tuple[Plane, Plane], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = planes
    monkeypatch.setattr(module, "MOST_AHEAD", 3)
    for number in range(5):
        await one.decide(f"web{number}", {"a": 1, "b": 1})
    async with other.store.transaction() as tx:
        await other.following.catch_up(tx, await tx.journal.lock(["a", "b"]))
    assert other.fleet.snapshot.outstanding == one.fleet.snapshot.outstanding
    assert other.fleet.version("a") == one.fleet.version("a")
    await settle(one, other)
    assert not other.fleet.behind()
    assert "went back" not in caplog.text


async def test_changes_of_another_release_are_passed_over_and_told(
    planes: tuple[Plane, Plane], engine: AsyncEngine, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = planes
    async with engine.begin() as connection:
        await connection.execute(text("INSERT INTO journal (kind, body) VALUES ('queue', '')"))
    await one.decide("web", {"a": 3})
    await settle(one, other)
    assert_equal(one, other)
    assert caplog.text.count("changes of an unknown kind are passed over") == 2


async def test_an_observer_that_fails_keeps_nobody_from_following(
    planes: tuple[Plane, Plane], caplog: pytest.LogCaptureFixture
) -> None:
    one, other = planes
    told: list[Change] = []

    def fail(_: Change) -> None:
        raise RuntimeError("a fault of the observer")

    other.fleet.observe(fail)
    other.fleet.observe(told.append)
    change = await one.decide("web", {"a": 3})
    await settle(one, other)
    assert_equal(one, other)
    assert told == [change]
    assert "an observer failed" in caplog.text


class AwayStore:
    """A store that is away for the first few reads. Implements ports.Store."""

    def __init__(self, store: UnsteadyStore, failures: int) -> None:
        self._store = store
        self.failures = failures

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Transaction]:
        self._store.reachable = self.failures <= 0
        self.failures -= 1
        async with self._store.reading() as read:
            yield read

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        async with self._store.transaction() as tx:
            yield tx


async def test_while_the_database_is_away_it_tries_ever_less_often(
    planes: tuple[Plane, Plane], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = planes
    await one.decide("web", {"a": 3})
    store = AwayStore(other.store, failures=6)
    pauses: list[float] = []
    sleep = asyncio.sleep
    known = asyncio.Event()

    async def note(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(0)

    other.fleet.observe(lambda _: known.set())
    monkeypatch.setattr(module.asyncio, "sleep", note)
    monkeypatch.setattr(random, "uniform", lambda _least, most: most)
    running = asyncio.create_task(Following(store, other.fleet).run())
    async with asyncio.timeout(PATIENCE_SECONDS):
        await known.wait()
    running.cancel()
    assert len(pauses) >= 6
    assert pauses[:6] == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0]
    assert other.fleet.holdings("shop/web") == ("a",)


async def test_a_report_that_answers_what_is_not_known_here_yet_is_believed(
    planes: tuple[Plane, Plane],
) -> None:
    one, other = planes
    await one.decide("web", {"a": 3})
    told = one.fleet.ledger("a").version
    report = replace(
        make_report(2), interest_version=told, echoes=(echo("shop/web", SMALL, bound=3),)
    )
    await other.reporting.accept("a", report)
    assert other.fleet.view("a").state.report == kept(report)
    assert not other.fleet.ledger("a").outstanding()
