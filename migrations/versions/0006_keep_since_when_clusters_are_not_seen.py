"""Keep for how long an agent has not seen its cluster, and why, for the other replicas.

Why: an agent that is heard may be blind all the same, and every replica must know.
Roll-out: before the code; code of before passes the columns over.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "presence", sa.Column("blind_seconds", sa.Double(), server_default="0", nullable=False)
    )
    for name in ("blind_reason", "blind_message"):
        op.add_column("presence", sa.Column(name, sa.Text(), server_default="", nullable=False))
    op.add_column(
        "presence",
        sa.Column("skipped_objects", sa.BigInteger(), server_default="0", nullable=False),
    )


def downgrade() -> None:
    for name in ("skipped_objects", "blind_message", "blind_reason", "blind_seconds"):
        op.drop_column("presence", name)
