"""The schema as declared, of who may call: credentials, tokens, and the audit.

Must not create anything: the migrations do.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Identity,
    Index,
    LargeBinary,
    Table,
    Text,
    UniqueConstraint,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from federation.store.tables import NAME, TIME, created_at, metadata

join_token = Table(
    "join_token",
    metadata,
    Column("id", Text, primary_key=True),
    Column("secret_hash", LargeBinary, nullable=False),
    Column("cluster_name", NAME, nullable=False),
    created_at(),
    Column("expires_at", TIME, nullable=False),
    Column("used_at", TIME),
    CheckConstraint("octet_length(secret_hash) = 32", name="secret_hash_sha256"),
    CheckConstraint("expires_at > created_at", name="expires_later"),
)

credential = Table(
    "credential",
    metadata,
    Column("id", Text, primary_key=True),
    # Grows with every credential: which one is newer does not depend on clocks.
    Column("serial", BigInteger, Identity(always=True), nullable=False),
    Column("kind", Text, nullable=False),
    Column("cluster_id", BigInteger, ForeignKey("cluster.id", ondelete="CASCADE")),
    Column("secret_hash", LargeBinary, nullable=False),
    created_at(),
    Column("expires_at", TIME),
    Column("revoked_at", TIME),
    CheckConstraint("kind IN ('admin', 'agent', 'replica')", name="kind_known"),
    CheckConstraint("(kind = 'agent') = (cluster_id IS NOT NULL)", name="agent_has_cluster"),
    CheckConstraint("octet_length(secret_hash) = 32", name="secret_hash_sha256"),
    Index(None, "cluster_id"),
)

# Of people and programs. The id is the part of the token that is no secret.
access_token = Table(
    "access_token",
    metadata,
    Column("id", NAME, primary_key=True),
    Column("secret_hash", LargeBinary, nullable=False),
    Column("name", Text, nullable=False),
    Column("role", Text, nullable=False),
    # Patterns of names; empty: all.
    Column("namespaces", ARRAY(Text), nullable=False),
    Column("clusters", ARRAY(Text), nullable=False),
    # What clusters have to have; empty: nothing.
    Column("cluster_labels", JSONB, nullable=False, server_default=text("'{}'")),
    Column("networks", ARRAY(Text), nullable=False),
    # 0: no limit.
    Column("calls_per_second", BigInteger, nullable=False, server_default="0"),
    Column("calls_at_once", BigInteger, nullable=False, server_default="0"),
    Column("created_by", Text, nullable=False),
    created_at(),
    Column("expires_at", TIME, nullable=False),
    Column("revoked_at", TIME),
    Column("last_used_at", TIME),
    Column("last_used_from", Text, nullable=False, server_default=""),
    CheckConstraint(
        "role IN ('viewer', 'scheduler', 'operator', 'bridge', 'admin')", name="role_known"
    ),
    CheckConstraint("calls_per_second >= 0 AND calls_at_once >= 0", name="limits_not_negative"),
    CheckConstraint("octet_length(secret_hash) = 32", name="secret_hash_sha256"),
    CheckConstraint("expires_at > created_at", name="expires_later"),
)

# How much a namespace may hold promised: replicas under "", resources by name.
namespace_quota = Table(
    "namespace_quota",
    metadata,
    Column("namespace", NAME, primary_key=True),
    Column("limits", JSONB, nullable=False),
    Column("changed_at", TIME, nullable=False, server_default=func.now()),
)

# Changes and refusals. What is sealed has a place in a chain of hashes.
audit = Table(
    "audit",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("at", TIME, nullable=False, server_default=func.now()),
    Column("actor", Text, nullable=False),
    Column("credential_id", Text, nullable=False),
    Column("address", Text, nullable=False),
    Column("method", Text, nullable=False),
    Column("objects", ARRAY(Text), nullable=False),
    Column("result", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("request_sha256", Text, nullable=False),
    Column("unrecorded", BigInteger, nullable=False),
    Column("seal", BigInteger),
    Column("hash", LargeBinary),
    CheckConstraint("(seal IS NULL) = (hash IS NULL)", name="sealed_has_hash"),
    UniqueConstraint("seal"),
    Index(None, "at", "id"),
    Index("ix_audit_unsealed", "id", postgresql_where=text("seal IS NULL")),
)

# Where the chain ends, and where what is kept of it begins.
audit_head = Table(
    "audit_head",
    metadata,
    Column("is_only", Boolean, primary_key=True, server_default=text("true")),
    Column("seal", BigInteger, nullable=False),
    Column("hash", LargeBinary, nullable=False),
    Column("pruned_seal", BigInteger, nullable=False),
    Column("pruned_hash", LargeBinary, nullable=False),
    CheckConstraint("is_only", name="only_one"),
)
