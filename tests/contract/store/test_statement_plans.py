"""Each statement finds its rows by an index, in tables in which the planner has to choose."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pytest
from sqlalchemy import text

from federation.store.bindings import BindingStatements
from federation.store.engine import create_engine
from federation.store.failover import FailoverStatements
from federation.store.statements import NAMES, RESHAPING
from lab.databases import Databases, connected
from lab.filled_databases import SMALL, binding_name, cluster_name, fill
from lab.statement_tours import LAST, RUN, Planned, planned_statements

# Of smaller tables, and empty partitions, the planner reads all there is.
MIN_ROWS = 1_000
SIZES = """
    SELECT relname, reltuples FROM pg_class
    WHERE relkind = 'r' AND relnamespace = 'fedsched'::regnamespace
"""
PARTIAL = "SELECT indexrelid::regclass::text FROM pg_index WHERE indpred IS NOT NULL"
WHOLE_READS = text("""
    SELECT seq_scan, seq_tup_read FROM pg_stat_xact_user_tables WHERE relname = 'binding_cluster'
""")
# Statements that read a whole table, and why.
READS_ALL: Mapping[str, str] = {
    "credentials.prune": "a few rows for each cluster",
    "credentials.prune_join_tokens": "a few rows for each cluster",
    "credentials.cancel_join_tokens": "a few rows for each cluster",
    "credentials.revoke_admins": "a few rows for each cluster",
    "failover.replicas": "a sum of all narrow rows, once a minute",
    "reservations.all": "a control plane that starts reads all promises",
    "tokens.count": "at most 10,000 tokens, counted where one is made",
    "tokens.prune": "at most 10,000 tokens",
    "waiting.tallies": "counts all that wait, for metrics",
    "waiting.page_of_part": "positions in the queue of all",
}
# No statements of tables, or those of a database that was put back, which reads all ledgers.
OTHER_ROOMS = {"connection", "migrations", "partitions", "server", "signal", "store"}
ELSEWHERE = frozenset(
    name
    for name in NAMES
    if name.split(".")[0] in OTHER_ROOMS
    or name in {"history.forget_journal", "history.forget_reports", "history.lock_ledgers"}
    or name in {"history.move_horizon", "history.renew"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """The statements with their plans, rows of tables, and names of partial indexes."""

    url: str
    planned: Sequence[Planned]
    rows: Mapping[str, float]
    partial: frozenset[str]


@pytest.fixture(scope="module")
def catalog(databases: Databases, template_url: str) -> Iterator[Catalog]:
    url = databases.create("filled", template=template_url)

    async def read_catalog() -> Catalog:
        await fill(url, SMALL)
        engine = create_engine(url)
        try:
            planned = await planned_statements(engine)
        finally:
            await engine.dispose()
        async with connected(url) as connection:
            rows = {row[0]: row[1] for row in await connection.fetch(SIZES)}
            partial = frozenset(name for (name,) in await connection.fetch(PARTIAL))
        return Catalog(url=url, planned=planned, rows=rows, partial=partial)

    yield asyncio.run(read_catalog())
    databases.drop(url)


def test_each_statement_was_planned(catalog: Catalog) -> None:
    names = {statement.name for statement in catalog.planned}
    assert sorted(NAMES - names - RESHAPING - ELSEWHERE) == []


def test_no_statement_reads_a_whole_table(catalog: Catalog) -> None:
    scans = {
        f"{statement.name}: {scan}"
        for statement in catalog.planned
        if statement.name not in READS_ALL
        for scan in whole_scans(catalog, statement)
    }
    assert sorted(scans) == []


def test_each_exception_is_needed(catalog: Catalog) -> None:
    reading = {
        statement.name for statement in catalog.planned if any(whole_scans(catalog, statement))
    }
    assert sorted(READS_ALL.keys() - reading) == []


def test_positions_in_the_queue_are_counted_in_the_index_alone(catalog: Catalog) -> None:
    scans = {
        node["Node Type"]
        for planned in catalog.planned
        if planned.name == "waiting.position"
        for node, _ in planned.nodes()
        if "Relation Name" in node
    }
    assert scans == {"Index Only Scan"}


def test_a_decision_is_looked_for_in_two_partitions(catalog: Catalog) -> None:
    """Its id carries the day; those that outlived theirs are in a partition of their own."""
    names = set[str]()
    for planned in catalog.planned:
        if planned.name in RUN:
            names.add(planned.name)
            searched = {
                node["Relation Name"]
                for node, _ in planned.nodes()
                if node.get("Relation Name", "").startswith("decision_") and node["Actual Loops"]
            }
            assert "decision_kept" in searched, planned.name
            assert len(searched) == 2, planned.name
    assert names == RUN


async def test_shares_of_a_batch_are_found_by_their_key(catalog: Catalog) -> None:
    """The server counts how it reads the table, because no plan shows what a trigger runs."""
    engine = create_engine(catalog.url)
    names = [binding_name(LAST - SMALL.clusters * number) for number in range(100)]
    async with engine.connect() as connection:
        stored = await BindingStatements(connection).lock_all(names)
        ids = [binding.id for binding in stored.values()]
        await FailoverStatements(connection).leave(cluster_name(0), ids)
        assert (await connection.execute(WHOLE_READS)).one() == (0, 0)
        await connection.rollback()
    await engine.dispose()


def whole_scans(catalog: Catalog, planned: Planned) -> Iterator[str]:
    """Yield the scans that follow no condition of an index, and no limit."""
    for node, is_limited in planned.nodes():
        table = node.get("Relation Name", "")
        is_large = catalog.rows.get(table, 0) >= MIN_ROWS
        if not is_large or not node["Node Type"].endswith("Scan"):
            continue
        is_chosen = "Index Cond" in node or "Recheck Cond" in node
        if not is_limited and not is_chosen and node.get("Index Name") not in catalog.partial:
            yield f"{node['Node Type']} of {table}"


def test_the_last_number_is_read_before_the_floors(catalog: Catalog) -> None:
    """Otherwise a writer whose floor was not there yet could be skipped."""
    for planned in catalog.planned:
        if planned.name.endswith(".bounds"):
            joins = [node for node, _ in planned.nodes() if node["Node Type"] == "Nested Loop"]
            outer, inner = joins[0]["Plans"][-2:]
            assert outer.get("CTE Name") == "last"
            assert "last.number" in json.dumps(inner)
            assert "pg_lock_status" in json.dumps(inner)
