"""The schema as declared, of clusters, bindings and the queue: tables, keys and rules.

Must not create anything: the migrations do, and a test compares what they made with this.
Check constraints stand on the table, not on a column: migrations lose the latter. Rows of hot
tables are updated in their page where it has space (``fillfactor``), and vacuumed after a number
of changes that does not grow with the table.
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    DateTime,
    ForeignKey,
    Identity,
    Index,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSON, JSONB

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


def created_at(comment: str) -> Column[object]:
    return Column("created_at", TIME, nullable=False, server_default=func.now(), comment=comment)


cluster = Table(
    "cluster",
    metadata,
    Column(
        "id",
        BigInteger,
        Identity(always=True),
        primary_key=True,
        comment="Number of the row; it is never given again.",
    ),
    Column(
        "name",
        NAME,
        nullable=False,
        comment="Name of the cluster, by which people and placements call it.",
    ),
    Column(
        "uid",
        Text,
        nullable=False,
        comment="UID of the namespace kube-system in the cluster; it says which cluster has "
        "the name.",
    ),
    Column(
        "spec",
        JSONB,
        nullable=False,
        comment="What people say of the cluster: labels, annotations, places, taints, cordon, "
        "resource model.",
    ),
    Column(
        "facts",
        JSONB,
        nullable=False,
        comment="What the agent says of itself and of the APIs of the cluster.",
    ),
    Column(
        "kubernetes_version",
        Text,
        nullable=False,
        comment="Version of Kubernetes that the agent has read last.",
    ),
    Column(
        "generation", BigInteger, nullable=False, comment="Grows by one with each change of spec."
    ),
    Column(
        "version",
        BigInteger,
        nullable=False,
        comment="Grows by one with each change of the row; the resourceVersion of the API "
        "holds it.",
    ),
    created_at("Time at which the cluster joined first."),
    Column(
        "updated_at",
        TIME,
        nullable=False,
        server_default=func.now(),
        comment="Time of the last change of spec or uid.",
    ),
    UniqueConstraint("name"),
    CheckConstraint("name <> ''", name="name_not_empty"),
    CheckConstraint("generation >= 1 AND version >= 1", name="counters_positive"),
    comment="Member clusters: one row for each.",
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
        comment="The cluster.",
    ),
    Column(
        "version",
        BigInteger,
        nullable=False,
        comment="Grows by one with each change of the promises or the report of the cluster.",
    ),
    Column(
        "epoch",
        BigInteger,
        nullable=False,
        comment="Session of the agent that sent the newest report; 0 before the first one.",
    ),
    Column(
        "sequence",
        BigInteger,
        nullable=False,
        comment="Number of the newest report within its session; 0 before the first one.",
    ),
    Column(
        "received_at",
        TIME,
        comment="Time at which the newest report was stored; null where none counts.",
    ),
    Column(
        "history",
        BigInteger,
        nullable=False,
        server_default=text("0"),
        comment="XOR of the nonces of all changes: it names what led to the version.",
    ),
    Column(
        "report_version",
        BigInteger,
        nullable=False,
        server_default=text("0"),
        comment="Version that the newest report made; 0: a release stored it that did not say.",
    ),
    CheckConstraint("version >= 1", name="version_positive"),
    comment="Ledger of each cluster: decisions lock these small rows, reports lie in "
    "cluster_report.",
    postgresql_with={
        "fillfactor": 50,
        "autovacuum_vacuum_scale_factor": 0,
        "autovacuum_vacuum_threshold": 1000,
    },
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
        comment="The cluster.",
    ),
    # Kept as it was written: nobody looks into it here, and JSONB is slow to write and to read.
    Column(
        "body", JSON, nullable=False, comment="The report as the agent sent it, with a version v."
    ),
    comment="Newest report of each cluster.",
    postgresql_with={
        "fillfactor": 80,
        "autovacuum_vacuum_scale_factor": 0,
        "autovacuum_vacuum_threshold": 1000,
    },
)

# No index has what each decision changes: rows are updated in their page (HOT).
binding = Table(
    "binding",
    metadata,
    Column(
        "id",
        BigInteger,
        Identity(always=True),
        primary_key=True,
        comment="Number of the row; it is never given again.",
    ),
    Column("namespace", NAME, nullable=False, comment="Namespace of the binding."),
    Column("name", NAME, nullable=False, comment="Name of the binding."),
    Column("uid", Text, nullable=False, comment="UID of the workload, as the caller gave it."),
    Column(
        "generation",
        BigInteger,
        nullable=False,
        comment="Grows by one with each change of what is asked for.",
    ),
    Column(
        "version",
        BigInteger,
        nullable=False,
        comment="Grows by one with each change of the row; the resourceVersion of the API "
        "holds it.",
    ),
    Column(
        "spec",
        JSONB,
        nullable=False,
        comment="What is asked for: replicas, requirements, placement, priority, gang, "
        "evictions; with a version v.",
    ),
    Column(
        "clusters",
        JSONB,
        nullable=False,
        comment="Where it runs now: a list of objects with name and replicas.",
    ),
    Column("decision_id", Uuid, comment="Newest decision about it."),
    Column(
        "observed_affinity",
        Text,
        nullable=False,
        comment="Affinity group of the placement that the newest decision came from; empty "
        "without one.",
    ),
    Column(
        "affinity_group",
        Text,
        nullable=False,
        comment="key=value of the label that groups workloads that stay together; empty "
        "without one.",
    ),
    Column(
        "anti_affinity_group",
        Text,
        nullable=False,
        comment="key=value of the label that groups workloads that stay apart; empty without one.",
    ),
    created_at("Time of the first decision about it."),
    Column(
        "updated_at",
        TIME,
        nullable=False,
        server_default=func.now(),
        comment="Time of the last change of the row.",
    ),
    Column(
        "last_scheduled_at",
        TIME,
        comment="Time of the newest decision that placed it; null before the first one.",
    ),
    UniqueConstraint("namespace", "name"),
    CheckConstraint("name <> ''", name="name_not_empty"),
    CheckConstraint("generation >= 1 AND version >= 1", name="counters_positive"),
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
    comment="Bindings: what is to run, and where it runs now.",
    postgresql_with={"fillfactor": 80, "autovacuum_vacuum_scale_factor": 0.02},
)

# Triggers on ``binding`` keep it, whoever writes there. No key leads to ``cluster``: placements may
# name clusters that are not there.
binding_cluster = Table(
    "binding_cluster",
    metadata,
    Column("cluster", NAME, primary_key=True, comment="Name of the cluster."),
    Column(
        "binding_id",
        BigInteger,
        primary_key=True,
        autoincrement=False,
        comment="The binding; triggers delete the row with it.",
    ),
    Column("replicas", BigInteger, nullable=False, comment="Replicas of the binding there."),
    comment="What runs where: binding.clusters in rows, which triggers on binding keep.",
    postgresql_with={"fillfactor": 90, "autovacuum_vacuum_scale_factor": 0.02},
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
        comment="The binding; the row goes with it.",
    ),
    Column("namespace", NAME, nullable=False, comment="Namespace of the binding."),
    Column("name", NAME, nullable=False, comment="Name of the binding."),
    Column(
        "priority",
        BigInteger,
        nullable=False,
        comment="Priority of the binding, or of its gang: higher ones are tried first.",
    ),
    Column(
        "state",
        Text,
        nullable=False,
        comment="active, backoff (until next_try), unschedulable (until something changes) or "
        "gated (not tried).",
    ),
    Column(
        "gate",
        Text,
        nullable=False,
        server_default="",
        comment="What a gated binding waits for; empty for all others.",
    ),
    Column(
        "since",
        TIME,
        nullable=False,
        server_default=func.now(),
        comment="Time since when it waits.",
    ),
    Column("attempts", BigInteger, nullable=False, comment="Number of times it was tried."),
    Column("next_try", TIME, comment="Time of the next try in state backoff; null otherwise."),
    Column("remainder", BigInteger, nullable=False, comment="Replicas that wait."),
    Column("short_of", Text, nullable=False, comment="What is missing, in words."),
    Column(
        "overtaken_since",
        TIME,
        comment="Time at which a later binding was first placed where this one could have gone.",
    ),
    Column(
        "overtaken_by",
        Text,
        nullable=False,
        server_default="",
        comment="NAMESPACE/NAME of the binding that did so first; empty before.",
    ),
    Column(
        "earmarked_since",
        TIME,
        comment="Time since when capacity is kept for it; null where none is.",
    ),
    Column(
        "nominated",
        JSONB,
        comment="Capacity that others left for it by preemption, and until when it is kept; "
        "null without.",
    ),
    Column(
        "gang",
        Text,
        nullable=False,
        server_default="",
        comment="Gang that it waits with for its first place; empty without one.",
    ),
    Column(
        "entry",
        NAME,
        nullable=False,
        server_default="",
        comment="First member of the gang: all members have its position; empty without a gang.",
    ),
    Column(
        "ordered_at",
        TIME,
        comment="Time that a plug-in puts in place of since in the order; null otherwise.",
    ),
    Column("times_out", TIME, comment="Time at which the gang stops waiting; null without a gang."),
    CheckConstraint("state IN ('active', 'backoff', 'unschedulable', 'gated')", name="state_known"),
    CheckConstraint("(state = 'backoff') = (next_try IS NOT NULL)", name="backoff_has_time"),
    CheckConstraint("(state = 'gated') = (gate <> '')", name="gated_by"),
    CheckConstraint("attempts >= 0 AND remainder >= 0", name="counters_not_negative"),
    # With the columns of its expressions: positions are counted in the index alone.
    Index(
        "ix_waiting_place",
        text("(- priority)"),
        text("coalesce(ordered_at, since)"),
        "namespace",
        text("coalesce(nullif(entry, ''), name)"),
        "name",
        postgresql_include=["priority", "ordered_at", "since", "entry", "state"],
    ),
    Index(
        "ix_waiting_kept",
        "binding_id",
        postgresql_where=text("earmarked_since IS NOT NULL OR nominated IS NOT NULL"),
    ),
    comment="Queue: a row for each binding that waits for capacity, in whole or in part.",
    postgresql_with={"fillfactor": 70, "autovacuum_vacuum_scale_factor": 0.02},
)

# For the limits within any minute; rows are deleted after an hour.
preemption = Table(
    "preemption",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True, comment="Number of the row."),
    Column(
        "at",
        TIME,
        nullable=False,
        server_default=text("clock_timestamp()"),
        comment="Time of the preemption.",
    ),
    Column("namespace", NAME, nullable=False, comment="Namespace that lost replicas."),
    Column("replicas", BigInteger, nullable=False, comment="Number of replicas."),
    CheckConstraint("replicas >= 1", name="replicas_positive"),
    Index(None, "at"),
    comment="Replicas that were preempted within the last hour, for the limits of each minute.",
)
