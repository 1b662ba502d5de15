"""Keep the version of a report.

Why: promises older than the newest report are packed kind by kind, later ones one by one. A control
plane that reads the tables has to tell them apart as one does that read the journal.
Roll-out: before the code. The release before leaves the column as it is: until it is gone, control
planes may offer some replicas more or less than each other.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0035"
down_revision = "0031"
branch_labels = None
depends_on = None


def upgrade() -> None:
    column = sa.Column(
        "report_version",
        sa.BigInteger(),
        server_default=sa.text("0"),
        nullable=False,
        comment="Version that the newest report made; 0: a release stored it that did not say.",
    )
    op.add_column("cluster_capacity", column)
