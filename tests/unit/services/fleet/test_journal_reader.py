"""Two control planes over one database: whoever commits, both come to the same fleet."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from federation.services.fleet import journal_reader as module
from federation.services.fleet.journal_reader import Following
from federation.services.journal import (
    Change,
)
from federation.services.ports import Transaction
from federation.store.postgres import PostgresStore
from lab.patience import PATIENCE_SECONDS
from lab.reports import echo, kept
from lab.services import UnsteadyStore, join, make_report, reservations_of
from tests.unit.services.fleet.planes import (
    OWNER,
    SMALL,
    Plane,
    assert_equal,
    settle,
)


async def test_what_one_commits_the_other_knows(planes: tuple[Plane, Plane]) -> None:
    one, other = planes
    await one.decide("web", {"a": 3, "b": 2})
    await settle(other)
    assert_equal(one, other)
    assert other.fleet.holdings("shop/web") == ("a", "b")
    assert [each.replicas for each in reservations_of(other.fleet, "shop/web")] == [3, 2]
    assert (other.fleet.owners, other.fleet.uids) == (
        {"shop/web": OWNER},
        {"shop/web": "uid-web"},
    )
    # Whose stream is open is told apart from the journal.
    assert other.fleet.snapshot.rooms.planned_c.tolist() == [False, False]
    for name in ("a", "b"):
        other.fleet.put_presence(name, one.fleet.known(name).presence)
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


async def test_changes_of_another_release_are_passed_over_and_told_once(
    planes: tuple[Plane, Plane], engine: AsyncEngine, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = planes
    for name in ("web", "cart"):
        async with engine.begin() as connection:
            await connection.execute(text("INSERT INTO journal (kind, body) VALUES ('queue', '')"))
        await one.decide(name, {"a": 1})
        await settle(one, other)
        assert_equal(one, other)
    assert caplog.text.count("changes of an unknown kind or version are passed over") == 2


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
