"""The migrations make exactly the schema that is declared, from nothing, any number of times."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Sequence

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import Connection, NullPool, Pool, event, text
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from federation.model.errors import Unavailable
from federation.store import migrate
from federation.store.engine import driver_target
from federation.store.migrate import (
    current,
    one_at_a_time,
    pending,
    scripts_directory,
    upgrade,
)
from federation.store.schema import metadata
from lab.databases import Databases
from lab.patience import PATIENCE_SECONDS, until

PARTITIONS = "SELECT relname FROM pg_class WHERE relispartition"
CHECKS = text(f"""
    SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid)
    FROM pg_constraint WHERE contype = 'c' AND connamespace = 'public'::regnamespace
    AND conrelid::regclass::text NOT IN ({PARTITIONS})
""")
COLUMNS = text(f"""
    SELECT table_name, column_name, data_type, is_nullable, column_default, collation_name,
           identity_generation
    FROM information_schema.columns
    WHERE table_schema = 'public' AND table_name <> 'alembic_version'
    AND table_name NOT IN ({PARTITIONS})
    AND table_name NOT IN (SELECT relname FROM pg_class WHERE relkind = 'v')
""")
KEYS = text(f"""
    SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid)
    FROM pg_constraint WHERE contype <> 'c' AND connamespace = 'public'::regnamespace
    AND conrelid <> 'alembic_version'::regclass
    AND conrelid::regclass::text NOT IN ({PARTITIONS})
""")
PERSISTENCE = text("""
    SELECT relname, relpersistence::text FROM pg_class
    WHERE relkind IN ('r', 'p') AND relnamespace = 'public'::regnamespace
    AND relname <> 'alembic_version' AND NOT relispartition
""")
INDEXES = text(f"""
    SELECT tablename, indexname, indexdef FROM pg_indexes
    WHERE schemaname = 'public' AND tablename <> 'alembic_version'
    AND tablename NOT IN ({PARTITIONS})
""")
SETTINGS = text("""
    SELECT relname, setting FROM pg_class, unnest(reloptions) AS setting
    WHERE relkind IN ('r', 'p') AND relnamespace = 'public'::regnamespace AND NOT relispartition
""")
COMMENTS = text(f"""
    SELECT relname, attname, col_description(pg_class.oid, attnum)
    FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid AND attnum > 0 AND NOT attisdropped
    WHERE relkind IN ('r', 'p') AND relnamespace = 'public'::regnamespace
    AND relname <> 'alembic_version' AND relname NOT IN ({PARTITIONS})
    UNION ALL
    SELECT relname, '', obj_description(oid, 'pg_class') FROM pg_class
    WHERE relkind IN ('r', 'p') AND relnamespace = 'public'::regnamespace
    AND relname <> 'alembic_version' AND NOT relispartition
""")
# Views are not declared: the migrations alone have them.
COMMENTS_OF_VIEWS = text("""
    SELECT relname, attname, col_description(pg_class.oid, attnum)
    FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid AND attnum > 0
    WHERE relkind = 'v' AND relnamespace = 'public'::regnamespace
    UNION ALL
    SELECT relname, '', obj_description(oid, 'pg_class') FROM pg_class
    WHERE relkind = 'v' AND relnamespace = 'public'::regnamespace
""")

BACKEND = text("SELECT pg_backend_pid()")
# Advisory locks and timeouts of the session that asks.
LEFT_IN_SESSION = """
    SELECT current_setting('lock_timeout'), current_setting('statement_timeout'),
        (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid())
"""
MIGRATING = text("""
    SELECT count(*) FROM pg_stat_activity
    WHERE application_name = 'fedsched/migrate' AND query LIKE '%migrations.%'
""")
HELD = text("SELECT pg_advisory_lock(hashtextextended('fedsched migrations', 0))")
PROMISED = text("""
    INSERT INTO reservation (namespace, name, uid, clusters, body) VALUES ('', 'web', '', '{a}', '')
