"""What is kept for those that wait: room for who was overtaken for long, and whole clusters for who
comes first in a profile that lets nobody overtake.

Plain functions of their arguments. Must not read or write the store.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt

from federation.model.estimate import Estimates
from federation.model.placement import Certificate
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import NO_REASON, Amount, BindingRef, ClusterName, Reason, Word
from federation.model.waiting import Leaving, Nomination
from federation.scheduler.closed_rooms import ClosedRooms
from federation.scheduler.plugins.profile import Profile
from federation.scheduler.state import Surroundings
from federation.scheduler.waiting.kept import (
    earmark_in,
    goes_with,
    kept_before,
    room_is_kept_for,
)
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
) -> tuple[Estimates, Reason]:
    """What of that is available which is kept for nobody that comes before the attempt, and for
    whom the rest is kept, NO_REASON where all is available.
    """
    keeping = [each for each in attempt.claims.earmarked if _keeps_room(each[0], now)]
    earmarked = kept_before(keeping, lambda each: each[0].binding, attempt.candidate)
    first = [
        (stored, profile)
        for stored, profile in attempt.claims.first
        if profile.name == attempt.profile.name and _is_first(stored, attempt)
    ]
    if not (earmarked or first):
        return available, NO_REASON
    asked = attempt.candidate.certificate or attempt.profile.certificate
    left_c = _beside(working, attempt, earmarked, asked, now)
    for stored, profile in first:
        seen = _seen(working, stored, profile, now)
        left_c[[working.snapshot.positions[name] for name in seen.reach]] = 0
    if not (left_c < available.replicas_c).any():
        return available, NO_REASON
    left = replace(available, replicas_c=np.minimum(available.replicas_c, left_c))
    return left, room_is_kept_for(stored.binding.key for stored, _ in (*earmarked, *first))


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
    waits = [stored.wait for stored, _ in attempt.claims.earmarked]
    return sum(bool(wait and wait.nominated and now < wait.nominated.until) for wait in waits)


def _is_first(stored: StoredBinding, attempt: Attempt) -> bool:
    """Whether it is another one, which comes first in the order of the queue."""
    binding, wait, known = stored.binding, stored.wait, attempt.known
    since = known.wait.place_at if known and known.wait else math.inf
    own = -attempt.candidate.priority, since, attempt.key
    key = binding.namespace, binding.name
    is_before = wait is not None and (-binding.priority, wait.place_at, key) < own
    return is_before and not goes_with(binding, attempt.candidate)


def _beside(
    working: WorkingCopy,
    attempt: Attempt,
    earmarked: Sequence[tuple[StoredBinding, Profile]],
    asked: Certificate | None,
    now: float,
) -> npt.NDArray[np.int64]:
    """What is available beside as much as fits of what is earmarked, in every cluster: of one
    after the other, beside those before it.
    """
    question = tuple((each.id, each.binding.resource_version, each.wait) for each, _ in earmarked)
    known = working.shadows.get(question) if earmarked else (working, ClosedRooms())
    if known is None:
        shadow, positions = working, working.snapshot.positions
        closed = ClosedRooms()
        for stored, profile in earmarked:
            remainder = stored.wait.remainder if stored.wait else 0
            seen = _seen(shadow, stored, profile, now)
            bound_for = _bound_for(stored, seen)
            earmark = earmark_in(_within(stored, seen.room), bound_for, remainder)
            units = {positions[name]: count for name, count in earmark.shares.items()}
            shadow = shadow.beside(stored.binding, units)
            if stored.binding.components:
                shadow = _beside_parts(shadow, stored, bound_for - earmark.shares.keys(), asked)
            rooms = ((c, shadow.room(c)) for c in (positions[name] for name in earmark.closed))
            closed.close(stored.binding, rooms)
        known = working.shadows[question] = shadow, closed
    shadow, closed = known
    left_c = shadow.availability(attempt.candidate, asked).replicas_c.copy()
    for position in closed.positions:
        closed.limit(left_c, attempt.candidate, position, shadow.room(position))
    return left_c


def _beside_parts(
    shadow: WorkingCopy, stored: StoredBinding, clusters: Iterable[str], asked: Certificate | None
) -> WorkingCopy:
    """Room for a whole set of components may come bit by bit: what there is of it is kept."""
    binding, positions = stored.binding, [shadow.snapshot.positions[name] for name in clusters]
    for part in binding.components:
        alone = replace(
            binding,
            name=f"{binding.name} {part.name}",
            components=(),
            requirements=part.requirements,
            replicas=part.replicas,
        )
        room_c = shadow.availability(alone, asked).replicas_c
        units = {each: min(int(room_c[each]), part.replicas) for each in positions}
        shadow = shadow.beside(alone, {each: count for each, count in units.items() if count > 0})
    return shadow


def _bound_for(stored: StoredBinding, seen: Seen) -> frozenset[str]:
    """The clusters where room is kept for it."""
    wait = stored.wait
    if wait is None or wait.nominated is None or wait.earmarked_since is not None:
        return seen.reach
    return frozenset(each.name for each in wait.nominated.shares)


def _keeps_room(stored: StoredBinding, now: float) -> bool:
    wait = stored.wait
    if wait is None or wait.earmarked_since is not None:
        return wait is not None
    return wait.nominated is not None and now < wait.nominated.until


def _within(stored: StoredBinding, room: Mapping[str, int]) -> Mapping[str, int]:
    """What of the room is kept for it: all that it may have, or what others were to leave."""
    wait = stored.wait
    if wait is None or wait.nominated is None or wait.earmarked_since is not None:
        return room
    shares = {each.name: each.replicas for each in wait.nominated.shares}
    return {name: min(count, shares[name]) for name, count in room.items() if name in shares}


def _seen(working: WorkingCopy, stored: StoredBinding, profile: Profile, now: float) -> Seen:
    around = Surroundings(observed_affinity=stored.observed_affinity)
    return seen_by(working, stored.binding, profile, around, now)
