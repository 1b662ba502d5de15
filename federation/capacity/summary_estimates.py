"""The levels every report can feed: totals of the cluster, and node counts by grade.

Pure, whole-array. Must not look at nodes, selectors or pools: these two levels cannot see them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from federation.capacity.fleet_reports import FleetCapacity
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

# What Karmada's simulation takes as the pod slots of every node it makes up.
PODS_PER_SIMULATED_NODE: Final = 110

# The rule that counts what the lower ends of grades hold, and no more.
SURE_RULE: Final = ModelRule.BOUNDARY
NOT_REPORTED: Final = Reason(ReasonCode.NOT_REPORTED)

# Shapes times clusters reckoned at once: more would leave a core's own cache.
NUMBERS_AT_ONCE: Final = 50_000

_Minimums = Mapping[str, Sequence[int]]
_Int64Array: TypeAlias = npt.NDArray[np.int64]


def estimate_replicas(
    capacity: FleetCapacity, requirements: ReplicaRequirements, options: EstimateOptions
) -> Estimates:
    """How many replicas fit into every cluster, from summaries and grade counts alone."""
    return estimate_shapes(capacity, [requirements], options)[0]


def estimate_shapes(
    capacity: FleetCapacity, shapes: Sequence[ReplicaRequirements], options: EstimateOptions
) -> list[Estimates]:
    """The same for each of many shapes; those that ask for the same resources go together.

    Estimates may share arrays, which are not to be written to.
    """
    if not options.ignore_claims and any(each.chooses_nodes for each in shapes):
        return _seen(capacity, shapes, options)
    requests = [positive_amounts(each) for each in shapes]
    if options.highest < Source.MODELS:
        return [merge([summary_level(capacity, each)], options.merge) for each in requests]
    alike: dict[frozenset[str], list[int]] = {}
    for position, request in enumerate(requests):
        alike.setdefault(frozenset(request), []).append(position)
    found: dict[int, Estimates] = {}
    at_once = max(1, NUMBERS_AT_ONCE // max(1, len(capacity)))
    for positions in alike.values():
        for start in range(0, len(positions), at_once):
            some = positions[start : start + at_once]
            together = _graded_or_summed(capacity, [requests[each] for each in some], options)
            found.update(zip(some, together, strict=True))
    return [found[position] for position in range(len(shapes))]


def _seen(
    capacity: FleetCapacity, shapes: Sequence[ReplicaRequirements], options: EstimateOptions
) -> list[Estimates]:
    """Unknown for shapes that choose their nodes, which these levels cannot see."""
    others = [each for each in shapes if not each.chooses_nodes]
    answered = iter(estimate_shapes(capacity, others, options))
    unseen = merge([without_nodes(summary_level(capacity, {}))], options.merge)
    return [unseen if each.chooses_nodes else next(answered) for each in shapes]


def without_nodes(answer: LevelAnswer) -> LevelAnswer:
    """What a level that cannot see nodes says where a request chooses its own: nothing."""
    reported = np.flatnonzero(answer.answered_c).tolist()
    return replace(
        answer,
        answered_c=np.zeros_like(answer.answered_c),
        reasons={**answer.reasons, **dict.fromkeys(reported, CANNOT_SEE_NODES)},
    )


def _graded_or_summed(
    capacity: FleetCapacity, requests: Sequence[Mapping[str, int]], options: EstimateOptions
) -> list[Estimates]:
    """By models, and by summaries where those cannot answer; all ask for the same resources."""
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
        reasons=dict.fromkeys(unreported, NOT_REPORTED),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GradedAnswers:
    """What grade counts say of shapes (axis s) that ask for the same resources; see LevelAnswer."""

    replicas_sc: _Int64Array
    sure_sc: _Int64Array
    answered_c: npt.NDArray[np.bool_]
    bound_c: npt.NDArray[np.int8]
    reasons: dict[int, Reason]

    def of(self, place: int) -> LevelAnswer:
        """The level ``models`` for one of the shapes."""
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
    """Nodes by grade times what a node of the grade takes, at most the free pod slots.

    Answers where grade counts can be used and their model has every requested resource, which are
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


