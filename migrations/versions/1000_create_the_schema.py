"""Create the schema.

Why: all tables, functions and views in a schema of their own, as they are declared. It follows the
declarations until release 0.3.0, and is written out and left alone from then on.
Roll-out: before the code, which finds nothing elsewhere. A database of an earlier release gets its
tables from where they are (``federation.store.moved_tables``).
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from alembic import op
from sqlalchemy.schema import CreateIndex, CreateTable, SetColumnComment, SetTableComment

from federation.store.objects import statements
from federation.store.partitions import DAYS_AHEAD, TABLES
from federation.store.schema import metadata

revision = "1000"
down_revision = None
branch_labels = ("fedsched",)
depends_on = None


def upgrade() -> None:
    for table in metadata.sorted_tables:
        op.execute(CreateTable(table))
        for index in sorted(table.indexes, key=lambda one: str(one.name)):
            op.execute(CreateIndex(index))
        op.execute(SetTableComment(table))
        for column in table.columns:
            op.execute(SetColumnComment(column))
    for statement in statements():
        op.execute(statement)
    op.execute("INSERT INTO database_incarnation (database) VALUES ('')")
    today = datetime.now(UTC).date()
    op.execute(
        "CREATE TABLE decision_kept PARTITION OF decision"
        " FOR VALUES FROM (MINVALUE) TO ('0001-01-01')"
    )
    # A decision that is begun before midnight may come into a database that is made after it.
    op.execute(
        f"CREATE TABLE decision_{today - timedelta(days=1):%Y%m%d} PARTITION OF decision"
        f" FOR VALUES FROM ('0001-01-01') TO ('{today}')"
    )
    for table in TABLES:
        for ahead in range(DAYS_AHEAD):
            day = today + timedelta(days=ahead)
            op.execute(
                f"CREATE TABLE {table}_{day:%Y%m%d} PARTITION OF {table}"
                f" FOR VALUES FROM ('{day}') TO ('{day + timedelta(days=1)}')"
            )
