"""Index the order of the queue.

Why: a page of a hundred thousand waiting bindings was found by sorting all of them.
Roll-out: before the code. The index is built beside writers; one that an earlier try left invalid
goes first.
"""

from __future__ import annotations

from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.get_context().autocommit_block():
        op.execute("DROP INDEX CONCURRENTLY IF EXISTS ix_waiting_order")
        op.execute(
            "CREATE INDEX CONCURRENTLY IF NOT EXISTS ix_waiting_order ON waiting ((- priority),"
            " coalesce(ordered_at, since), namespace, coalesce(nullif(entry, ''), name), name)"
        )


def downgrade() -> None:
    with op.get_context().autocommit_block():
        op.execute("DROP INDEX CONCURRENTLY IF EXISTS ix_waiting_order")
