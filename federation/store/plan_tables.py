"""The schema as declared, of plans.

Must not create anything: the migrations do.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Identity,
    Index,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from federation.store.tables import TIME, metadata

# The newest has the highest id; people call plans by it. Bodies have named fields.
plan = Table(
    "plan",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("state", Text, nullable=False),
    Column("created_at", TIME, nullable=False),
    Column("body", JSONB, nullable=False),
    CheckConstraint("state IN ('draft', 'running', 'done', 'stopped')", name="state_known"),
    Index("ix_plan_running", "id", postgresql_where=text("state = 'running'")),
)

plan_step = Table(
    "plan_step",
    metadata,
    Column(
        "plan_id",
        BigInteger,
        ForeignKey("plan.id", ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
    ),
    # From 1 on.
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("state", Text, nullable=False),
    # The plan's, when the step last changed.
    Column("version", BigInteger, nullable=False),
    Column("body", JSONB, nullable=False),
    CheckConstraint(
        "state IN ('pending', 'moving', 'done', 'skipped', 'failed')", name="state_known"
    ),
    Index("ix_plan_step_moving", "plan_id", postgresql_where=text("state = 'moving'")),
)
