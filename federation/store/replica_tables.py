"""The schema as declared, of control planes: which run, whom they heard, and their duties.

Must not create anything: the migrations do.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    Table,
    Text,
)

from federation.store.tables import TIME, metadata

# Who does which background work. Rows stay, so that tokens only grow.
duty = Table(
    "duty",
    metadata,
    Column("name", Text, primary_key=True),
    # Empty once it was left.
    Column("holder", Text, nullable=False),
    Column("token", BigInteger, nullable=False),
    Column("expires_at", TIME, nullable=False),
    # Empty while the last round of it succeeded.
    Column("failing_since", TIME),
    Column("failure", Text, nullable=False, server_default=""),
    CheckConstraint("token >= 1", name="token_positive"),
)

# Liveness alone, told anew every few seconds: it need not survive a crash of the database.
presence = Table(
    "presence",
    metadata,
    Column(
        "cluster_id",
        BigInteger,
        ForeignKey("cluster.id", ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
    ),
    # Empty once the stream ended.
    Column("replica", Text, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("heard_at", TIME, nullable=False),
    Column("clock_offset_seconds", Double, nullable=False),
    # The report that was still the agent's picture when it was heard, 0: none.
    Column("confirmed_sequence", BigInteger, nullable=False),
    # For how long the agent had not seen its cluster when it was heard, and why; empty: it saw it.
    Column("blind_seconds", Double, nullable=False, server_default="0"),
    Column("blind_reason", Text, nullable=False, server_default=""),
    Column("blind_message", Text, nullable=False, server_default=""),
    Column("skipped_objects", BigInteger, nullable=False, server_default="0"),
    prefixes=["UNLOGGED"],
)

replica = Table(
    "replica",
    metadata,
    Column("id", Text, primary_key=True),
    Column("endpoint", Text, nullable=False),
    Column("heard_at", TIME, nullable=False),
    prefixes=["UNLOGGED"],
)
