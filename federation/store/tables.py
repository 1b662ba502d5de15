"""The schema as declared: tables, keys and rules.

Must not create anything: the migrations do, and a test compares what they made with this.
Check constraints stand on the table, not on a column: migrations lose the latter.
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Date,
    DateTime,
    ForeignKey,
    Identity,
    Index,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSON, JSONB

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}

metadata = MetaData(naming_convention=NAMING)

# Names are ordered by their bytes, as Python orders them: pages follow the fleet's order.
NAME = Text(collation="C")
TIME = DateTime(timezone=True)


def unix_seconds(time: datetime | None) -> float | None:
    """What ``TIME`` holds, as the model counts time."""
    return None if time is None else time.timestamp()


def created_at() -> Column[object]:
    return Column("created_at", TIME, nullable=False, server_default=func.now())


cluster = Table(
    "cluster",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("name", NAME, nullable=False),
    Column("uid", Text, nullable=False),
    # What people say: labels, annotations, places, taints, resource model.
    Column("spec", JSONB, nullable=False),
    # What the agent says of itself and of the cluster's APIs.
    Column("facts", JSONB, nullable=False),
    Column("kubernetes_version", Text, nullable=False),
    Column("generation", BigInteger, nullable=False),
    Column("version", BigInteger, nullable=False),
    created_at(),
    Column("updated_at", TIME, nullable=False, server_default=func.now()),
    UniqueConstraint("name"),
    CheckConstraint("name <> ''", name="name_not_empty"),
    CheckConstraint("generation >= 1 AND version >= 1", name="counters_positive"),
)

# One for every cluster. Small, apart from the report: decisions lock these rows, and a report is
# large. The version grows by one with whatever happens to the cluster's promises or report.
cluster_capacity = Table(
    "cluster_capacity",
    metadata,
    Column(
        "cluster_id",
        BigInteger,
        ForeignKey("cluster.id", ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
    ),
    Column("version", BigInteger, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("sequence", BigInteger, nullable=False),
    # Null without a report: with epoch and sequence 0 before the first one, with those of the last
    # one where that does not count any more.
    Column("received_at", TIME),
    # Names what led to the version: the XOR of the nonces of all changes.
    Column("history", BigInteger, nullable=False, server_default=text("0")),
    CheckConstraint("version >= 1", name="version_positive"),
)

cluster_report = Table(
    "cluster_report",
    metadata,
    Column(
        "cluster_id",
        BigInteger,
        ForeignKey("cluster.id", ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
    ),
    # Kept as it was written: nobody looks into it here, and JSONB is slow to write and to read.
    Column("body", JSON, nullable=False),
)

# In partitions by day, which are dropped as a whole: see ``partitions``. Those that outlive their
# day, the newest of a binding each, are of the day ``-infinity``. No foreign key leads here: its
# table would be looked through whenever a partition goes.
decision = Table(
    "decision",
    metadata,
    Column("id", Uuid, primary_key=True, server_default=func.gen_random_uuid()),
    # No foreign key: decisions outlive their bindings, whose ids are never given again.
    Column("binding_id", BigInteger, nullable=False),
    Column("namespace", NAME, nullable=False),
    Column("name", NAME, nullable=False),
    Column("binding_generation", BigInteger, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("clusters", JSONB, nullable=False),
    Column("remainder", BigInteger, nullable=False),
    Column("reason", Text, nullable=False),
    Column("algorithm_revision", BigInteger, nullable=False),
    created_at(),
    # Compressed JSON: everything behind the decision.
    Column("trace", LargeBinary, nullable=False),
    # Why it was made, for lists, which unpack no traces.
    Column("triggers", ARRAY(Text), nullable=False, server_default=text("'{}'")),
    Column(
        "day",
        Date,
        primary_key=True,
        server_default=text("(now() AT TIME ZONE 'utc')::date"),
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
)

binding = Table(
    "binding",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("namespace", NAME, nullable=False),
    Column("name", NAME, nullable=False),
    Column("uid", Text, nullable=False),
    Column("generation", BigInteger, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("spec", JSONB, nullable=False),
    # Where it runs now.
    Column("clusters", JSONB, nullable=False),
    Column("decision_id", Uuid),
    # The affinity group of the cluster affinities that the newest placement came from.
    Column("observed_affinity", Text, nullable=False),
    # key=value of the labels that group workloads; empty when it does not ask for it.
    Column("affinity_group", Text, nullable=False),
    Column("anti_affinity_group", Text, nullable=False),
    created_at(),
    Column("updated_at", TIME, nullable=False, server_default=func.now()),
    Column("last_scheduled_at", TIME),
    UniqueConstraint("namespace", "name"),
    CheckConstraint("name <> ''", name="name_not_empty"),
    CheckConstraint("generation >= 1 AND version >= 1", name="counters_positive"),
    Index(None, "decision_id"),
    Index(
        "ix_binding_evictions",
        "namespace",
        "name",
        postgresql_where=text("spec -> 'eviction_tasks' <> '[]'"),
    ),
    Index(
        "ix_binding_gang",
        "namespace",
        text("((spec -> 'gang') ->> 'name')"),
        postgresql_where=text("((spec -> 'gang') ->> 'name') IS NOT NULL"),
    ),
    Index(None, "namespace", "affinity_group", postgresql_where=text("affinity_group <> ''")),
    Index(
        None,
        "namespace",
        "anti_affinity_group",
        postgresql_where=text("anti_affinity_group <> ''"),
    ),
)

# One row for each binding that waits for room, in whole or in part; it goes with its binding.
waiting = Table(
    "waiting",
    metadata,
    Column(
        "binding_id",
        BigInteger,
        ForeignKey("binding.id", ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
    ),
    # As the binding has them: the order of the queue is by what stands here.
    Column("namespace", NAME, nullable=False),
    Column("name", NAME, nullable=False),
    Column("priority", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
    # What a gated one waits for.
    Column("gate", Text, nullable=False, server_default=""),
    Column("since", TIME, nullable=False, server_default=func.now()),
    Column("attempts", BigInteger, nullable=False),
    Column("next_try", TIME),
    Column("remainder", BigInteger, nullable=False),
    Column("short_of", Text, nullable=False),
    Column("overtaken_since", TIME),
    # The binding that did so first.
    Column("overtaken_by", Text, nullable=False, server_default=""),
    # Since when room is kept for it; and what others are to leave for it.
    Column("earmarked_since", TIME),
    Column("nominated", JSONB),
    # The gang that it waits with for its first place, and the first member: all have its position.
    Column("gang", Text, nullable=False, server_default=""),
    Column("entry", NAME, nullable=False, server_default=""),
    # In place of since in the order, where a plugin says so; and when the gang's time is over.
    Column("ordered_at", TIME),
    Column("times_out", TIME),
    CheckConstraint("state IN ('active', 'backoff', 'unschedulable', 'gated')", name="state_known"),
    CheckConstraint("(state = 'backoff') = (next_try IS NOT NULL)", name="backoff_has_time"),
    CheckConstraint("(state = 'gated') = (gate <> '')", name="gated_by"),
    CheckConstraint("attempts >= 0 AND remainder >= 0", name="counters_not_negative"),
    Index(
        "ix_waiting_kept",
        "binding_id",
        postgresql_where=text("earmarked_since IS NOT NULL OR nominated IS NOT NULL"),
    ),
)

# For the limits within any minute; rows are deleted after an hour.
preemption = Table(
    "preemption",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("at", TIME, nullable=False, server_default=text("clock_timestamp()")),
    # Of those that lost replicas.
    Column("namespace", NAME, nullable=False),
    Column("replicas", BigInteger, nullable=False),
    CheckConstraint("replicas >= 1", name="replicas_positive"),
    Index(None, "at"),
)

# What decisions were made on and share with others, by the SHA-256 of its content.
decision_input = Table(
    "decision_input",
    metadata,
    Column("name", LargeBinary, primary_key=True),
    Column("body", LargeBinary, nullable=False),
    Column("used_at", TIME, nullable=False, server_default=func.now()),
    CheckConstraint("octet_length(name) = 32", name="name_sha256"),
    Index(None, "used_at"),
)

node_plan = Table(
    "node_plan",
    metadata,
    Column("decision_id", Uuid, primary_key=True),
    Column("cluster_name", NAME, primary_key=True),
    Column("body", JSONB, nullable=False),
    created_at(),
    Index(None, "created_at"),
)

# Decided and not committed; deleted soon after they expire.
preview = Table(
    "preview",
    metadata,
    Column("id", Text, primary_key=True),
    Column("secret_hash", LargeBinary, nullable=False),
    # Both are null when the binding was new. No foreign key: a deleted binding is noticed.
    Column("binding_id", BigInteger),
    Column("binding_generation", BigInteger),
    # Compressed JSON: the binding as it was decided, the decision, and its evidence.
    Column("body", LargeBinary, nullable=False),
    # The decision it became.
    Column("decision_id", Uuid),
    created_at(),
    Column("expires_at", TIME, nullable=False),
    CheckConstraint("octet_length(secret_hash) = 32", name="secret_hash_sha256"),
    CheckConstraint(
        "(binding_id IS NULL) = (binding_generation IS NULL)", name="binding_known_or_new"
    ),
    Index(None, "expires_at"),
    Index(None, "decision_id"),
)

# What was committed about promises, reports, clusters and bindings. Transactions end in another
# order than their ids say: readers stop before the oldest that still runs. The id is kept as a
# number, which drivers know: it would take centuries to outgrow it.
journal = Table(
    "journal",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column(
        "xid",
        BigInteger,
        nullable=False,
        server_default=text("pg_current_xact_id()::text::bigint"),
    ),
    Column("kind", Text, nullable=False),
    Column("body", LargeBinary, nullable=False),
    created_at(),
    Column("nonce", BigInteger, nullable=False, server_default=text("0")),
    Index(None, "xid", "id"),
)

# One row: what the database went through, and which database of which server it is. None once the
# tables were emptied.
history = Table(
    "history",
    metadata,
    Column("is_only", Boolean, primary_key=True, server_default=text("true")),
    Column("id", Uuid, nullable=False, server_default=func.gen_random_uuid()),
    # Empty until the first start.
    Column("database", Text, nullable=False),
    CheckConstraint("is_only", name="only_one"),
)

# One row, the newest place of the journal that was forgotten; none before the first.
journal_horizon = Table(
    "journal_horizon",
    metadata,
    Column("is_only", Boolean, primary_key=True, server_default=text("true")),
    Column("xid", BigInteger, nullable=False),
    Column("id", BigInteger, nullable=False),
    CheckConstraint("is_only", name="only_one"),
)

# One row for all that a binding holds. No foreign key: bindings that go say so in the journal.
reservation = Table(
    "reservation",
    metadata,
    Column("namespace", NAME, primary_key=True),
    Column("name", NAME, primary_key=True),
    Column("uid", Text, nullable=False),
    # Where it holds something.
    Column("clusters", ARRAY(Text), nullable=False),
    # What counts against the quota of its namespace: replicas under "", resources by name.
    Column("held", JSONB, nullable=False, server_default=text("'{}'")),
    # MessagePack: the owner and every reservation.
    Column("body", LargeBinary, nullable=False),
    Column("lease_expires_at", TIME),
    Index(None, "lease_expires_at", postgresql_where=text("lease_expires_at IS NOT NULL")),
)

# Answers under idempotency keys.
request = Table(
    "request",
    metadata,
    Column("caller", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("body_hash", LargeBinary, nullable=False),
    Column("answer", LargeBinary, nullable=False),
    created_at(),
    CheckConstraint("octet_length(body_hash) = 32", name="body_hash_sha256"),
    Index(None, "created_at"),
)

# One row: whether failover is frozen. None before it first was.
failover = Table(
    "failover",
    metadata,
    Column("is_only", Boolean, primary_key=True, server_default=text("true")),
    Column("body", JSONB, nullable=False),
    CheckConstraint("is_only", name="only_one"),
)
