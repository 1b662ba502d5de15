"""Keep by what bindings stand in the queue where a plugin orders them.

Why: everybody sees the order in which they are tried, also after a restart.
Roll-out: before the code.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("waiting", sa.Column("ordered_at", sa.DateTime(timezone=True)))


def downgrade() -> None:
    op.drop_column("waiting", "ordered_at")
