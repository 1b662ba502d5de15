"""Keep what bindings hold, the journal of changes, and what replicas tell each other.

Why: promises outlive the process that made them, and every replica must learn of them in order.
Reports are written often and read as a whole: they are kept as they are written.
Roll-out: before the code; a cluster that code of before adds later gets its capacity row with its
first report.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY, JSON, JSONB

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

NAME = sa.Text(collation="C")
TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    give_every_cluster_a_version()
    keep_reports_as_they_are_written()
    create_journal()
    create_reservations()
    create_requests()
    create_duties()
    create_presences()
    let_replicas_have_credentials()


def give_every_cluster_a_version() -> None:
    op.alter_column("cluster_capacity", "received_at", nullable=True)
    op.execute("""
        INSERT INTO cluster_capacity (cluster_id, version, epoch, sequence)
        SELECT id, 1, 0, 0 FROM cluster ON CONFLICT DO NOTHING
    """)


def keep_reports_as_they_are_written() -> None:
    op.alter_column("cluster_report", "body", type_=JSON(), postgresql_using="body::json")


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


def let_replicas_have_credentials() -> None:
    op.drop_constraint(op.f("ck_credential_kind_known"), "credential")
    op.create_check_constraint(
        op.f("ck_credential_kind_known"), "credential", "kind IN ('admin', 'agent', 'replica')"
    )


def downgrade() -> None:
    promised = op.get_bind().scalar(sa.text("SELECT count(*) FROM reservation"))
    if promised:
        raise RuntimeError(
            f"{promised} bindings hold promises, which the release before cannot keep: it would "
            "promise the same capacity again. Release them first (fedctl release)."
        )
    op.alter_column("cluster_report", "body", type_=JSONB(), postgresql_using="body::jsonb")
    op.execute("DELETE FROM credential WHERE kind = 'replica'")
    op.drop_constraint(op.f("ck_credential_kind_known"), "credential")
    op.create_check_constraint(
        op.f("ck_credential_kind_known"), "credential", "kind IN ('admin', 'agent')"
    )
    for table in (
        "replica",
        "presence",
        "duty",
        "request",
        "reservation",
        "journal_horizon",
        "journal",
    ):
        op.drop_table(table)
    op.execute("DELETE FROM cluster_capacity WHERE received_at IS NULL")
    op.alter_column("cluster_capacity", "received_at", nullable=False)
