"""Keep nominations: room that others are to leave for who waits.

Why: who preempts what runs waits until it has left, and no restart may give that room to others.
Roll-out: before the code.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("waiting", sa.Column("nominated", JSONB()))
    op.drop_index("ix_waiting_earmarked_since", "waiting")
    op.create_index(
        "ix_waiting_kept",
        "waiting",
        ["binding_id"],
        postgresql_where=sa.text("earmarked_since IS NOT NULL OR nominated IS NOT NULL"),
    )


def downgrade() -> None:
    op.drop_index("ix_waiting_kept", "waiting")
    op.create_index(
        "ix_waiting_earmarked_since",
        "waiting",
        ["earmarked_since"],
        postgresql_where=sa.text("earmarked_since IS NOT NULL"),
    )
    op.drop_column("waiting", "nominated")
