"""Databases of earlier releases get into the schema of this one, with all their rows.

``fe7cb724.sql`` is a dump of a database that a control plane of that commit filled: two clusters,
five bindings of which one waits, six decisions, tokens and an audit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import asyncpg
import pytest

from federation.model.errors import PreconditionFailed
from federation.store.migrate import current, pending, scripts_directory, upgrade
from lab.control_planes import running_control_plane
from lab.databases import connected
from tests.migration.test_schema import catalog, revisions

DUMP = (Path(__file__).parent / "fe7cb724.sql").read_text(encoding="utf-8")
# What leads from the dump to the tables as they are moved.
EARLIER = sorted(
    path.name.split("_")[0]
    for path in (scripts_directory() / "versions").glob("0*.py")
    if not path.name.startswith("0019")
)
PLACED_BEFORE = """
    INSERT INTO public.binding (namespace, name, uid, generation, version, spec, clusters,
        observed_affinity, affinity_group, anti_affinity_group)
    SELECT 'space' || n % 3, 'web-' || n, '', 1, 1, '{"eviction_tasks": []}',
        jsonb_build_array(jsonb_build_object('name', 'member' || n % 7, 'replicas', n),
            jsonb_build_object('name', 'member9', 'replicas', 1)), '', '', ''
    FROM generate_series(1, 2500) AS n
"""
SHARES = """
    SELECT count(*), sum(replicas) FROM binding_cluster
    JOIN binding ON binding.id = binding_id WHERE namespace LIKE 'space%'
"""
IN_REST = """
    INSERT INTO public.decision (binding_id, namespace, name, binding_generation, outcome,
        clusters, remainder, reason, algorithm_revision, trace, day)
    SELECT n, 'late', 'web-' || n, 1, 'SCHEDULED', '[]', 0, '', 1, '',
        (now() AT TIME ZONE 'utc')::date + 100 + n FROM generate_series(1, 20) AS n
"""
OF_DAYS = """
    SELECT count(*), count(DISTINCT tableoid) FROM decision
    WHERE namespace = 'late' AND right(tableoid::regclass::text, 8) = to_char(day, 'YYYYMMDD')
"""
TABLES = """
    SELECT nspname || '.' || relname
    FROM pg_class JOIN pg_namespace ON relnamespace = pg_namespace.oid
    WHERE relkind IN ('r', 'p', 'v', 'S') AND nspname IN ('public', 'elsewhere')
