"""Find decisions by their age.

Why: those that no binding refers to any more are deleted after a while; without an index each look
for them would read all there are.
Roll-out: before the code; code of before does not notice.
"""

from __future__ import annotations

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index(op.f("ix_decision_created_at"), "decision", ["created_at"])


def downgrade() -> None:
    op.drop_index(op.f("ix_decision_created_at"), "decision")
