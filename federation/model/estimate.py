"""How many replicas fit: what each level answers, and how levels make one answer.

Pure. Must not know how reports travel or are stored, nor how a level arrives at its numbers.
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

# Replicas travel as int32 on every wire; no level answers more.
MAX_REPLICAS: Final = 2**31 - 1


class Source(IntEnum):
    """The level that answered, by quality. NONE: nothing could (the answer is unknown)."""

    NONE = 0
    SUMMARY = 1
    MODELS = 2
    POOLS = 3
    EXACT = 4


class Bound(IntEnum):
    """What a number is worth: nothing proven, never above the truth, or the truth."""

    NONE = 0
    LOWER = 1
    EXACT = 2


class ModelRule(StrEnum):
    """How grade counts become replicas."""

    DOCUMENTED = "documented"
    BOUNDARY = "boundary"
    SIMULATED = "simulated"


class Merge(StrEnum):
    """How levels combine: the best one that can answer, or Karmada's minimum of all."""

    QUALITY = "quality"
    MINIMUM = "minimum"


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateOptions:
    """``highest`` is the highest level that may answer; what it cannot answer falls to the next.

    Up to ``pools`` all is in memory; ``exact`` means that agents are asked. ``ignore_claims``:
    levels that cannot see nodes answer requests that choose theirs all the same.
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
    """What one level says of every cluster of a fleet, in the fleet's order (axis c).

    ``replicas_c`` (0..MAX_REPLICAS) and ``bound_c`` mean nothing where ``answered_c`` is false;
    ``reasons`` says, by cluster position, why not, where there is more to say than that the
    cluster has none of what the level needs. ``sure_c``: see Estimates.
    """

    source: Source
    replicas_c: npt.NDArray[np.int64]
    answered_c: npt.NDArray[np.bool_]
    bound_c: npt.NDArray[np.int8]
    reasons: dict[int, Reason] = field(default_factory=dict)
    sure_c: npt.NDArray[np.int64] | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Estimates:
    """One shape's answer for every cluster of a fleet, in the fleet's order (axis c).

    ``replicas_c`` is 0 where ``source_c`` is NONE (unknown): read the two together.
    ``reasons`` says, by cluster position, why a level that was asked for did not answer.
    ``upper_c`` is what fits at most, -1 where nothing is proven; None when nobody asked.
    ``sure_c`` is how many of them nodes are sure to have room for, by the lower ends of their
    grades or by pools; None where nobody reckoned that.
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
    """One answer for each cluster from those of several levels, the best level first.

    ``Merge.QUALITY`` takes each cluster's best level. ``Merge.MINIMUM`` is Karmada's: the report's
    models, or else its summary, are one estimator, every better level is another, and the least
    of them counts. A cluster no level answers for is unknown.
    """
    *better, least = answers
    estimates = _alone(least)
    for answer in reversed(better):
        estimates = improved(estimates, answer, rule)
    return estimates


def _alone(answer: LevelAnswer) -> Estimates:
    """What is known when one level was asked."""
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
    """What is known of so many clusters before any level has answered."""
    return Estimates(
        replicas_c=np.zeros(size, dtype=np.int64),
        source_c=np.zeros(size, dtype=np.int8),
        bound_c=np.zeros(size, dtype=np.int8),
        reasons={},
    )


def ignoring_claims(estimates: Estimates) -> Estimates:
    """The same for a request that chooses its nodes, saying which levels did not heed that."""
    blind_c = (estimates.source_c > Source.NONE) & (estimates.source_c <= BLIND_UP_TO)
    reasons = with_clauses(
        estimates.reasons, dict.fromkeys(np.flatnonzero(blind_c).tolist(), IGNORES_CLAIM)
    )
    # Which of the nodes may be chosen nobody sees: none is sure.
    return replace(estimates, reasons=reasons, sure_c=None)


def improved(estimates: Estimates, answer: LevelAnswer, rule: Merge) -> Estimates:
    """The estimates with a better level's answer taken where it has one; see ``merge``."""
    take_c = answer.answered_c
    if rule is Merge.MINIMUM and answer.source > Source.MODELS:
        less_c = answer.replicas_c < estimates.replicas_c
        take_c = take_c & (estimates.unknown_c | less_c)
    # Why a lesser level than the one that answered could not, nobody needs to know.
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
    """Grades and pools see nodes; totals are sure of nothing."""
    if estimates.sure_c is None and answer.sure_c is None:
        return None
    lesser_c = np.zeros_like(estimates.replicas_c) if estimates.sure_c is None else estimates.sure_c
    better_c = answer.sure_c
    if better_c is None:
        better_c = answer.replicas_c * np.int64(answer.source > BLIND_UP_TO)
    return np.where(take_c, better_c, lesser_c)


def _upper_beside(estimates: Estimates, answer: LevelAnswer) -> npt.NDArray[np.int64] | None:
    """What is exact is its own upper bound; no other level has anything to say of it."""
    if estimates.upper_c is None:
        return None
    is_exact_c = answer.answered_c & (answer.bound_c == Bound.EXACT)
    return np.where(is_exact_c, answer.replicas_c, estimates.upper_c)
