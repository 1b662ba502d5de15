"""How many more replicas can be promised in each cluster, according to its reported node pools.

Pure. Must not promise anything: ``federation.capacity.reserve`` does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from federation.capacity.assignments import Assignment
from federation.capacity.careful import PromiseTerms, refined_available_c
from federation.capacity.component_sets import packable_sets_c
from federation.capacity.fleet_rooms import FleetRooms
from federation.capacity.own_promises import KeptPromise, OwnPromises
from federation.capacity.reserve import packable
from federation.model.arrays import BoolArray, IntArray
from federation.model.estimate import BLIND_UP_TO, Bound, Estimates, Source
from federation.model.placement import Binding, Certificate
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import (
    NO_REASON,
    Amount,
    BindingRef,
    ClusterName,
    Reason,
    clauses_of,
    joined,
)
from federation.model.workload import ReplicaRequirements
from federation.scheduler.decision import Decision, Outcome
from federation.scheduler.demand import Demand

NO_POOLS: Final = Reason(ReasonCode.NO_POOLS)
# Clauses of estimates that say what keeps a cluster from having more capacity.
_STUCK: Final = frozenset(
    {ReasonCode.OVER_COMMITTED, ReasonCode.KEPT_FOR_LARGE_PODS, ReasonCode.NOT_REHEARSED}
)
_MAX_NAMED: Final = 3


def requirements_of(binding: Binding) -> tuple[ReplicaRequirements, ...]:
    """Return the requirements of every component, or those of the one kind of replica."""
    if binding.components:
        return tuple(component.requirements for component in binding.components)
    return (binding.requirements,)


def told_by_pools(
    rooms: FleetRooms, parts: tuple[ReplicaRequirements, ...]
) -> tuple[BoolArray, dict[int, Reason]]:
    """Return where pools tell whether every part of a workload fits (axis c), and why not
    elsewhere.
    """
    told_c = np.ones(len(rooms), dtype=np.bool_)
    reasons: dict[int, Reason] = {}
    for requirements in parts:
        part_told_c, why = rooms.label_carriers(requirements)
        told_c &= part_told_c
        reasons |= why
    for position in np.flatnonzero(~told_c).tolist():
        reasons.setdefault(position, NO_POOLS)
    return told_c, reasons


def stuck_reason(overcommitted: Iterable[Assignment]) -> Reason:
    """Return the bindings whose promises lost their capacity, and how many replicas."""
    stuck = Counter[str]()
    for assignment in overcommitted:
        stuck[assignment.outstanding.binding] += assignment.unplaced
    named = tuple(
        (BindingRef.of(binding), Amount(count)) for binding, count in stuck.most_common(_MAX_NAMED)
    )
    return Reason.of(ReasonCode.OVER_COMMITTED, named, Amount(len(stuck) - len(named)))


def stuck_notes(reasons: Mapping[int, Reason], names: Sequence[str]) -> dict[int, Reason]:
    """Return the reasons of estimates that explain a lack of capacity, by position.

    Those are stuck promises, capacity kept for large pods, and clusters that were not rehearsed.
    """
    stuck = {
        why
        for why in set(reasons.values())
        if any(clause.code in _STUCK for clause in clauses_of(why))
    }
    return {
        position: Reason.of(ReasonCode.IN_CLUSTER, ClusterName(names[position]), why)
        for position, why in reasons.items()
        if why in stuck
    }


def own_of(
    rooms: FleetRooms,
    binding: Binding,
    certificate: Certificate | None,
    promises: Mapping[int, KeptPromise],
) -> OwnPromises:
    """Return the binding's own promises in its clusters, for ``promisable``."""
    requirements = None if binding.components else binding.requirements
    return OwnPromises.of(rooms, binding.key, requirements, certificate, promises)


