"""Add earmarks to bindings that wait.

Why: who was overtaken for long gets the room that appears, whatever restarts meanwhile.
Roll-out: before the code.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("waiting", sa.Column("earmarked_since", sa.DateTime(timezone=True)))
    op.create_index(
        op.f("ix_waiting_earmarked_since"),
        "waiting",
        ["earmarked_since"],
        postgresql_where=sa.text("earmarked_since IS NOT NULL"),
    )


def downgrade() -> None:
    op.drop_index(op.f("ix_waiting_earmarked_since"), "waiting")
    op.drop_column("waiting", "earmarked_since")
