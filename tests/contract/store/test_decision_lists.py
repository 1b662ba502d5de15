"""Lists of decisions: the newest first, by index, page after page, nothing twice or missed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import event, text
from sqlalchemy.ext.asyncio import AsyncEngine

from federation.scheduler.decision import Outcome
from federation.services.decision_ports import DecisionFilter, ListedDecision
from federation.store import decision_lists
from federation.store.postgres import PostgresStore

COUNT = 600
OUTCOMES = list(Outcome)
# Ten at a time, as one transaction decides them, a second apart.
FILL = text("""
    INSERT INTO decision (binding_id, namespace, name, binding_generation, outcome, clusters,
        remainder, reason, algorithm_revision, trace, triggers, created_at)
    SELECT 1, 'space' || n % 3, 'web' || n % 7, 1, (CAST(:outcomes AS text[]))[1 + n % 4],
        jsonb_build_array(jsonb_build_object('name', 'member' || n % 5, 'replicas', n)),
        0, '', 1, '', ARRAY['number ' || n], to_timestamp(1000 + n / 10) + interval '3 us'
    FROM generate_series(0, :count - 1) AS n
""")
FILTERS: dict[str, tuple[DecisionFilter, Callable[[int], bool]]] = {
    "all": (DecisionFilter(), lambda _: True),
    "namespace": (DecisionFilter(namespace="space1"), lambda n: n % 3 == 1),
    "binding": (
        DecisionFilter(namespace="space1", name="web2"),
        lambda n: n % 3 == 1 and n % 7 == 2,
    ),
    "among": (
        DecisionFilter(among=("space1", "*2")),
        lambda n: n % 3 in {1, 2},
    ),
    "name in no namespace": (DecisionFilter(name="web2"), lambda _: False),
    "cluster": (DecisionFilter(cluster="member4"), lambda n: n % 5 == 4),
    "outcomes": (
        DecisionFilter(outcomes=frozenset(OUTCOMES[2:])),
        lambda n: n % 4 >= 2,
    ),
    "times": (
        DecisionFilter(since=1010.000003, until=1020.000003),
        lambda n: 10 <= n // 10 < 20,
    ),
    "everything": (
        DecisionFilter(
            namespace="space1",
            name="web2",
            cluster="member3",
            outcomes=frozenset({OUTCOMES[0]}),
            since=1001.0,
            until=1050.0,
        ),
        lambda n: n % 21 == 16 and n % 5 == 3 and n % 4 == 0 and 10 <= n < 490,
    ),
}


@pytest.fixture
async def filled(engine: AsyncEngine, store: PostgresStore) -> PostgresStore:
    async with engine.begin() as connection:
        await connection.execute(FILL, {"count": COUNT, "outcomes": OUTCOMES})
    return store


async def listed(store: PostgresStore, wanted: DecisionFilter, limit: int) -> list[ListedDecision]:
    decisions: list[ListedDecision] = []
    after = None
    async with store.reading() as read:
        while True:
            page = await read.decisions.page(wanted, after, limit)
            assert len(page.decisions) <= limit
            decisions += page.decisions
            if page.next_after is None:
                return decisions
            after = page.next_after


@pytest.mark.parametrize("which", FILTERS)
@pytest.mark.parametrize(("limit", "looked_at"), [(7, 25), (1000, 5000), (1, 1)])
async def test_pages_have_every_decision_once_the_newest_first(
    filled: PostgresStore,
    monkeypatch: pytest.MonkeyPatch,
    which: str,
    limit: int,
    looked_at: int,
) -> None:
    monkeypatch.setattr(decision_lists, "LOOKED_AT", looked_at)
    wanted, is_wanted = FILTERS[which]
    found = await listed(filled, wanted, limit)
    numbers = [int(each.triggers[0].removeprefix("number ")) for each in found]
    assert sorted(numbers) == [n for n in range(COUNT) if is_wanted(n)]
    places = [each.place for each in found]
    assert places == sorted(places, reverse=True)


@pytest.mark.parametrize("which", [name for name in FILTERS if name != "name in no namespace"])
async def test_a_list_follows_an_index_and_sorts_nothing(
    filled: PostgresStore, engine: AsyncEngine, which: str
) -> None:
    """So that a page costs as much in a long history as in a short one."""
    asked: list[tuple[str, Any]] = []

    def heard(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        asked.append((statement, parameters))

    async with engine.connect() as connection:
        await connection.execute(text("ANALYZE decision"))
        for way in ("seqscan", "bitmapscan"):
            await connection.execute(text(f"SET enable_{way} = off"))
        event.listen(engine.sync_engine, "before_cursor_execute", heard)
        await decision_lists.decision_page(connection, FILTERS[which][0], None, 10)
        event.remove(engine.sync_engine, "before_cursor_execute", heard)
        assert asked
        for statement, parameters in asked:
            rows = await connection.exec_driver_sql(f"EXPLAIN {statement}", parameters)
            plan = "\n".join(row[0] for row in rows)
            assert "Index" in plan, plan
            # Days are merged, each by its index.
            assert "Sort  (" not in plan, plan
