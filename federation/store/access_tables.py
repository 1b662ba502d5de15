"""The schema as declared, of who may call: credentials, tokens, and the audit.

Must not create anything: the migrations do.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Date,
    ForeignKey,
    Identity,
    Index,
    LargeBinary,
    Table,
    Text,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from federation.store.tables import NAME, TIME, created_at, metadata

join_token = Table(
    "join_token",
    metadata,
    Column("id", Text, primary_key=True, comment="Part of the token that is no secret."),
    Column("secret_hash", LargeBinary, nullable=False, comment="SHA-256 of the secret part."),
    Column(
        "cluster_name", NAME, nullable=False, comment="Name that the cluster has to join under."
    ),
    created_at("Time at which it was made."),
    Column("expires_at", TIME, nullable=False, comment="Time from which it is refused."),
    Column("used_at", TIME, comment="Time at which it was used or cancelled; null before."),
    CheckConstraint("octet_length(secret_hash) = 32", name="secret_hash_sha256"),
    CheckConstraint("expires_at > created_at", name="expires_later"),
    comment="Join tokens: each lets one cluster join once.",
)

credential = Table(
    "credential",
    metadata,
    Column("id", Text, primary_key=True, comment="Part of the credential that is no secret."),
    Column(
        "serial",
        BigInteger,
        Identity(always=True),
        nullable=False,
        comment="Grows with each credential: which one is newer does not depend on clocks.",
    ),
    Column("kind", Text, nullable=False, comment="admin, agent or replica (a control plane)."),
    Column(
        "cluster_id",
        BigInteger,
        ForeignKey("cluster.id", ondelete="CASCADE"),
        comment="Cluster of an agent; null for others.",
    ),
    Column("secret_hash", LargeBinary, nullable=False, comment="SHA-256 of the secret part."),
    created_at("Time at which it was made."),
    Column("expires_at", TIME, comment="Time from which it is refused; null: never."),
    Column("revoked_at", TIME, comment="Time at which it was revoked; null before."),
    CheckConstraint("kind IN ('admin', 'agent', 'replica')", name="kind_known"),
    CheckConstraint("(kind = 'agent') = (cluster_id IS NOT NULL)", name="agent_has_cluster"),
    CheckConstraint("octet_length(secret_hash) = 32", name="secret_hash_sha256"),
    Index(None, "cluster_id"),
    comment="Credentials of agents, of control planes among each other, and of the first admin.",
)

# Of people and programs. The id is the part of the token that is no secret.
access_token = Table(
    "access_token",
    metadata,
    Column("id", NAME, primary_key=True, comment="Part of the token that is no secret."),
    Column("secret_hash", LargeBinary, nullable=False, comment="SHA-256 of the secret part."),
    Column("name", Text, nullable=False, comment="Name of the owner, for people."),
    Column("role", Text, nullable=False, comment="viewer, scheduler, operator, bridge or admin."),
    Column(
        "namespaces",
        ARRAY(Text),
        nullable=False,
        comment="Patterns of namespaces that it may see; empty: all.",
    ),
    Column(
        "clusters",
        ARRAY(Text),
        nullable=False,
        comment="Patterns of clusters that it may see; empty: all.",
    ),
    Column(
        "cluster_labels",
        JSONB,
        nullable=False,
        server_default=text("'{}'"),
        comment="Labels that clusters must have for it to see them; empty: none.",
    ),
    Column(
        "networks",
        ARRAY(Text),
        nullable=False,
        comment="Networks that it may be used from; empty: all.",
    ),
    Column(
        "calls_per_second",
        BigInteger,
        nullable=False,
        server_default="0",
        comment="Limit of calls in a second; 0: none.",
    ),
    Column(
        "calls_at_once",
        BigInteger,
        nullable=False,
        server_default="0",
        comment="Limit of calls at one time; 0: none.",
    ),
    Column("created_by", Text, nullable=False, comment="Who made it."),
    created_at("Time at which it was made."),
    Column("expires_at", TIME, nullable=False, comment="Time from which it is refused."),
    Column("revoked_at", TIME, comment="Time at which it was revoked; null before."),
    Column(
        "last_used_at",
        TIME,
        comment="Time of the last use, within a minute or so; null before the first.",
    ),
    Column(
        "last_used_from",
        Text,
        nullable=False,
        server_default="",
        comment="Address of the last use; empty before the first.",
    ),
    CheckConstraint(
        "role IN ('viewer', 'scheduler', 'operator', 'bridge', 'admin')", name="role_known"
    ),
    CheckConstraint("calls_per_second >= 0 AND calls_at_once >= 0", name="limits_not_negative"),
    CheckConstraint("octet_length(secret_hash) = 32", name="secret_hash_sha256"),
    CheckConstraint("expires_at > created_at", name="expires_later"),
    comment="Tokens of people and programs, with roles and scopes.",
)

# How much a namespace may hold promised: replicas under "", resources by name.
namespace_quota = Table(
    "namespace_quota",
    metadata,
    Column("namespace", NAME, primary_key=True, comment="The namespace."),
    Column(
        "limits", JSONB, nullable=False, comment='Limits: replicas under "", resources by name.'
    ),
    Column(
        "changed_at",
        TIME,
        nullable=False,
        server_default=func.now(),
        comment="Time of the last change.",
    ),
    comment="Quotas: how much a namespace may hold promised.",
)

# Changes and refusals, in partitions by day, which are dropped as a whole: see ``partitions``.
audit = Table(
    "audit",
    metadata,
    # No identity: before PostgreSQL 17 tables in partitions have none.
    Column("id", BigInteger, primary_key=True, autoincrement=True, comment="Number of the row."),
    Column(
        "day",
        Date,
        primary_key=True,
        server_default=text("(now() AT TIME ZONE 'utc')::date"),
        comment="Day of the call in UTC, which chooses the partition.",
    ),
    Column("at", TIME, nullable=False, server_default=func.now(), comment="Time of the call."),
    Column("actor", Text, nullable=False, comment="Who called."),
    Column(
        "credential_id",
        Text,
        nullable=False,
        comment="Id of the credential or token that was used.",
    ),
    Column("address", Text, nullable=False, comment="Address of the caller."),
    Column("method", Text, nullable=False, comment="Service and method; the name never changes."),
    Column("objects", ARRAY(Text), nullable=False, comment="What the call was about."),
    Column("result", Text, nullable=False, comment="OK, or the gRPC status code."),
    Column("reason", Text, nullable=False, comment="Reason of a refusal; empty otherwise."),
    Column(
        "request_sha256",
        Text,
        nullable=False,
        comment="SHA-256 of the request, in hexadecimal digits; empty where it was not read.",
    ),
    Column(
        "unrecorded",
        BigInteger,
        nullable=False,
        comment="Number of like refusals before this row that were not recorded.",
    ),
    Column(
        "seal",
        BigInteger,
        comment="Place in the chain, of rows of releases that sealed each row; null: see "
        "audit_batch.",
    ),
    Column(
        "hash", LargeBinary, comment="Hash of the row and of the hash before it, as seal has it."
    ),
    CheckConstraint("(seal IS NULL) = (hash IS NULL)", name="sealed_has_hash"),
    Index(None, "at", "id"),
    Index("ix_audit_seal", "seal", postgresql_where=text("seal IS NOT NULL")),
    comment="Audit: changes and refusals, never updated. Batches of rows are a chain of hashes.",
    postgresql_partition_by="RANGE (day)",
)

# Batches of the chain, which outlive their rows. The hash of a row is reckoned from the one before
# it: the first row of a batch follows ``previous_hash``, and ``hash`` is that of the last one.
audit_batch = Table(
    "audit_batch",
    metadata,
    Column(
        "last_seal",
        BigInteger,
        primary_key=True,
        autoincrement=False,
        comment="Place of its last row in the chain.",
    ),
    Column("day", Date, nullable=False, comment="Day of its rows."),
    Column("first_id", BigInteger, nullable=False, comment="Number of its first row."),
    Column(
        "last_id",
        BigInteger,
        nullable=False,
        comment="Number of its last row; it has all rows of its day between them.",
    ),
    Column("records", BigInteger, nullable=False, comment="Number of its rows."),
    Column(
        "previous_hash",
        LargeBinary,
        nullable=False,
        comment="Hash of the row before it in the chain.",
    ),
    Column("hash", LargeBinary, nullable=False, comment="Hash of its last row."),
    CheckConstraint("records > 0", name="not_empty"),
    Index(None, "day", "last_seal"),
    comment="Batches of the audit, sealed as a chain of hashes; they outlive their rows.",
)

# Where the chain ends, and where what is kept of it begins.
audit_head = Table(
    "audit_head",
    metadata,
    Column(
        "is_only",
        Boolean,
        primary_key=True,
        server_default=text("true"),
        comment="Always true: there is one row.",
    ),
    Column("seal", BigInteger, nullable=False, comment="Place of the newest sealed row."),
    Column("hash", LargeBinary, nullable=False, comment="Hash of the newest sealed row."),
    Column(
        "pruned_seal",
        BigInteger,
        nullable=False,
        comment="Place of the newest row that was pruned.",
    ),
    Column(
        "pruned_hash",
        LargeBinary,
        nullable=False,
        comment="Hash of the newest row that was pruned.",
    ),
    Column(
        "sealed_id",
        BigInteger,
        nullable=False,
        comment="Number up to which all rows are sealed.",
    ),
    CheckConstraint("is_only", name="only_one"),
    comment="One row: the ends of the chain of the audit.",
)
