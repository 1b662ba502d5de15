"""The schema as declared, of decisions, previews, and what they share.

Must not create anything: the migrations do.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Date,
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

# In partitions by day, which are dropped as a whole: see ``partitions``. Those that outlive their
# day, the newest of a binding each, are of the day ``-infinity``. No foreign key leads here: its
# table would be looked through whenever a partition goes.
decision = Table(
    "decision",
    metadata,
    Column(
        "id",
        Uuid,
        primary_key=True,
        server_default=func.gen_random_uuid(),
        comment="Id of the decision.",
    ),
    # No foreign key: decisions outlive their bindings, whose ids are never given again.
    Column(
        "binding_id",
        BigInteger,
        nullable=False,
        comment="The binding; it may be deleted, and no other one gets its number.",
    ),
    Column("namespace", NAME, nullable=False, comment="Namespace of the binding."),
    Column("name", NAME, nullable=False, comment="Name of the binding."),
    Column(
        "binding_generation",
        BigInteger,
        nullable=False,
        comment="Generation of the binding that was decided.",
    ),
    Column(
        "outcome",
        Text,
        nullable=False,
        comment="SCHEDULED, PARTIAL, UNSCHEDULABLE (no capacity) or NO_FIT (filters or spread "
        "leave nothing).",
    ),
    Column(
        "clusters",
        JSONB,
        nullable=False,
        comment="Replicas of each chosen cluster: a list of objects with name and replicas.",
    ),
    Column("remainder", BigInteger, nullable=False, comment="Replicas that got no cluster."),
    Column(
        "reason",
        Text,
        nullable=False,
        comment="Why the outcome is not SCHEDULED, in words; empty otherwise.",
    ),
    Column(
        "algorithm_revision",
        BigInteger,
        nullable=False,
        comment="Revision of the algorithm that decided.",
    ),
    created_at("Time of the transaction that wrote the decision."),
    Column(
        "trace",
        LargeBinary,
        nullable=False,
        comment="Everything behind the decision, as compressed JSON; fedctl explain shows it.",
    ),
    Column(
        "triggers",
        ARRAY(Text),
        nullable=False,
        server_default=text("'{}'"),
        comment="What made a control plane decide, in words.",
    ),
    Column(
        "day",
        Date,
        primary_key=True,
        server_default=text("(now() AT TIME ZONE 'utc')::date"),
        comment="Day that the id carries, or of created_at, in UTC, which chooses the partition; "
        "-infinity: it outlived its day.",
    ),
    CheckConstraint(
        "outcome IN ('SCHEDULED', 'PARTIAL', 'UNSCHEDULABLE', 'NO_FIT')", name="outcome_known"
    ),
    CheckConstraint("remainder >= 0", name="remainder_not_negative"),
    CheckConstraint("binding_generation >= 1", name="generation_positive"),
    # What was decided together has one time: the id makes places in lists unique.
    Index(None, "created_at", "id"),
    Index(None, "namespace", "created_at", "id"),
    Index(None, "namespace", "name", "created_at", "id"),
    postgresql_partition_by="RANGE (day)",
    comment="Decisions, in partitions by day that are dropped as a whole; the newest one of "
    "each binding is moved to day -infinity before.",
)

# What decisions were made on and share with others, by the SHA-256 of its content.
decision_input = Table(
    "decision_input",
    metadata,
    Column("name", LargeBinary, primary_key=True, comment="SHA-256 of the content."),
    Column("body", LargeBinary, nullable=False, comment="The content, compressed."),
    Column(
        "used_at",
        TIME,
        nullable=False,
        server_default=func.now(),
        comment="Time of a use, written every 40 minutes at most; unused bodies are deleted.",
    ),
    CheckConstraint("octet_length(name) = 32", name="name_sha256"),
    Index(None, "used_at"),
    comment="Bodies that decisions share: the fleets and profiles that they were made on.",
)

# No foreign key, because the bindings are gone.
binding_deletion = Table(
    "binding_deletion",
    metadata,
    Column(
        "at",
        TIME,
        primary_key=True,
        server_default=func.now(),
        comment="Time of the transaction that deleted it.",
    ),
    Column("namespace", NAME, primary_key=True, comment="Namespace of the binding."),
    Column("name", NAME, primary_key=True, comment="Name of the binding."),
    comment="Bindings that were deleted, for traces and replays; pruned as decisions are.",
)

node_plan = Table(
    "node_plan",
    metadata,
    Column("decision_id", Uuid, primary_key=True, comment="The decision."),
    Column("cluster_name", NAME, primary_key=True, comment="The cluster whose agent answered."),
    Column(
        "body", JSONB, nullable=False, comment="The nodes and their replicas, with a version v."
    ),
    created_at("Time of the first answer."),
    Index(None, "created_at"),
    comment="Nodes that agents chose for the shares of decisions.",
)

# Decided and not committed; deleted soon after they expire.
preview = Table(
    "preview",
    metadata,
    Column("id", Text, primary_key=True, comment="Id of the preview."),
    Column(
        "secret_hash",
        LargeBinary,
        nullable=False,
        comment="SHA-256 of the secret of the caller who may commit it.",
    ),
    # Both are null when the binding was new. No foreign key: a deleted binding is noticed.
    Column("binding_id", BigInteger, comment="The binding; null where it is new."),
    Column(
        "binding_generation",
        BigInteger,
        comment="Generation of the binding that was decided; null where it is new.",
    ),
    Column(
        "body",
        LargeBinary,
        nullable=False,
        comment="The binding, the decision and its evidence, as compressed JSON.",
    ),
    Column("decision_id", Uuid, comment="The decision that the preview became; null before."),
    created_at("Time of the preview."),
    Column("expires_at", TIME, nullable=False, comment="Time from which it cannot be committed."),
    CheckConstraint("octet_length(secret_hash) = 32", name="secret_hash_sha256"),
    CheckConstraint(
        "(binding_id IS NULL) = (binding_generation IS NULL)", name="binding_known_or_new"
    ),
    Index(None, "expires_at"),
    Index(None, "decision_id"),
    comment="Previews: decisions that are not committed, deleted soon after they expire.",
)
