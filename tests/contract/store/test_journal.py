from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from contextlib import AsyncExitStack

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from federation.model.cluster import Cluster
from federation.model.echoes import Owner
from federation.model.reservations import PromiseCertificate, Share
from federation.model.workload import NodeClaim, ReplicaRequirements
from federation.services.agent_values import AgentFacts
from federation.services.journal import (
    START,
    BindingChanged,
    Change,
    ClusterChanged,
    ClusterShares,
    Entry,
    LedgerVersion,
    Position,
    ReportAdvanced,
)
from federation.services.journal_ports import OpenTransaction
from federation.store.postgres import PostgresStore
from tests.stores import until_waiting

SMALL = ReplicaRequirements(request={"cpu": 250}, node_claim=NodeClaim(node_selector={"a": "b"}))
LARGE = ReplicaRequirements(request={"cpu": 4000, "memory": 2**40}, namespace="shop")
DECIDED = BindingChanged(
    namespace="shop",
    name="web",
    uid="uid-1",
    owner=Owner("apps/v1", "Deployment", "shop", "web"),
    decision="d1",
    clusters={
        "a": ClusterShares(
            version=7,
            shares=(
                Share(requirements=SMALL, replicas=2),
                Share(
                    component="worker",
                    requirements=LARGE,
                    replicas=1,
                    certificate=PromiseCertificate.STRICT,
                ),
            ),
            adopted={"": 2},
        ),
        "b": ClusterShares(version=1, shares=(Share(requirements=SMALL, replicas=0),)),
        "c": ClusterShares(version=9),
    },
)
EVERY_KIND: tuple[Change, ...] = (
    DECIDED,
    BindingChanged(namespace="", name="node-agent", deleted=True),
    ReportAdvanced(cluster="a", version=8, epoch=2**40, sequence=3),
    ClusterChanged(cluster="a", deleted=True),
    ClusterChanged(cluster="b", emptied=4),
)


def named(name: str) -> Change:
    return ClusterChanged(cluster=name)


def names_of(entries: Sequence[Entry]) -> list[str]:
    changes = [each.change for each in entries]
    return [each.cluster for each in changes if isinstance(each, ClusterChanged)]


async def add_clusters(store: PostgresStore, *names: str) -> None:
    async with store.transaction() as tx:
        for name in names:
            await tx.clusters.add(Cluster(name=name), AgentFacts())


async def append(store: PostgresStore, *changes: Change) -> None:
    async with store.transaction() as tx:
        await tx.journal.append(changes)


async def read(store: PostgresStore, after: Position, limit: int = 100) -> Sequence[Entry]:
    async with store.reading() as tx:
        return await tx.journal.read(after, limit)


async def test_every_kind_of_change_comes_back_in_order_as_it_was_put(
    store: PostgresStore,
) -> None:
    await append(store, *EVERY_KIND)
    await append(store, named("later"))
    entries = await read(store, START)
    assert [each.change for each in entries] == [*EVERY_KIND, named("later")]
    assert [each.position for each in entries] == sorted({each.position for each in entries})


async def test_reading_goes_on_from_where_it_ended(store: PostgresStore) -> None:
    for name in "abcde":
        await append(store, named(name), named(name * 2))
    seen: list[str] = []
    position = START
    while entries := await read(store, position, 3):
        assert len(entries) <= 3
        position = entries[-1].position
        seen.extend(names_of(entries))
    assert seen == ["a", "aa", "b", "bb", "c", "cc", "d", "dd", "e", "ee"]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
async def test_whoever_commits_late_is_not_skipped(
    store: PostgresStore, order: tuple[int, ...]
) -> None:
    """Ids are given when rows are written; rows are seen when their transaction ends."""
    seen: list[str] = []
    position = START

    async def catch_up() -> None:
        nonlocal position
        for entry in await read(store, position):
            position = entry.position
            seen.extend(names_of([entry]))

    writers: list[AsyncExitStack] = []
    for number in range(3):
        writer = AsyncExitStack()
        tx = await writer.enter_async_context(store.transaction())
        await tx.journal.append([named(f"first-{number}")])
        writers.append(writer)
        await tx.journal.append([named(f"second-{number}")])
    for number in order:
        await writers[number].aclose()
        await append(store, named(f"after-{number}"))
        await catch_up()
    await catch_up()
    expected = [f"{place}-{number}" for number in range(3) for place in ("first", "second")]
    assert sorted(seen) == sorted(expected + [f"after-{number}" for number in range(3)])
    assert [name for name in seen if not name.startswith("after")] == expected


async def test_what_was_rolled_back_holds_nobody_up(store: PostgresStore) -> None:
    writer = AsyncExitStack()
    tx = await writer.enter_async_context(store.transaction())
    await tx.journal.append([named("never")])
    await append(store, named("a"))
    assert await read(store, START) == []
    await writer.__aexit__(ZeroDivisionError, ZeroDivisionError(), None)
    assert names_of(await read(store, START)) == ["a"]


