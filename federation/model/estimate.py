"""Estimates of how many replicas fit: the answer of each level, and their combination.

Pure. Must not know how reports are sent or stored, nor how a level computes its numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from typing import Final

import numpy as np
import numpy.typing as npt

from federation.model.reason_codes import ReasonCode
from federation.model.reasons import Reason, joined

# Replicas are int32 in every protocol; higher answers are cut.
MAX_REPLICAS: Final = 2**31 - 1


class Source(IntEnum):
    """The level that answered, by quality. NONE: none could answer, the number is unknown."""

    NONE = 0
    SUMMARY = 1
    MODELS = 2
    POOLS = 3
    EXACT = 4


class Bound(IntEnum):
    """The worth of a number: nothing proven, never above the truth, or the truth."""

    NONE = 0
    LOWER = 1
    EXACT = 2


class ModelRule(StrEnum):
    """The rule that turns grade counts into replicas."""

    DOCUMENTED = "documented"
    BOUNDARY = "boundary"
    SIMULATED = "simulated"


class Merge(StrEnum):
    """The combination of levels: the best one that can answer, or Karmada's minimum of all."""

    QUALITY = "quality"
    MINIMUM = "minimum"


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateOptions:
    """``highest`` is the highest level that may answer; a lower one answers where it cannot.

    Levels up to ``pools`` are in memory; ``exact`` asks agents. ``ignore_claims``: levels that do
    not see nodes also answer requests with a node claim.
    """

    model_rule: ModelRule = ModelRule.DOCUMENTED
    merge: Merge = Merge.QUALITY
    highest: Source = Source.POOLS
    ignore_claims: bool = False


# Levels up to this one know totals and counts of nodes, not their labels.
BLIND_UP_TO: Final = Source.MODELS
IGNORES_CLAIM: Final = Reason(ReasonCode.NODE_CHOICE_IGNORED)
CANNOT_SEE_NODES: Final = Reason(ReasonCode.NODES_UNSEEN)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LevelAnswer:
    """The answer of one level for every cluster, in the fleet's order (axis c).

    ``replicas_c`` (0..MAX_REPLICAS) and ``bound_c`` mean nothing where ``answered_c`` is false.
    ``reasons`` says why not, by cluster position, unless the cluster only lacks what the level
    needs. ``sure_c``: see Estimates.
    """

    source: Source
    replicas_c: npt.NDArray[np.int64]
    answered_c: npt.NDArray[np.bool_]
    bound_c: npt.NDArray[np.int8]
    reasons: dict[int, Reason] = field(default_factory=dict)
    sure_c: npt.NDArray[np.int64] | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Estimates:
    """The answer for one shape in every cluster, in the fleet's order (axis c).

    ``replicas_c`` is 0 where ``source_c`` is NONE (unknown): read the two together. ``reasons``
    says by cluster position why a level did not answer. ``upper_c`` is an upper bound, -1 where
    none is proven; None if it was not asked for. ``sure_c`` are the replicas that surely fit on
    nodes, by the lower ends of grades or by pools; None if that was not computed.
    """

    replicas_c: npt.NDArray[np.int64]
    source_c: npt.NDArray[np.int8]
    bound_c: npt.NDArray[np.int8]
    reasons: dict[int, Reason]
    upper_c: npt.NDArray[np.int64] | None = None
    sure_c: npt.NDArray[np.int64] | None = None

    @property
    def unknown_c(self) -> npt.NDArray[np.bool_]:
        unknown_c: npt.NDArray[np.bool_] = self.source_c == Source.NONE
        return unknown_c


def merge(answers: Sequence[LevelAnswer], rule: Merge) -> Estimates:
    """Combine the answers of several levels, the best level first.

    ``Merge.QUALITY`` takes each cluster's best level. ``Merge.MINIMUM`` is Karmada's: the report's
    models, or else its summary, are one estimator and every better level is another; the minimum
    counts. A cluster without an answer is unknown.
    """
    *better, lowest = answers
    estimates = _alone(lowest)
    for answer in reversed(better):
        estimates = improved(estimates, answer, rule)
    return estimates


