"""Keep inputs of decisions.

Why: a decision is replayed from what it was made on. Fleets and profiles are the same for most
decisions, and are kept once.
Roll-out: before the code.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "decision_input",
        sa.Column("name", sa.LargeBinary(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("used_at", TIME, server_default=sa.func.now(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_decision_input")),
        sa.CheckConstraint("octet_length(name) = 32", name=op.f("ck_decision_input_name_sha256")),
    )
    op.create_index(op.f("ix_decision_input_used_at"), "decision_input", ["used_at"])


def downgrade() -> None:
    op.drop_table("decision_input")
