"""Order the journal by its numbers, up to the least floor of an open transaction.

Why: readers stopped at the oldest transaction of the whole server. One that a stranger held open in
any database kept all control planes from seeing each other's changes.
Roll-out: before the code. Stop all control planes of the release before: they cannot read or write
the journal any more. No program reads its entries after that, and resource versions of before
answer RELIST.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0027"
branch_labels = None
depends_on = None

FLOOR = (
    "Newest id as the transaction locked its floor, below all of its entries; entries above the "
    "least floor of an open transaction are not read yet."
)
XID = (
    "Id of the transaction; entries of the oldest one that still runs, and later ones, are not "
    "read yet."
)
ORDER = "Changes that were committed, for all control planes to read in the order of {}; pruned "
ORDER += "after an hour or so."


def upgrade() -> None:
    op.execute("TRUNCATE journal, journal_horizon")
    op.drop_column("journal", "xid")
    op.add_column("journal", sa.Column("floor", sa.BigInteger(), nullable=False, comment=FLOOR))
    op.create_check_constraint("floor_below_id", "journal", "floor < id")
    op.drop_column("journal_horizon", "xid")
    op.execute(
        "INSERT INTO journal_horizon (id) SELECT last_value FROM journal_id_seq WHERE is_called"
    )
    op.create_table_comment("journal", ORDER.format("id"))


def downgrade() -> None:
    op.execute("TRUNCATE journal, journal_horizon")
    op.create_table_comment("journal", ORDER.format("(xid, id)"))
    op.add_column(
        "journal_horizon",
        sa.Column("xid", sa.BigInteger(), nullable=False, comment="journal.xid of the entry."),
    )
    op.drop_column("journal", "floor")
    op.add_column(
        "journal",
        sa.Column(
            "xid",
            sa.BigInteger(),
            nullable=False,
            server_default=sa.text("pg_current_xact_id()::text::bigint"),
            comment=XID,
        ),
    )
    op.create_index("ix_journal_xid_id", "journal", ["xid", "id"])
