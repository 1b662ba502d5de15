"""The reason why a binding could not be scheduled, with numbers.

Must not decide: it reads what the stages recorded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from federation.model.arrays import BoolArray, IntArray
from federation.model.estimate import Estimates
from federation.model.placement import SpreadConstraint, SpreadField
from federation.model.readable import plural
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import NO_REASON, Amount, ClusterName, Reason, counted
from federation.scheduler.division.values import DivisionStrategy
from federation.scheduler.fleet import Fleet
from federation.scheduler.trace import DivisionTrace, FilterTrace

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
