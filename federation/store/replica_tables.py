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
    Column("name", Text, primary_key=True, comment="Name of the work."),
    Column(
        "holder",
        Text,
        nullable=False,
        comment="replica.id of the control plane that does it; empty once it was left.",
    ),
    Column(
        "token",
        BigInteger,
        nullable=False,
        comment="Grows with each holder: an earlier one cannot write any more.",
    ),
    Column(
        "expires_at",
        TIME,
        nullable=False,
        comment="Time until which the holder does it, unless it renews.",
    ),
    Column(
        "failing_since",
        TIME,
        comment="Time since when the work fails; null while its last round succeeded.",
    ),
    Column(
        "failure", Text, nullable=False, server_default="", comment="Why it fails; empty otherwise."
    ),
    CheckConstraint("token >= 1", name="token_positive"),
    comment="Background work that one control plane does at a time. Rows stay, so that tokens "
    "only grow.",
    postgresql_with={
        "fillfactor": 50,
        "autovacuum_vacuum_scale_factor": 0,
        "autovacuum_vacuum_threshold": 200,
    },
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
        comment="The cluster.",
    ),
    Column(
        "replica",
        Text,
        nullable=False,
        comment="replica.id of the control plane; empty once the stream ended.",
    ),
    Column("epoch", BigInteger, nullable=False, comment="Session of the agent."),
    Column("heard_at", TIME, nullable=False, comment="Time at which the agent was heard last."),
    Column(
        "clock_offset_seconds",
        Double,
        nullable=False,
        comment="How far the clock of the agent is ahead.",
    ),
    Column(
        "confirmed_sequence",
        BigInteger,
        nullable=False,
        comment="Number of the report that the agent stood by when it was heard; 0: none.",
    ),
    Column(
        "blind_seconds",
        Double,
        nullable=False,
        server_default="0",
        comment="How long the agent had not seen its cluster when it was heard; 0: it saw it.",
    ),
    Column(
        "blind_reason",
        Text,
        nullable=False,
        server_default="",
        comment="Why it did not, as a code; empty: it saw it.",
    ),
    Column(
        "blind_message",
        Text,
        nullable=False,
        server_default="",
        comment="Why it did not, for people; empty: it saw it.",
    ),
    Column(
        "skipped_objects",
        BigInteger,
        nullable=False,
        server_default="0",
        comment="Number of nodes, pods and quotas that the agent cannot read.",
    ),
    prefixes=["UNLOGGED"],
    comment="Which control plane heard which agent, and when. Not logged: it is empty after a "
    "crash of the server.",
    postgresql_with={
        "fillfactor": 50,
        "autovacuum_vacuum_scale_factor": 0,
        "autovacuum_vacuum_threshold": 1000,
    },
)

replica = Table(
    "replica",
    metadata,
    Column(
        "id",
        Text,
        primary_key=True,
        comment="Id of the process; no other one gets it. Its sessions are called fedsched/ID.",
    ),
    Column("endpoint", Text, nullable=False, comment="Where other control planes dial it."),
    Column("heard_at", TIME, nullable=False, comment="Time at which it last said that it runs."),
    prefixes=["UNLOGGED"],
    comment="Control planes that run. Not logged: it is empty after a crash of the server.",
    postgresql_with={
        "fillfactor": 50,
        "autovacuum_vacuum_scale_factor": 0,
        "autovacuum_vacuum_threshold": 200,
    },
)
