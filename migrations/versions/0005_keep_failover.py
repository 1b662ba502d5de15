"""Keep whether failover is frozen, and find the bindings that are being evicted.

Why: what was frozen stays so when a control plane ends, and any of them ends evictions.
Roll-out: before the code.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "failover",
        sa.Column("is_only", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("body", JSONB(), nullable=False),
        sa.PrimaryKeyConstraint("is_only", name=op.f("pk_failover")),
        sa.CheckConstraint("is_only", name=op.f("ck_failover_only_one")),
    )
    op.create_index(
        "ix_binding_evictions",
        "binding",
        ["namespace", "name"],
        postgresql_where=sa.text("spec -> 'eviction_tasks' <> '[]'"),
    )


def downgrade() -> None:
    op.drop_index("ix_binding_evictions", "binding")
    op.drop_table("failover")
