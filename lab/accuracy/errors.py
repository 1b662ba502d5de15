"""Errors of answers against the truth, and how well clusters are ranked by them.

Must not know where answers come from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from lab.accuracy.measure import Answers
from lab.fleets import Int64Array

# One shape that only a handful fits of would rule every mean.
WORST_ERROR = 10.0

Method: TypeAlias = Callable[[Answers], Int64Array]


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Relative errors where something fits, as shares; ``over`` is of all answers."""

    median: float
    mean: float
    p95: float
    bias: float
    over: float
    says_none: float
    count: int

    def __str__(self) -> str:
        return (
            f"{self.median:8.2%} {self.mean:8.2%} {self.p95:9.2%} {self.bias:+9.2%} "
            f"{self.over:8.2%} {self.says_none:8.2%}"
        )


def errors(results: Iterable[Answers], method: Method, shapes: slice) -> Errors:
    """Errors of a method over the given clusters and shapes."""
    results = list(results)
    answer = np.concatenate([method(each)[shapes] for each in results])
    truth = np.concatenate([each.truth_s[shapes] for each in results])
    fits = truth > 0
    signed = (answer[fits] - truth[fits]) / truth[fits]
    error = np.minimum(np.abs(signed), WORST_ERROR)
    return Errors(
        median=float(np.median(error)),
        mean=float(error.mean()),
        p95=float(np.percentile(error, 95)),
        bias=float(np.median(signed)),
        over=float((answer > truth).mean()),
        says_none=float((answer[fits] == 0).mean()),
        count=len(truth),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """How clusters are ordered and weighed by answers, over shapes that fit somewhere.

    ``correlation`` and ``worst_misplaced`` are of the worst shape, ``best_pick`` is the median of
    what the cluster ranked first truly holds over what the best one does, ``misplaced`` the median
    share of weight that goes to the wrong clusters.
    """

    correlation: float
    best_pick: float
    misplaced: float
    worst_misplaced: float


def ranking(results: Sequence[Answers], method: Method, shapes: slice) -> Ranking:
    """Rank and weigh the clusters by a method, shape after shape."""
    answer_cs = np.stack([method(each)[shapes] for each in results])
    truth_cs = np.stack([each.truth_s[shapes] for each in results])
    correlations, picks, misplaced = [], [], []
    for answer_c, truth_c in zip(answer_cs.T, truth_cs.T, strict=True):
        if np.ptp(truth_c) == 0 or answer_c.max() == 0:
            continue
        correlations.append(np.corrcoef(_ranks(answer_c), _ranks(truth_c))[0, 1])
        picks.append(truth_c[answer_c.argmax()] / truth_c.max())
        weights = answer_c / answer_c.sum() - truth_c / truth_c.sum()
        misplaced.append(np.abs(weights).sum() / 2)
    return Ranking(
        correlation=float(np.min(correlations)),
        best_pick=float(np.median(picks)),
        misplaced=float(np.median(misplaced)),
        worst_misplaced=float(np.max(misplaced)),
    )


def _ranks(values: Int64Array) -> npt.NDArray[np.float64]:
    """Ranks from 0, the mean of them among equals (Spearman's)."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    mean_rank = np.cumsum(count) - (count + 1) / 2
    ranks: npt.NDArray[np.float64] = mean_rank[place]
    return ranks
