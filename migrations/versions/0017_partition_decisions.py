"""Partition decisions by day.

Why: what is forgotten is dropped by whole days, which locks nobody out and leaves no holes. The
newest decision of each binding is moved aside before its day goes.
Roll-out: before the code. No row is rewritten: those that are there become the day before today's.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

ORDER = ["created_at", "id"]
LISTS = ([], ["namespace"], ["namespace", "name"])
TODAY = "(now() AT TIME ZONE 'utc')::date"
DAYS_AHEAD = 3
REFERENCES = (("node_plan", "CASCADE"), ("binding", None), ("preview", "CASCADE"))


def upgrade() -> None:
    for table, _ in REFERENCES:
        op.drop_constraint(op.f(f"fk_{table}_decision_id_decision"), table, type_="foreignkey")
    op.create_index(op.f("ix_node_plan_created_at"), "node_plan", ["created_at"])
    today = datetime.now(UTC).date()
    old_table = f"decision_{today - timedelta(days=1):%Y%m%d}"
    op.add_column(
        "decision",
        sa.Column("day", sa.Date(), server_default=sa.text("'2000-01-01'"), nullable=False),
    )
    op.drop_constraint(op.f("pk_decision"), "decision")
    for by in LISTS:
        op.execute(f"ALTER INDEX {index_name(*by)} RENAME TO {index_name(*by)}_before")
    op.rename_table("decision", old_table)
    op.execute(
        f"CREATE TABLE decision (LIKE {old_table} INCLUDING DEFAULTS INCLUDING CONSTRAINTS)"
        " PARTITION BY RANGE (day)"
    )
    op.alter_column("decision", "day", server_default=sa.text(TODAY))
    op.create_primary_key(op.f("pk_decision"), "decision", ["id", "day"])
    for by in LISTS:
        op.create_index(index_name(*by), "decision", [*by, *ORDER])
    op.execute(
        f"ALTER TABLE decision ATTACH PARTITION {old_table}"
        f" FOR VALUES FROM ('0001-01-01') TO ('{today}')"
    )
    op.execute(
        "CREATE TABLE decision_kept PARTITION OF decision"
        " FOR VALUES FROM (MINVALUE) TO ('0001-01-01')"
    )
    op.execute("CREATE TABLE decision_rest PARTITION OF decision DEFAULT")
    for ahead in range(DAYS_AHEAD):
        day = today + timedelta(days=ahead)
        op.execute(
            f"CREATE TABLE decision_{day:%Y%m%d} PARTITION OF decision"
            f" FOR VALUES FROM ('{day}') TO ('{day + timedelta(days=1)}')"
        )


def downgrade() -> None:
    op.rename_table("decision", "decision_by_day")
    op.drop_constraint(op.f("pk_decision"), "decision_by_day")
    for by in LISTS:
        op.drop_index(index_name(*by), "decision_by_day")
    op.execute(
        "CREATE TABLE decision (LIKE decision_by_day INCLUDING DEFAULTS INCLUDING CONSTRAINTS)"
    )
    op.execute("INSERT INTO decision SELECT * FROM decision_by_day")
    op.drop_table("decision_by_day")
    op.drop_column("decision", "day")
    op.create_primary_key(op.f("pk_decision"), "decision", ["id"])
    for by in LISTS:
        op.create_index(index_name(*by), "decision", [*by, *ORDER])
    op.drop_index(op.f("ix_node_plan_created_at"), "node_plan")
    op.execute("DELETE FROM node_plan WHERE decision_id NOT IN (SELECT id FROM decision)")
    op.execute("DELETE FROM preview WHERE decision_id NOT IN (SELECT id FROM decision)")
    for table, ondelete in REFERENCES:
        name = op.f(f"fk_{table}_decision_id_decision")
        op.create_foreign_key(name, table, "decision", ["decision_id"], ["id"], ondelete=ondelete)


def index_name(*by: str) -> str:
    return op.f(f"ix_decision_{'_'.join([*by, *ORDER])}")
