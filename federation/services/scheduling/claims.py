"""What is kept for those that wait: room for who was overtaken for long, and whole clusters for who
comes first in a profile that lets nobody overtake.

Plain functions of their arguments. Must not read or write the store.
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
from federation.scheduler.closed_rooms import ClosedRooms, could_hold
from federation.scheduler.decide import OfferedCapacity
from federation.scheduler.earmarks import CapacityClaim, EarmarkShadow, beside_earmarks, offer_of
from federation.scheduler.plugins.profile import Profile
from federation.scheduler.state import Surroundings
from federation.scheduler.waiting.kept import goes_with, kept_before
from federation.scheduler.waiting.queue import Seen
from federation.services.binding_ports import StoredBinding
from federation.services.scheduling.attempt import Attempt
from federation.services.scheduling.seeing import seen_by
from federation.services.scheduling.working_copy import WorkingCopy

# However many wait for others to leave: each keeps others from some of the room there is.
MOST_NOMINATED = 20
# Of those that have to leave so many are named.
MOST_NAMED = 3


def beside_claims(
    working: WorkingCopy,
    attempt: Attempt,
    available: Estimates,
    now: float,
) -> OfferedCapacity:
    """What of that is available which is kept for nobody that comes before the attempt."""
    keeping = [each for each in attempt.facts.earmarks.earmarked if _keeps_room(each[0], now)]
    earmarked = kept_before(keeping, lambda each: each[0].binding, attempt.candidate)
    first = [
        _claim(stored, profile)
        for stored, profile in attempt.facts.earmarks.first
        if profile.name == attempt.profile.name and _is_first(stored, attempt)
    ]
    if not (earmarked or first):
        return OfferedCapacity(available)
    asked = attempt.candidate.certificate or attempt.profile.certificate
    index = working.snapshot.positions
    claims = [_claim(stored, profile) for stored, profile in earmarked]
    capacity = _BesideEarmarks(working=working, now=now)
    question = tuple((each.id, each.binding.resource_version, each.wait) for each, _ in earmarked)
    known = working.shadows.get(question) if earmarked else (working, ClosedRooms())
    if known is None:
        beside, closed = earmark_shadow(working, claims, now)
        known = working.shadows[question] = beside.working, closed
    shadow = EarmarkShadow(replace(capacity, working=known[0]), known[1])
    free_c = shadow.free_c(attempt.candidate, asked)
    for claim in first:
        free_c[[index[name] for name in capacity.seen(claim).reach]] = 0
    return offer_of(available, free_c, (*claims, *first))


def earmark_shadow(
    working: WorkingCopy, claims: Sequence[CapacityClaim], now: float
) -> EarmarkShadow[_BesideEarmarks]:
    """Return a working copy beside what is set aside for each claim. Raises PluginFailed."""
    capacity = _BesideEarmarks(working=working, now=now)
    return beside_earmarks(capacity, claims, working.snapshot.positions)


def awaited(working: WorkingCopy, stored: StoredBinding | None, now: float) -> Reason:
    """Who has to leave first, of those that it preempted; NO_REASON: nobody."""
    nominated = stored.wait.nominated if stored and stored.wait else None
    if nominated is None or now >= nominated.until:
        return NO_REASON
    return waits_for(nominated, [still_there(working, each) for each in nominated.leaving])


def waits_for(nominated: Nomination, left: Sequence[int]) -> Reason:
    """The same, where so many of each are there still."""
    staying = [
        (Amount(n), BindingRef.of(each.binding), ClusterName(each.cluster))
        for each, n in zip(nominated.leaving, left, strict=True)
        if n
    ]
    if not staying:
        return NO_REASON
    named = tuple(staying[:MOST_NAMED])
    since = datetime.fromtimestamp(nominated.since, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    omitted = Amount(len(staying) - len(named))
    return Reason.of(ReasonCode.AWAITS_LEAVING, named, omitted, Word(since))


def still_there(working: WorkingCopy, leaving: Leaving) -> int:
    """How many of the pods are seen that are to leave; all of them, as long as nothing has told
    here of the decision by which they are.
    """
    position = working.snapshot.positions.get(leaving.cluster)
    ledger = None if position is None else working.ledger(position)
    held = ledger.of_binding(leaving.binding) if ledger else ()
    if ledger is None or not held:
        return 0
    if not any(leaving.decision in each.decisions for each in held):
        return leaving.replicas
    kept = sum(each.replicas for each in ledger.newest(leaving.binding))
    return min(leaving.replicas, max(0, ledger.seen_of(leaving.binding) - kept))


def nominated_now(attempt: Attempt, now: float) -> int:
    """For how many others room is kept that is being left."""
    waits = [stored.wait for stored, _ in attempt.facts.earmarks.earmarked]
    return sum(bool(wait and wait.nominated and now < wait.nominated.until) for wait in waits)


def _is_first(stored: StoredBinding, attempt: Attempt) -> bool:
    """Whether it is another one, which comes first in the order of the queue."""
    binding, wait = stored.binding, stored.wait
    since = attempt.stored_wait.place_at if attempt.stored_wait else math.inf
    own = -attempt.candidate.priority, since, attempt.key
    key = binding.namespace, binding.name
    is_before = wait is not None and (-binding.priority, wait.place_at, key) < own
    return is_before and not goes_with(binding, attempt.candidate)


def _keeps_room(stored: StoredBinding, now: float) -> bool:
    wait = stored.wait
    if wait is None or wait.earmarked_since is not None:
        return wait is not None
    return wait.nominated is not None and now < wait.nominated.until


def _claim(stored: StoredBinding, profile: Profile) -> CapacityClaim:
    """What is kept for it: all that it may have, or what others were to leave to it."""
    wait, shares = stored.wait, None
    if wait is not None and wait.nominated is not None and wait.earmarked_since is None:
        shares = {each.name: each.replicas for each in wait.nominated.shares}
    return CapacityClaim(
        binding=stored.binding,
        profile=profile,
        observed_affinity=stored.observed_affinity,
        lacking=wait.remainder if wait else 0,
        shares=shares,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _BesideEarmarks:
    """An ``EarmarkedCapacity`` of a working copy."""

    working: WorkingCopy
    now: float

    def seen(self, claim: CapacityClaim) -> Seen:
        around = Surroundings(observed_affinity=claim.observed_affinity)
        return seen_by(self.working, claim.binding, claim.profile, around, self.now)

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
        return replace(self, working=self.working.beside(binding, by_position))
