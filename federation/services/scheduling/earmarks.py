"""Earmarks: capacity that decisions leave to bindings that wait.

A binding has one if other bindings overtook it for long, or if it waits for preempted pods to
leave. The first in the queue of a strict profile has whole clusters. Pure functions: must not read
or write the store.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Self

from federation.capacity.cluster_room import Room
from federation.model.arrays import IntArray
from federation.model.estimate import Estimates
from federation.model.placement import Binding, Certificate
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import NO_REASON, Amount, BindingRef, ClusterName, Reason, Word
from federation.model.waiting import Leaving, Nomination
from federation.scheduler.decide import OfferedCapacity
from federation.scheduler.earmarks import (
    CapacityClaim,
    EarmarkedNodes,
    EarmarkShadow,
    beside_earmarks,
    could_hold,
    offer_of,
)
from federation.scheduler.plugins.profile import Profile
from federation.scheduler.state import BindingContext
from federation.scheduler.waiting.kept import goes_with, kept_before
from federation.scheduler.waiting.queue import Seen
from federation.services.binding_ports import StoredBinding
from federation.services.scheduling.attempt import Attempt
from federation.services.scheduling.eligible_clusters import find_eligible
from federation.services.scheduling.working_copy import WorkingCopy

# Bindings that wait for preempted pods to leave, because each keeps free capacity from all others.
MAX_NOMINATED = 20
# Bindings whose pods have to leave that a reason names.
MAX_NAMED = 3


def capacity_after_earmarks(
    working: WorkingCopy,
    attempt: Attempt,
    available: Estimates,
    now: float,
) -> OfferedCapacity:
    """Return the available capacity less the earmarks that the attempt must respect."""
    earmarks = attempt.facts.earmarks
    valid = [item for item in earmarks.earmarked if _has_earmark(item[0], now)]
    earmarked = kept_before(valid, lambda item: item[0].binding, attempt.candidate)
    first = [
        _claim(stored, profile)
        for stored, profile in earmarks.first
        if profile.name == attempt.profile.name and _is_first(stored, attempt)
    ]
    if not (earmarked or first):
        return OfferedCapacity(available)
    index = working.snapshot.positions
    claims = [_claim(stored, profile) for stored, profile in earmarked]
    capacity = _WorkingCapacity(working=working, now=now)
    shadow = EarmarkShadow(capacity, EarmarkedNodes())
    if earmarked:
        # Attempts of one batch mostly respect the same earmarks, whose packing is remembered.
        key = tuple((item.id, item.binding.resource_version, item.wait) for item, _ in earmarked)
        if key not in working.earmark_shadows:
            working.earmark_shadows[key] = earmark_shadow(working, claims, now)
        shadow = working.earmark_shadows[key]
    certificate = attempt.candidate.certificate or attempt.profile.certificate
    free_c = shadow.free_c(attempt.candidate, certificate)
    for claim in first:
        free_c[[index[name] for name in capacity.seen(claim).reach]] = 0
    return offer_of(available, free_c, (*claims, *first))


def earmark_shadow(
    working: WorkingCopy, claims: Sequence[CapacityClaim], now: float
) -> EarmarkShadow[_WorkingCapacity]:
    """Return the capacity of a working copy less all claims. Raises PluginFailed."""
    capacity = _WorkingCapacity(working=working, now=now)
    return beside_earmarks(capacity, claims, working.snapshot.positions)


def awaited_pods(working: WorkingCopy, stored: StoredBinding | None, now: float) -> Reason:
    """Return which preempted pods have to leave before the stored binding is placed.

    Return NO_REASON if it waits for none.
    """
    nominated = stored.wait.nominated if stored and stored.wait else None
    if nominated is None or now >= nominated.until:
        return NO_REASON
    return awaited_pods_of(nominated, [remaining_pods(working, item) for item in nominated.leaving])


def awaited_pods_of(nominated: Nomination, pods: Sequence[int]) -> Reason:
    """Return the reason for a nomination whose leaving bindings still have so many pods."""
    staying = [
        (Amount(count), BindingRef.of(item.binding), ClusterName(item.cluster))
        for item, count in zip(nominated.leaving, pods, strict=True)
        if count
    ]
    if not staying:
        return NO_REASON
    named = tuple(staying[:MAX_NAMED])
    since = datetime.fromtimestamp(nominated.since, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    omitted = Amount(len(staying) - len(named))
    return Reason.of(ReasonCode.AWAITS_LEAVING, named, omitted, Word(since))


def remaining_pods(working: WorkingCopy, leaving: Leaving) -> int:
    """Return how many of the leaving pods the cluster still reports.

    It is all of them until this control plane has the decision that makes them leave.
    """
    position = working.snapshot.positions.get(leaving.cluster)
    ledger = None if position is None else working.ledger(position)
    reservations = ledger.of_binding(leaving.binding) if ledger else ()
    if ledger is None or not reservations:
        return 0
    if not any(leaving.decision in item.decisions for item in reservations):
        return leaving.replicas
    staying = sum(item.replicas for item in ledger.newest(leaving.binding))
    return min(leaving.replicas, max(0, ledger.seen_of(leaving.binding) - staying))


def count_nominated(attempt: Attempt, now: float) -> int:
    """Return how many other bindings have earmarks and wait for preempted pods to leave."""
    waits = [stored.wait for stored, _ in attempt.facts.earmarks.earmarked]
    return sum(bool(wait and wait.nominated and now < wait.nominated.until) for wait in waits)


def _is_first(stored: StoredBinding, attempt: Attempt) -> bool:
    """Tell whether a stored binding comes before the attempt's in the order of the queue."""
    binding, wait = stored.binding, stored.wait
    since = attempt.stored_wait.place_at if attempt.stored_wait else math.inf
    own = -attempt.candidate.priority, since, attempt.key
    key = binding.namespace, binding.name
    is_before = wait is not None and (-binding.priority, wait.place_at, key) < own
    return is_before and not goes_with(binding, attempt.candidate)


