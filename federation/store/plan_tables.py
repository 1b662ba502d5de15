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
    Column(
        "id",
        BigInteger,
        Identity(always=True),
        primary_key=True,
        comment="Number of the plan, by which people call it.",
    ),
    Column("state", Text, nullable=False, comment="draft, running, done or stopped."),
    Column("created_at", TIME, nullable=False, comment="Time at which it was made."),
    Column("body", JSONB, nullable=False, comment="The plan without its steps, with a version v."),
    CheckConstraint("state IN ('draft', 'running', 'done', 'stopped')", name="state_known"),
    Index("ix_plan_running", "id", postgresql_where=text("state = 'running'")),
    comment="Plans of rebalancing, consolidation and drains.",
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
        comment="The plan; the row goes with it.",
    ),
    Column(
        "number",
        BigInteger,
        primary_key=True,
        autoincrement=False,
        comment="Number of the step, from 1 on.",
    ),
    Column("state", Text, nullable=False, comment="pending, moving, done, skipped or failed."),
    Column(
        "version",
        BigInteger,
        nullable=False,
        comment="Version of the plan when the step last changed.",
    ),
    Column("body", JSONB, nullable=False, comment="The step, with a version v."),
    CheckConstraint(
        "state IN ('pending', 'moving', 'done', 'skipped', 'failed')", name="state_known"
    ),
    Index("ix_plan_step_moving", "plan_id", postgresql_where=text("state = 'moving'")),
    comment="Steps of plans.",
)
