"""Limit tokens by labels of clusters.

Why: a token may be for the clusters with some labels, those that join later too.
Roll-out: before the code. A control plane of the release before does not know of labels: make such
tokens once all are of this one.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    column = sa.Column("cluster_labels", JSONB(), server_default=sa.text("'{}'"), nullable=False)
    op.add_column("access_token", column)


def downgrade() -> None:
    op.drop_column("access_token", "cluster_labels")
