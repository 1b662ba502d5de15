"""Create the audit.

Why: who changed what, and who was refused, is recorded in the transaction of the change, and sealed
in a chain of hashes.
Roll-out: before the code.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "audit",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("at", TIME, server_default=sa.func.now(), nullable=False),
        *(
            sa.Column(name, sa.Text(), nullable=False)
            for name in ("actor", "credential_id", "address", "method")
        ),
        sa.Column("objects", postgresql.ARRAY(sa.Text()), nullable=False),
        *(
            sa.Column(name, sa.Text(), nullable=False)
            for name in ("result", "reason", "request_sha256")
        ),
        sa.Column("unrecorded", sa.BigInteger(), nullable=False),
        sa.Column("seal", sa.BigInteger()),
        sa.Column("hash", sa.LargeBinary()),
        sa.CheckConstraint(
            "(seal IS NULL) = (hash IS NULL)", name=op.f("ck_audit_sealed_has_hash")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit")),
        sa.UniqueConstraint("seal", name=op.f("uq_audit_seal")),
    )
    op.create_index(op.f("ix_audit_at_id"), "audit", ["at", "id"])
    op.create_index("ix_audit_unsealed", "audit", ["id"], postgresql_where=sa.text("seal IS NULL"))
    op.create_table(
        "audit_head",
        sa.Column("is_only", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("seal", sa.BigInteger(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.Column("pruned_seal", sa.BigInteger(), nullable=False),
        sa.Column("pruned_hash", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("is_only", name=op.f("pk_audit_head")),
        sa.CheckConstraint("is_only", name=op.f("ck_audit_head_only_one")),
    )


def downgrade() -> None:
    op.drop_table("audit_head")
    op.drop_table("audit")
