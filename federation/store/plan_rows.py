"""Row structs of plans and their steps.

Must not decide anything about a plan.
"""

from __future__ import annotations

from typing import Final

import msgspec

from federation.history.rows import Document, DocumentPart, Documents, always
from federation.history.workload_rows import TargetRow
from federation.plans.plan import Plan, PlanKind, PlanState, PlanStep, StepState


class PlanStepRow(Document, frozen=True, kw_only=True):
    """``plan_step.body``: a ``PlanStep``. Studies read its message in SQL."""

    number: int
    namespace: str
    name: str
    before: tuple[TargetRow, ...]
    after: tuple[TargetRow, ...]
    reason: str
    state: StepState = StepState.PENDING
    message: str = always("")
    leaves_group: str = ""
    began_at: float | None = None
    ended_at: float | None = None
    version: int = 1


class UnfixedRow(DocumentPart, frozen=True, kw_only=True):
    """An ``Unfixed``."""

    namespace: str
    name: str
    replicas: int
    reason: str


class GainRow(DocumentPart, frozen=True, kw_only=True):
    """A ``Gain``."""

    wanted: int
    moved: int
    bound: int
    unit: str = always("replicas")


class PlanLimitsRow(DocumentPart, frozen=True, kw_only=True):
    """A ``PlanLimits``."""

    moves_at_once: int = 10
    moves_per_cluster: int = 0
    most_moves: int = always(5000)
    moved_percent: int = 100
    selector: dict[str, str] = msgspec.field(default_factory=dict)
    headroom_percent: int = 20
    tolerance_percent: int = 5


class PlanRow(Document, frozen=True, kw_only=True):
    """``plan.body``: a ``Plan``. SQL removes ``unfixed`` for lists."""

    id: int
    kind: PlanKind
    clusters: tuple[str, ...]
    limits: PlanLimitsRow
    step_count: int
    gain: GainRow
    unfixed: tuple[UnfixedRow, ...] = always(())
    unfixed_count: int = 0
    created_at: float
    created_by: str
    state: PlanState = PlanState.DRAFT
    approved_at: float | None = None
    approved_by: str = ""
    ended_at: float | None = None
    ended_by: str = ""
    reason: str = ""
    version: int = 1


PLANS: Final = Documents(Plan, PlanRow, "plans")
PLAN_STEPS: Final = Documents(PlanStep, PlanStepRow, "steps of plans")