"""
# Rows as texts, without columns that earlier releases lack.
ROWS = {
    "access_token": "SELECT t::text FROM {schema}access_token AS t ORDER BY 1",
    "credential": "SELECT t::text FROM {schema}credential AS t ORDER BY 1",
    "audit": "SELECT to_jsonb(t) - 'day' FROM {schema}audit AS t ORDER BY id",
    "decision": "SELECT (id, binding_id, trace, outcome, created_at)::text"
    " FROM {schema}decision ORDER BY 1",
    "binding": "SELECT t::text FROM {schema}binding AS t ORDER BY 1",
    "reservation": "SELECT t::text FROM {schema}reservation AS t ORDER BY 1",
    "waiting": "SELECT t::text FROM {schema}waiting AS t ORDER BY 1",
}
RENAMED_ROWS = {
    "request": "idempotency_key",
    "history": "database_incarnation",
}


async def restore(url: str, *statements: str, schema: str = "public") -> None:
    """Restore the dump, and run more statements."""
    async with connected(url) as connection:
        await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        await connection.execute(DUMP.replace("public.", f"{schema}."))
        for statement in statements:
            await connection.execute(statement)


async def rows(connection: asyncpg.Connection, schema: str = "") -> dict[str, Sequence[str]]:
    queries = ROWS | {
        name: f"SELECT t::text FROM {schema}{earlier if schema else name} AS t ORDER BY 1"
        for earlier, name in RENAMED_ROWS.items()
    }
    return {
        name: [row[0] for row in await connection.fetch(query.format(schema=schema))]
        for name, query in queries.items()
    }


async def test_a_database_of_fe7cb724_keeps_its_rows_and_gets_the_same_catalog(
    database_url: str, empty_database_url: str
) -> None:
    await restore(empty_database_url)
    assert current(empty_database_url) == "0019"
    assert pending(empty_database_url) == EARLIER + revisions()
    async with connected(empty_database_url) as connection:
        earlier_rows = await rows(connection, "public.")
    await asyncio.to_thread(upgrade, empty_database_url)
    assert current(empty_database_url) == revisions()[-1]
    assert pending(empty_database_url) == []
    moved, declared = await catalog(empty_database_url), await catalog(database_url)
    for kind in declared:
        assert moved[kind] == declared[kind], kind
    async with connected(empty_database_url) as connection:
        assert await rows(connection) == earlier_rows
        assert all(earlier_rows.values())
        assert await connection.fetch(TABLES) == []


async def test_a_control_plane_goes_on_with_a_database_of_fe7cb724(
    empty_database_url: str, tmp_path: Path
) -> None:
    # The secret of its admin token is not in the dump: another one is made.
    await restore(empty_database_url, "DELETE FROM public.credential WHERE kind = 'admin'")
    await asyncio.to_thread(upgrade, empty_database_url)
    async with running_control_plane(empty_database_url, tmp_path) as plane:
        stored = (await plane.admin.ask("ListBindings", page_size=100)).bindings
        promised = {
            binding.metadata.name: sum(target.replicas for target in binding.spec.clusters)
            for binding in stored
        }
        assert promised == {"big": 0} | {f"web-{n}": 3 if n == 0 else 2 for n in range(4)}
        queue = (await plane.admin.ask("ListQueue", page_size=100)).bindings
        assert [waiting.name for waiting in queue] == ["big"]
        assert len((await plane.admin.ask("ListTokens", page_size=100)).tokens) == 2
        listed = (await plane.admin.ask("ListDecisions", page_size=100)).decisions
        assert len(listed) == 6
        for decision in listed:
            stored_decision = (await plane.admin.ask("GetDecision", id=decision.id)).decision
            assert stored_decision.trace.clusters
            await plane.admin.ask("ReplayDecision", id=decision.id)
        held = await plane.sql("SELECT sum((held ->> '')::bigint) FROM reservation")
        assert held == [(9,)]


async def test_an_upgrade_that_was_cut_off_goes_on(empty_database_url: str) -> None:
    """Shares are copied in pages, and rows without a partition of their day get one."""
    again = "UPDATE public.alembic_version SET version_num = '0022'"
    await restore(empty_database_url, PLACED_BEFORE, IN_REST, again)
    assert pending(empty_database_url) == EARLIER + revisions()
    await asyncio.to_thread(upgrade, empty_database_url)
    async with connected(empty_database_url) as connection:
        assert await connection.fetchrow(SHARES) == (5000, 2500 + 2500 * 2501 // 2)
        assert await connection.fetchrow(OF_DAYS) == (20, 20)


async def test_tables_are_moved_from_wherever_they_are(
    database_url: str, empty_database_url: str
) -> None:
    """The schema that a role has for itself may have the name of ours."""
    await restore(empty_database_url, schema="fedsched")
    await asyncio.to_thread(upgrade, empty_database_url)
    assert pending(empty_database_url) == []
    assert (await catalog(empty_database_url))["keys"] == (await catalog(database_url))["keys"]


async def test_no_second_set_of_tables_is_made(empty_database_url: str) -> None:
    await restore(empty_database_url)
    await restore(empty_database_url, schema="elsewhere")
    with pytest.raises(PreconditionFailed, match="in the schemas elsewhere, public"):
        await asyncio.to_thread(upgrade, empty_database_url)
    async with connected(empty_database_url) as connection:
        assert not await connection.fetchval("SELECT to_regnamespace('fedsched') IS NOT NULL")


async def test_the_versions_of_another_program_are_left_alone(empty_database_url: str) -> None:
    async with connected(empty_database_url) as connection:
        await connection.execute("CREATE TABLE public.alembic_version (version_num text)")
        await connection.execute("INSERT INTO public.alembic_version VALUES ('0007')")
    assert pending(empty_database_url) == revisions()
    await asyncio.to_thread(upgrade, empty_database_url)
    assert pending(empty_database_url) == []
    async with connected(empty_database_url) as connection:
        assert await connection.fetch("SELECT * FROM public.alembic_version") == [("0007",)]


@pytest.mark.parametrize(
    ("revision", "why"),
    [("0018", "of commit fe7cb724"), ("9999", "a newer release migrated it")],
)
async def test_a_revision_that_is_too_old_or_too_new_is_refused(
    empty_database_url: str, revision: str, why: str
) -> None:
    stamp = f"UPDATE public.alembic_version SET version_num = '{revision}'"
    await restore(empty_database_url, stamp)
    for refused in (pending, upgrade):
        with pytest.raises(PreconditionFailed, match=why):
            await asyncio.to_thread(refused, empty_database_url)
