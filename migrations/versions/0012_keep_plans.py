"""Keep plans and their steps.

Why: people approve what they were shown, and any control plane goes on with it.
Roll-out: before the code.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "plan",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("body", JSONB(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_plan")),
        sa.CheckConstraint(
            "state IN ('draft', 'running', 'done', 'stopped')", name=op.f("ck_plan_state_known")
        ),
    )
    op.create_index(
        "ix_plan_running", "plan", ["id"], postgresql_where=sa.text("state = 'running'")
    )
    op.create_table(
        "plan_step",
        sa.Column("plan_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("body", JSONB(), nullable=False),
        sa.PrimaryKeyConstraint("plan_id", "number", name=op.f("pk_plan_step")),
        sa.ForeignKeyConstraint(
            ["plan_id"], ["plan.id"], name=op.f("fk_plan_step_plan_id_plan"), ondelete="CASCADE"
        ),
        sa.CheckConstraint(
            "state IN ('pending', 'moving', 'done', 'skipped', 'failed')",
            name=op.f("ck_plan_step_state_known"),
        ),
    )
    op.create_index(
        "ix_plan_step_moving",
        "plan_step",
        ["plan_id"],
        postgresql_where=sa.text("state = 'moving'"),
    )


def downgrade() -> None:
    op.drop_table("plan_step")
    op.drop_table("plan")
