"""Create the whole schema.

Why: the first release begins here. Databases of builds before it cannot be migrated: start with an
empty one.
Roll-out: before the code.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY, JSON, JSONB

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
    create_previews()
    create_journal()
    create_history()
    create_reservations()
    create_requests()
    create_duties()
    create_presences()


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
        sa.CheckConstraint(
            "kind IN ('admin', 'agent', 'replica')",
            name=op.f("ck_credential_kind_known"),
        ),
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
        sa.Column("received_at", TIME),
        sa.Column("history", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
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
        sa.Column("body", JSON(), nullable=False),
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
    op.create_index(op.f("ix_decision_created_at"), "decision", ["created_at"])
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


def create_previews() -> None:
    op.create_table(
        "preview",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("secret_hash", sa.LargeBinary(), nullable=False),
        sa.Column("binding_id", sa.BigInteger()),
        sa.Column("binding_generation", sa.BigInteger()),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("decision_id", sa.Uuid()),
        sa.Column("created_at", TIME, server_default=sa.func.now(), nullable=False),
        sa.Column("expires_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_preview")),
        sa.ForeignKeyConstraint(
            ["decision_id"],
            ["decision.id"],
            name=op.f("fk_preview_decision_id_decision"),
            ondelete="CASCADE",
        ),
        sa.CheckConstraint(
            "octet_length(secret_hash) = 32", name=op.f("ck_preview_secret_hash_sha256")
        ),
        sa.CheckConstraint(
            "(binding_id IS NULL) = (binding_generation IS NULL)",
            name=op.f("ck_preview_binding_known_or_new"),
        ),
    )
    op.create_index(op.f("ix_preview_expires_at"), "preview", ["expires_at"])
    op.create_index(op.f("ix_preview_decision_id"), "preview", ["decision_id"])


def create_journal() -> None:
    op.create_table(
        "journal",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column(
            "xid",
            sa.BigInteger(),
            server_default=sa.text("pg_current_xact_id()::text::bigint"),
            nullable=False,
        ),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", TIME, server_default=sa.func.now(), nullable=False),
        sa.Column("nonce", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_journal")),
    )
    op.create_index(op.f("ix_journal_xid_id"), "journal", ["xid", "id"])
    op.create_table(
        "journal_horizon",
        sa.Column("is_only", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("xid", sa.BigInteger(), nullable=False),
        sa.Column("id", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("is_only", name=op.f("pk_journal_horizon")),
        sa.CheckConstraint("is_only", name=op.f("ck_journal_horizon_only_one")),
    )


def create_history() -> None:
    op.create_table(
        "history",
        sa.Column("is_only", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("id", sa.Uuid(), server_default=sa.func.gen_random_uuid(), nullable=False),
        sa.Column("database", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("is_only", name=op.f("pk_history")),
        sa.CheckConstraint("is_only", name=op.f("ck_history_only_one")),
    )
    op.execute("INSERT INTO history (database) VALUES ('')")


def create_reservations() -> None:
    op.create_table(
        "reservation",
        sa.Column("namespace", NAME, nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("clusters", ARRAY(sa.Text()), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("lease_expires_at", TIME),
        sa.PrimaryKeyConstraint("namespace", "name", name=op.f("pk_reservation")),
    )
    op.create_index(
        op.f("ix_reservation_lease_expires_at"),
        "reservation",
        ["lease_expires_at"],
        postgresql_where=sa.text("lease_expires_at IS NOT NULL"),
    )


def create_requests() -> None:
    op.create_table(
        "request",
        sa.Column("caller", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("body_hash", sa.LargeBinary(), nullable=False),
        sa.Column("answer", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", TIME, server_default=sa.func.now(), nullable=False),
        sa.PrimaryKeyConstraint("caller", "key", name=op.f("pk_request")),
        sa.CheckConstraint(
            "octet_length(body_hash) = 32", name=op.f("ck_request_body_hash_sha256")
        ),
    )
    op.create_index(op.f("ix_request_created_at"), "request", ["created_at"])


def create_duties() -> None:
    op.create_table(
        "duty",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("token", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_duty")),
        sa.CheckConstraint("token >= 1", name=op.f("ck_duty_token_positive")),
    )


def create_presences() -> None:
    op.create_table(
        "presence",
        sa.Column("cluster_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("replica", sa.Text(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("heard_at", TIME, nullable=False),
        sa.Column("clock_offset_seconds", sa.Double(), nullable=False),
        sa.Column("confirmed_sequence", sa.BigInteger(), nullable=False),
        sa.Column("blind_seconds", sa.Double(), server_default="0", nullable=False),
        sa.Column("blind_reason", sa.Text(), server_default="", nullable=False),
        sa.Column("blind_message", sa.Text(), server_default="", nullable=False),
        sa.Column("skipped_objects", sa.BigInteger(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("cluster_id", name=op.f("pk_presence")),
        sa.ForeignKeyConstraint(
            ["cluster_id"],
            ["cluster.id"],
            name=op.f("fk_presence_cluster_id_cluster"),
            ondelete="CASCADE",
        ),
        prefixes=["UNLOGGED"],
    )
    op.create_table(
        "replica",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("endpoint", sa.Text(), nullable=False),
        sa.Column("heard_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_replica")),
        prefixes=["UNLOGGED"],
    )


def downgrade() -> None:
    promised = op.get_bind().scalar(sa.text("SELECT count(*) FROM reservation"))
    if promised:
        raise RuntimeError(
            f"{promised} bindings hold promises, which would be lost: the same capacity would be "
            "promised again. Release them first (fedctl release)."
        )
    for table in (
        "replica",
        "presence",
        "duty",
        "request",
        "reservation",
        "history",
        "journal_horizon",
        "journal",
        "preview",
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
