"""The stages of a cycle: filter, score, order, select, divide; each returns its record.

Must not know the order of the stages or how a cycle ends: that is the cycle's. Clusters that surely
hold a replica come before those whose grade counts say only "maybe".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Final

import numpy as np

from federation.model.arrays import BoolArray, IntArray, filled, read_only
from federation.model.estimate import Estimates, Source, with_clauses
from federation.model.placement import Binding, SpreadField, TieBreak
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import NO_REASON, SET_ASIDE, Reason, has_code, without_code
from federation.scheduler.decision import Decision, Outcome
from federation.scheduler.demand import Demand
from federation.scheduler.division.apportion import Direction, TieOrder
from federation.scheduler.division.strategies import divide
from federation.scheduler.division.values import Candidates, Division, DivisionStrategy
from federation.scheduler.fleet import Column, Fleet
from federation.scheduler.plugins.filters import CACHED_FILTERS
from federation.scheduler.plugins.profile import Filter, Permit, Score
from federation.scheduler.plugins.run import is_in_tree, objection_by, refusals_by, scores_by
from federation.scheduler.resolved_placement import CachedRefusals, Group, Limits, ResolvedPlacement
from federation.scheduler.selection.spread import Selection, Shortlist, keep, select
from federation.scheduler.state import CycleState
from federation.scheduler.trace import (
    DivisionTrace,
    FilterTrace,
    Refusal,
    ScoreTrace,
    SelectionTrace,
)


def run_filters(state: CycleState, filters: Sequence[Filter], group: Group) -> FilterTrace:
    """Return the first refusal of each cluster, in the order of the filters."""
    binding = state.binding
    if binding.clusters or binding.eviction_tasks or state.surroundings.has_peers:
        return refused_further(state, filters, _none_refused(state))
    cached = group.cached_refusals(
        filters, binding.resource, state.now, lambda: _cacheable_refusals(state, filters)
    )
    return refused_further(state, cached.rest, cached.refused)


def _cacheable_refusals(state: CycleState, filters: Sequence[Filter]) -> CachedRefusals:
    first = list(
        takewhile(lambda plugin: plugin.name in CACHED_FILTERS and is_in_tree(plugin), filters)
    )
    return CachedRefusals(
        refused=refused_further(state, first, _none_refused(state)),
        rest=tuple(filters[len(first) :]),
    )


def _none_refused(state: CycleState) -> FilterTrace:
    return FilterTrace(refusals=(), refusal_c=filled(len(state.fleet), -1), tier_c=state.tier_c)


def refused_further(
    state: CycleState, filters: Sequence[Filter], earlier: FilterTrace
) -> FilterTrace:
    """Return earlier refusals with those of further filters."""
    refusal_c, refusals = earlier.refusal_c, list(earlier.refusals)
    for plugin in filters:
        for refused_c, reason in refusals_by(plugin, state):
            newly_c = refused_c & (refusal_c < 0)
            if newly_c.any():
                refusal_c = np.where(newly_c, len(refusals), refusal_c)
                refusals.append(Refusal(filter=plugin.name, reason=reason))
    if refusal_c is earlier.refusal_c:
        return earlier
    return replace(earlier, refusals=tuple(refusals), refusal_c=read_only(refusal_c))


def run_scores(state: CycleState, scores: Sequence[Score]) -> ScoreTrace:
    """Return the scores of every plugin, and their weighted mean rounded down."""
    by_name = {plugin.name: scores_by(plugin, state) for plugin in scores}
    return ScoreTrace(
        weights={plugin.name: plugin.weight for plugin in scores},
        scores=by_name,
        total_c=_weighted_mean(
            [(by_name[plugin.name], plugin.weight) for plugin in scores if plugin.weight],
            len(state.fleet),
        ),
    )


def _weighted_mean(weighted: Sequence[tuple[IntArray, int]], count: int) -> IntArray:
    if len(weighted) == 1:
        return weighted[0][0]
    total_c = np.zeros(count, np.int64)
    for score_c, weight in weighted:
        total_c += score_c * weight
    return total_c // max(sum(weight for _, weight in weighted), 1)


def run_permits(state: CycleState, permits: Sequence[Permit], replicas_c: IntArray) -> Reason:
    """Return the first objection of a permit plugin to the shares; NO_REASON without one."""
    for plugin in permits:
        objection = objection_by(plugin, state, replicas_c)
        if objection:
            return objection
    return NO_REASON


def candidate_order(
    state: CycleState,
    demand: Demand,
    limits: Limits,
    feasible_c: BoolArray,
    score_c: IntArray,
    ties: TieOrder,
) -> IntArray:
    """Return feasible clusters by tier, score, capacity for the binding, and the tie order.

    They are by name if their order cannot change the answer, because hashing thousands of names is
    slow.
    """
    (index_k,) = feasible_c.nonzero()
    if not demand.is_ranked:
        return index_k
    capacity_k = state.capacity_c[index_k]
    score_k, tier_k = score_c[index_k], state.tier_c[index_k]
    order = np.lexsort((-capacity_k, -score_k, tier_k))
    if ties.direction is not Direction.HASH:
        # Karmada's candidate order is by ascending name, which is the fleet's order.
        return index_k[order]
    capacity_k, score_k, tier_k = capacity_k[order], score_k[order], tier_k[order]
    differs_k = capacity_k[1:] != capacity_k[:-1]
    differs_k |= score_k[1:] != score_k[:-1]
    differs_k |= tier_k[1:] != tier_k[:-1]
    return ties.settled(index_k[order], differs_k, _selectable_count(demand, limits, capacity_k))


def _selectable_count(demand: Demand, limits: Limits, capacity_k: IntArray) -> int:
    """Return how many candidates can be selected, whatever the order among equals.

    If the first ``max_groups`` clusters of a single constraint hold all units, no further one is
    selected. Otherwise all are considered.
    """
    count = len(capacity_k)
    if limits.are_set or len(demand.constraints) != 1:
        return count
    (constraint,) = demand.constraints
    if constraint.by is not SpreadField.CLUSTER or constraint.max_groups is None:
        return count
    selectable = min(constraint.max_groups, count)
    return selectable if int(capacity_k[:selectable].sum()) >= demand.need.total else count


def holds_all(state: CycleState, demand: Demand, limits: Limits, feasible_c: BoolArray) -> bool:
    """Return whether the binding may stay in its clusters and has all its units there."""
    running_c = state.placed_c if demand.is_whole else state.prior_c > 0
    is_known = int(state.placed_c.sum()) == len(state.binding.clusters)
    if not is_known or not running_c.any() or not feasible_c[running_c].all():
        return False
    prior_k = state.prior_c[running_c]
    if demand.is_whole:
        return bool((prior_k == demand.units).all())
    is_within = limits.floor_c[running_c] <= prior_k
    is_within &= prior_k <= limits.ceiling_c[running_c]
    return int(prior_k.sum()) == demand.units and bool(is_within.all())


def keep_clusters(
    state: CycleState, demand: Demand, score_c: IntArray, limits: Limits, index_k: IntArray
) -> Selection | None:
    """Select the clusters that hold the binding; None if constraints do not allow them.

    An object that goes to each cluster as a whole also goes to further clusters, unless it would
    leave one.
    """
    shortlist = _shortlist(state, demand, score_c, limits, index_k)
    running_c = state.placed_c if demand.is_whole else state.prior_c > 0
    (running_k,) = running_c[index_k].nonzero()
    if demand.is_whole:
        chosen = select(shortlist, demand.constraints, demand.need)
        if np.isin(running_k, chosen.order_k).all():
            return chosen
    return keep(shortlist, demand.constraints, running_k)


def select_clusters(
    state: CycleState, demand: Demand, score_c: IntArray, limits: Limits, index_k: IntArray
) -> Selection:
    """Select among the candidates; positions are those of ``index_k``."""
    shortlist = _shortlist(state, demand, score_c, limits, index_k)
    return select(shortlist, demand.constraints, demand.need)


def _shortlist(
    state: CycleState, demand: Demand, score_c: IntArray, limits: Limits, index_k: IntArray
) -> Shortlist:
    return Shortlist(
        score_k=score_c[index_k],
        capacity_k=np.minimum(state.capacity_c, limits.ceiling_c)[index_k],
        groups={
            constraint.by: _groups(state.fleet, constraint.by, index_k)
            for constraint in demand.constraints
            if constraint.by is not SpreadField.CLUSTER
        },
    )


def _groups(fleet: Fleet, by: SpreadField, index_k: IntArray) -> Column[tuple[str, ...]]:
    if by is SpreadField.ZONE:
        return Column(code_c=fleet.zones.code_c[index_k], values=fleet.zones.values)
    column = fleet.region if by is SpreadField.REGION else fleet.provider
    values = tuple((value,) if value else () for value in column.values)
    return Column(code_c=column.code_c[index_k], values=values)


def divide_units(
    state: CycleState,
    demand: Demand,
    resolved: ResolvedPlacement,
    ties: TieOrder,
    chosen_k: IntArray,
) -> Division:
    """Divide the demand among the selected clusters (positions in the fleet)."""
    prior_k, closed_k = state.prior_c[chosen_k], ~state.fleet.ready_c[chosen_k]
    floor_k, ceiling_k = resolved.limits.floor_c[chosen_k], resolved.limits.ceiling_c[chosen_k]
    if closed_k.any():
        floor_k = np.where(closed_k, np.minimum(floor_k, prior_k), floor_k)
        ceiling_k = np.where(closed_k, np.minimum(ceiling_k, prior_k), ceiling_k)
    candidates = Candidates(
        available_k=state.available_c[chosen_k],
        prior_k=prior_k,
        weight_k=resolved.weight_c[chosen_k],
        floor_k=floor_k,
        ceiling_k=ceiling_k,
        listed_k=_listed(state, chosen_k),
        tie_keys=lambda position_k: ties.keys(chosen_k[position_k]),
        closed_k=closed_k,
    )
    return divide(demand.rule, candidates, state.tier_c[chosen_k], demand.units)


def _listed(state: CycleState, chosen_k: IntArray) -> IntArray:
    """Return the order among equals: Karmada's is that of the binding's clusters, else candidate
    order.
    """
    if state.binding.placement.tie_break is not TieBreak.KARMADA:
        return np.arange(len(chosen_k))
    listed_c = np.full(len(state.fleet), len(state.binding.clusters), dtype=np.int64)
    for position, target in enumerate(state.binding.clusters):
        if target.name in state.fleet.index:
            listed_c[state.fleet.index[target.name]] = position
    return listed_c[chosen_k]


def selection_trace(selection: Selection, chosen_k: IntArray) -> SelectionTrace:
    """Return the record of a selection, in positions of the fleet."""
    return SelectionTrace(
        rule=selection.rule,
        order_k=chosen_k,
        group_scores=selection.group_scores,
        proven=selection.proven,
    )


def division_trace(
    demand: Demand, division: Division, ties: TieOrder, chosen_k: IntArray
) -> DivisionTrace:
    """Return the record of a division, in positions of the fleet."""
    return DivisionTrace(
        strategy=demand.rule.strategy,
        tie_order=ties.direction,
        tiers=division.facts,
        cluster_count=len(ties.encoded_names),
        position_k=chosen_k,
        weight_k=division.weight_k,
        quota_k=division.quota_k,
        share_k=division.share_k,
        remainder_k=division.remainder_k,
        tied_k=division.tied_k,
        limit_k=division.limit_k,
    )


_RANKING: Final = {
    DivisionStrategy.DYNAMIC_WEIGHT,
    DivisionStrategy.AGGREGATED,
    DivisionStrategy.FILL_FIRST,
}


def unsure_c(
    binding: Binding, demand: Demand, availability: Estimates, placed_c: BoolArray
) -> BoolArray | None:
    """Return the clusters that may hold a replica and surely hold none; None if there is none.

    Only replicas that are divided by capacity are concerned. A cluster that holds the binding
    already is not unsure.
    """
    if binding.placement.tie_break is TieBreak.KARMADA or demand.rule.strategy not in _RANKING:
        return None
    mask_c = np.zeros(len(placed_c), np.bool_)
    if availability.sure_c is None:
        mask_c[
            [c for c, why in availability.reasons.items() if has_code(why, ReasonCode.SET_ASIDE)]
        ] = True
    else:
        mask_c = (availability.source_c == Source.MODELS) & (availability.sure_c == 0)
        mask_c &= (availability.replicas_c > 0) & ~placed_c
    return mask_c if mask_c.any() else None


def with_notes(reasons: Mapping[int, Reason], aside_c: BoolArray) -> dict[int, Reason]:
    """Return the reasons of estimates, by position, after clusters were set aside."""
    noted = without_notes(reasons)
    aside = dict.fromkeys(np.flatnonzero(aside_c).tolist(), SET_ASIDE)
    # The clause stands before other clauses of the same cluster.
    behind = {c: why for c, why in noted.items() if c in aside}
    return noted | with_clauses(aside, behind)


def without_notes(reasons: Mapping[int, Reason]) -> dict[int, Reason]:
    """Return the reasons of estimates when no cluster is set aside."""
    values = {why: without_code(why, ReasonCode.SET_ASIDE) for why in set(reasons.values())}
    return {c: values[why] for c, why in reasons.items() if values[why]}


def is_sure(
    demand: Demand,
    decision: Decision,
    availability: Estimates,
    aside_c: BoolArray,
    prior_c: IntArray,
) -> bool:
    """Return whether the decision without the clusters set aside stands.

    It stands if all replicas are placed, the added ones surely fit, and no constraint counts a
    cluster that is set aside.
    """
    trace = decision.trace
    if decision.outcome is not Outcome.SCHEDULED:
        return False
    counts_groups = any(constraint.min_groups > 1 for constraint in demand.constraints)
    if counts_groups and aside_c[trace.selection.order_k].any():
        return False
    if availability.sure_c is None:
        return True
    position_k, share_k = trace.division.position_k, trace.division.share_k
    added_k = share_k - prior_c[position_k]
    is_added_k = added_k > 0
    # Without an added replica no cluster was set aside.
    return bool(is_added_k.any() and (added_k <= availability.sure_c[position_k])[is_added_k].all())