async def test_entries_are_read_by_the_ids_that_appending_answers(store: PostgresStore) -> None:
    names = [f"c{number:02}" for number in range(30, 0, -1)]
    async with store.transaction() as tx:
        ids = await tx.journal.append([named(each) for each in names])
    known = {ids[7]: named("known")}
    async with store.reading() as tx:
        entries = await tx.journal.read(START, 100, known)
        ahead = await tx.journal.read_ahead(START, 100, known)
    assert [entry.position for entry in entries] == list(ids)
    assert names_of(entries) == [*names[:7], "known", *names[8:]]
    assert ahead == [entry.change for entry in entries]


async def test_reading_ahead_sees_all_that_is_committed_and_nothing_of_its_own(
    store: PostgresStore,
) -> None:
    await append(store, named("known"))
    position = (await read(store, START))[-1].position
    async with store.transaction() as slow:
        await slow.journal.append([named("slow")])
        await append(store, named("quick"))
        async with store.transaction() as tx:
            assert await tx.journal.read(position, 100) == []
            assert await tx.journal.read_ahead(position, 10) == [named("quick")]
            await tx.journal.append([named("own")])
            assert await tx.journal.read_ahead(position, 10) == [named("quick")]


async def test_under_the_lock_of_a_cluster_its_last_change_is_read_ahead(
    store: PostgresStore, engine: AsyncEngine
) -> None:
    await add_clusters(store, "a", "b")
    position = START
    change = ReportAdvanced(cluster="a", version=2, epoch=1, sequence=1, nonce=12 ^ 10)

    async def follow() -> tuple[LedgerVersion, Sequence[Change]]:
        async with store.transaction() as tx:
            versions = await tx.journal.lock(["a"])
            return versions["a"], await tx.journal.read_ahead(position, 10)

    async with store.transaction() as tx:
        versions = await tx.journal.lock(["a", "b"])
        assert versions == {"a": LedgerVersion(1), "b": LedgerVersion(1)}
        follower = asyncio.create_task(follow())
        await until_waiting(engine)
        await tx.journal.advance({"a": 2, "b": 5}, {"a": 12})
        await tx.journal.advance({"a": 2}, {"a": 10})
        await tx.journal.append([change])
    version, ahead = await follower
    assert version == LedgerVersion(2, 12 ^ 10)
    assert ahead == [change]
    async with store.reading() as tx:
        found = {each.cluster.name: each.ledger_version for each in await tx.clusters.all()}
    assert found == {"a": 2, "b": 5}


async def test_clusters_that_do_not_exist_are_not_locked(store: PostgresStore) -> None:
    await add_clusters(store, "a")
    async with store.transaction() as tx:
        assert await tx.journal.lock(["nobody", "a"]) == {"a": LedgerVersion(1)}
        assert await tx.journal.lock([]) == {}
        await tx.journal.advance({"nobody": 7})
        await tx.journal.advance({})
        await tx.journal.append([])


async def test_from_a_position_on_nothing_is_missed(store: PostgresStore) -> None:
    await append(store, named("before"))
    async with store.transaction() as slow:
        await slow.journal.append([named("slow")])
        await append(store, named("quick"))
        async with store.reading() as tx:
            position = await tx.journal.position()
        assert await read(store, position) == []
    await append(store, named("after"))
    assert names_of(await read(store, position)) == ["slow", "quick", "after"]


async def forget(store: PostgresStore, limit: int) -> int:
    async with store.transaction() as tx:
        return await tx.journal.prune(0, limit)


async def oldest(store: PostgresStore) -> Position:
    async with store.reading() as tx:
        return await tx.journal.oldest()


async def test_the_oldest_are_forgotten_first_and_it_is_known_how_many(
    store: PostgresStore,
) -> None:
    for name in "abcd":
        await append(store, named(name))
    positions = [entry.position for entry in await read(store, START)]
    assert await oldest(store) == START
    async with store.transaction() as tx:
        assert await tx.journal.prune(3600, 100) == 0
    assert await forget(store, 1) == 1
    assert await oldest(store) == positions[0]
    assert await forget(store, 2) == 2
    assert await oldest(store) == positions[2]
    # Who knows the newest that was forgotten misses nothing.
    assert names_of(await read(store, positions[2])) == ["d"]
    assert await forget(store, 10) == 1
    assert await forget(store, 10) == 0
    assert await oldest(store) == positions[3]
    await append(store, named("e"))
    assert names_of(await read(store, await oldest(store))) == ["e"]


async def test_what_cannot_be_read_yet_is_not_forgotten(store: PostgresStore) -> None:
    async with store.transaction() as slow:
        await slow.journal.append([named("slow")])
        await append(store, named("quick"))
        assert await forget(store, 10) == 0
    assert names_of(await read(store, await oldest(store))) == ["slow", "quick"]


def test_a_prepared_transaction_is_named_by_its_id() -> None:
    holder = OpenTransaction(0, "wiki", "ann", "prepared transaction move", 9.0)
    assert "'prepared transaction move'" in holder.text
    assert "ROLLBACK PREPARED" in holder.remedy