def _graded(fit_sg: _Int64Array, count_gc: npt.NDArray[np.float64]) -> _Int64Array:
    """Replicas on the nodes of all grades. Only floats multiply fast: see FleetCapacity."""
    total_sc = fit_sg.astype(np.float64) @ count_gc
    return np.minimum(total_sc, MAX_REPLICAS, out=total_sc).astype(np.int64)


def fits_by_grade(
    requests: Sequence[Mapping[str, int]], grade_minimums: _Minimums, rule: ModelRule
) -> _Int64Array:
    """What one node of every grade takes of each request, 0..MAX_REPLICAS, by one of the rules.

    Requests ask for the same resources, at least one, and amounts above 0; ``grade_minimums`` are
    the lower ends of the grades for all of those.
    """
    amount_rs = np.array([[each[name] for each in requests] for name in requests[0]], np.int64)
    minimum_rg = np.array([grade_minimums[name] for name in requests[0]], np.int64)
    fit_sg = MODEL_RULES[rule](amount_rs, minimum_rg)
    return np.minimum(fit_sg, MAX_REPLICAS, out=fit_sg)


def _documented(amount_rs: _Int64Array, minimum_rg: _Int64Array) -> _Int64Array:
    """From the grade the request falls in: at least one, as some of its nodes can take it."""
    fit_sg = np.maximum(_fits_into_minimums(amount_rs, minimum_rg), 1)
    first_s = _first_grades(amount_rs, minimum_rg, "right") - 1
    return _from_grade(first_s, fit_sg)


def _boundary(amount_rs: _Int64Array, minimum_rg: _Int64Array) -> _Int64Array:
    """From the first grade whose minimums hold the request: Karmada 1.12 to 1.17."""
    fit_sg = _fits_into_minimums(amount_rs, minimum_rg)
    return _from_grade(_first_grades(amount_rs, minimum_rg, "left"), fit_sg)


def _simulated(amount_rs: _Int64Array, minimum_rg: _Int64Array) -> _Int64Array:
    """First fit onto nodes of exactly the grade's minimums, in closed form: Karmada from 1.18."""
    return np.minimum(_fits_into_minimums(amount_rs, minimum_rg), PODS_PER_SIMULATED_NODE)


def _fits_into_minimums(amount_rs: _Int64Array, minimum_rg: _Int64Array) -> _Int64Array:
    fit_sg: _Int64Array = minimum_rg[0] // amount_rs[0][:, np.newaxis]
    for amount_s, minimum_g in zip(amount_rs[1:], minimum_rg[1:], strict=True):
        np.minimum(fit_sg, minimum_g // amount_s[:, np.newaxis], out=fit_sg)
    return fit_sg


def _first_grades(
    amount_rs: _Int64Array, minimum_rg: _Int64Array, side: Literal["left", "right"]
) -> _Int64Array:
    """Each shape's place among the grades' lower ends, the highest of its resources'."""
    place_rs = [
        np.searchsorted(minimum_g, amount_s, side)
        for amount_s, minimum_g in zip(amount_rs, minimum_rg, strict=True)
    ]
    first_s: _Int64Array = np.max(place_rs, axis=0)
    return first_s


def _from_grade(first_s: _Int64Array, fit_sg: _Int64Array) -> _Int64Array:
    """The fits without those in grades below each shape's first one."""
    fit_sg[np.arange(fit_sg.shape[1]) < first_s[:, np.newaxis]] = 0
    return fit_sg


# Each says what one node of every grade (axis g) takes of each shape (axis s), given amounts above
# 0 and the lower ends of the grades by resource (axis r).
MODEL_RULES: Final[Mapping[ModelRule, Callable[[_Int64Array, _Int64Array], _Int64Array]]] = {
    ModelRule.DOCUMENTED: _documented,
    ModelRule.BOUNDARY: _boundary,
    ModelRule.SIMULATED: _simulated,
}
