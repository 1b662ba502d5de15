"""Decisions by day: old days are dropped, and what bindings stand on outlives them."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from federation.model.errors import Conflict, Unavailable
from federation.model.node_plans import NodePlan
from federation.model.placement import Binding
from federation.services.decision_ports import DecisionFilter
from federation.services.scheduling.decision_ids import uuid7
from federation.store.partitions import DAYS_AHEAD
from federation.store.postgres import PostgresStore
from lab.patience import PATIENCE_SECONDS
from tests.stores import AGE_DECISIONS, add_binding, new_decision, put_binding

COUNT = 60
FILL = text("""
    INSERT INTO decision (binding_id, namespace, name, binding_generation, outcome, clusters,
        remainder, reason, algorithm_revision, trace, triggers, created_at, day)
    SELECT 1, '', 'web', 1, 'SCHEDULED', '[]', 0, '', 1, '', ARRAY['number ' || n],
        to_timestamp(1000 + n), '2001-01-01'
    FROM generate_series(0, :count - 1) AS n
""")
BIND = text("""
    INSERT INTO binding (namespace, name, uid, generation, version, spec, clusters, decision_id,
        observed_affinity, affinity_group, anti_affinity_group)
    SELECT '', triggers[1], '', 1, 1, '{}', '[]', id, '', '', ''
    FROM decision WHERE CAST(substr(triggers[1], 8) AS int) % 3 = 0
""")
OF_BINDING = text("""
    UPDATE decision SET binding_id = binding.id FROM binding WHERE decision_id = decision.id
""")
PARTITIONS = text("""
    SELECT inhrelid::regclass::text FROM pg_inherits
    WHERE inhparent = 'decision'::regclass ORDER BY 1
""")

DROP_TODAY = text("""
    DO $$ BEGIN
        EXECUTE 'DROP TABLE decision_' || to_char(now() AT TIME ZONE 'utc', 'YYYYMMDD');
    END $$
