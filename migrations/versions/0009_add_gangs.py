"""Add the gangs of bindings, and how they wait.

Why: bindings that are placed together or not at all wait together, at one place in the order.
Roll-out: before the code.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

NAME = sa.Text(collation="C")
GANG = "((spec -> 'gang') ->> 'name')"


def upgrade() -> None:
    op.add_column("waiting", sa.Column("gang", sa.Text, nullable=False, server_default=""))
    op.add_column("waiting", sa.Column("entry", NAME, nullable=False, server_default=""))
    op.add_column("waiting", sa.Column("times_out", sa.DateTime(timezone=True)))
    op.create_index(
        "ix_binding_gang",
        "binding",
        ["namespace", sa.text(GANG)],
        postgresql_where=sa.text(f"{GANG} IS NOT NULL"),
    )


def downgrade() -> None:
    op.drop_index("ix_binding_gang", "binding")
    op.drop_column("waiting", "times_out")
    op.drop_column("waiting", "entry")
    op.drop_column("waiting", "gang")
