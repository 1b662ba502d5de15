"""How many more replicas can be promised in each cluster, as far as rooms can tell.

Pure. Must not promise anything: ``federation.capacity.reserve`` does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from federation.capacity.assignments import Assignment
from federation.capacity.careful import PromiseTerms
from federation.capacity.component_sets import packable_sets_c
from federation.capacity.fleet_rooms import FleetRooms
from federation.capacity.own_promises import KeptPromise, OwnPromises
from federation.capacity.reserve import packable
from federation.capacity.second_looks import looked_again_c
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
# Estimates with these say what stands in the way of more, wherever room is lacking.
_STUCK: Final = frozenset(
    {ReasonCode.OVER_COMMITTED, ReasonCode.KEPT_FOR_LARGE_PODS, ReasonCode.NOT_REHEARSED}
)
_MOST_NAMED: Final = 3


def requirements_of(binding: Binding) -> tuple[ReplicaRequirements, ...]:
    """Of every component, or of the only kind of replica."""
    if binding.components:
        return tuple(each.requirements for each in binding.components)
    return (binding.requirements,)


def told_by_pools(
    rooms: FleetRooms, wanted: tuple[ReplicaRequirements, ...]
) -> tuple[BoolArray, dict[int, Reason]]:
    """Where pools can tell whether every part of a workload fits, and why not elsewhere."""
    told_c = np.ones(len(rooms), dtype=np.bool_)
    reasons: dict[int, Reason] = {}
    for requirements in wanted:
        here_c, why = rooms.told(requirements)
        told_c &= here_c
        reasons |= why
    for position in np.flatnonzero(~told_c).tolist():
        reasons.setdefault(position, NO_POOLS)
    return told_c, reasons


def stuck_reason(overcommitted: Iterable[Assignment]) -> Reason:
    """Who lost the room that was promised, and how much of it."""
    stuck = Counter[str]()
    for each in overcommitted:
        stuck[each.outstanding.binding] += each.unplaced
    named = tuple(
        (BindingRef.of(binding), Amount(count)) for binding, count in stuck.most_common(_MOST_NAMED)
    )
    return Reason.of(ReasonCode.OVER_COMMITTED, named, Amount(len(stuck) - len(named)))


def stuck_notes(reasons: Mapping[int, Reason], names: Sequence[str]) -> dict[int, Reason]:
    """Of the reasons of estimates, by position, those that tell of stuck promises, of room that is
    kept for large pods, and of clusters where nobody looked twice.
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
    """The binding's own promises where it is, for ``promisable``."""
    requirements = None if binding.components else binding.requirements
    return OwnPromises.of(rooms, binding.key, requirements, certificate, promises)


def promisable(
    rooms: FleetRooms,
    binding: Binding,
    asked: Certificate | None,
    told: tuple[BoolArray, Mapping[int, Reason]],
    own: OwnPromises,
    *,
    leaves_large: bool = True,
) -> Estimates:
    """Replicas, or whole sets; unknown where the pools cannot tell.

    ``own`` is what the binding holds where it is, and ``leaves_large`` is as for ``packable``.
    """
    told_c, reasons = told[0], dict(told[1])
    if binding.components:
        without = {position: room for position, (room, _) in own.repacked.items()}
        most_c = packable_sets_c(rooms, binding.components, asked, without)
    else:
        most_c, kept_for = packable(
            rooms, binding.requirements, asked, own, leaves_large=leaves_large
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
    """What the binding's shares may take of the room, wherever it is placed.

    ``refines``: a second look may have granted some of them.
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
    asked: Certificate | None,
    available: Estimates,
) -> Estimates | None:
    """What of a new binding can be promised after all, where it would be refused else; None where
    that is no more than was available, and no cluster had too much on its way to find that out.
    """
    if binding.components or binding.clusters:
        return None
    found_c, not_rehearsed = looked_again_c(
        rooms, binding.requirements, asked, available.replicas_c, binding.replicas
    )
    if not (not_rehearsed or (found_c > available.replicas_c).any()):
        return None
    reasons = not_rehearsed | dict(available.reasons)
    return replace(available, replicas_c=found_c, reasons=reasons)


def instead_where(chosen_c: BoolArray, better: Estimates, other: Estimates) -> Estimates:
    """The better estimates where chosen, the others elsewhere; both explain themselves."""
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
    """How many are sure: pools are sure of all that they promise."""
    if better.sure_c is None and other.sure_c is None:
        return None
    better_c, other_c = (
        np.where(each.source_c > BLIND_UP_TO, each.replicas_c, 0)
        if each.sure_c is None
        else each.sure_c
        for each in (better, other)
    )
    return np.where(chosen_c, better_c, other_c)


def without_room(decision: Decision, refusals: Mapping[str, Reason]) -> Decision:
    """The decision where its shares find no room: nothing is placed, and what was stays.

    ``refusals`` say why by the name of the cluster, or under "" what a plugin says of all.
    """
    wanted = decision.remainder + sum(target.replicas for target in decision.clusters)
    return replace(
        decision,
        outcome=Outcome.UNSCHEDULABLE,
        clusters=(),
        remainder=wanted,
        reason=refusals.get("") or _no_room_for_shares(refusals),
    )


def _no_room_for_shares(refusals: Mapping[str, Reason]) -> Reason:
    first, *further = [
        Reason.of(ReasonCode.IN_CLUSTER, ClusterName(name), refusals[name])
        for name in sorted(refusals)
    ] or [NO_REASON]
    return joined(Reason.of(ReasonCode.NO_ROOM_FOR_SHARES, first), *further)


def refused_by(decision: Decision, why: Reason) -> Decision:
    """The decision where nothing is placed because of others, or for reasons of its own too."""
    if decision.outcome in (Outcome.SCHEDULED, Outcome.PARTIAL):
        return without_room(decision, {"": why})
    return decision.explained(why)