def promisable(
    rooms: FleetRooms,
    binding: Binding,
    certificate: Certificate | None,
    told_by: tuple[BoolArray, Mapping[int, Reason]],
    own: OwnPromises,
    *,
    leaves_large: bool = True,
) -> Estimates:
    """Return how many replicas, or whole sets, can be promised; unknown where pools cannot tell.

    ``own`` are the binding's promises in its clusters. ``leaves_large`` is as for ``packable``.
    """
    told_c, reasons = told_by[0], dict(told_by[1])
    if binding.components:
        without = {position: room for position, (room, _) in own.repacked.items()}
        most_c = packable_sets_c(rooms, binding.components, certificate, without)
    else:
        most_c, kept_for = packable(
            rooms, binding.requirements, certificate, own, leaves_large=leaves_large
        )
        reasons |= {c: why for c, why in kept_for.items() if told_c[c]}
    reasons |= {c: stuck_reason(stuck) for c, stuck in sorted(rooms.sums.stuck.items())}
    return Estimates(
        replicas_c=most_c * told_c,
        source_c=told_c * np.int8(Source.POOLS),
        bound_c=told_c * np.int8(Bound.LOWER),
        reasons=reasons,
    )


def terms_of(binding: Binding, *, refines: bool) -> PromiseTerms:
    """Return the capacity that the binding's shares may use in any cluster.

    ``refines``: a second look may have granted some of the shares.
    """
    is_new = not (binding.components or binding.clusters)
    return PromiseTerms(
        keeps_margin=bool(binding.components) or Demand.of(binding).rule.heeds_capacity,
        in_sets=bool(binding.components),
        refined_replicas=binding.replicas if refines and is_new else 0,
    )


def looked_again(
    rooms: FleetRooms,
    binding: Binding,
    certificate: Certificate | None,
    available: Estimates,
) -> Estimates | None:
    """Look a second time for capacity for a new binding that would be refused.

    Returns None if that is no more than was available, and no cluster had too many promises to
    look.
    """
    if binding.components or binding.clusters:
        return None
    found_c, not_rehearsed = refined_available_c(
        rooms, binding.requirements, certificate, available.replicas_c, binding.replicas
    )
    if not (not_rehearsed or (found_c > available.replicas_c).any()):
        return None
    reasons = not_rehearsed | dict(available.reasons)
    return replace(available, replicas_c=found_c, reasons=reasons)


def instead_where(chosen_c: BoolArray, better: Estimates, other: Estimates) -> Estimates:
    """Return the better estimates in chosen clusters, the others elsewhere, each with its
    reasons.
    """
    chosen = set(np.flatnonzero(chosen_c).tolist())
    reasons = {c: why for c, why in other.reasons.items() if c not in chosen}
    return Estimates(
        replicas_c=np.where(chosen_c, better.replicas_c, other.replicas_c),
        source_c=np.where(chosen_c, better.source_c, other.source_c),
        bound_c=np.where(chosen_c, better.bound_c, other.bound_c),
        reasons=reasons | {c: why for c, why in better.reasons.items() if c in chosen},
        sure_c=_sure_instead_c(chosen_c, better, other),
    )


def _sure_instead_c(chosen_c: BoolArray, better: Estimates, other: Estimates) -> IntArray | None:
    """Return how many replicas surely fit (axis c); estimates from pools are sure as a whole."""
    if better.sure_c is None and other.sure_c is None:
        return None
    better_c, other_c = (
        np.where(estimates.source_c > BLIND_UP_TO, estimates.replicas_c, 0)
        if estimates.sure_c is None
        else estimates.sure_c
        for estimates in (better, other)
    )
    return np.where(chosen_c, better_c, other_c)


def without_room(decision: Decision, refusals: Mapping[str, Reason]) -> Decision:
    """Return the decision whose shares find no capacity: nothing is placed, prior replicas stay.

    ``refusals`` say why by cluster name, or under "" the objection of a plugin to all shares.
    """
    unplaced = decision.remainder + sum(target.replicas for target in decision.clusters)
    return replace(
        decision,
        outcome=Outcome.UNSCHEDULABLE,
        clusters=(),
        remainder=unplaced,
        reason=refusals.get("") or _no_room_for_shares(refusals),
    )


def _no_room_for_shares(refusals: Mapping[str, Reason]) -> Reason:
    first, *further = [
        Reason.of(ReasonCode.IN_CLUSTER, ClusterName(name), refusals[name])
        for name in sorted(refusals)
    ] or [NO_REASON]
    return joined(Reason.of(ReasonCode.NO_ROOM_FOR_SHARES, first), *further)


def refused_by(decision: Decision, why: Reason) -> Decision:
    """Return the decision with nothing placed because of other bindings."""
    if decision.outcome in (Outcome.SCHEDULED, Outcome.PARTIAL):
        return without_room(decision, {"": why})
    return decision.explained(why)
