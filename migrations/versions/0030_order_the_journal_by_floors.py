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
ORDER = (
    "Changes that were committed, for all control planes to read in the order of id; pruned after "
    "an hour or so."
)


def upgrade() -> None:
    op.execute("TRUNCATE journal, journal_horizon")
    op.drop_column("journal", "xid")
    op.add_column("journal", sa.Column("floor", sa.BigInteger(), nullable=False, comment=FLOOR))
    op.create_check_constraint("floor_below_id", "journal", "floor < id")
    op.drop_column("journal_horizon", "xid")
    op.execute(
        "INSERT INTO journal_horizon (id) SELECT last_value FROM journal_id_seq WHERE is_called"
    )
    op.create_table_comment("journal", ORDER)
