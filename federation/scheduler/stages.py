"""The stages of a cycle, each from the cycle's state to the record of what it found.

Must not know how stages follow each other or how a cycle ends: that is the cycle's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from federation.model.placement import SpreadField, StaticWeight, TieBreak
from federation.scheduler.arrays import BoolArray, FloatArray, IntArray
from federation.scheduler.demand import Demand
from federation.scheduler.division import Candidates, Division, Strategy, divide
from federation.scheduler.fleet import Column, Fleet
from federation.scheduler.placement import matching
from federation.scheduler.profile import Filter, Permit, Score
from federation.scheduler.running import objection_by, refusals_by, scores_by
from federation.scheduler.spread import Selection, Shortlist, select
from federation.scheduler.state import CycleState
from federation.scheduler.ties import TieOrder
from federation.scheduler.trace import (
    DivisionTrace,
    FilterTrace,
    Refusal,
    ScoreTrace,
    SelectionTrace,
)

_NO_CEILING = 2**62


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Limits:
    """The least and most units of each cluster (axis c)."""

    floor_c: IntArray
    ceiling_c: IntArray


def run_filters(state: CycleState, filters: Sequence[Filter]) -> FilterTrace:
    """The first refusal of each cluster, in the order of the filters."""
    refusal_c = np.full(len(state.fleet), -1, dtype=np.int64)
    refusals: list[Refusal] = []
    for plugin in filters:
        for refused_c, reason in refusals_by(plugin, state):
            newly_c = refused_c & (refusal_c < 0)
            if newly_c.any():
                refusal_c[newly_c] = len(refusals)
                refusals.append(Refusal(filter=plugin.name, reason=reason))
    return FilterTrace(refusals=tuple(refusals), refusal_c=refusal_c, tier_c=state.tier_c)


def run_scores(state: CycleState, scores: Sequence[Score]) -> ScoreTrace:
    """Every plugin's scores and their weighted mean, rounded down."""
    by_name = {plugin.name: scores_by(plugin, state) for plugin in scores}
    total_c = np.zeros(len(state.fleet), np.int64)
    for plugin in scores:
        total_c += by_name[plugin.name] * plugin.weight
    weight = sum(plugin.weight for plugin in scores)
    return ScoreTrace(
        weights={plugin.name: plugin.weight for plugin in scores},
        scores=by_name,
        total_c=total_c // max(weight, 1),
    )


def run_permits(state: CycleState, permits: Sequence[Permit], replicas_c: IntArray) -> str:
    """The first objection to the shares, with the plugin that has it; "" when none has."""
    for plugin in permits:
        objection = objection_by(plugin, state, replicas_c)
        if objection:
            return f"{plugin.name}: {objection}"
    return ""


def candidate_order(
    state: CycleState, demand: Demand, feasible_c: BoolArray, score_c: IntArray, ties: TieOrder
) -> IntArray:
    """Feasible clusters by tier, score, capacity for the binding, and the tie order.

    By name where no order can change the answer: hashing thousands of names takes its time.
    """
    (index_k,) = np.nonzero(feasible_c)
    if not demand.is_ranked:
        return index_k
    order = np.lexsort(
        (
            ties.ascending_keys(index_k),
            -state.capacity_c[index_k],
            -score_c[index_k],
            state.tier_c[index_k],
        )
    )
    return index_k[order]


def limits_of(state: CycleState) -> Limits:
    """The placement's limits: of several that match a cluster the tightest hold."""
    floor_c = np.zeros(len(state.fleet), np.int64)
    ceiling_c = np.full(len(state.fleet), _NO_CEILING, dtype=np.int64)
    for limit in state.binding.placement.replica_scheduling.limits:
        mask_c = matching(limit.target, state.fleet)
        np.maximum(floor_c, limit.min, out=floor_c, where=mask_c)
        if limit.max is not None:
            np.minimum(ceiling_c, limit.max, out=ceiling_c, where=mask_c)
    return Limits(floor_c=floor_c, ceiling_c=ceiling_c)


