"""One scheduling cycle: filter, score, select, divide, with everything recorded.

Must not reserve, store or wait: values in, a Decision out.

    schedule(
        binding: Binding,
        fleet: Fleet,                  # federation.scheduler.fleet: Fleet.of(clusters)
        availability: Estimates,       # in the fleet's order, beside the binding's own replicas
        *,
        now: float,                    # Unix seconds
        profile: Profile = DEFAULT_PROFILE,
        surroundings: BindingContext = NO_CONTEXT,
    ) -> Decision                      # federation.scheduler.decision
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, Self

import numpy as np

from federation.model.arrays import BoolArray, IntArray, filled, read_only
from federation.model.estimate import BLIND_UP_TO, Estimates, Source
from federation.model.placement import Binding
from federation.model.readable import counted
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import NO_REASON, Amount, Reason, clauses_of, joined
from federation.model.workload import TargetCluster
from federation.scheduler.decision import Decision, Outcome
from federation.scheduler.demand import Demand
from federation.scheduler.division.apportion import TieOrder
from federation.scheduler.division.values import Division, DivisionStrategy
from federation.scheduler.fleet import Fleet
from federation.scheduler.plugins.filters import FILTERS
from federation.scheduler.plugins.profile import DEFAULT_PROFILE, Filter, Profile
from federation.scheduler.resolved_placement import Group, ResolvedPlacement, unnamed
from federation.scheduler.scarcity import (
    closed_reason,
    refusals_reason,
    unknown_reason,
    unmet_spread_texts,
    unnamed_reason,
)
from federation.scheduler.selection.spread import Selection
from federation.scheduler.stages import (
    candidate_order,
    divide_units,
    division_trace,
    holds_all,
    is_sure,
    keep_clusters,
    refused_further,
    run_filters,
    run_permits,
    run_scores,
    select_clusters,
    selection_trace,
    unsure_c,
    with_notes,
    without_notes,
)
from federation.scheduler.state import NO_CONTEXT, BindingContext, CycleState, prior_replicas
from federation.scheduler.trace import (
    DivisionTrace,
    FilterTrace,
    GroupTrial,
    InputTrace,
    ScoreTrace,
    SelectionTrace,
    Trace,
)

_CAPACITY = Filter(name="Capacity", run=FILTERS["Capacity"])
BLIND: Final = (
    "the node selector and affinity were ignored in {clusters}, whose {report_tells} no nodes apart"
)


class _Inputs(NamedTuple):
    """The inputs that all affinity groups of a binding share; ``prior_c`` in replicas (axis c)."""

    binding: Binding
    fleet: Fleet
    demand: Demand
    resolved: ResolvedPlacement
    prior_c: IntArray
    placed_c: BoolArray

    @classmethod
    def of(cls, binding: Binding, fleet: Fleet) -> Self:
        resolved = ResolvedPlacement.of(binding.placement, fleet)
        return cls(binding, fleet, Demand.of(binding), resolved, *prior_replicas(binding, fleet))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Attempt:
    """The end of one affinity group, with everything recorded on the way."""

    group: str
    outcome: Outcome
    reason: Reason
    placed: int
    remainder: int
    filtering: FilterTrace
    scoring: ScoreTrace
    selection: SelectionTrace
    division: DivisionTrace

    @property
    def is_last(self) -> bool:
        """Return whether no further affinity group is tried.

        A Duplicated binding also stays in a group that places it in part: it waits there for a
        closed cluster.
        """
        is_duplicated = self.division.strategy == DivisionStrategy.DUPLICATED
        return self.outcome is Outcome.SCHEDULED or (
            is_duplicated and self.outcome is Outcome.PARTIAL
        )

    @property
    def trial(self) -> GroupTrial:
        return GroupTrial(name=self.group, outcome=self.outcome, reason=self.reason)


def schedule(
    binding: Binding,
    fleet: Fleet,
    availability: Estimates,
    *,
    now: float,
    profile: Profile = DEFAULT_PROFILE,
    surroundings: BindingContext = NO_CONTEXT,
) -> Decision:
    """Decide where the binding's replicas go.

    ``availability`` is how many replicas (sets for a workload of several components) fit in each
    cluster beside the binding's own ones. Affinity groups are tried in order. The first one that
    takes all replicas wins, otherwise the one that places most, if the placement is partial. Raises
    PluginFailed.
    """
    inputs = _Inputs.of(binding, fleet)
    aside_c = _aside_c(inputs, availability)
    if aside_c is not None:
        noted = replace(availability, reasons=with_notes(availability.reasons, aside_c))
        surely = _decided(inputs, noted, now, profile, surroundings, ~aside_c)
        if is_sure(inputs.demand, surely, availability, aside_c, inputs.prior_c):
            return surely
        availability = replace(availability, reasons=without_notes(availability.reasons))
    return _decided(inputs, availability, now, profile, surroundings)


def _aside_c(inputs: _Inputs, availability: Estimates) -> BoolArray | None:
    """Return the clusters to set aside if others surely hold all replicas; None: no cluster.

    Placements with affinity groups or overflow tiers state the order of clusters themselves.
    """
    if len(inputs.resolved.group_names) > 1:
        return None
    aside_c = unsure_c(inputs.binding, inputs.demand, availability, inputs.placed_c)
    if aside_c is None:
        return None
    tier_c = inputs.resolved.group(0, inputs.fleet).tier_c
    aside_c = aside_c & (tier_c == 0)
    return None if (tier_c > 0).any() or not aside_c.any() else aside_c


def _decided(
    inputs: _Inputs,
    availability: Estimates,
    now: float,
    profile: Profile,
    surroundings: BindingContext,
    counting_c: BoolArray | None = None,
) -> Decision:
    """Return the decision; with a mask, clusters outside of it have no available replicas."""
    demand, resolved, fleet = inputs.demand, inputs.resolved, inputs.fleet
    available_c = ready_available_c = _available(fleet, availability)
    if counting_c is not None:
        available_c = read_only(ready_available_c * counting_c)
    attempts: list[_Attempt] = []
    if surroundings.is_settled:
        attempts += _kept(inputs, available_c, surroundings, now, profile, availability)
    for group, state in () if attempts else _states(inputs, available_c, surroundings, now):
        attempts.append(_attempt(group, resolved, state, profile, demand, availability))
        if attempts[-1].is_last:
            break
    best = max(attempts, key=_rank)
    trace = Trace(
        clusters=fleet.names,
        now=now,
        profile=profile.name,
        affinity_group=best.group,
        trials=tuple(attempt.trial for attempt in attempts),
        inputs=InputTrace(
            previous_c=_previous(inputs),
            available_c=ready_available_c,
            source_c=availability.source_c,
            bound_c=availability.bound_c,
            estimate_reasons=availability.reasons,
        ),
        filtering=best.filtering,
        scoring=best.scoring,
        selection=best.selection,
        division=best.division,
        triggers=surroundings.triggers,
        warnings=tuple(_warnings(inputs, best, availability)),
        min_available=inputs.binding.min_available or 0,
    )
    return _decision(demand, fleet, best, trace)


def room_for(
    binding: Binding,
    fleet: Fleet,
    availability: Estimates,
    *,
    now: float,
    profile: Profile = DEFAULT_PROFILE,
    surroundings: BindingContext = NO_CONTEXT,
) -> tuple[BoolArray, IntArray]:
    """Return the clusters that pass the filters, and how many more units each of them could take.

    A cluster passes in any affinity group that ``schedule`` would try; others have 0. Raises
    PluginFailed.
    """
    inputs = _Inputs.of(binding, fleet)
    available_c = _available(fleet, availability)
    passes_c = np.zeros(len(fleet), np.bool_)
    for group, state in _states(inputs, available_c, surroundings, now):
        passes_c |= run_filters(state, profile.filters, group).refusal_c < 0
    return passes_c, available_c * passes_c


def _available(fleet: Fleet, availability: Estimates) -> IntArray:
    """Return the available replicas; a cluster that is not ready, cordoned or stale has none."""
    return read_only(availability.replicas_c * fleet.ready_c)


def _states(
    inputs: _Inputs,
    available_c: IntArray,
    surroundings: BindingContext,
    now: float,
    groups: Iterable[int] | None = None,
) -> Iterator[tuple[Group, CycleState]]:
    """Yield the affinity groups to try, in order, with the state that plugins read.

    ``groups`` names other groups by position.
    """
    prior_c = inputs.demand.prior_units(inputs.prior_c, inputs.placed_c)
    if groups is None:
        groups = _groups_to_try(inputs.binding, inputs.resolved, surroundings)
    for position in groups:
        group = inputs.resolved.group(position, inputs.fleet)
        yield (
            group,
            CycleState(
                binding=inputs.binding,
                fleet=inputs.fleet,
                available_c=available_c,
                prior_c=prior_c,
                placed_c=inputs.placed_c,
                tier_c=group.tier_c,
                surroundings=surroundings,
                now=now,
            ),
        )


def _previous(inputs: _Inputs) -> IntArray:
    """Return the replicas in each cluster, -1 where the binding is not placed (axis c)."""
    if not inputs.binding.clusters:
        return filled(len(inputs.fleet), -1)
    return np.where(inputs.placed_c, inputs.prior_c, -1)


def _groups_to_try(
    binding: Binding, resolved: ResolvedPlacement, surroundings: BindingContext
) -> Iterable[int]:
    """Return positions of affinity groups, from that of the last decision on unless fresh."""
    names, observed = resolved.group_names, surroundings.observed_affinity
    first = names.index(observed) if observed in names and not binding.fresh else 0
    return range(first, len(names))


def _kept(
    inputs: _Inputs,
    available_c: IntArray,
    surroundings: BindingContext,
    now: float,
    profile: Profile,
    availability: Estimates,
) -> Sequence[_Attempt]:
    """Return the attempt that leaves a settled binding where it is; none if a cluster must not
    stay.

    The affinity group of the last decision comes first, then the others in order.
    """
    demand, resolved = inputs.demand, inputs.resolved
    names, observed = resolved.group_names, surroundings.observed_affinity
    order = sorted(range(len(names)), key=lambda position: names[position] != observed)
    for group, state in _states(inputs, available_c, surroundings, now, order):
        feasible_c = _filtered(group, state, profile, demand).refusal_c < 0
        if not holds_all(state, demand, resolved.limits, feasible_c):
            continue
        attempt = _attempt(group, resolved, state, profile, demand, availability, stays=True)
        share_c, prior_c = attempt.division.share_c, state.prior_c
        stays = share_c[state.placed_c].all() if demand.is_whole else (share_c == prior_c).all()
        if attempt.is_last and (stays or not demand.units):
            return (attempt,)
    return ()


def _rank(attempt: _Attempt) -> tuple[int, int]:
    """Return the sort key of an attempt: the highest is the answer, the first one among equals."""
    outcomes = (Outcome.NO_FIT, Outcome.UNSCHEDULABLE, Outcome.PARTIAL, Outcome.SCHEDULED)
    return outcomes.index(attempt.outcome), attempt.placed


def _decision(demand: Demand, fleet: Fleet, attempt: _Attempt, trace: Trace) -> Decision:
    clusters: tuple[TargetCluster, ...] = ()
    if attempt.outcome in {Outcome.SCHEDULED, Outcome.PARTIAL}:
        clusters = _targets(demand, fleet, attempt.division)
    return Decision(
        outcome=attempt.outcome,
        clusters=clusters,
        remainder=attempt.remainder * demand.unit_replicas,
        reason=attempt.reason,
        trace=trace,
    )


def _targets(demand: Demand, fleet: Fleet, division: DivisionTrace) -> tuple[TargetCluster, ...]:
    position_k, share_k = division.position_k, division.share_k
    if not demand.keeps_empty:
        has_replicas_k = share_k > 0
        position_k, share_k = position_k[has_replicas_k], share_k[has_replicas_k]
    order = position_k.argsort()
    replicas = (share_k[order] * demand.unit_replicas).tolist()
    return tuple(fleet.targets(position_k[order].tolist(), replicas))


def _attempt(
    group: Group,
    resolved: ResolvedPlacement,
    state: CycleState,
    profile: Profile,
    demand: Demand,
    availability: Estimates,
    *,
    stays: bool = False,
) -> _Attempt:
    """Filter, score, select and divide within one affinity group, or keep what is placed there."""
    filtering = _filtered(group, state, profile, demand)
    feasible_c = filtering.refusal_c < 0
    scoring = run_scores(state, profile.scores)
    ties = TieOrder.of(
        state.fleet.encoded_names, state.binding.resource.uid, state.binding.placement.tie_break
    )
    index_k = candidate_order(state, demand, resolved.limits, feasible_c, scoring.total_c, ties)
    selection = None
    if stays:
        selection = keep_clusters(state, demand, scoring.total_c, resolved.limits, index_k)
    if selection is None:
        selection = select_clusters(state, demand, scoring.total_c, resolved.limits, index_k)
    elif not demand.is_whole:
        demand = replace(demand, rule=replace(demand.rule, is_kept=True))
    chosen_k = index_k[selection.order_k]
    division = divide_units(state, demand, resolved, ties, chosen_k)
    outcome, reason = _ending(demand, filtering, selection, division)
    divided = division_trace(demand, division, ties, chosen_k)
    if outcome in {Outcome.SCHEDULED, Outcome.PARTIAL}:
        objection = (
            run_permits(state, profile.permits, divided.share_c * demand.unit_replicas)
            if profile.permits
            else NO_REASON
        )
        if objection:
            outcome, reason = Outcome.UNSCHEDULABLE, joined(objection, reason)
    is_placed = outcome in {Outcome.SCHEDULED, Outcome.PARTIAL}
    if outcome is not Outcome.SCHEDULED:
        closed_k = chosen_k[~state.fleet.ready_c[chosen_k]]
        details = [
            closed_reason(closed_k, state.fleet),
            refusals_reason(filtering),
            unnamed_reason(unnamed(group.affinities, state.fleet)),
        ]
        if demand.need.heeds_capacity:
            details.append(unknown_reason(availability, feasible_c))
        reason = joined(reason, *details)
    return _Attempt(
        group=group.name,
        outcome=outcome,
        reason=reason,
        placed=int(division.share_k.sum()) if is_placed else 0,
        remainder=division.missing if is_placed else demand.units,
        filtering=filtering,
        scoring=scoring,
        selection=selection_trace(selection, chosen_k),
        division=divided,
    )


def _filtered(group: Group, state: CycleState, profile: Profile, demand: Demand) -> FilterTrace:
    filtering = run_filters(state, profile.filters, group)
    if demand.in_sets:
        # A component set is never split: without capacity for one set, no component fits.
        return refused_further(state, (_CAPACITY,), filtering)
    return filtering


def _ending(
    demand: Demand, filtering: FilterTrace, selection: Selection, division: Division
) -> tuple[Outcome, Reason]:
    """Return the outcome of the stages, and the reason unless that is SCHEDULED."""
    if not (filtering.refusal_c < 0).any():
        full = any(refusal.filter == _CAPACITY.name for refusal in filtering.refusals)
        outcome = Outcome.UNSCHEDULABLE if full else Outcome.NO_FIT
        return outcome, Reason(ReasonCode.NO_CLUSTER_PASSES)
    if selection.shortage:
        outcome = Outcome.UNSCHEDULABLE if selection.lacks_capacity else Outcome.NO_FIT
        return outcome, selection.shortage
    if division.conflict:
        return Outcome.UNSCHEDULABLE, division.conflict
    if not division.missing:
        return Outcome.SCHEDULED, NO_REASON
    placed = int(division.share_k.sum())
    if demand.rule.strategy is DivisionStrategy.DUPLICATED:
        # Each cluster has all replicas: a closed cluster hinders no other.
        is_enough = placed >= demand.least
        code, amounts = ReasonCode.REPLICAS_MISSING, [Amount(division.missing)]
    else:
        is_enough = demand.partial and placed >= demand.least
        code, amounts = ReasonCode.REPLICAS_AVAILABLE, [Amount(placed), Amount(demand.units)]
    minimum = Amount(demand.least if demand.least > 1 and not is_enough else 0)
    outcome = Outcome.PARTIAL if is_enough else Outcome.UNSCHEDULABLE
    return outcome, Reason.of(code, *amounts, minimum)


def _warnings(inputs: _Inputs, best: _Attempt, availability: Estimates) -> Iterator[str]:
    """Yield parts of the binding without effect, and estimates that ignored its node selector."""
    binding = inputs.binding
    nowhere = unnamed_reason(inputs.resolved.unnamed)
    if nowhere and nowhere not in clauses_of(best.reason):
        yield str(nowhere)
    yield from unmet_spread_texts(inputs.demand.constraints, best.division, inputs.fleet)
    parts = [binding.requirements, *(component.requirements for component in binding.components)]
    if any(part.chooses_nodes for part in parts):
        source_c = availability.source_c
        is_blind_c = (source_c > Source.NONE) & (source_c <= BLIND_UP_TO)
        blind = int(np.count_nonzero(is_blind_c & (best.filtering.refusal_c < 0)))
        if blind:
            clusters = counted(blind, "cluster")
            yield BLIND.format(
                clusters=clusters, report_tells="report tells" if blind == 1 else "reports tell"
            )
