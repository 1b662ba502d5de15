"""Update bindings in place.

Why: each decision changes ``decision_id``, and with an index over it PostgreSQL wrote all indexes
of the row anew. Pruning finds the binding of a decision by its id.
Roll-out: before the code. The release before still prunes without the index, more slowly.
"""

from __future__ import annotations

from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.get_context().autocommit_block():
        op.execute("DROP INDEX CONCURRENTLY IF EXISTS ix_binding_decision_id")


def downgrade() -> None:
    with op.get_context().autocommit_block():
        op.execute(
            "CREATE INDEX CONCURRENTLY IF NOT EXISTS ix_binding_decision_id"
            " ON binding (decision_id)"
        )
