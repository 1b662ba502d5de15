"""Background work under leases: who does it, who takes over, and that the past cannot write."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field, replace

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from federation.model.cluster import Cluster
from federation.model.errors import Conflict
from federation.services.agent_values import AgentFacts
from federation.services.duties import Begin, Duties, Duty, in_one, pruning
from federation.services.journal import ClusterChanged, Position
from federation.services.members.replicas import Replicas
from federation.services.ports import Clock, Transaction
from federation.services.secrets import parse_secret
from federation.services.values import PrincipalKind
from federation.store.postgres import PostgresStore
from lab.patience import PATIENCE_SECONDS, until
from lab.services import WEB
from tests.stores import AGE_DECISIONS, NOWHERE, keep_decision, put_binding

LEASE_SECONDS, LONG_SECONDS = 10.0, 30_000.0


@dataclass
class Work:
    """Pieces that are done one after the other, each written down in its transaction."""

    pieces: int = 1
    done: list[str] = field(default_factory=list)

    def by(self, replica: str, *, every_seconds: float = 0.0) -> Duty:
        async def do(tx: Transaction) -> int:
            if not self.pieces:
                return 0
            self.pieces -= 1
            await tx.journal.append([ClusterChanged(cluster=replica)])
            self.done.append(replica)
            return 1

        return Duty(name="work", work=in_one(do), every_seconds=every_seconds)


def duties(store: PostgresStore, clock: Clock, replica: str, *given: Duty) -> Duties:
    return Duties(store, replica, given, clock, lease_seconds=LEASE_SECONDS)


async def run_out(engine: AsyncEngine) -> None:
    """The lease of the work, by the database's clock."""
    older = "UPDATE duty SET expires_at = now() - interval '1 second' WHERE name = 'work'"
    async with engine.begin() as connection:
        await connection.execute(text(older))


async def written(store: PostgresStore) -> list[str]:
    async with store.reading() as read:
        return [entry.change.cluster for entry in await read.journal.read(Position(), 100)]


async def test_one_does_the_work_and_the_others_look_on(store: PostgresStore, clock: Clock) -> None:
    work = Work(pieces=3)
    a, b = (duties(store, clock, name, work.by(name)) for name in "ab")
    await a.do_round()
    work.pieces = 3
    await b.do_round()
    assert a.held == {"work"}
    assert not b.held
    assert work.done == ["a"] * 3
    await a.do_round()
    assert work.done == ["a"] * 6


