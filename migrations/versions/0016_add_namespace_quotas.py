"""Add namespace quotas.

Why: a namespace may hold so many replicas, and so much of a resource, promised.
Roll-out: before the code.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "namespace_quota",
        sa.Column("namespace", sa.Text(collation="C"), nullable=False),
        sa.Column("limits", JSONB(), nullable=False),
        sa.Column(
            "changed_at",
            sa.DateTime(timezone=True),
            server_default=sa.func.now(),
            nullable=False,
        ),
        sa.PrimaryKeyConstraint("namespace", name=op.f("pk_namespace_quota")),
    )
    held = sa.Column("held", JSONB(), server_default=sa.text("'{}'"), nullable=False)
    op.add_column("reservation", held)


def downgrade() -> None:
    op.drop_column("reservation", "held")
    op.drop_table("namespace_quota")
