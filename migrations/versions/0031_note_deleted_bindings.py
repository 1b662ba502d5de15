"""Note deleted bindings.

Why: traces and replays found deletions by the name of a method in the audit, which is kept for
another time, and read all records of that time.
Roll-out: before the code. Deletions of the release before are taken from the audit once; those that
it makes after that are missing in traces.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None

# An object is namespace/name, and a name has no slash.
FILL = """
    INSERT INTO binding_deletion (at, namespace, name)
    SELECT at, coalesce(substring(objects[1] FROM '^(.*)/'), ''),
        substring(objects[1] FROM '[^/]*$')
    FROM audit WHERE method = 'Scheduling/DeleteBinding' AND result = 'OK'
    ON CONFLICT DO NOTHING
"""


def upgrade() -> None:
    name = sa.Text(collation="C")
    op.create_table(
        "binding_deletion",
        sa.Column(
            "at",
            sa.DateTime(timezone=True),
            server_default=sa.func.now(),
            nullable=False,
            comment="Time of the transaction that deleted it.",
        ),
        sa.Column("namespace", name, nullable=False, comment="Namespace of the binding."),
        sa.Column("name", name, nullable=False, comment="Name of the binding."),
        sa.PrimaryKeyConstraint("at", "namespace", "name", name=op.f("pk_binding_deletion")),
        comment="Bindings that were deleted, for traces and replays; pruned as decisions are.",
    )
    op.execute(FILL)
