"""Decisions by day: old days are dropped, and what bindings stand on outlives them."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from federation.model.errors import Conflict
from federation.model.placement import Binding
from federation.services.decision_ports import DecisionFilter
from federation.store.postgres import PostgresStore
from lab.patience import PATIENCE_SECONDS
from tests.stores import AGE_DECISIONS, add_binding, put_binding

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


async def prune(store: PostgresStore, limit: int) -> int:
    """How many pieces it takes."""
    pieces, done = 0, limit
    while done == limit:
        async with store.transaction() as tx:
            done = await tx.decisions.prune(1.0, limit)
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
    # Of bindings that are gone they go, too, and so do those of a day without a partition.
    async with fresh_engine.begin() as connection:
        await connection.execute(text("DELETE FROM binding WHERE name = 'number 3'"))
        await connection.execute(FILL, {"count": 2})
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
    before = await partitions(fresh_engine)
    async with store.transaction() as tx:
        await tx.decisions.make_partitions()
    whole = await partitions(fresh_engine)
    async with fresh_engine.begin() as connection:
        await connection.execute(text(f"DROP TABLE {whole[-3]}"))
        await connection.execute(text(f"DROP TABLE {whole[-4]}"))
    async with store.transaction() as tx:
        assert await tx.decisions.make_partitions() == 2
    assert await partitions(fresh_engine) == whole
    async with store.transaction() as tx:
        assert await tx.decisions.make_partitions() == 0
    assert set(before) <= set(whole)


async def test_a_day_is_not_made_where_its_decisions_are_in_the_rest(
    store: PostgresStore, fresh_engine: AsyncEngine
) -> None:
    whole = await partitions(fresh_engine)
    last = next(name for name in reversed(whole) if name[-1].isdigit())
    async with fresh_engine.begin() as connection:
        await connection.execute(text(f"DROP TABLE {last}"))
        await connection.execute(FILL, {"count": 1})
        day = f"{last[-8:-4]}-{last[-4:-2]}-{last[-2:]}"
        await connection.execute(text(f"UPDATE decision SET day = '{day}'"))
    async with store.transaction() as tx:
        await tx.decisions.make_partitions()
    assert last not in await partitions(fresh_engine)
    assert await numbers(store) == [0]


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
