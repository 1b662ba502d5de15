"""Rows of what runs where, which triggers keep; and questions that readers ask in plain SQL."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from federation.model.cluster import Cluster
from federation.model.namespace_quotas import NamespaceQuota
from federation.model.placement import Binding
from federation.model.workload import TargetCluster
from federation.scheduler.decision import Outcome
from federation.services.agent_values import AgentFacts
from federation.services.binding_ports import NewWait
from federation.services.journal import StoredReservations
from federation.services.values import ReportEvidence, Verdict
from federation.store.postgres import PostgresStore
from lab.databases import connected
from lab.decisions import make_decision
from lab.stored_values import HELD
from tests.stores import add_binding, put_binding

OPERATIONS = Path(__file__).resolve().parents[3] / "docs" / "operations.md"
QUESTIONS = re.findall(r"^```sql\n(.*?)^```", OPERATIONS.read_text(), re.MULTILINE | re.DOTALL)
ROWS = text("SELECT cluster, binding_id, replicas FROM binding_cluster")
SHARES = text("""
    SELECT share ->> 'name', id, (share ->> 'replicas')::bigint
    FROM binding, jsonb_array_elements(clusters) AS share
""")
VERSIONS = text("SELECT cluster, ctid::text, xmin::text FROM binding_cluster")
RENAME = text("UPDATE binding SET clusters = jsonb_set(clusters, '{0,name}', '\"c\"')")


def placed(**replicas: int) -> Binding:
    clusters = tuple(TargetCluster(name=name, replicas=count) for name, count in replicas.items())
    return Binding(name="web", namespace="shop", replicas=4, clusters=clusters)


async def assert_equal_rows(engine: AsyncEngine, count: int) -> None:
    async with engine.connect() as connection:
        rows = {tuple(row) for row in await connection.execute(ROWS)}
        assert rows == {tuple(row) for row in await connection.execute(SHARES)}
        assert len(rows) == count


async def test_rows_of_clusters_follow_each_change_of_a_binding(
    store: PostgresStore, engine: AsyncEngine
) -> None:
    async with store.transaction() as tx:
        stored = await add_binding(tx, placed(a=1, b=3))
        assert stored is not None
        await add_binding(tx, replace(placed(a=2), name="api"))
        await add_binding(tx, replace(placed(), name="none"))
    await assert_equal_rows(engine, 3)
    for changed, count in ((placed(b=4), 2), (placed(b=4, c=0), 3), (placed(), 1)):
        async with store.transaction() as tx:
            await put_binding(tx, stored.id, changed)
        await assert_equal_rows(engine, count)
    async with store.transaction() as tx:
        await put_binding(tx, stored.id, placed(a=1, b=3))
        await tx.failover.leave("a", [stored.id])
    await assert_equal_rows(engine, 2)
    async with engine.begin() as connection:
        await connection.execute(RENAME)
    await assert_equal_rows(engine, 2)
    async with store.transaction() as tx:
        assert await tx.bindings.holding("c", 9) == [("shop", "api"), ("shop", "web")]
        await tx.bindings.delete(stored.id)
    await assert_equal_rows(engine, 1)


async def test_a_share_that_stays_is_not_written_again(
    store: PostgresStore, engine: AsyncEngine
) -> None:
    async with store.transaction() as tx:
        stored = await add_binding(tx, placed(a=1, b=3))
        assert stored is not None
    first = await versions(engine)
    async with store.transaction() as tx:
        await put_binding(tx, stored.id, placed(a=1, b=2, c=1))
        await tx.bindings.touch(stored.id)
    after = await versions(engine)
    assert after["a"] == first["a"]
    assert after["b"] != first["b"]
    assert after.keys() == {"a", "b", "c"}


async def versions(engine: AsyncEngine) -> dict[str, Sequence[str]]:
    async with engine.connect() as connection:
        return {row[0]: tuple(row[1:]) for row in await connection.execute(VERSIONS)}


@pytest.fixture
async def filled(store: PostgresStore) -> None:
    """Two clusters, a binding that is placed and held, one that waits, and a quota."""
    partial = Verdict(
        decision=make_decision(("member1", 2), outcome=Outcome.PARTIAL), evidence=ReportEvidence()
    )
    async with store.transaction() as tx:
        for name in ("member1", "member2"):
            await tx.clusters.add(Cluster(name=name), AgentFacts())
        stored, _ = await put_binding(tx, None, placed(member1=2), partial)
        assert stored is not None
        promise = HELD.reservations[0]._replace(cluster="member1", finished=0)
        row = StoredReservations(namespace="shop", name="web", owner=None, reservations=(promise,))
        await tx.reservations.put([row], {})
        wait = NewWait(
            binding_id=stored.id,
            namespace="shop",
            name="web",
            priority=3,
            remainder=2,
            short_of="cpu",
        )
        await tx.waiting.put([wait])
        await tx.quotas.put(NamespaceQuota(namespace="shop", limits={"": 10}))


@pytest.mark.usefixtures("filled")
async def test_views_say_what_is_promised_what_waits_and_what_was_decided(
    engine: AsyncEngine,
) -> None:
    async with engine.connect() as connection:
        promised = await connection.execute(
            text(
                "SELECT cluster, is_member, bindings, replicas, holding"
                " FROM promised_by_cluster ORDER BY 1"
            )
        )
        assert [tuple(row) for row in promised] == [
            ("member1", True, 1, 2, 1),
            ("member2", True, 0, 0, 0),
        ]
        waiting = await connection.execute(
            text("SELECT position, name, state, attempts, remainder, short_of FROM waiting_now")
        )
        assert [tuple(row) for row in waiting] == [(1, "web", "unschedulable", 1, 2, "cpu")]
        decided = await connection.execute(
            text("SELECT name, outcome, clusters, remainder FROM decisions_of_a_day")
        )
        assert [tuple(row) for row in decided] == [("web", "PARTIAL", ["member1 2"], 3)]


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize("question", QUESTIONS, ids=range(len(QUESTIONS)))
async def test_a_question_of_the_documentation_is_answered(
    question: str, database_url: str
) -> None:
    async with connected(database_url) as reader:
        await reader.execute("SET default_transaction_read_only = on")
        await reader.fetch(question)


def test_there_are_ten_questions() -> None:
    assert len(QUESTIONS) == 10
