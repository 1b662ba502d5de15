"""Keep reports.

Why: what a decision was made on can be held against what agents had reported.
Roll-out: before the code. Partitioned by day: what is old is dropped as a whole.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

DAYS_AHEAD = 3


def upgrade() -> None:
    op.create_table(
        "report_picture",
        sa.Column("name", sa.LargeBinary(), nullable=False),
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("name", "day", name=op.f("pk_report_picture")),
        sa.CheckConstraint("octet_length(name) = 32", name=op.f("ck_report_picture_name_sha256")),
        postgresql_partition_by="RANGE (day)",
    )
    op.create_table(
        "report_round",
        sa.Column("id", sa.Uuid(), server_default=sa.text("gen_random_uuid()"), nullable=False),
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column(
            "kept_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", "day", name=op.f("pk_report_round")),
        postgresql_partition_by="RANGE (day)",
    )
    op.create_index(op.f("ix_report_round_kept_at"), "report_round", ["kept_at"])
    today = datetime.now(UTC).date()
    for table in ("report_picture", "report_round"):
        op.execute(f"CREATE TABLE {table}_rest PARTITION OF {table} DEFAULT")
        for ahead in range(DAYS_AHEAD):
            day = today + timedelta(days=ahead)
            op.execute(
                f"CREATE TABLE {table}_{day:%Y%m%d} PARTITION OF {table}"
                f" FOR VALUES FROM ('{day}') TO ('{day + timedelta(days=1)}')"
            )


def downgrade() -> None:
    op.drop_table("report_round")
    op.drop_table("report_picture")
