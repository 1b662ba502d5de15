"""Let tokens be a bridge's.

Why: what brings another system's clusters and bindings needs less than an admin may.
Roll-out: before the code.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

NAME = "ck_access_token_role_known"


def upgrade() -> None:
    _allow("viewer", "scheduler", "operator", "bridge", "admin")


def downgrade() -> None:
    op.execute(sa.text("DELETE FROM access_token WHERE role = 'bridge'"))
    _allow("viewer", "scheduler", "operator", "admin")


def _allow(*roles: str) -> None:
    op.drop_constraint(op.f(NAME), "access_token", type_="check")
    names = ", ".join(f"'{role}'" for role in roles)
    op.create_check_constraint(op.f(NAME), "access_token", f"role IN ({names})")
