"""Record failures of duties.

Why: a duty that fails shows on every control plane, in its metrics, and in doctor.
Roll-out: before the code. The columns have constant defaults: no row is rewritten.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("duty", sa.Column("failing_since", sa.DateTime(timezone=True)))
    op.add_column("duty", sa.Column("failure", sa.Text(), nullable=False, server_default=""))


def downgrade() -> None:
    op.drop_column("duty", "failure")
    op.drop_column("duty", "failing_since")
