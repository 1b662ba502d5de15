"""Keep previews of decisions for the minutes in which they can be committed.

Why: a preview's token works on every replica and after a restart.
Roll-out: before the code.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "preview",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("secret_hash", sa.LargeBinary(), nullable=False),
        sa.Column("binding_id", sa.BigInteger()),
        sa.Column("binding_generation", sa.BigInteger()),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("decision_id", sa.Uuid()),
        sa.Column("created_at", TIME, server_default=sa.func.now(), nullable=False),
        sa.Column("expires_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_preview")),
        sa.ForeignKeyConstraint(
            ["decision_id"],
            ["decision.id"],
            name=op.f("fk_preview_decision_id_decision"),
            ondelete="CASCADE",
        ),
        sa.CheckConstraint(
            "octet_length(secret_hash) = 32", name=op.f("ck_preview_secret_hash_sha256")
        ),
        sa.CheckConstraint(
            "(binding_id IS NULL) = (binding_generation IS NULL)",
            name=op.f("ck_preview_binding_known_or_new"),
        ),
    )
    op.create_index(op.f("ix_preview_expires_at"), "preview", ["expires_at"])
    op.create_index(op.f("ix_preview_decision_id"), "preview", ["decision_id"])


def downgrade() -> None:
    op.drop_table("preview")