""")


def engine_of(url: str) -> AsyncEngine:
    target, options = driver_target(url)
    return create_async_engine(target, poolclass=NullPool, connect_args=dict(options))


async def catalog(url: str) -> dict[str, set[tuple[object, ...]]]:
    engine = engine_of(url)
    async with engine.connect() as connection:
        found = {
            "checks": await connection.execute(CHECKS),
            "columns": await connection.execute(COLUMNS),
            "keys": await connection.execute(KEYS),
            "indexes": await connection.execute(INDEXES),
            "persistence": await connection.execute(PERSISTENCE),
            "settings": await connection.execute(SETTINGS),
            "comments": await connection.execute(COMMENTS),
        }
        answer = {kind: {tuple(row) for row in rows} for kind, rows in found.items()}
    await engine.dispose()
    return answer


async def test_the_migrated_catalog_is_the_declared_one(
    database_url: str, empty_database_url: str
) -> None:
    engine = engine_of(empty_database_url)
    async with engine.begin() as connection:
        await connection.execute(text("CREATE TABLE alembic_version (version_num text)"))
        await connection.run_sync(metadata.create_all)
    await engine.dispose()
    migrated, declared = await catalog(database_url), await catalog(empty_database_url)
    for kind in migrated:
        assert migrated[kind], kind
        assert migrated[kind] == declared[kind], kind


async def test_every_table_view_and_column_says_what_it_holds(database_url: str) -> None:
    engine = engine_of(database_url)
    async with engine.connect() as connection:
        comments = {tuple(row) for row in await connection.execute(COMMENTS_OF_VIEWS)}
    await engine.dispose()
    assert len(comments) > 3
    comments |= (await catalog(database_url))["comments"]
    assert [(table, column) for table, column, comment in comments if not comment] == []


async def test_alembic_finds_nothing_to_add(database_url: str) -> None:
    def differences(connection: Connection) -> list[object]:
        partitions = set(connection.scalars(text(PARTITIONS)))
        context = MigrationContext.configure(
            connection,
            opts={
                "compare_server_default": True,
                "target_metadata": metadata,
                "include_name": lambda name, kind, _: kind != "table" or name not in partitions,
            },
        )
        return list(compare_metadata(context, metadata))

    engine = engine_of(database_url)
    async with engine.connect() as connection:
        assert await connection.run_sync(differences) == []
    await engine.dispose()


def test_an_empty_database_has_everything_pending_and_a_migrated_one_nothing(
    empty_database_url: str,
) -> None:
    assert current(empty_database_url) is None
    assert pending(empty_database_url) == revisions()
    upgrade(empty_database_url)
    assert current(empty_database_url) == revisions()[-1]
    assert pending(empty_database_url) == []


def test_upgrading_again_changes_nothing(empty_database_url: str) -> None:
    upgrade(empty_database_url)
    before = asyncio.run(catalog(empty_database_url))
    upgrade(empty_database_url)
    assert asyncio.run(catalog(empty_database_url)) == before


MIGRATE = "import sys; from federation.store.migrate import upgrade; upgrade(sys.argv[1])"


def upgrade_at_once(url: str) -> None:
    """By several programs."""
    command = [sys.executable, "-c", MIGRATE, url]
    programs = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    for started in programs:
        _, complaint = started.communicate(timeout=PATIENCE_SECONDS)
        assert started.returncode == 0, complaint


def test_several_programs_may_upgrade_at_once(empty_database_url: str) -> None:
    upgrade_at_once(empty_database_url)
    assert pending(empty_database_url) == []


async def test_a_migration_leaves_nothing_in_the_session_that_ran_it(
    empty_database_url: str,
) -> None:
    """A transaction pooler gives the session to others: a lock would be held for ever."""
    sessions: list[Sequence[object]] = []

    def ask_session(connection: DBAPIConnection, _: object) -> None:
        cursor = connection.cursor()
        cursor.execute(LEFT_IN_SESSION)
        sessions.extend(cursor.fetchall())
        cursor.close()

    event.listen(Pool, "checkin", ask_session)
    try:
        await asyncio.to_thread(upgrade, empty_database_url)
    finally:
        event.remove(Pool, "checkin", ask_session)
    assert {tuple(session) for session in sessions} == {("0", "0", 0)}


async def test_who_holds_the_lock_of_migrations_is_named(
    empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a lock of a session was left where an earlier release migrated through a pooler."""
    monkeypatch.setattr(migrate, "MAX_WAIT_SECONDS", 0.1)
    engine = engine_of(empty_database_url)
    async with engine.connect() as connection:
        pid = (await connection.execute(BACKEND)).scalar_one()
        await connection.execute(HELD)
        await connection.commit()
        with pytest.raises(Unavailable, match=f"server process {pid} of user") as refused:
            await asyncio.to_thread(upgrade, empty_database_url)
    await engine.dispose()
    assert "pg_terminate_backend" in refused.value.message
    await asyncio.to_thread(upgrade, empty_database_url)
    assert pending(empty_database_url) == []


