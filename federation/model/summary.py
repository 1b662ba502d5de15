"""The levels every report can feed: totals of the cluster, and node counts by grade.

Pure, whole-array. Must not look at nodes, selectors or pools: these two levels cannot see them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from federation.model.capacity import FleetCapacity
from federation.model.estimate import (
    MAX_REPLICAS,
    EstimateOptions,
    Estimates,
    LevelAnswer,
    ModelRule,
    Source,
    merge,
)
from federation.model.workload import ReplicaRequirements

# What Karmada's simulation takes as the pod slots of every node it makes up.
PODS_PER_SIMULATED_NODE: Final = 110

_Minimums = Mapping[str, Sequence[int]]


def estimate_replicas(
    capacity: FleetCapacity, requirements: ReplicaRequirements, options: EstimateOptions
) -> Estimates:
    """How many replicas fit into every cluster, from summaries and grade counts alone."""
    request = positive_amounts(requirements)
    if options.highest < Source.MODELS:
        return merge([summary_level(capacity, request)], options.merge)
    models = models_level(capacity, request, options.model_rule)
    if models.answered_c.all():
        return merge([models], options.merge)
    return merge([models, summary_level(capacity, request)], options.merge)


def positive_amounts(requirements: ReplicaRequirements) -> dict[str, int]:
    """What a replica asks for without its zeros: asking for nothing is no request."""
    return {name: amount for name, amount in requirements.request.items() if amount > 0}


def summary_level(capacity: FleetCapacity, request: Mapping[str, int]) -> LevelAnswer:
    """Free totals over the request, at most the free pod slots; 0 where a resource is absent."""
    replicas_c = capacity.free_pods_c
    for name, amount in request.items():
        free_c = capacity.free(name)
        if free_c is None:
            replicas_c[:] = 0
        else:
            np.minimum(replicas_c, free_c // amount, out=replicas_c)
    np.maximum(replicas_c, 0, out=replicas_c)
    reported_c = capacity.reported_c
    unreported = () if reported_c.all() else np.flatnonzero(~reported_c).tolist()
    return LevelAnswer(
        source=Source.SUMMARY,
        replicas_c=replicas_c,
        answered_c=reported_c,
        bound_c=np.zeros(len(capacity), dtype=np.int8),
        reasons=dict.fromkeys(unreported, "the cluster has not reported yet"),
    )


def models_level(
    capacity: FleetCapacity, request: Mapping[str, int], rule: ModelRule
) -> LevelAnswer:
    """Nodes by grade times what a node of the grade takes, at most the free pod slots.

    Answers where grade counts can be used and their model has every requested resource.
    """
    answered_c = capacity.model_c >= 0
    fits_by_grade = MODEL_RULES[rule]
    reasons = dict(capacity.ungraded)
    fit_mg = np.zeros((len(capacity.models), capacity.count_cg.shape[1]), dtype=np.float64)
    for position, model in enumerate(capacity.models):
        lacking = sorted(request.keys() - model.minimums.keys())
        if lacking:
            affected_c = answered_c & (capacity.model_c == position)
            answered_c = answered_c & ~affected_c
            reason = f"the resource model lacks {', '.join(lacking)}"
            reasons |= dict.fromkeys(np.flatnonzero(affected_c).tolist(), reason)
        elif request:
            fits = fits_by_grade(request, model.minimums)
            fit_mg[position, : len(fits)] = fits
    replicas_c = capacity.free_pods_c
    if request:
        np.minimum(replicas_c, _graded_replicas(capacity, fit_mg), out=replicas_c)
    return LevelAnswer(
        source=Source.MODELS,
        replicas_c=replicas_c,
        answered_c=answered_c,
        bound_c=np.zeros(len(capacity), dtype=np.int8),
        reasons=reasons,
    )


def _graded_replicas(
    capacity: FleetCapacity, fit_mg: npt.NDArray[np.float64]
) -> npt.NDArray[np.int64]:
    if len(fit_mg) == 1:
        total_c = capacity.count_cg @ fit_mg[0]
    else:
        # UNMODELLED picks the last model, harmlessly: those clusters have no counts.
        total_c = np.einsum("cg,cg->c", capacity.count_cg, fit_mg[capacity.model_c])
    replicas_c: npt.NDArray[np.int64] = np.minimum(total_c, MAX_REPLICAS).astype(np.int64)
    return replicas_c


def _documented(request: Mapping[str, int], grade_minimums: _Minimums) -> list[int]:
    """From the grade the request falls in: at least one, as some of its nodes can take it."""
    first = max(bisect_right(grade_minimums[name], request[name]) - 1 for name in request)
    fits = _fits_into_minimums(request, grade_minimums)
    return [0] * first + [fit or 1 for fit in fits[first:]]


def _boundary(request: Mapping[str, int], grade_minimums: _Minimums) -> list[int]:
    """From the first grade whose minimums hold the request: Karmada 1.12 to 1.17."""
    first = max(bisect_left(grade_minimums[name], request[name]) for name in request)
    return [0] * first + _fits_into_minimums(request, grade_minimums)[first:]


def _simulated(request: Mapping[str, int], grade_minimums: _Minimums) -> list[int]:
    """First fit onto nodes of exactly the grade's minimums, in closed form: Karmada from 1.18."""
    fits = _fits_into_minimums(request, grade_minimums)
    return [min(fit, PODS_PER_SIMULATED_NODE) for fit in fits]


def _fits_into_minimums(request: Mapping[str, int], grade_minimums: _Minimums) -> list[int]:
    # Asked once a shape and model: plain loops over a dozen numbers, but tight ones.
    (name, amount), *others = request.items()
    fits = [minimum // amount for minimum in grade_minimums[name]]
    for name, amount in others:
        fits = list(map(min, fits, [minimum // amount for minimum in grade_minimums[name]]))
    return [min(fit, MAX_REPLICAS) for fit in fits]


# Each says what one node of every grade takes of a request (amounts above 0), 0..MAX_REPLICAS,
# given the lower ends of the grades for all of its resources.
MODEL_RULES: Final[Mapping[ModelRule, Callable[[Mapping[str, int], _Minimums], list[int]]]] = {
    ModelRule.DOCUMENTED: _documented,
    ModelRule.BOUNDARY: _boundary,
    ModelRule.SIMULATED: _simulated,
}
