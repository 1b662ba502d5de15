"""Create the tables of clusters, credentials, reports, bindings and decisions.

Why: the first schema; there is nothing before it.
Roll-out: before the code.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

NAME = sa.Text(collation="C")
TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    create_clusters()
    create_secrets()
    create_reports()
    create_decisions()
    create_bindings()


def create_clusters() -> None:
    op.create_table(
        "cluster",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("spec", JSONB(), nullable=False),
        sa.Column("facts", JSONB(), nullable=False),
        sa.Column("kubernetes_version", sa.Text(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("created_at", TIME, server_default=sa.func.now(), nullable=False),
        sa.Column("updated_at", TIME, server_default=sa.func.now(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_cluster")),
        sa.UniqueConstraint("name", name=op.f("uq_cluster_name")),
        sa.CheckConstraint("name <> ''", name=op.f("ck_cluster_name_not_empty")),
        sa.CheckConstraint(
            "generation >= 1 AND version >= 1", name=op.f("ck_cluster_counters_positive")
        ),
    )


def create_secrets() -> None:
    op.create_table(
        "join_token",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("secret_hash", sa.LargeBinary(), nullable=False),
        sa.Column("cluster_name", NAME, nullable=False),
        sa.Column("created_at", TIME, server_default=sa.func.now(), nullable=False),
        sa.Column("expires_at", TIME, nullable=False),
        sa.Column("used_at", TIME),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_join_token")),
        sa.CheckConstraint(
            "octet_length(secret_hash) = 32", name=op.f("ck_join_token_secret_hash_sha256")
        ),
        sa.CheckConstraint("expires_at > created_at", name=op.f("ck_join_token_expires_later")),
    )
    op.create_table(
        "credential",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("serial", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("cluster_id", sa.BigInteger()),
        sa.Column("secret_hash", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", TIME, server_default=sa.func.now(), nullable=False),
        sa.Column("expires_at", TIME),
        sa.Column("revoked_at", TIME),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_credential")),
        sa.ForeignKeyConstraint(
            ["cluster_id"],
            ["cluster.id"],
            name=op.f("fk_credential_cluster_id_cluster"),
            ondelete="CASCADE",
        ),
        sa.CheckConstraint("kind IN ('admin', 'agent')", name=op.f("ck_credential_kind_known")),
        sa.CheckConstraint(
            "(kind = 'agent') = (cluster_id IS NOT NULL)",
            name=op.f("ck_credential_agent_has_cluster"),
        ),
        sa.CheckConstraint(
            "octet_length(secret_hash) = 32", name=op.f("ck_credential_secret_hash_sha256")
        ),
    )
    op.create_index(op.f("ix_credential_cluster_id"), "credential", ["cluster_id"])


def create_reports() -> None:
    op.create_table(
        "cluster_capacity",
        sa.Column("cluster_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("received_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("cluster_id", name=op.f("pk_cluster_capacity")),
        sa.ForeignKeyConstraint(
            ["cluster_id"],
            ["cluster.id"],
            name=op.f("fk_cluster_capacity_cluster_id_cluster"),
            ondelete="CASCADE",
        ),
        sa.CheckConstraint("version >= 1", name=op.f("ck_cluster_capacity_version_positive")),
    )
    op.create_table(
        "cluster_report",
        sa.Column("cluster_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("body", JSONB(), nullable=False),
        sa.PrimaryKeyConstraint("cluster_id", name=op.f("pk_cluster_report")),
        sa.ForeignKeyConstraint(
            ["cluster_id"],
            ["cluster.id"],
            name=op.f("fk_cluster_report_cluster_id_cluster"),
            ondelete="CASCADE",
        ),
    )


def create_decisions() -> None:
    op.create_table(
        "decision",
        sa.Column("id", sa.Uuid(), server_default=sa.func.gen_random_uuid(), nullable=False),
        sa.Column("binding_id", sa.BigInteger(), nullable=False),
        sa.Column("namespace", NAME, nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("binding_generation", sa.BigInteger(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("clusters", JSONB(), nullable=False),
        sa.Column("remainder", sa.BigInteger(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("algorithm_revision", sa.BigInteger(), nullable=False),
        sa.Column("created_at", TIME, server_default=sa.func.now(), nullable=False),
        sa.Column("trace", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_decision")),
        sa.CheckConstraint(
            "outcome IN ('SCHEDULED', 'PARTIAL', 'UNSCHEDULABLE', 'NO_FIT')",
            name=op.f("ck_decision_outcome_known"),
        ),
        sa.CheckConstraint("remainder >= 0", name=op.f("ck_decision_remainder_not_negative")),
        sa.CheckConstraint("binding_generation >= 1", name=op.f("ck_decision_generation_positive")),
    )
    op.create_index(
        op.f("ix_decision_binding_id_created_at"), "decision", ["binding_id", "created_at"]
    )
    op.create_table(
        "node_plan",
        sa.Column("decision_id", sa.Uuid(), nullable=False),
        sa.Column("cluster_name", NAME, nullable=False),
        sa.Column("body", JSONB(), nullable=False),
        sa.Column("created_at", TIME, server_default=sa.func.now(), nullable=False),
        sa.PrimaryKeyConstraint("decision_id", "cluster_name", name=op.f("pk_node_plan")),
        sa.ForeignKeyConstraint(
            ["decision_id"],
            ["decision.id"],
            name=op.f("fk_node_plan_decision_id_decision"),
            ondelete="CASCADE",
        ),
    )


def create_bindings() -> None:
    op.create_table(
        "binding",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("namespace", NAME, nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("spec", JSONB(), nullable=False),
        sa.Column("clusters", JSONB(), nullable=False),
        sa.Column("decision_id", sa.Uuid()),
        sa.Column("observed_affinity", sa.Text(), nullable=False),
        sa.Column("affinity_group", sa.Text(), nullable=False),
        sa.Column("anti_affinity_group", sa.Text(), nullable=False),
        sa.Column("created_at", TIME, server_default=sa.func.now(), nullable=False),
        sa.Column("updated_at", TIME, server_default=sa.func.now(), nullable=False),
        sa.Column("last_scheduled_at", TIME),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_binding")),
        sa.UniqueConstraint("namespace", "name", name=op.f("uq_binding_namespace_name")),
        sa.ForeignKeyConstraint(
            ["decision_id"], ["decision.id"], name=op.f("fk_binding_decision_id_decision")
        ),
        sa.CheckConstraint("name <> ''", name=op.f("ck_binding_name_not_empty")),
        sa.CheckConstraint(
            "generation >= 1 AND version >= 1", name=op.f("ck_binding_counters_positive")
        ),
    )
    op.create_index(op.f("ix_binding_decision_id"), "binding", ["decision_id"])
    for group in ("affinity_group", "anti_affinity_group"):
        op.create_index(
            op.f(f"ix_binding_namespace_{group}"),
            "binding",
            ["namespace", group],
            postgresql_where=sa.text(f"{group} <> ''"),
        )


def downgrade() -> None:
    for table in (
        "binding",
        "node_plan",
        "decision",
        "cluster_report",
        "cluster_capacity",
        "credential",
        "join_token",
        "cluster",
    ):
        op.drop_table(table)
