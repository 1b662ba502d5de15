"""The levels ``summary`` and ``models``: estimates from cluster totals, and nodes by grade.

Pure, whole-array. Must not look at nodes, selectors or pools, which these levels do not have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np

from federation.capacity.fleet_reports import FleetCapacity
from federation.model.arrays import BoolArray, FloatArray, IntArray, LevelArray
from federation.model.estimate import (
    CANNOT_SEE_NODES,
    MAX_REPLICAS,
    EstimateOptions,
    Estimates,
    LevelAnswer,
    ModelRule,
    Source,
    merge,
)
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import Reason, Word
from federation.model.workload import ReplicaRequirements

# Pod slots of a simulated node, as in Karmada's simulation.
PODS_PER_SIMULATED_NODE: Final = 110

# Counts replicas that surely fit: nodes of a grade have its lower end at least.
SURE_RULE: Final = ModelRule.BOUNDARY
NOT_REPORTED: Final = Reason(ReasonCode.NOT_REPORTED)

# Shapes times clusters of one pass: their numbers fit a core's cache.
NUMBERS_AT_ONCE: Final = 50_000

_Minimums = Mapping[str, Sequence[int]]


def estimate_replicas(
    capacity: FleetCapacity, requirements: ReplicaRequirements, options: EstimateOptions
) -> Estimates:
    """Estimate one shape from summaries and grade counts."""
    return estimate_shapes(capacity, [requirements], options)[0]


def estimate_shapes(
    capacity: FleetCapacity, shapes: Sequence[ReplicaRequirements], options: EstimateOptions
) -> list[Estimates]:
    """Estimate many shapes; those that ask for the same resources are computed together.

    Estimates may share arrays, which are read-only by convention.
    """
    if not options.ignore_claims and any(shape.chooses_nodes for shape in shapes):
        return _seen(capacity, shapes, options)
    requests = [positive_amounts(shape) for shape in shapes]
    if options.highest < Source.MODELS:
        return [merge([summary_level(capacity, request)], options.merge) for request in requests]
    by_resources: dict[frozenset[str], list[int]] = {}
    for position, request in enumerate(requests):
        by_resources.setdefault(frozenset(request), []).append(position)
    estimates: dict[int, Estimates] = {}
    at_once = max(1, NUMBERS_AT_ONCE // max(1, len(capacity)))
    for positions in by_resources.values():
        for start in range(0, len(positions), at_once):
            some = positions[start : start + at_once]
            some_requests = [requests[position] for position in some]
            answers = _graded_or_summed(capacity, some_requests, options)
            estimates.update(zip(some, answers, strict=True))
    return [estimates[position] for position in range(len(shapes))]


def _seen(
    capacity: FleetCapacity, shapes: Sequence[ReplicaRequirements], options: EstimateOptions
) -> list[Estimates]:
    """Answer shapes that choose their nodes with unknown, because these levels see no nodes."""
    choosing_none = [shape for shape in shapes if not shape.chooses_nodes]
    answered = iter(estimate_shapes(capacity, choosing_none, options))
    unseen = merge([without_nodes(summary_level(capacity, {}))], options.merge)
    return [unseen if shape.chooses_nodes else next(answered) for shape in shapes]


def without_nodes(answer: LevelAnswer) -> LevelAnswer:
    """Withdraw the answer of a level that sees no nodes, for a request that chooses its nodes."""
    reported = np.flatnonzero(answer.answered_c).tolist()
    return replace(
        answer,
        answered_c=np.zeros_like(answer.answered_c),
        reasons={**answer.reasons, **dict.fromkeys(reported, CANNOT_SEE_NODES)},
    )


def _graded_or_summed(
    capacity: FleetCapacity, requests: Sequence[Mapping[str, int]], options: EstimateOptions
) -> list[Estimates]:
    """Estimate by models, else by summaries; all requests have the same resources."""
    graded = models_level(capacity, requests, options.model_rule)
    if graded.answered_c.all():
        source_c = np.full(len(capacity), Source.MODELS, dtype=np.int8)
        return [
            Estimates(
                replicas_c=replicas_c,
                source_c=source_c,
                bound_c=graded.bound_c,
                reasons=graded.reasons,
                sure_c=sure_c,
            )
            for replicas_c, sure_c in zip(graded.replicas_sc, graded.sure_sc, strict=True)
        ]
    return [
        merge([graded.of(place), summary_level(capacity, request)], options.merge)
        for place, request in enumerate(requests)
    ]


def positive_amounts(requirements: ReplicaRequirements) -> dict[str, int]:
    """Return the request without zeros, because an amount of 0 asks for nothing."""
    return {name: amount for name, amount in requirements.request.items() if amount > 0}


def summary_level(capacity: FleetCapacity, request: Mapping[str, int]) -> LevelAnswer:
    """Divide free totals by the request, at most free pod slots; 0 without a resource."""
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
        reasons=dict.fromkeys(unreported, NOT_REPORTED),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GradedAnswers:
    """Answers of grade counts for shapes (axis s) with the same resources; see LevelAnswer."""

    replicas_sc: IntArray
    sure_sc: IntArray
    answered_c: BoolArray
    bound_c: LevelArray
    reasons: dict[int, Reason]

    def of(self, place: int) -> LevelAnswer:
        """Return the answer of the level ``models`` for one shape."""
        return LevelAnswer(
            source=Source.MODELS,
            replicas_c=self.replicas_sc[place],
            answered_c=self.answered_c,
            bound_c=self.bound_c,
            reasons=self.reasons,
            sure_c=self.sure_sc[place],
        )


def models_level(
    capacity: FleetCapacity, requests: Sequence[Mapping[str, int]], rule: ModelRule
) -> GradedAnswers:
    """Multiply nodes by grade with what a node of the grade holds; at most free pod slots.

    Answers where grade counts can be used and their model has all requested resources, which are
    the same in all requests.
    """
    names = requests[0].keys()
    answered_c = capacity.model_c >= 0
    reasons = dict(capacity.ungraded)
    replicas_sc = np.tile(capacity.free_pods_c, (len(requests), 1))
    totals = {rule: replicas_sc}
    if rule is ModelRule.DOCUMENTED:
        totals[SURE_RULE] = replicas_sc.copy()
    for position, model in enumerate(capacity.models):
        of_model_c = capacity.model_c == position
        lacking = sorted(names - model.minimums.keys())
        if lacking:
            answered_c = answered_c & ~of_model_c
            reason = Reason.of(ReasonCode.MODEL_LACKS_RESOURCES, tuple(map(Word, lacking)))
            reasons |= dict.fromkeys(np.flatnonzero(of_model_c).tolist(), reason)
        elif names:
            for by_rule, total_sc in totals.items():
                fit_sg = fits_by_grade(requests, model.minimums, by_rule)
                count_gc = capacity.count_cg[:, : fit_sg.shape[1]].T
                if of_model_c.all():
                    np.minimum(total_sc, _graded(fit_sg, count_gc), out=total_sc)
                else:
                    graded_sc = _graded(fit_sg, count_gc[:, of_model_c])
                    total_sc[:, of_model_c] = np.minimum(total_sc[:, of_model_c], graded_sc)
    return GradedAnswers(
        replicas_sc=replicas_sc,
        sure_sc=totals.get(SURE_RULE, replicas_sc),
        answered_c=answered_c,
        bound_c=np.zeros(len(capacity), dtype=np.int8),
        reasons=reasons,
    )


def _graded(fit_sg: IntArray, count_gc: FloatArray) -> IntArray:
    """Return the replicas on the nodes of all grades. Only floats multiply fast: FleetCapacity."""
    total_sc = fit_sg.astype(np.float64) @ count_gc
    return np.minimum(total_sc, MAX_REPLICAS, out=total_sc).astype(np.int64)


def fits_by_grade(
    requests: Sequence[Mapping[str, int]], grade_minimums: _Minimums, rule: ModelRule
) -> IntArray:
    """Return how many replicas a node of each grade holds by a rule, 0..MAX_REPLICAS.

    All requests have the same resources, at least one, and positive amounts. ``grade_minimums``
    are the lower ends of the grades for all of these.
    """
    amount_rs = np.array(
        [[request[name] for request in requests] for name in requests[0]], np.int64
    )
    minimum_rg = np.array([grade_minimums[name] for name in requests[0]], np.int64)
    fit_sg = MODEL_RULES[rule](amount_rs, minimum_rg)
    return np.minimum(fit_sg, MAX_REPLICAS, out=fit_sg)


def _documented(amount_rs: IntArray, minimum_rg: IntArray) -> IntArray:
    """Count from the grade of the request on: at least 1, because some of its nodes hold it."""
    fit_sg = np.maximum(_fits_into_minimums(amount_rs, minimum_rg), 1)
    first_s = _first_grades(amount_rs, minimum_rg, "right") - 1
    return _from_grade(first_s, fit_sg)


def _boundary(amount_rs: IntArray, minimum_rg: IntArray) -> IntArray:
    """Count from the first grade whose minimums hold the request: Karmada 1.12 to 1.17."""
    fit_sg = _fits_into_minimums(amount_rs, minimum_rg)
    return _from_grade(_first_grades(amount_rs, minimum_rg, "left"), fit_sg)


def _simulated(amount_rs: IntArray, minimum_rg: IntArray) -> IntArray:
    """Pack nodes with the grade's minimums first fit, in closed form: Karmada from 1.18."""
    return np.minimum(_fits_into_minimums(amount_rs, minimum_rg), PODS_PER_SIMULATED_NODE)


