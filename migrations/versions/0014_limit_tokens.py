"""Limit tokens.

Why: a token may be for so many calls a second, and so many at once.
Roll-out: before the code.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

LIMITS = ("calls_per_second", "calls_at_once")
RULE = "calls_per_second >= 0 AND calls_at_once >= 0"


def upgrade() -> None:
    for name in LIMITS:
        column = sa.Column(name, sa.BigInteger(), server_default="0", nullable=False)
        op.add_column("access_token", column)
    op.create_check_constraint(op.f("ck_access_token_limits_not_negative"), "access_token", RULE)


def downgrade() -> None:
    op.drop_constraint(op.f("ck_access_token_limits_not_negative"), "access_token")
    for name in LIMITS:
        op.drop_column("access_token", name)
