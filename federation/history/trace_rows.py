"""Row structs of decisions and of their traces.

Must not know in which bodies they stand. Columns of a trace are arrays in the structs too, and
reasons are reasons: an encoder needs `plain_part_of` as its hook, a decoder `part_of`.
"""

from __future__ import annotations

from typing import Any, Final, get_args

import msgspec
import numpy as np

from federation.history.rows import DocumentPart, Rows, plain_reason, reason_of
from federation.history.workload_rows import TargetRow
from federation.model.arrays import BoolArray, FloatArray, IntArray, LevelArray, plain_column
from federation.model.reasons import Reason
from federation.scheduler.decision import Decision, Outcome
from federation.scheduler.trace import Trace


class InputTraceRow(DocumentPart, frozen=True, kw_only=True):
    """An ``InputTrace``."""

    previous_c: IntArray
    available_c: IntArray
    source_c: LevelArray
    bound_c: LevelArray
    estimate_reasons: dict[int, Reason]


class RefusalRow(DocumentPart, frozen=True, kw_only=True):
    """A ``Refusal``."""

    filter: str
    reason: Reason


class FilterTraceRow(DocumentPart, frozen=True, kw_only=True):
    """A ``FilterTrace``."""

    refusals: tuple[RefusalRow, ...]
    refusal_c: IntArray
    tier_c: IntArray


class ScoreTraceRow(DocumentPart, frozen=True, kw_only=True):
    """A ``ScoreTrace``."""

    weights: dict[str, int]
    scores: dict[str, IntArray]
    total_c: IntArray


class SelectionTraceRow(DocumentPart, frozen=True, kw_only=True):
    """A ``SelectionTrace``."""

    rule: str
    order_k: IntArray
    group_scores: dict[str, int]
    proven: bool


class TierFactsRow(DocumentPart, frozen=True, kw_only=True):
    """A ``TierFacts``."""

    mode: str
    wanted: int
    target: int
    available: int
    candidates: int


def _no_levels() -> LevelArray:
    return np.zeros(0, dtype=np.int8)


class DivisionTraceRow(DocumentPart, frozen=True, kw_only=True):
    """A ``DivisionTrace``."""

    strategy: str
    tie_order: str
    tiers: tuple[TierFactsRow, ...]
    cluster_count: int
    position_k: IntArray
    weight_k: IntArray
    quota_k: FloatArray
    share_k: IntArray
    remainder_k: IntArray
    tied_k: BoolArray
    limit_k: LevelArray = msgspec.field(default_factory=_no_levels)


class GroupTrialRow(DocumentPart, frozen=True, kw_only=True):
    """A ``GroupTrial``."""

    name: str
    outcome: str
    reason: Reason


class TraceRow(DocumentPart, frozen=True, kw_only=True):
    """A ``Trace``. A body that shares the clusters' names with others leaves them out here."""

    clusters: tuple[str, ...] = ()
    now: float
    profile: str
    affinity_group: str
    trials: tuple[GroupTrialRow, ...]
    inputs: InputTraceRow
    filtering: FilterTraceRow
    scoring: ScoreTraceRow
    selection: SelectionTraceRow
    division: DivisionTraceRow
    triggers: tuple[Reason, ...] = ()
    warnings: tuple[str, ...] = ()
    min_available: int = 0
    preempted: tuple[Reason, ...] = ()
    algorithm_revision: int


class DecisionRow(DocumentPart, frozen=True, kw_only=True):
    """A ``Decision``."""

    outcome: Outcome
    clusters: tuple[TargetRow, ...]
    remainder: int
    reason: Reason
    trace: TraceRow


def part_of(kind: Any, plain: Any) -> Any:
    """Return a stored reason, or the array of a stored column of the type that its struct declares.

    Raises ValueError or TypeError, from which a decoder makes a ValidationError.
    """
    if kind is Reason:
        return reason_of(kind, plain)
    try:
        column = np.array(plain, dtype=get_args(get_args(kind)[1])[0])
    except OverflowError as error:
        raise ValueError(str(error)) from error
    if column.ndim != 1:
        raise ValueError(f"a column has {column.ndim} dimensions")
    return column


def plain_part_of(part: object) -> str | list[Any]:
    """Return a reason as text, and a column with its floats rounded. Raises TypeError."""
    return plain_column(part) if isinstance(part, np.ndarray) else plain_reason(part)


TRACES: Final = Rows(Trace, TraceRow, "traces")
DECISIONS: Final = Rows(Decision, DecisionRow, "decisions")
