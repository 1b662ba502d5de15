"""The migrations make exactly the schema that is declared, from nothing, any number of times."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Sequence

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, NullPool, Pool, event, text
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from federation.model.errors import Unavailable
from federation.store import migrate
from federation.store.engine import SCHEMA, driver_target
from federation.store.migrate import (
    current,
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
    FROM pg_constraint WHERE contype = 'c' AND connamespace = 'fedsched'::regnamespace
    AND conrelid::regclass::text NOT IN ({PARTITIONS})
""")
COLUMNS = text(f"""
    SELECT table_name, column_name, data_type, is_nullable, column_default, collation_name,
           identity_generation
    FROM information_schema.columns
    WHERE table_schema = 'fedsched' AND table_name <> 'alembic_version'
    AND table_name NOT IN ({PARTITIONS})
    AND table_name NOT IN (SELECT relname FROM pg_class WHERE relkind = 'v')
""")
KEYS = text(f"""
    SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid)
    FROM pg_constraint WHERE contype <> 'c' AND connamespace = 'fedsched'::regnamespace
    AND conrelid <> 'alembic_version'::regclass
    AND conrelid::regclass::text NOT IN ({PARTITIONS})
""")
PERSISTENCE = text("""
    SELECT relname, relpersistence::text FROM pg_class
    WHERE relkind IN ('r', 'p') AND relnamespace = 'fedsched'::regnamespace
    AND relname <> 'alembic_version' AND NOT relispartition
""")
INDEXES = text(f"""
    SELECT tablename, indexname, indexdef FROM pg_indexes
    WHERE schemaname = 'fedsched' AND tablename <> 'alembic_version'
    AND tablename NOT IN ({PARTITIONS})
""")
SETTINGS = text("""
    SELECT relname, setting FROM pg_class, unnest(reloptions) AS setting
    WHERE relkind IN ('r', 'p') AND relnamespace = 'fedsched'::regnamespace AND NOT relispartition
""")
COMMENTS = text(f"""
    SELECT relname, attname, col_description(pg_class.oid, attnum)
    FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid AND attnum > 0 AND NOT attisdropped
    WHERE relkind IN ('r', 'p') AND relnamespace = 'fedsched'::regnamespace
    AND relname <> 'alembic_version' AND relname NOT IN ({PARTITIONS})
    UNION ALL
    SELECT relname, '', obj_description(oid, 'pg_class') FROM pg_class
    WHERE relkind IN ('r', 'p') AND relnamespace = 'fedsched'::regnamespace
    AND relname <> 'alembic_version' AND NOT relispartition
""")
# Views are not declared: the migrations alone have them.
COMMENTS_OF_VIEWS = text("""
    SELECT relname, attname, col_description(pg_class.oid, attnum)
    FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid AND attnum > 0
    WHERE relkind = 'v' AND relnamespace = 'fedsched'::regnamespace
    UNION ALL
    SELECT relname, '', obj_description(oid, 'pg_class') FROM pg_class
    WHERE relkind = 'v' AND relnamespace = 'fedsched'::regnamespace
""")

FUNCTIONS = text("""
    SELECT proname, pg_get_functiondef(oid), obj_description(oid, 'pg_proc')
    FROM pg_proc WHERE pronamespace = 'fedsched'::regnamespace
""")
TRIGGERS = text("""
    SELECT tgrelid::regclass::text, tgname, pg_get_triggerdef(oid)
    FROM pg_trigger WHERE NOT tgisinternal
""")
VIEWS = text("SELECT viewname, definition FROM pg_views WHERE schemaname = 'fedsched'")
STATISTICS = text("SELECT stxname, pg_get_statisticsobjdef(oid) FROM pg_statistic_ext")

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


def engine_of(url: str) -> AsyncEngine:
    target, options = driver_target(url)
    arguments = {"server_settings": {"search_path": SCHEMA}, **options}
    return create_async_engine(target, poolclass=NullPool, connect_args=arguments)


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
            "comments of views": await connection.execute(COMMENTS_OF_VIEWS),
            "functions": await connection.execute(FUNCTIONS),
            "triggers": await connection.execute(TRIGGERS),
            "views": await connection.execute(VIEWS),
            "statistics": await connection.execute(STATISTICS),
        }
        answer = {kind: {tuple(row) for row in rows} for kind, rows in found.items()}
    await engine.dispose()
    return answer


async def test_every_table_view_and_column_says_what_it_holds(database_url: str) -> None:
    described = await catalog(database_url)
    assert len(described["comments of views"]) > 3
    comments = described["comments"] | described["comments of views"]
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
            await builder.execute(text("CREATE TABLE public.large (id bigint)"))
            await until(lambda: count_waiting(builder), bool)
            await builder.execute(text("CREATE INDEX CONCURRENTLY ON public.large (id)"))
        assert not waiting.done()
    await waiting
    await engine.dispose()
    assert pending(empty_database_url) == []


async def count_waiting(connection: AsyncConnection) -> int:
    """Return how many programs have begun to migrate."""
    return int((await connection.execute(MIGRATING)).scalar_one())


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
    """Return the revisions that an empty database gets."""
    names = (scripts_directory() / "versions").glob("[1-9]*.py")
    return sorted(path.name.split("_")[0] for path in names)
