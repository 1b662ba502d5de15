"""Create access tokens.

Why: people and programs call with tokens of their own, each with a role, a scope and an end.
Roll-out: before the code.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "access_token",
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("secret_hash", sa.LargeBinary(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("namespaces", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("clusters", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("networks", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("created_at", TIME, server_default=sa.func.now(), nullable=False),
        sa.Column("expires_at", TIME, nullable=False),
        sa.Column("revoked_at", TIME),
        sa.Column("last_used_at", TIME),
        sa.Column("last_used_from", sa.Text(), server_default="", nullable=False),
        sa.CheckConstraint(
            "role IN ('viewer', 'scheduler', 'operator', 'admin')",
            name=op.f("ck_access_token_role_known"),
        ),
        sa.CheckConstraint(
            "octet_length(secret_hash) = 32", name=op.f("ck_access_token_secret_hash_sha256")
        ),
        sa.CheckConstraint("expires_at > created_at", name=op.f("ck_access_token_expires_later")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_access_token")),
    )


def downgrade() -> None:
    op.drop_table("access_token")