async def test_an_index_is_built_beside_others_while_a_program_waits_to_migrate(
    empty_database_url: str,
) -> None:
    """Building it waits for all statements that run, also for one that waits for a lock."""
    engine = engine_of(empty_database_url)
    async with engine.connect() as holder:
        await holder.execute(HELD)
        await holder.commit()
        waiting = asyncio.create_task(asyncio.to_thread(upgrade, empty_database_url))
        async with engine.connect() as alone:
            builder = await alone.execution_options(isolation_level="AUTOCOMMIT")
            await builder.execute(text("CREATE TABLE large (id bigint)"))
            await until(lambda: count_waiting(builder), bool)
            await builder.execute(text("CREATE INDEX CONCURRENTLY ON large (id)"))
        assert not waiting.done()
    await waiting
    await engine.dispose()
    assert pending(empty_database_url) == []


async def count_waiting(connection: AsyncConnection) -> int:
    """Return how many programs have begun to migrate."""
    return int((await connection.execute(MIGRATING)).scalar_one())


async def test_no_promise_is_lost_by_taking_the_schema_away(
    empty_database_url: str,
) -> None:
    await asyncio.to_thread(upgrade, empty_database_url)
    engine = engine_of(empty_database_url)
    async with engine.begin() as connection:
        await connection.execute(PROMISED)
    with pytest.raises(RuntimeError, match="1 bindings hold promises"):
        await asyncio.to_thread(run_alembic, empty_database_url, command.downgrade, "base")
    async with engine.begin() as connection:
        await connection.execute(text("DELETE FROM reservation"))
    await asyncio.to_thread(run_alembic, empty_database_url, command.downgrade, "base")
    await engine.dispose()


def run_alembic(url: str, act: Callable[[Config, str], None], revision: str) -> None:
    config = Config()
    config.set_main_option("script_location", str(scripts_directory()).replace("%", "%%"))

    async def on_connection() -> None:
        engine = engine_of(url)
        async with engine.connect() as connection:
            await connection.run_sync(run)
        await engine.dispose()

    def run(connection: Connection) -> None:
        config.attributes["connection"] = connection
        act(config, revision)

    with one_at_a_time:
        asyncio.run(on_connection())


async def test_upgrading_works_while_a_loop_runs(empty_database_url: str) -> None:
    await asyncio.to_thread(upgrade, empty_database_url)
    assert current(empty_database_url) == revisions()[-1]


def test_a_database_that_is_not_there_is_unavailable(
    empty_database_url: str, databases: Databases
) -> None:
    gone = f"{databases.create('gone')}"
    databases.drop(gone)
    with pytest.raises(Unavailable):
        upgrade(gone)


def test_every_revision_says_why_and_when_to_roll_out() -> None:
    for script in (scripts_directory() / "versions").glob("*.py"):
        docstring = script.read_text().split('"""')[1]
        assert "Why:" in docstring, script.name
        assert "Roll-out: before" in docstring or "Roll-out: after" in docstring, script.name


def revisions() -> list[str]:
    names = (scripts_directory() / "versions").glob("[0-9]*.py")
    return sorted(path.name.split("_")[0] for path in names)


DECIDED = text("""
    INSERT INTO decision (binding_id, namespace, name, binding_generation, outcome, clusters,
        remainder, reason, algorithm_revision, trace)
    SELECT n, '', 'web-' || n, 1, 'SCHEDULED', '[]', 0, '', 1, '' FROM generate_series(1, 9) AS n
""")
BOUND = text("""
    INSERT INTO binding (namespace, name, uid, generation, version, spec, clusters, decision_id,
        observed_affinity, affinity_group, anti_affinity_group)
    SELECT namespace, name, '', 1, 1, '{"eviction_tasks": []}', '[]', id, '', '', '' FROM decision
""")
PLACED = text("INSERT INTO node_plan SELECT id, 'member1', '{}' FROM decision")
LEFT = text("""
    SELECT count(*), count(DISTINCT decision.id) FROM decision
    JOIN binding ON decision_id = decision.id JOIN node_plan ON node_plan.decision_id = decision.id
""")
PARTED = text("SELECT count(*) FROM decision WHERE day < (now() AT TIME ZONE 'utc')::date")


