"""Moves the tables of an earlier release into the schema of this one, with all their rows.

Must not begin or end a transaction: all of it is done, or nothing. It goes with release 0.3.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from sqlalchemy import Connection, Table, Text, bindparam, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.schema import SetColumnComment, SetTableComment

from federation.store.engine import SCHEMA
from federation.store.objects import FUNCTIONS, STATISTICS, TRIGGERS, VIEWS, statements
from federation.store.schema import metadata

# By today's name.
EARLIER_NAMES: Final[Mapping[str, str]] = {
    "database_incarnation": "history",
    "idempotency_key": "request",
    "journal_pruned_to": "journal_horizon",
}
# A partition is moved by itself.
TABLES: Final = text("""
    WITH /* fedsched:migrations.tables */ RECURSIVE ours AS (
        SELECT pg_class.oid, relname FROM pg_class
        JOIN pg_namespace ON pg_namespace.oid = relnamespace
        WHERE nspname = :schema AND relkind IN ('r', 'p') AND relname = ANY(:names)
        UNION ALL
        SELECT pg_class.oid, pg_class.relname FROM ours
        JOIN pg_inherits ON inhparent = ours.oid JOIN pg_class ON pg_class.oid = inhrelid
    )
    SELECT quote_ident(relname) FROM ours ORDER BY 1
""").bindparams(bindparam("names", type_=ARRAY(Text)))
# A constraint and its index have one name.
NAMES: Final = text("""
    SELECT /* fedsched:migrations.names */
        'TABLE ' || conrelid::regclass || ' RENAME CONSTRAINT ' || conname || ' TO ', conname
    FROM pg_constraint WHERE conrelid = CAST(:name AS regclass)
    UNION ALL
    SELECT 'INDEX ' || indexrelid::regclass || ' RENAME TO ', relname
    FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
    WHERE indrelid = CAST(:name AS regclass)
        AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = indexrelid)
""")


def move_tables(connection: Connection, schema: str) -> None:
    """Move all tables out of a schema; the search path of the transaction is ours."""
    old = connection.dialect.identifier_preparer.quote(schema)
    for statement in _dropped(old):
        connection.exec_driver_sql(statement)
    names = ["alembic_version", *(EARLIER_NAMES.get(name, name) for name in metadata.tables)]
    for name in connection.scalars(TABLES, {"schema": schema, "names": names}).all():
        if schema != SCHEMA:
            connection.exec_driver_sql(f"ALTER TABLE {old}.{name} SET SCHEMA {SCHEMA}")
    for name, earlier in EARLIER_NAMES.items():
        _rename(connection, earlier, name)
    for table in metadata.sorted_tables:
        _describe(connection, table)
    for statement in statements():
        connection.exec_driver_sql(statement)


def _dropped(old: str) -> Iterator[str]:
    """Yield the statements that drop what is made anew."""
    for name in VIEWS:
        yield f"DROP VIEW IF EXISTS {old}.{name}"
    for name in STATISTICS:
        yield f"DROP STATISTICS IF EXISTS {old}.{name}"
    for name in TRIGGERS:
        yield f"DROP TRIGGER IF EXISTS {name} ON {old}.binding"
    for name in FUNCTIONS:
        yield f"DROP FUNCTION IF EXISTS {old}.{name}"


def _rename(connection: Connection, earlier: str, name: str) -> None:
    connection.exec_driver_sql(f"ALTER TABLE {earlier} RENAME TO {name}")
    for change, part in connection.execute(NAMES, {"name": name}).all():
        later = f"_{part}_".replace(f"_{earlier}_", f"_{name}_", 1)[1:-1]
        if later != part:
            connection.exec_driver_sql(f"ALTER {change}{later}")


def _describe(connection: Connection, table: Table) -> None:
    """Set the comments and settings of a table as they are declared."""
    connection.execute(SetTableComment(table))
    for column in table.columns:
        connection.execute(SetColumnComment(column))
    settings: Mapping[str, object] = table.dialect_options["postgresql"]["with"] or {}
    if settings:
        values = ", ".join(f"{setting} = {value}" for setting, value in settings.items())
        connection.exec_driver_sql(f"ALTER TABLE {table.name} SET ({values})")
