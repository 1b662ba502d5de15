"""Name what led to each version of a ledger, and what database this is.

Why: after an older copy of the database was put back, a version number stands for two different
ledgers: control planes that hold the one must not promise on it what the other has promised.
Roll-out: before the code. Code of before counts versions on and leaves histories as they are; what
it appends to the journal has the nonce 0, which changes no history either.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for table, column in (("cluster_capacity", "history"), ("journal", "nonce")):
        zero = sa.Column(column, sa.BigInteger(), server_default=sa.text("0"), nullable=False)
        op.add_column(table, zero)
    op.create_table(
        "history",
        sa.Column("is_only", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("id", sa.Uuid(), server_default=sa.func.gen_random_uuid(), nullable=False),
        sa.Column("database", sa.Text(), nullable=False),
        sa.CheckConstraint("is_only", name=op.f("ck_history_only_one")),
        sa.PrimaryKeyConstraint("is_only", name=op.f("pk_history")),
    )
    op.execute("INSERT INTO history (database) VALUES ('')")


def downgrade() -> None:
    op.drop_table("history")
    op.drop_column("journal", "nonce")
    op.drop_column("cluster_capacity", "history")