""")
DAY_OF = text("SELECT day - (now() AT TIME ZONE 'utc')::date FROM decision WHERE id = :id")
DAY_SECONDS = 86_400.0


@pytest.fixture
def store(fresh_engine: AsyncEngine) -> PostgresStore:
    return PostgresStore(fresh_engine)


async def partitions(engine: AsyncEngine) -> list[str]:
    async with engine.connect() as connection:
        return list(await connection.scalars(PARTITIONS))


async def numbers(store: PostgresStore) -> list[int]:
    async with store.reading() as read:
        page = await read.decisions.page(DecisionFilter(), None, 1000)
    return sorted(int(each.triggers[0].removeprefix("number ")) for each in page.decisions)


async def prune(store: PostgresStore, limit: int, *, older_than_seconds: float = 1.0) -> int:
    """Return the number of pieces it takes."""
    pieces, done = 0, limit
    while done == limit:
        async with store.transaction() as tx:
            done = await tx.decisions.prune(older_than_seconds, limit)
        pieces += 1
    return pieces


@pytest.mark.parametrize("limit", [7, 1000])
async def test_an_old_day_is_dropped_and_what_bindings_stand_on_stays(
    store: PostgresStore, fresh_engine: AsyncEngine, limit: int
) -> None:
    async with fresh_engine.begin() as connection:
        await connection.execute(FILL, {"count": COUNT})
        await connection.execute(BIND)
        await connection.execute(OF_BINDING)
    before = await partitions(fresh_engine)
    await prune(store, limit)
    assert await numbers(store) == [n for n in range(COUNT) if n % 3 == 0]
    assert len(before) - len(await partitions(fresh_engine)) == 1
    # Those of bindings that are gone go, too.
    async with fresh_engine.begin() as connection:
        await connection.execute(text("DELETE FROM binding WHERE name = 'number 3'"))
    await prune(store, limit)
    assert await numbers(store) == [n for n in range(COUNT) if n % 3 == 0 and n != 3]


async def test_what_is_decided_today_stays(store: PostgresStore) -> None:
    async with store.transaction() as tx:
        stored = await add_binding(tx, Binding(name="web"))
        assert stored is not None
        _, newest = await put_binding(tx, stored.id, stored.binding)
    await prune(store, 10)
    async with store.reading() as read:
        assert len((await read.decisions.page(DecisionFilter(), None, 10)).decisions) == 2
        assert await read.decisions.get(newest.id) is not None


async def test_days_to_come_have_partitions_once(
    store: PostgresStore, fresh_engine: AsyncEngine
) -> None:
    whole = await partitions(fresh_engine)
    async with store.reading() as read:
        assert await read.partitions.days_left() == DAYS_AHEAD
    async with fresh_engine.begin() as connection:
        await connection.execute(text(f"DROP TABLE {whole[-2]}"))
        await connection.execute(text(f"DROP TABLE {whole[-4]}"))
    async with store.transaction() as tx:
        assert await tx.partitions.days_left() == DAYS_AHEAD - 4 + len(["decision_kept"])
        assert await tx.partitions.make() == 2
    assert await partitions(fresh_engine) == whole
    async with store.transaction() as tx:
        assert await tx.partitions.make() == 0
        assert await tx.partitions.days_left() == DAYS_AHEAD


async def test_days_are_made_while_others_read_and_write(
    store: PostgresStore, fresh_engine: AsyncEngine
) -> None:
    whole = await partitions(fresh_engine)
    async with fresh_engine.begin() as connection:
        await connection.execute(text(f"DROP TABLE {whole[-2]}"))
    async with store.transaction() as tx:
        await add_binding(tx, Binding(name="web"))
        async with store.transaction() as making:
            assert await making.partitions.make() == 1
    assert await partitions(fresh_engine) == whole


async def test_a_row_without_a_partition_is_refused_with_the_reason(
    store: PostgresStore, fresh_engine: AsyncEngine
) -> None:
    async with fresh_engine.begin() as connection:
        await connection.execute(DROP_TODAY)
    with pytest.raises(Unavailable, match="has no partition for today") as refused:
        async with store.transaction() as tx:
            await add_binding(tx, Binding(name="web"))
    assert refused.value.reason == "NO_PARTITION"
    async with store.transaction() as tx:
        assert await tx.partitions.days_left() == 0
        await tx.partitions.make()
        assert await add_binding(tx, Binding(name="web"))


async def test_a_decision_is_of_the_day_that_its_id_carries(
    store: PostgresStore, fresh_engine: AsyncEngine
) -> None:
    """It may be committed after midnight."""
    async with store.reading() as read:
        now = (await read.kept_reports.now()).at / 1_000_000
    for days, kept_days in ((-1, -1), (0, 0), (1, 1), (2, 0)):
        decision_id = str(uuid7(now + days * DAY_SECONDS, 1))
        async with store.transaction() as tx:
            new = new_decision(Binding(name=f"web{days}"), id=decision_id)
            await tx.decisions.add_all([new])
        async with fresh_engine.connect() as connection:
            stored = await connection.scalar(DAY_OF, {"id": decision_id})
        assert stored == kept_days
        async with store.reading() as read:
            decision = await read.decisions.get(decision_id)
            assert (decision is not None) == (days == kept_days)
            assert (decision_id in await read.decisions.find([decision_id])) == bool(decision)


async def test_a_decision_of_its_id_and_one_of_before_are_found_when_their_days_are_over(
    store: PostgresStore,
) -> None:
    async with store.reading() as read:
        now = (await read.kept_reports.now()).at / 1_000_000
    ids = [str(uuid7(now, 1)), str(uuid4())]
    async with store.transaction() as tx:
        await tx.decisions.add_all(
            [new_decision(Binding(name=f"web{n}"), id=one) for n, one in enumerate(ids)]
        )
    async with store.transaction() as tx:
        await tx.decisions.put_node_plans({one: [NodePlan(cluster="a")] for one in ids})
    # As if the day were over: the newest of each binding outlives it.
    while await prune(store, 10, older_than_seconds=-DAY_SECONDS) > 1:
        pass
    async with store.reading() as read:
        decisions = await read.decisions.find(ids)
        assert sorted(decisions) == sorted(ids)
        for one in ids:
            decision = await read.decisions.get(one)
            assert decision is not None
            assert decision.unpacked().node_plans == (NodePlan(cluster="a"),)


async def test_a_day_that_somebody_reads_is_dropped_later(
    store: PostgresStore, fresh_engine: AsyncEngine
) -> None:
    """Who waits for the lock of a table holds up everybody else."""
    async with fresh_engine.begin() as connection:
        await connection.execute(FILL, {"count": COUNT})
    async with fresh_engine.begin() as reading:
        await reading.execute(text("SELECT count(*) FROM decision"))
        with pytest.raises(Conflict):
            await prune(store, 1000)
        async with asyncio.timeout(PATIENCE_SECONDS), store.transaction() as tx:
            await add_binding(tx, Binding(name="web"))
    await prune(store, 1000)
    async with store.reading() as read:
        assert len((await read.decisions.page(DecisionFilter(), None, 10)).decisions) == 1


async def test_bindings_are_decided_while_their_old_decisions_are_moved_aside(
    store: PostgresStore, fresh_engine: AsyncEngine
) -> None:
    async with store.transaction() as tx:
        stored = await add_binding(tx, Binding(name="web"))
        assert stored is not None
    async with fresh_engine.begin() as connection:
        await connection.execute(text(AGE_DECISIONS))
    async with store.transaction() as pruning:
        assert await pruning.decisions.prune(1.0, 1) == 1
        async with asyncio.timeout(PATIENCE_SECONDS), store.transaction() as tx:
            _, newest = await put_binding(tx, stored.id, stored.binding)
    await prune(store, 1)
    async with store.reading() as read:
        left = await read.decisions.page(DecisionFilter(), None, 10)
    assert [each.id for each in left.decisions] == [newest.id]