def select_clusters(
    state: CycleState, demand: Demand, score_c: IntArray, limits: Limits, index_k: IntArray
) -> Selection:
    """Choose among the candidates; positions are those of ``index_k``."""
    shortlist = Shortlist(
        score_k=score_c[index_k],
        capacity_k=np.minimum(state.capacity_c, limits.ceiling_c)[index_k],
        groups={
            constraint.by: _groups(state.fleet, constraint.by, index_k)
            for constraint in demand.constraints
            if constraint.by is not SpreadField.CLUSTER
        },
    )
    return select(shortlist, demand.constraints, demand.need)


def _groups(fleet: Fleet, by: SpreadField, index_k: IntArray) -> Column[tuple[str, ...]]:
    if by is SpreadField.ZONE:
        return Column(code_c=fleet.zones.code_c[index_k], values=fleet.zones.values)
    column = fleet.region if by is SpreadField.REGION else fleet.provider
    values = tuple((value,) if value else () for value in column.values)
    return Column(code_c=column.code_c[index_k], values=values)


def divide_units(
    state: CycleState, demand: Demand, limits: Limits, ties: TieOrder, chosen_k: IntArray
) -> Division:
    """Divide the demand among the chosen clusters (positions in the fleet)."""
    scheduling = state.binding.placement.replica_scheduling
    if demand.rule.strategy is Strategy.STATIC_WEIGHT and scheduling.static_weights:
        weight_k = _static_weights(state.fleet, scheduling.static_weights)[chosen_k]
    else:
        weight_k = np.ones(len(chosen_k), np.int64)
    candidates = Candidates(
        available_k=state.available_c[chosen_k],
        prior_k=state.prior_c[chosen_k],
        weight_k=weight_k,
        floor_k=limits.floor_c[chosen_k],
        ceiling_k=limits.ceiling_c[chosen_k],
        listed_k=_listed(state, chosen_k),
        tie_keys=lambda position_k: ties.keys(chosen_k[position_k]),
    )
    return divide(demand.rule, candidates, state.tier_c[chosen_k], demand.units)


def _listed(state: CycleState, chosen_k: IntArray) -> IntArray:
    """Under Karmada's tie break where the binding lists each cluster, else candidate order."""
    if state.binding.placement.tie_break is not TieBreak.KARMADA:
        return np.arange(len(chosen_k))
    listed_c = np.full(len(state.fleet), len(state.binding.clusters), dtype=np.int64)
    for position, target in enumerate(state.binding.clusters):
        if target.name in state.fleet.index:
            listed_c[state.fleet.index[target.name]] = position
    return listed_c[chosen_k]


def _static_weights(fleet: Fleet, rules: Sequence[StaticWeight]) -> IntArray:
    """The highest weight of the rules that match each cluster, 0 where none does."""
    weight_c = np.zeros(len(fleet), np.int64)
    for rule in rules:
        np.maximum(weight_c, rule.weight, out=weight_c, where=matching(rule.target, fleet))
    return weight_c


def selection_trace(selection: Selection, chosen_k: IntArray) -> SelectionTrace:
    """What was selected, in positions of the fleet."""
    return SelectionTrace(
        rule=selection.rule,
        order_k=chosen_k,
        group_scores=selection.group_scores,
        proven=selection.proven,
    )


def division_trace(
    demand: Demand, division: Division, ties: TieOrder, chosen_k: IntArray
) -> DivisionTrace:
    """The division spread out over the whole fleet."""
    count = len(ties.encoded_names)

    def whole_fleet(part_k: IntArray) -> IntArray:
        all_c = np.zeros(count, np.int64)
        all_c[chosen_k] = part_k
        return all_c

    quota_c: FloatArray = np.zeros(count)
    quota_c[chosen_k] = division.quota_k
    return DivisionTrace(
        strategy=demand.rule.strategy,
        tie_order=ties.direction,
        tiers=division.facts,
        weight_c=whole_fleet(division.weight_k),
        quota_c=quota_c,
        share_c=whole_fleet(division.share_k),
        remainder_c=whole_fleet(division.remainder_k),
        tied_c=whole_fleet(division.tied_k.astype(np.int64)).astype(np.bool_),
    )
