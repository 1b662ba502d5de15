"""The schema as declared, of the journal, promises, answers, and rows that stand alone.

Must not create anything: the migrations do.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Identity,
    Index,
    LargeBinary,
    Table,
    Text,
    Uuid,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from federation.store.tables import NAME, TIME, created_at, metadata

# What was committed about promises, reports, clusters and bindings. Transactions end in another
# order than the numbers of their entries: readers stop at the least floor of an open transaction.
journal = Table(
    "journal",
    metadata,
    Column(
        "id", BigInteger, Identity(always=True), primary_key=True, comment="Number of the entry."
    ),
    Column(
        "floor",
        BigInteger,
        nullable=False,
        comment="Newest id as the transaction locked its floor, below all of its entries; entries "
        "above the least floor of an open transaction are not read yet.",
    ),
    Column("kind", Text, nullable=False, comment="binding, report or cluster."),
    Column(
        "body", LargeBinary, nullable=False, comment="The change as MessagePack, with a version v."
    ),
    created_at("Time of the transaction."),
    Column(
        "nonce",
        BigInteger,
        nullable=False,
        server_default=text("0"),
        comment="Random number of the change, which cluster_capacity.history sums up.",
    ),
    CheckConstraint("floor < id", name="floor_below_id"),
    comment="Changes that were committed, for all control planes to read in the order of id; "
    "pruned after an hour or so.",
    postgresql_with={"autovacuum_vacuum_scale_factor": 0, "autovacuum_vacuum_threshold": 10000},
)

# One row: what the database went through, and which database of which server it is. None once the
# tables were emptied.
history = Table(
    "database_incarnation",
    metadata,
    Column(
        "is_only",
        Boolean,
        primary_key=True,
        server_default=text("true"),
        comment="Always true: there is one row.",
    ),
    Column(
        "id",
        Uuid,
        nullable=False,
        server_default=func.gen_random_uuid(),
        comment="Id of the history; a restore or a failover begins another one.",
    ),
    Column(
        "database",
        Text,
        nullable=False,
        comment="Server, database and timeline as of the last start; empty before the first.",
    ),
    CheckConstraint("is_only", name="only_one"),
    comment="One row: which database of which server this is. No row: the tables were emptied.",
)

# One row, the newest place of the journal that was forgotten; none before the first.
journal_horizon = Table(
    "journal_pruned_to",
    metadata,
    Column(
        "is_only",
        Boolean,
        primary_key=True,
        server_default=text("true"),
        comment="Always true: there is one row.",
    ),
    Column("id", BigInteger, nullable=False, comment="journal.id of the entry."),
    CheckConstraint("is_only", name="only_one"),
    comment="One row: the newest entry of the journal that was pruned. No row before the first.",
)

# One row for all that a binding holds. No foreign key: bindings that go say so in the journal.
reservation = Table(
    "reservation",
    metadata,
    Column("namespace", NAME, primary_key=True, comment="Namespace of the binding."),
    Column("name", NAME, primary_key=True, comment="Name of the binding."),
    Column("uid", Text, nullable=False, comment="UID of the workload, as the caller gave it."),
    Column(
        "clusters", ARRAY(Text), nullable=False, comment="Clusters in which it holds something."
    ),
    Column(
        "held",
        JSONB,
        nullable=False,
        server_default=text("'{}'"),
        comment='What counts against the quota of the namespace: replicas under "", resources '
        "by name.",
    ),
    Column(
        "body",
        LargeBinary,
        nullable=False,
        comment="Each promise with its requirements and replicas, as MessagePack with a version v.",
    ),
    Column(
        "lease_expires_at",
        TIME,
        comment="Time at which the promises end unless they are renewed; null: they do not.",
    ),
    Index("ix_reservation_clusters", "clusters", postgresql_using="gin"),
    Index(None, "lease_expires_at", postgresql_where=text("lease_expires_at IS NOT NULL")),
    comment="Promises: all that a binding holds, in one row. Bindings that hold nothing have none.",
    postgresql_with={"fillfactor": 80, "autovacuum_vacuum_scale_factor": 0.02},
)

# Answers under idempotency keys.
request = Table(
    "idempotency_key",
    metadata,
    Column("caller", Text, primary_key=True, comment="Id of the credential of the caller."),
    Column("key", Text, primary_key=True, comment="Idempotency key."),
    Column("body_hash", LargeBinary, nullable=False, comment="SHA-256 of the request."),
    Column("answer", LargeBinary, nullable=False, comment="The answer, as it was sent."),
    created_at("Time of the answer."),
    CheckConstraint("octet_length(body_hash) = 32", name="body_hash_sha256"),
    Index(None, "created_at"),
    comment="Answers under idempotency keys, kept for 24 hours.",
)

# One row: whether failover is frozen. None before it first was.
failover = Table(
    "failover",
    metadata,
    Column(
        "is_only",
        Boolean,
        primary_key=True,
        server_default=text("true"),
        comment="Always true: there is one row.",
    ),
    Column("body", JSONB, nullable=False, comment="Since when, why and by whom, with a version v."),
    CheckConstraint("is_only", name="only_one"),
    comment="One row: whether failover is frozen. No row before it first was.",
)
