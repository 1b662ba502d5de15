"""Count preempted replicas.

Why: how many are preempted within any minute has a limit that all control planes share.
Roll-out: before the code.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "preemption",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column(
            "at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.Column("namespace", sa.Text(collation="C"), nullable=False),
        sa.Column("replicas", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_preemption")),
        sa.CheckConstraint("replicas >= 1", name=op.f("ck_preemption_replicas_positive")),
    )
    op.create_index(op.f("ix_preemption_at"), "preemption", ["at"])


def downgrade() -> None:
    op.drop_table("preemption")
