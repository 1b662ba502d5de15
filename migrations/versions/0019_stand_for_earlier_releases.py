"""Stand for the schema of commit fe7cb724.

Why: databases of earlier releases are at this revision or a later one. The steps up to it are in
that commit.
Roll-out: before the code. It never runs: an empty database begins with revision 1000.
"""

from __future__ import annotations

revision = "0019"
down_revision = None
branch_labels = ("earlier",)
depends_on = None


def upgrade() -> None:
    pass
