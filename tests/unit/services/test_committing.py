"""Decisions with their promises on one and on two control planes over one database."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from federation.model.errors import PreconditionFailed
from federation.model.ledger import ClusterLedger
from federation.model.placement import Binding, ClusterAffinity, Placement
from federation.services.batches import BatchItem, schedule_batch
from federation.services.values import Once, Scheduled
from federation.store.postgres import PostgresStore
from tests.services import (
    DYNAMIC,
    WEB,
    Deciders,
    apply,
    decided,
)
from tests.unit.services.conftest import ControlPlane

RUN_OUT = text("UPDATE reservation SET lease_expires_at = now() - interval '1 second'")


def only(cluster: str, replicas: int = 2) -> Binding:
    affinity = ClusterAffinity(cluster_names=(cluster,))
    placement = Placement(affinity=affinity, replica_scheduling=DYNAMIC)
    return replace(WEB, replicas=replicas, placement=placement)


def once(key: str, body: bytes = b"body") -> Once:
    return Once(caller="admin", key=key, body_hash=hashlib.sha256(body).digest())


async def at_once(
    deciders: Deciders, binding: Binding, once: Once | None = None, *, wait: bool = True
) -> Scheduled:
    return await deciders.scheduling.schedule(binding, adopt=False, wait=wait, once=once)


async def rows(engine: AsyncEngine, table: str) -> int:
    async with engine.connect() as connection:
        counted = await connection.execute(text(f"SELECT count(*) FROM {table}"))  # noqa: S608
        return int(counted.scalar_one())


async def run_out(engine: AsyncEngine) -> None:
    async with engine.begin() as connection:
        await connection.execute(RUN_OUT)


async def held(store: PostgresStore, binding: Binding = WEB) -> dict[str, int]:
    """Replicas by cluster, by the store."""
    async with store.reading() as read:
        row = await read.reservations.of(binding.namespace, binding.name)
    return {each.cluster: each.replicas for each in row.reservations} if row else {}


async def assert_alike(*planes: ControlPlane) -> None:
    """All have followed to the same ledgers."""
    for each in planes:
        await each.follow()
    first, *others = (_ledgers(each) for each in planes)
    for ledgers in others:
        assert ledgers == first


def _ledgers(plane: ControlPlane) -> list[ClusterLedger]:
    """But for what agents are to be told anew by who started later."""
    assert not plane.fleet.behind()
    return [replace(each, interest_version=0) for each in plane.fleet.snapshot.ledgers]


async def test_what_another_one_placed_is_left_before_it_was_heard_of(
    one: ControlPlane, other: ControlPlane, store: PostgresStore
) -> None:
    await apply(one.deciders.scheduling, only("a"))
    assert other.fleet.holdings(WEB.key) == ()
    await apply(other.deciders.scheduling, only("b"))
    assert await held(store) == {"b": 2}
    await assert_alike(one, other)
    assert one.fleet.holdings(WEB.key) == ("b",)


async def test_what_another_one_released_is_promised_anew_before_that_was_heard_of(
    one: ControlPlane, other: ControlPlane, store: PostgresStore
) -> None:
    first = await apply(one.deciders.scheduling, only("a"))
    await other.follow()
    await one.deciders.amending.release("shop", "web")
    again = await apply(other.deciders.scheduling, only("a"))
    assert again.record.id != first.record.id
    assert await held(store) == {"a": 2}
    await assert_alike(one, other)


async def test_a_preview_leaves_what_another_one_placed_before_that_was_heard_of(
    one: ControlPlane, other: ControlPlane, store: PostgresStore
) -> None:
    await apply(one.deciders.scheduling, only("a"))
    previewed = await other.deciders.previews.preview(only("b"), adopt=False, wait=True)
    await other.deciders.previews.commit(previewed.token, None)
    assert await held(store) == {"b": 2}
    await assert_alike(one, other)


async def test_who_schedules_after_its_lease_ran_out_has_one_again(
    deciders: Deciders, store: PostgresStore, engine: AsyncEngine
) -> None:
    leased = replace(only("a"), lease_seconds=60)
    first = await apply(deciders.scheduling, leased)
    await run_out(engine)
    again = await apply(deciders.scheduling, leased)
    assert again.record.id != first.record.id
    async with store.transaction() as tx:
        assert await deciders.amending.expire_leases(tx) == 0
    assert await held(store) == {"a": 2}


async def test_workloads_that_avoid_each_other_are_kept_apart_in_one_batch_too(
    deciders: Deciders,
) -> None:
    placement = Placement(workload_anti_affinity_key="shy", replica_scheduling=DYNAMIC)
    shy = replace(WEB, uid="", replicas=1, labels={"shy": "yes"}, placement=placement)
    items = [BatchItem(binding=replace(shy, name=f"w{number}")) for number in range(4)]
    answers = await schedule_batch(deciders.scheduling, items)
    placed = [next(iter(decided(each)), "") for each in answers if isinstance(each, Scheduled)]
    assert sorted(placed) == ["", "a", "b", "c"]


async def test_a_key_of_two_requests_in_one_batch_harms_its_own_only(
    deciders: Deciders, engine: AsyncEngine
) -> None:
    items = [
        BatchItem(binding=replace(only("a", 1), name=name, uid=""), once=each)
        for name, each in (("x", once("k", b"x")), ("y", once("k", b"y")), ("z", None))
    ]
    answers = await schedule_batch(deciders.scheduling, items)
    assert [isinstance(each, Scheduled) for each in answers] == [True, False, True]
    assert isinstance(answers[1], PreconditionFailed)
    assert answers[1].reason == "IDEMPOTENCY_KEY_REUSED"
    assert await rows(engine, "decision") == 2