def _alone(answer: LevelAnswer) -> Estimates:
    """Return the estimates of a single level."""
    size = len(answer.replicas_c)
    source_c = np.empty(size, dtype=np.int8)
    source_c.fill(int(answer.source))
    if answer.answered_c.all():
        return Estimates(
            replicas_c=answer.replicas_c,
            source_c=source_c,
            bound_c=answer.bound_c,
            reasons=dict(answer.reasons),
            sure_c=answer.sure_c,
        )
    return improved(unknown(size), answer, Merge.QUALITY)


def unknown(size: int) -> Estimates:
    """Return the estimates of clusters before any level has answered."""
    return Estimates(
        replicas_c=np.zeros(size, dtype=np.int64),
        source_c=np.zeros(size, dtype=np.int8),
        bound_c=np.zeros(size, dtype=np.int8),
        reasons={},
    )


def ignoring_claims(estimates: Estimates) -> Estimates:
    """Return the estimates of a request with a node claim, noting the levels that ignored it."""
    blind_c = (estimates.source_c > Source.NONE) & (estimates.source_c <= BLIND_UP_TO)
    reasons = with_clauses(
        estimates.reasons, dict.fromkeys(np.flatnonzero(blind_c).tolist(), IGNORES_CLAIM)
    )
    # These levels do not see which nodes suit the claim: no replica surely fits.
    return replace(estimates, reasons=reasons, sure_c=None)


def improved(estimates: Estimates, answer: LevelAnswer, rule: Merge) -> Estimates:
    """Return the estimates with the answer of a better level where it has one; see ``merge``."""
    take_c = answer.answered_c
    if rule is Merge.MINIMUM and answer.source > Source.MODELS:
        less_c = answer.replicas_c < estimates.replicas_c
        take_c = take_c & (estimates.unknown_c | less_c)
    # Reasons of levels below the one that answered are dropped.
    lesser = {c: reason for c, reason in estimates.reasons.items() if not take_c[c]}
    reasons = with_clauses(answer.reasons, lesser)
    return Estimates(
        replicas_c=np.where(take_c, answer.replicas_c, estimates.replicas_c),
        source_c=np.where(take_c, np.int8(answer.source), estimates.source_c),
        bound_c=np.where(take_c, answer.bound_c, estimates.bound_c),
        reasons=reasons,
        upper_c=_upper_beside(estimates, answer),
        sure_c=_sure_beside(estimates, answer, take_c),
    )


def with_clauses(reasons: Mapping[int, Reason], clauses: Mapping[int, Reason]) -> dict[int, Reason]:
    """Return the reasons by position with more clauses behind them; equal pairs share a value."""
    both = dict(reasons)
    values: dict[tuple[Reason, Reason], Reason] = {}
    for position, clause in clauses.items():
        reason = both.get(position)
        if reason is None:
            both[position] = clause
            continue
        pair = reason, clause
        if pair not in values:
            values[pair] = joined(reason, clause)
        both[position] = values[pair]
    return both


def _sure_beside(
    estimates: Estimates, answer: LevelAnswer, take_c: npt.NDArray[np.bool_]
) -> npt.NDArray[np.int64] | None:
    """Return the replicas that surely fit: grades and pools see nodes, totals do not."""
    if estimates.sure_c is None and answer.sure_c is None:
        return None
    lesser_c = np.zeros_like(estimates.replicas_c) if estimates.sure_c is None else estimates.sure_c
    better_c = answer.sure_c
    if better_c is None:
        better_c = answer.replicas_c * np.int64(answer.source > BLIND_UP_TO)
    return np.where(take_c, better_c, lesser_c)


def _upper_beside(estimates: Estimates, answer: LevelAnswer) -> npt.NDArray[np.int64] | None:
    """Return the upper bounds: an exact answer is its own, other levels have none."""
    if estimates.upper_c is None:
        return None
    is_exact_c = answer.answered_c & (answer.bound_c == Bound.EXACT)
    return np.where(is_exact_c, answer.replicas_c, estimates.upper_c)
