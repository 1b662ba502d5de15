"""Create the queue of bindings that wait for room.

Why: a binding that finds no room must not be forgotten, whatever is restarted.
Roll-out: before the code.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

NAME = sa.Text(collation="C")
TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "waiting",
        sa.Column("binding_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("namespace", NAME, nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("priority", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("gate", sa.Text(), server_default="", nullable=False),
        sa.Column("since", TIME, server_default=sa.func.now(), nullable=False),
        sa.Column("attempts", sa.BigInteger(), nullable=False),
        sa.Column("next_try", TIME),
        sa.Column("remainder", sa.BigInteger(), nullable=False),
        sa.Column("short_of", sa.Text(), nullable=False),
        sa.Column("overtaken_since", TIME),
        sa.Column("overtaken_by", sa.Text(), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("binding_id", name=op.f("pk_waiting")),
        sa.ForeignKeyConstraint(
            ["binding_id"],
            ["binding.id"],
            name=op.f("fk_waiting_binding_id_binding"),
            ondelete="CASCADE",
        ),
        sa.CheckConstraint(
            "state IN ('active', 'backoff', 'unschedulable', 'gated')",
            name=op.f("ck_waiting_state_known"),
        ),
        sa.CheckConstraint(
            "(state = 'backoff') = (next_try IS NOT NULL)", name=op.f("ck_waiting_backoff_has_time")
        ),
        sa.CheckConstraint("(state = 'gated') = (gate <> '')", name=op.f("ck_waiting_gated_by")),
        sa.CheckConstraint(
            "attempts >= 0 AND remainder >= 0", name=op.f("ck_waiting_counters_not_negative")
        ),
    )


def downgrade() -> None:
    op.drop_table("waiting")