async def test_decisions_that_are_there_become_a_day_that_is_over_and_back(
    empty_database_url: str,
) -> None:
    """The release that is running goes on writing decisions, of today."""
    await asyncio.to_thread(run_alembic, empty_database_url, command.upgrade, "0016")
    engine = engine_of(empty_database_url)
    async with engine.begin() as connection:
        for statement in (DECIDED, BOUND, PLACED):
            await connection.execute(statement)
    await asyncio.to_thread(run_alembic, empty_database_url, command.upgrade, "0017")
    async with engine.begin() as connection:
        assert (await connection.execute(LEFT)).one() == (9, 9)
        assert (await connection.execute(PARTED)).scalar_one() == 9
        await connection.execute(DECIDED)
        assert (await connection.execute(PARTED)).scalar_one() == 9
    await asyncio.to_thread(run_alembic, empty_database_url, command.downgrade, "0016")
    async with engine.begin() as connection:
        assert (await connection.execute(LEFT)).one() == (9, 9)
        await connection.execute(DECIDED)
    await engine.dispose()


PLACED_BEFORE = text("""
    INSERT INTO binding (namespace, name, uid, generation, version, spec, clusters,
        observed_affinity, affinity_group, anti_affinity_group)
    SELECT 'space' || n % 3, 'web-' || n, '', 1, 1, '{"eviction_tasks": []}',
        jsonb_build_array(jsonb_build_object('name', 'member' || n % 7, 'replicas', n),
            jsonb_build_object('name', 'member9', 'replicas', 1)), '', '', ''
    FROM generate_series(1, 2500) AS n
""")
CLUSTERS_OF_BINDINGS = text("SELECT count(*), sum(replicas) FROM binding_cluster")


async def test_what_runs_where_is_copied_and_may_be_copied_again(empty_database_url: str) -> None:
    await asyncio.to_thread(run_alembic, empty_database_url, command.upgrade, "0022")
    engine = engine_of(empty_database_url)
    async with engine.begin() as connection:
        await connection.execute(PLACED_BEFORE)
    for _ in range(2):
        await asyncio.to_thread(run_alembic, empty_database_url, command.upgrade, "0023")
        async with engine.begin() as connection:
            copied = (await connection.execute(CLUSTERS_OF_BINDINGS)).one()
            assert tuple(copied) == (5000, 2500 + 2500 * 2501 // 2)
            # As if the migration had not come to its end.
            await connection.execute(text("UPDATE alembic_version SET version_num = '0022'"))
    await engine.dispose()


IN_REST = text("""
    INSERT INTO decision (binding_id, namespace, name, binding_generation, outcome, clusters,
        remainder, reason, algorithm_revision, trace, day)
    SELECT n, '', 'web-' || n, 1, 'SCHEDULED', '[]', 0, '', 1, '',
        (now() AT TIME ZONE 'utc')::date + n FROM generate_series(1, 20) AS n
""")
OF_DAYS = text("""
    SELECT count(*), count(DISTINCT tableoid), min(tableoid::regclass::text) <> 'decision_rest'
    FROM decision WHERE right(tableoid::regclass::text, 8) = to_char(day, 'YYYYMMDD')
""")


async def test_rows_without_a_day_of_their_own_get_one(empty_database_url: str) -> None:
    await asyncio.to_thread(run_alembic, empty_database_url, command.upgrade, "0026")
    engine = engine_of(empty_database_url)
    async with engine.begin() as connection:
        await connection.execute(IN_REST)
    await asyncio.to_thread(run_alembic, empty_database_url, command.upgrade, "0027")
    async with engine.begin() as connection:
        assert (await connection.execute(OF_DAYS)).one() == (20, 20, True)
    await asyncio.to_thread(run_alembic, empty_database_url, command.downgrade, "0026")
    await engine.dispose()
