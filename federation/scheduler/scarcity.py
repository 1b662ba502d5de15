"""The reason why a binding could not be scheduled, with numbers, and the resource that is scarce.

Must not decide: it reads what the stages recorded. Must not estimate: a callback counts the
replicas that fit by one resource alone. That cost is spent on decisions that failed alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import (
    Callable,
    Collection,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    Sequence,
)
from dataclasses import replace
from typing import Final

import numpy as np

from federation.model.arrays import BoolArray, IntArray
from federation.model.estimate import Estimates
from federation.model.placement import Binding, SpreadConstraint, SpreadField
from federation.model.readable import plural
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import (
    NO_REASON,
    NO_REASONS,
    Amount,
    ClusterName,
    Reason,
    Word,
    clauses_of,
    counted,
)
from federation.model.resources import PODS
from federation.model.workload import (
    NodeClaim,
    ReplicaRequirements,
    Toleration,
    TolerationOperator,
)
from federation.scheduler.decision import Decision, Outcome
from federation.scheduler.demand import Demand
from federation.scheduler.division.values import DivisionStrategy
from federation.scheduler.fleet import Fleet
from federation.scheduler.trace import DivisionTrace, FilterTrace

# Estimates how many more units of a binding fit in each cluster.
Estimating = Callable[[Binding], Estimates]

_CAPACITY: Final = "Capacity"
_MAX_NOTES: Final = 3
# Clauses that say how many replicas lack a place, and give no cause.
_COUNTED: Final = frozenset(
    {
        ReasonCode.REPLICAS_AVAILABLE,
        ReasonCode.REPLICAS_MISSING,
        ReasonCode.SPREAD_TOO_SMALL,
    }
)
_ANY_NODE: Final = NodeClaim(tolerations=(Toleration(operator=TolerationOperator.EXISTS),))


def with_scarcity(
    decision: Decision,
    binding: Binding,
    estimating: Estimating,
    *,
    refused: Collection[int] = (),
    untold: Collection[int] = (),
    stuck: Mapping[int, Reason] = NO_REASONS,
    remembered: MutableMapping[Hashable, Reason] | None = None,
) -> Decision:
    """Add to the reason which resource is scarce, if the decision failed for lack of capacity.

    ``refused`` are the clusters (positions) without capacity for their shares. Clusters in
    ``untold`` are left out. ``stuck`` names by position the bindings whose promises lost their
    capacity. ``remembered`` caches answers for other bindings, as long as the estimates are the
    same.
    """
    lacking_c = _lacking(decision, binding, refused)
    lacking_c[list(untold)] = 0
    scarce = _remembered_scarcity(binding, lacking_c, estimating, remembered)
    notes = [note for position, note in stuck.items() if lacking_c[position]]
    return decision.explained(scarce, *notes[:_MAX_NOTES])


def short_of(decision: Decision) -> Reason:
    """Name in one clause what the replicas without a place lack; the decision has all clauses."""
    clauses = clauses_of(decision.reason)
    for clause in clauses:
        match clause:
            case Reason(ReasonCode.SHORT_OF, (Reason() as scarce,)):
                return scarce
            case _:
                pass
    refusal_c = decision.trace.filtering.refusal_c
    if len(refusal_c) and (refusal_c >= 0).all():
        code, count = Counter(refusal_c.tolist()).most_common(1)[0]
        reason = decision.trace.filtering.refusals[code].reason
        amounts = Amount(count), Amount(len(refusal_c))
        return Reason.of(ReasonCode.SUITABLE_CLUSTERS, reason, *amounts)
    first, *further = clauses or (NO_REASON,)
    return further[0] if further and first.code in _COUNTED else first


def _lacking(decision: Decision, binding: Binding, refused: Collection[int]) -> IntArray:
    """Return how many more units each cluster would need (axis c), 0 where capacity is not the
    problem.
    """
    trace, units = decision.trace, Demand.of(binding).units
    share_c = trace.division.share_c
    wanted_c = np.zeros_like(share_c)
    if refused:
        wanted_c[list(refused)] = share_c[list(refused)]
    elif (
        decision.outcome is Outcome.UNSCHEDULABLE
        and not binding.placement.replica_scheduling.limits
        # All units are divided if the cause was the objection of a plugin.
        and int(share_c.sum()) < units
    ):
        filters = [refusal.filter for refusal in trace.filtering.refusals]
        passes = np.array([*(name == _CAPACITY for name in filters), True])
        wanted_c[passes[trace.filtering.refusal_c]] = units
    has_c = trace.inputs.previous_c
    if binding.components:
        has_c = (has_c >= 0).astype(np.int64)
    lacking_c: IntArray = np.maximum(wanted_c - np.maximum(has_c, 0), 0)
    return lacking_c


def _remembered_scarcity(
    binding: Binding,
    lacking_c: IntArray,
    estimating: Estimating,
    remembered: MutableMapping[Hashable, Reason] | None,
) -> Reason:
    """Return the scarcity, from the cache if a binding with equal requirements was asked about."""
    if remembered is None or binding.components:
        return _scarcity(replace(binding, clusters=()), lacking_c, estimating)
    requirements = binding.requirements
    claim = requirements.node_claim.key if requirements.node_claim else None
    question = frozenset(requirements.request.items()), claim, lacking_c.tobytes()
    scarce = remembered.get(question)
    if scarce is None:
        scarce = _scarcity(replace(binding, clusters=()), lacking_c, estimating)
        remembered[question] = scarce
    return scarce


def _scarcity(binding: Binding, lacking_c: IntArray, estimating: Estimating) -> Reason:
    """Return for instance ``short of memory in 3 clusters, cpu in 1``; empty if none is short.

    A cluster is short of the resource of which the fewest replicas fit. If each resource alone
    suffices, it is short of all of them together. Arrays: resources (n) by short clusters (j).
    """
    if not lacking_c.any():
        return NO_REASON
    estimates = estimating(binding)
    (short,) = ((estimates.replicas_c < lacking_c) & ~estimates.unknown_c).nonzero()
    if not len(short):
        return NO_REASON
    resources = sorted(_resources(binding) - {PODS})
    names = [PODS, *resources]
    scarcities = [
        *(Reason.of(ReasonCode.RESOURCE, Word(name)) for name in names),
        Reason(ReasonCode.SUITABLE_NODES),
        Reason.of(ReasonCode.RESOURCES_TOGETHER, tuple(map(Word, resources))),
    ]
    alone_nj = np.array([estimating(_asking(binding, name)).replicas_c[short] for name in names])
    scarcest_j = alone_nj.argmin(axis=0)
    scarcest_j[alone_nj.min(axis=0) >= lacking_c[short]] = len(scarcities) - 1
    if not alone_nj[0].all():
        on_any_j = estimating(_asking(binding, PODS, _ANY_NODE)).replicas_c[short]
        scarcest_j[(alone_nj[0] == 0) & (on_any_j > 0)] = len(scarcities) - 2
    clusters = Counter(scarcities[scarcest] for scarcest in scarcest_j.tolist())
    scarce = Reason.of(ReasonCode.SCARCE_RESOURCES, counted(clusters.items()))
    return Reason.of(ReasonCode.SHORT_OF, scarce)


def _asking(binding: Binding, resource: str, claim: NodeClaim | None = None) -> Binding:
    """Return the binding with a request for one resource only, and with another node claim if
    stated.
    """

    def only(requirements: ReplicaRequirements) -> ReplicaRequirements:
        amount = requirements.request.get(resource, 0)
        return replace(
            requirements,
            request={resource: amount} if amount and resource != PODS else {},
            node_claim=claim or requirements.node_claim,
        )

    return replace(
        binding,
        requirements=only(binding.requirements),
        components=tuple(
            replace(component, requirements=only(component.requirements))
            for component in binding.components
        ),
    )


def _resources(binding: Binding) -> set[str]:
    """Return the resources that any part of the binding requests."""
    parts = [component.requirements for component in binding.components] or [binding.requirements]
    return {name for part in parts for name, amount in part.request.items() if amount > 0}


_MAX_NAMED: Final = 5
# Names of the divisions that may leave a selected cluster without replicas.
_DIVIDERS: Final[Mapping[str, str]] = {
    DivisionStrategy.AGGREGATED: "Aggregated",
    DivisionStrategy.FILL_FIRST: "FillFirst",
    DivisionStrategy.DYNAMIC_WEIGHT: "the dynamic weight",
}


def refusals_reason(filtering: FilterTrace) -> Reason:
    """Return how many clusters were refused, by reason; empty when none was.

    For instance ``2 of 5 clusters were refused: is not Ready (1), has no region (1)``.
    """
    refused = filtering.refusal_c[filtering.refusal_c >= 0]
    if not len(refused):
        return NO_REASON
    counts = np.bincount(refused, minlength=len(filtering.refusals)).tolist()
    reasons = [refusal.reason for refusal in filtering.refusals]
    return Reason.of(
        ReasonCode.CLUSTERS_REFUSED,
        Amount(len(refused)),
        Amount(len(filtering.refusal_c)),
        counted(zip(reasons, counts, strict=True)),
    )


def closed_reason(closed_k: IntArray, fleet: Fleet) -> Reason:
    """Return which selected clusters must not grow, and why; empty when all may.

    For instance ``east is stale, west is stale``.
    """
    closed = sorted(closed_k.tolist())
    if not closed:
        return NO_REASON
    named = tuple((ClusterName(fleet.names[c]), fleet.unready[c]) for c in closed[:_MAX_NAMED])
    return Reason.of(ReasonCode.CLUSTERS_CLOSED, named, Amount(len(closed) - len(named)))


def unnamed_reason(unnamed: Sequence[str]) -> Reason:
    """Return the names that no cluster has; empty when there is none.

    For instance ``no cluster is named east, west``.
    """
    if not unnamed:
        return NO_REASON
    named = tuple(map(ClusterName, unnamed[:_MAX_NAMED]))
    return Reason.of(ReasonCode.CLUSTERS_UNNAMED, named, Amount(len(unnamed) - len(named)))


def unmet_spread_texts(
    constraints: Sequence[SpreadConstraint], division: DivisionTrace, fleet: Fleet
) -> Iterator[str]:
    """Yield the constraints whose minimum of groups the division does not reach.

    As in Karmada, a constraint bounds which clusters are selected, and a division may use only some
    of them.
    """
    strategy = _DIVIDERS.get(division.strategy)
    (used,) = np.nonzero(division.share_c)
    if strategy is None or not len(used):
        return
    for position, constraint in enumerate(constraints):
        groups = len(_groups_of(used.tolist(), constraint.by, fleet))
        if groups < constraint.min_groups <= int(division.share_c.sum()):
            limit = "" if constraint.max_groups is None else f" to {constraint.max_groups}"
            yield (
                f"spec.placement.spreadConstraints[{position}] "
                f"({constraint.by} {constraint.min_groups}{limit}) bounds only which clusters are "
                f"chosen: {strategy} divides all replicas over "
                f"{plural(groups, constraint.by)}"
            )


def _groups_of(clusters: Iterable[int], by: SpreadField, fleet: Fleet) -> Collection[object]:
    if by is SpreadField.CLUSTER:
        return list(clusters)
    if by is SpreadField.ZONE:
        zones = fleet.zones
        return {zone for cluster in clusters for zone in zones.values[zones.code_c[cluster]]}
    column = fleet.region if by is SpreadField.REGION else fleet.provider
    return {int(column.code_c[cluster]) for cluster in clusters}


def unknown_reason(availability: Estimates, feasible_c: BoolArray) -> Reason:
    """Return how many feasible clusters count as full without an estimate, and why.

    For instance ``3 clusters have no estimate and count as full: the cluster's pools do not tell
    nodes apart by disk (2)``; the third one has no recorded cause.
    """
    (unknown,) = np.nonzero(availability.unknown_c & feasible_c)
    if not len(unknown):
        return NO_REASON
    reasons = availability.reasons
    counts = Counter(reasons[position] for position in unknown.tolist() if position in reasons)
    return Reason.of(ReasonCode.CLUSTERS_UNKNOWN, Amount(len(unknown)), counted(counts.items()))
