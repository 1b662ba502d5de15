from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from federation.model.cluster import (
    CapacityReport,
    Cluster,
    NodeSummary,
    ReportedPool,
    ReportedPools,
    ResourceSummary,
    Taint,
    TaintEffect,
)
from federation.model.errors import InvalidRequest
from federation.model.shapes import Echo
from federation.services.agent_values import AgentFacts
from federation.services.journal import START, ReportAdvanced
from federation.services.member_ports import NamedReport, ReportVerdict
from federation.store.postgres import PostgresStore
from tests.stores import until_waiting


def report(epoch: int, sequence: int, **allocatable: int) -> CapacityReport:
    return CapacityReport(
        epoch=epoch,
        sequence=sequence,
        snapshot_time=1.25,
        summary=ResourceSummary(allocatable={"cpu": 4000} | allocatable, allocated={"cpu": 950}),
        nodes=NodeSummary(total=2, ready=2, graded=1),
        grade_counts={2: 1, 3: 0},
        model_hash="m",
        content_hash="c",
    )


async def add_clusters(store: PostgresStore, *names: str) -> None:
    async with store.transaction() as tx:
        for name in names:
            await tx.clusters.add(Cluster(name=name, uid=f"uid-{name}"), AgentFacts())


async def advance(store: PostgresStore, **reports: CapacityReport) -> dict[str, ReportVerdict]:
    named = [
        NamedReport(cluster=name, cluster_uid=f"uid-{name}", report=each)
        for name, each in reports.items()
    ]
    async with store.transaction() as tx:
        return {verdict.cluster: verdict for verdict in await tx.reports.advance(named)}


async def stored_report(store: PostgresStore, name: str) -> CapacityReport | None:
    async with store.reading() as read:
        found = {each.cluster.name: each for each in await read.clusters.all()}
    stored = found[name].report
    return stored and stored.report


async def test_a_report_comes_back_as_it_was_put(store: PostgresStore) -> None:
    await add_clusters(store, "a", "b")
    given = report(1, 1, **{"example.com/gpu": 2**62})
    verdict = (await advance(store, a=given))["a"]
    assert verdict.known
    assert verdict.received_at is not None
    assert await stored_report(store, "a") == given
    assert await stored_report(store, "b") is None


async def test_pools_come_back_as_they_were_put(store: PostgresStore) -> None:
    await add_clusters(store, "a")
    taint = Taint(key="dedicated", value="db", effect=TaintEffect.NO_SCHEDULE)
    pools = ReportedPools(
        label_keys=("disk",),
        pools=(ReportedPool(taints=(taint,), labels={"disk": "ssd"}), ReportedPool()),
        resources=("cpu", "pods"),
        cell_pools=(1, 0),
        counts=(2, 1),
        minimums=(2**62, 4, 0, 10),
        spreads=(0, 0, 5, 0),
        surpluses=(0, 0, 5, 0),
        open_cells=(1,),
    )
    given = replace(report(1, 1), pools=pools)
    await advance(store, a=given)
    assert await stored_report(store, "a") == given


async def test_one_statement_judges_each_report_by_itself(store: PostgresStore) -> None:
    await add_clusters(store, "old", "new", "moved")
    await advance(store, old=report(1, 5), moved=report(1, 1))
    verdicts = await advance(
        store, old=report(1, 5), new=report(1, 1), moved=report(1, 2), nobody=report(1, 1)
    )
    moved = {name: verdict.received_at is not None for name, verdict in verdicts.items()}
    assert moved == {"old": False, "new": True, "moved": True, "nobody": False}
    assert [name for name, verdict in verdicts.items() if not verdict.known] == ["nobody"]


async def test_of_concurrent_senders_the_highest_sequence_wins(
    store: PostgresStore, engine: AsyncEngine
) -> None:
    names = ("a", "b", "c")
    await add_clusters(store, *names)
    shuffled = random.Random(1)

    async def send() -> int:
        accepted = 0
        for sequence in shuffled.sample(range(1, 21), 20):
            batch = shuffled.sample(names, 3)  # In any order: writers must not deadlock.
            verdicts = await advance(store, **{name: report(1, sequence) for name in batch})
            accepted += sum(verdict.received_at is not None for verdict in verdicts.values())
        return accepted

    accepted = sum(await asyncio.gather(*(send() for _ in range(6))))
    for name in names:
        newest = await stored_report(store, name)
        assert newest is not None
        assert newest.sequence == 20
    async with engine.connect() as connection:
        # Every acceptance moved the version by one from 1, and nothing else did.
        moves = await connection.execute(text("SELECT sum(version - 1) FROM cluster_capacity"))
        assert moves.scalar_one() == accepted


async def test_reports_that_moved_are_in_the_journal_at_their_versions(
    store: PostgresStore,
) -> None:
    await add_clusters(store, "old", "new", "moved")
    await advance(store, old=report(1, 5), moved=report(1, 1))
    async with store.reading() as read:
        position = (await read.journal.read(START, 9))[-1].position
    verdicts = await advance(
        store, old=report(1, 4), new=report(7, 1), moved=report(2, 2), nobody=report(1, 1)
    )
    versions = {name: verdict.ledger_version for name, verdict in verdicts.items()}
    assert versions == {"old": 0, "new": 2, "moved": 3, "nobody": 0}
    async with store.reading() as read:
        changes = [entry.change for entry in await read.journal.read(position, 9)]
        stored = {each.cluster.name: each.ledger_version for each in await read.clusters.all()}
    assert sorted(changes, key=str) == [
        ReportAdvanced(cluster="moved", version=3, epoch=2, sequence=2),
        ReportAdvanced(cluster="new", version=2, epoch=7, sequence=1),
    ]
    assert stored == {"old": 2, "new": 2, "moved": 3}


async def test_reports_wait_for_who_locked_their_clusters(
    store: PostgresStore, engine: AsyncEngine
) -> None:
    await add_clusters(store, "a")
    async with store.transaction() as tx:
        await tx.journal.lock(["a"])
        reporting = asyncio.create_task(advance(store, a=report(1, 1)))
        await until_waiting(engine)
        await tx.journal.advance({"a": 2})
    assert (await reporting)["a"].ledger_version == 3


async def test_the_newest_reports_are_given_by_name(store: PostgresStore) -> None:
    await add_clusters(store, "a", "b", "c")
    echo = Echo(binding="uid-1", component="worker", shape=(("cpu", 250),), bound=2, unbound=1)
    given = replace(report(1, 2), interest_version=7, echoes=(echo,))
    await advance(store, a=report(1, 1), b=report(1, 1))
    received_at = (await advance(store, a=given))["a"].received_at
    async with store.reading() as read:
        assert await read.reports.get(["a", "c", "nobody"]) == {"a": (given, received_at, 3)}
        assert await read.reports.get([]) == {}


async def test_what_cannot_be_stored_is_a_bad_request_and_stores_nothing(
    store: PostgresStore,
) -> None:
    await add_clusters(store, "a", "b")
    with pytest.raises(InvalidRequest):
        await advance(store, a=report(1, 1), b=report(1, 2**63))
    assert await stored_report(store, "a") is None
