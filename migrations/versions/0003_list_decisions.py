"""List decisions.

Why: decisions are listed newest first, all of them, of a namespace or of a binding, with why each
was made. Nobody looks for them by the id of their binding.
Roll-out: before the code.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

ORDER = ["created_at", "id"]
BEFORE = (["created_at"], ["binding_id", "created_at"])
LISTS = ([], ["namespace"], ["namespace", "name"])


def upgrade() -> None:
    none = sa.text("'{}'")
    op.add_column(
        "decision", sa.Column("triggers", ARRAY(sa.Text()), server_default=none, nullable=False)
    )
    for by in LISTS:
        op.create_index(index_name(*by, *ORDER), "decision", [*by, *ORDER])
    for columns in BEFORE:
        op.drop_index(index_name(*columns), "decision")


def downgrade() -> None:
    for columns in BEFORE:
        op.create_index(index_name(*columns), "decision", columns)
    for by in LISTS:
        op.drop_index(index_name(*by, *ORDER), "decision")
    op.drop_column("decision", "triggers")


def index_name(*columns: str) -> str:
    return op.f(f"ix_decision_{'_'.join(columns)}")