def _fits_into_minimums(amount_rs: IntArray, minimum_rg: IntArray) -> IntArray:
    fit_sg: IntArray = minimum_rg[0] // amount_rs[0][:, np.newaxis]
    for amount_s, minimum_g in zip(amount_rs[1:], minimum_rg[1:], strict=True):
        np.minimum(fit_sg, minimum_g // amount_s[:, np.newaxis], out=fit_sg)
    return fit_sg


def _first_grades(
    amount_rs: IntArray, minimum_rg: IntArray, side: Literal["left", "right"]
) -> IntArray:
    """Return the place of each shape among the lower ends, the highest over its resources."""
    place_rs = [
        np.searchsorted(minimum_g, amount_s, side)
        for amount_s, minimum_g in zip(amount_rs, minimum_rg, strict=True)
    ]
    first_s: IntArray = np.max(place_rs, axis=0)
    return first_s


def _from_grade(first_s: IntArray, fit_sg: IntArray) -> IntArray:
    """Set the fits to 0 in grades below the first one of each shape."""
    fit_sg[np.arange(fit_sg.shape[1]) < first_s[:, np.newaxis]] = 0
    return fit_sg


# Functions of positive amounts and the grades' lower ends by resource (axis r). They return how
# many replicas of a shape (axis s) a node of a grade (axis g) holds.
MODEL_RULES: Final[Mapping[ModelRule, Callable[[IntArray, IntArray], IntArray]]] = {
    ModelRule.DOCUMENTED: _documented,
    ModelRule.BOUNDARY: _boundary,
    ModelRule.SIMULATED: _simulated,
}
