"""Find shares and positions by keys.

Why: the planner takes a JSON array for a hundred elements. The trigger that keeps what runs where
read the whole table for a batch of bindings, and a cluster took seconds to delete. A position in
the queue was counted in the table, because the index of the order lacked the columns.
Roll-out: before the code. The index is built beside writers; one that an earlier try left invalid
goes first.
"""

from __future__ import annotations

from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None

# Rows of ``binding_cluster`` are found by their key, however many the planner expects.
JOINS = ("enable_hashjoin", "enable_mergejoin")
ORDER = "(- priority), coalesce(ordered_at, since), namespace, coalesce(nullif(entry, ''), name)"


def upgrade() -> None:
    for join in JOINS:
        op.execute(f"ALTER FUNCTION keep_binding_cluster() SET {join} = off")
    with op.get_context().autocommit_block():
        op.execute("DROP INDEX CONCURRENTLY IF EXISTS ix_waiting_place")
        op.execute(
            f"CREATE INDEX CONCURRENTLY IF NOT EXISTS ix_waiting_place ON waiting ({ORDER}, name)"
            " INCLUDE (priority, ordered_at, since, entry, state)"
        )
        op.execute("DROP INDEX CONCURRENTLY IF EXISTS ix_waiting_order")


def downgrade() -> None:
    with op.get_context().autocommit_block():
        op.execute("DROP INDEX CONCURRENTLY IF EXISTS ix_waiting_order")
        op.execute(
            f"CREATE INDEX CONCURRENTLY IF NOT EXISTS ix_waiting_order ON waiting ({ORDER}, name)"
        )
        op.execute("DROP INDEX CONCURRENTLY IF EXISTS ix_waiting_place")
    op.execute("ALTER FUNCTION keep_binding_cluster() RESET ALL")