def _has_earmark(stored: StoredBinding, now: float) -> bool:
    wait = stored.wait
    if wait is None or wait.earmarked_since is not None:
        return wait is not None
    return wait.nominated is not None and now < wait.nominated.until


def _claim(stored: StoredBinding, profile: Profile) -> CapacityClaim:
    """Return the claim of a waiting binding: all that it lacks, or what it preempted."""
    wait, shares = stored.wait, None
    if wait is not None and wait.nominated is not None and wait.earmarked_since is None:
        shares = {target.name: target.replicas for target in wait.nominated.shares}
    return CapacityClaim(
        binding=stored.binding,
        profile=profile,
        observed_affinity=stored.observed_affinity,
        lacking=wait.remainder if wait else 0,
        shares=shares,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _WorkingCapacity:
    """The ``EarmarkedCapacity`` of a working copy."""

    working: WorkingCopy
    now: float

    def seen(self, claim: CapacityClaim) -> Seen:
        context = BindingContext(observed_affinity=claim.observed_affinity)
        return find_eligible(self.working, claim.binding, claim.profile, context, self.now)

    def available_c(self, binding: Binding, certificate: Certificate | None) -> IntArray:
        return self.working.availability(binding, certificate).replicas_c

    def room(self, position: int) -> Room | None:
        return self.working.room(position)

    def could_hold(self, binding: Binding, names: Collection[str]) -> Collection[str]:
        snapshot = self.working.snapshot
        states, positions = snapshot.states, snapshot.positions
        return [name for name in names if could_hold(binding, states[positions[name]])]

    def beside(self, claim: CapacityClaim, binding: Binding, units: Mapping[str, int]) -> Self:
        del claim
        positions = self.working.snapshot.positions
        by_position = {positions[name]: count for name, count in units.items()}
        return replace(self, working=self.working.with_waiting(binding, by_position))