async def test_duties_that_are_taken_are_told_in_one_line(
    store: PostgresStore, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    first, second = (Duty(name=name, work=Work(pieces=0).by("a").work) for name in ("one", "two"))
    rounds = duties(store, clock, "a", first, second)
    await rounds.do_round()
    await rounds.do_round()
    (line,) = (each for each in caplog.records if "taken" in each.message)
    assert line.__dict__["fields"] == {"duties": "one (1), two (1)"}


async def test_another_takes_over_when_the_lease_has_run_out(
    store: PostgresStore, clock: Clock, engine: AsyncEngine
) -> None:
    work = Work()
    a, b = (duties(store, clock, name, work.by(name)) for name in "ab")
    await a.do_round()
    await run_out(engine)
    work.pieces = 1
    await b.do_round()
    assert b.held == {"work"}
    assert work.done == ["a", "b"]
    await a.do_round()
    assert not a.held


async def test_a_holder_that_slept_over_its_lease_writes_nothing(
    store: PostgresStore, clock: Clock, engine: AsyncEngine
) -> None:
    """Between its renewal and its work the lease runs out and another takes over."""
    work = Work(pieces=0)
    other = duties(store, clock, "b", work.by("b"))

    async def sleep(_: Transaction) -> int:
        await run_out(engine)
        await other.do_round()
        return 0

    a = duties(store, clock, "a", Duty(name="nap", work=in_one(sleep)), work.by("a"))
    work.pieces = 1
    await a.do_round()
    assert work.done == ["b"]
    assert await written(store) == ["b"]
    assert a.held == {"nap"}


async def test_while_a_piece_is_done_nobody_can_take_over(
    store: PostgresStore, clock: Clock, engine: AsyncEngine
) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def do(tx: Transaction) -> int:
        begun.set()
        await go_on.wait()
        await tx.journal.append([ClusterChanged(cluster="a")])
        return 0

    work = Work()
    a = duties(store, clock, "a", Duty(name="work", work=in_one(do)))
    b = duties(store, clock, "b", work.by("b"))
    doing = asyncio.create_task(a.do_round())
    await begun.wait()
    taking = asyncio.create_task(b.do_round())
    go_on.set()
    await asyncio.gather(doing, taking)
    assert (await written(store))[0] == "a"
    await run_out(engine)
    await b.do_round()
    assert await written(store) == ["a", "b"]


async def test_a_lease_is_renewed_while_a_piece_that_outlasts_it_is_done(
    store: PostgresStore, clock: Clock, engine: AsyncEngine
) -> None:
    async def has_run_out() -> bool:
        await asyncio.sleep(0.02)
        async with engine.connect() as connection:
            query = text("SELECT expires_at <= now() FROM duty WHERE name = 'work'")
            return bool((await connection.execute(query)).scalar_one())

    async def do(_: Begin) -> int:
        await run_out(engine)
        await until(has_run_out, lambda it_has: not it_has)
        return 0

    a = Duties(store, "a", [Duty(name="work", work=do)], clock, lease_seconds=0.5)
    await a.do_round()
    assert a.held == {"work"}


async def test_work_under_its_transaction_may_outlast_a_lease_and_hinders_no_other_duty(
    store: PostgresStore, clock: Clock, engine: AsyncEngine
) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def do(_: Transaction) -> int:
        begun.set()
        await go_on.wait()
        return 0

    async def renewed() -> bool:
        async with engine.connect() as connection:
            query = text("SELECT expires_at > now() FROM duty WHERE name = 'work'")
            return bool((await connection.execute(query)).scalar_one())

    work, other = Work(), Work(pieces=0)
    a = Duties(store, "a", [Duty(name="work", work=in_one(do))], clock, lease_seconds=0.5)
    b = duties(store, clock, "b", work.by("b"), replace(other.by("b"), name="other"))
    doing = asyncio.create_task(a.do_round())
    await begun.wait()
    for _ in range(3):
        await run_out(engine)
        await b.do_round()
        assert b.held == {"other"}
        await until(renewed, bool)
    go_on.set()
    await doing
    assert a.held == {"work"}
    assert work.done == []


async def test_leaving_hands_over_at_once(store: PostgresStore, clock: Clock) -> None:
    work = Work()
    a, b = (duties(store, clock, name, work.by(name)) for name in "ab")
    await a.do_round()
    await a.leave()
    assert not a.held
    work.pieces = 1
    await b.do_round()
    assert work.done == ["a", "b"]


@pytest.mark.parametrize("error", [RuntimeError("first time"), Conflict("first time")])
async def test_work_that_fails_is_tried_again_and_keeps_none_from_being_done(
    store: PostgresStore, clock: Clock, error: Exception
) -> None:
    failures = [error]

    async def do(tx: Transaction) -> int:
        await tx.journal.append([ClusterChanged(cluster="failing")])
        if failures:
            raise failures.pop()
        return 0

    other = Work()
    a = duties(store, clock, "a", Duty(name="failing", work=in_one(do)), other.by("other"))
    await a.do_round()
    assert await written(store) == ["other"]
    await a.do_round()
    assert await written(store) == ["other", "failing"]


async def test_work_that_did_less_than_it_can_is_not_asked_again_at_once(
    store: PostgresStore, clock: Clock
) -> None:
    done = [3, 3, 2, 3]

    async def do(_: Transaction) -> int:
        return done.pop(0)

    await duties(store, clock, "a", Duty(name="work", work=in_one(do), at_once=3)).do_round()
    assert done == [3]


async def test_what_was_done_rests_for_its_time(store: PostgresStore, clock: Clock) -> None:
    work = Work()
    a = duties(store, clock, "a", work.by("a", every_seconds=60.0))
    await a.do_round()
    work.pieces = 1
    await a.do_round()
    assert work.done == ["a"]
    clock.time += 60.0
    await a.do_round()
    assert work.done == ["a", "a"]


@pytest.mark.parametrize("is_steady", [True, False])
async def test_only_what_is_steady_goes_on_without_a_pause_while_there_is_more(
    store: PostgresStore, clock: Clock, is_steady: bool
) -> None:
    pieces = [1, 1, 0, 1, 1, 0]
    all_done = asyncio.Event()

    async def do(_: Begin) -> int:
        """Each piece takes the time of a round."""
        clock.time += LONG_SECONDS
        piece = pieces.pop(0)
        if not pieces:
            all_done.set()
        return piece

    duty = Duty(name="work", work=do, is_steady=is_steady)
    # A pause would last for hours.
    a = Duties(store, "a", [duty], clock, lease_seconds=LONG_SECONDS)
    rounds = [await a.do_round() for _ in range(3)]
    assert rounds == [is_steady, is_steady, False]
    if is_steady:
        doing = asyncio.create_task(a.keep_doing())
        async with asyncio.timeout(PATIENCE_SECONDS):
            await all_done.wait()
        doing.cancel()


async def test_old_entries_requests_and_credentials_are_pruned(
    store: PostgresStore, clock: Clock, engine: AsyncEngine
) -> None:
    async with store.transaction() as tx:
        await tx.journal.append([ClusterChanged(cluster="old")])
        await tx.requests.add("admin", "old", bytes(32), b"{}")
        for name, kind in (("old", PrincipalKind.REPLICA), ("admin", PrincipalKind.ADMIN)):
            await tx.credentials.add(
                credential_id=name,
                secret_hash=bytes(32),
                kind=kind,
                cluster_id=None,
                ttl_seconds=1,
            )
    async with engine.begin() as connection:
        for statement in (
            "UPDATE journal SET created_at = now() - interval '61 minutes'",
            "UPDATE request SET created_at = now() - interval '25 hours'",
            "UPDATE credential SET expires_at = now() - interval '1 second'",
        ):
            await connection.execute(text(statement))
    replicas = Replicas(store, clock, "a")
    await replicas.keep_credential()
    async with store.transaction() as tx:
        await tx.journal.append([ClusterChanged(cluster="new")])
        await tx.requests.add("admin", "new", bytes(32), b"{}")
    await duties(store, clock, "a", *pruning(0)).do_round()
    assert await written(store) == ["new"]
    async with store.reading() as read:
        assert await read.requests.get("admin", "old") is None
        assert await read.requests.get("admin", "new") is not None
    secret = parse_secret(replicas.bearer)
    assert secret is not None
    async with engine.connect() as connection:
        left = await connection.scalars(text("SELECT id FROM credential ORDER BY id"))
        assert sorted(left) == sorted(["admin", secret.id])


async def test_old_decisions_are_pruned_but_for_the_newest_of_a_binding(
    fresh_engine: AsyncEngine, clock: Clock
) -> None:
    engine, store = fresh_engine, PostgresStore(fresh_engine)
    async with store.transaction() as tx:
        stored, first = await put_binding(tx, None, WEB)
        assert stored is not None
    async with store.transaction() as tx:
        _, newest = await put_binding(tx, stored.id, WEB)
    async with engine.begin() as connection:
        await connection.execute(text(AGE_DECISIONS))
    async with store.transaction() as tx:
        recent = await keep_decision(tx, stored.id, WEB, NOWHERE)
        await tx.bindings.delete(stored.id)
        again, standing = await put_binding(tx, None, WEB)
        assert again is not None
    async with engine.begin() as connection:
        await connection.execute(text(f"{AGE_DECISIONS} WHERE id = :id"), {"id": standing.id})

    async def left() -> list[str]:
        async with store.reading() as read:
            every = (first, newest, recent, standing)
            return [each.id for each in every if await read.decisions.get(each.id)]

    await duties(store, clock, "a", *pruning(0)).do_round()
    assert await left() == [first.id, newest.id, recent.id, standing.id]
    await duties(store, clock, "a", *pruning(1)).do_round()
    assert await left() == [recent.id, standing.id]


async def test_join_tokens_and_credentials_are_pruned_a_day_after_their_end(
    store: PostgresStore, clock: Clock, engine: AsyncEngine
) -> None:
    async with store.transaction() as tx:
        cluster = await tx.clusters.add(Cluster(name="a"), AgentFacts())
        assert cluster is not None
        for name in ("used", "expired", "used now", "good"):
            await tx.credentials.add_join_token(
                token_id=name, secret_hash=bytes(32), cluster="a", ttl_seconds=7200
            )
            await tx.credentials.add(
                credential_id=name,
                secret_hash=bytes(32),
                kind=PrincipalKind.AGENT,
                cluster_id=cluster.id,
                ttl_seconds=7200,
            )
    async with engine.begin() as connection:
        for statement in (
            "UPDATE join_token SET created_at = now() - interval '9 days'",
            "UPDATE join_token SET used_at = now() - interval '25 hours' WHERE id = 'used'",
            "UPDATE join_token SET expires_at = now() - interval '25 hours' WHERE id = 'expired'",
            "UPDATE join_token SET used_at = now() WHERE id = 'used now'",
            "UPDATE credential SET revoked_at = now() - interval '25 hours' WHERE id = 'used'",
            "UPDATE credential SET expires_at = now() - interval '25 hours' WHERE id = 'expired'",
            "UPDATE credential SET revoked_at = now() WHERE id = 'used now'",
        ):
            await connection.execute(text(statement))
    await duties(store, clock, "a", *pruning(0)).do_round()
    async with engine.connect() as connection:
        for table in ("join_token", "credential"):
            found = await connection.scalars(text(f"SELECT id FROM {table}"))
            assert sorted(found) == ["good", "used now"]
