"""What is kept for those that wait: room for who was overtaken for long, and whole clusters for who
comes first in a profile that lets nobody overtake.

Plain functions of their arguments. Must not read or write the store.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from federation.model.estimate import Estimates
from federation.model.placement import Binding, Certificate
from federation.scheduler.plugins.profile import Profile
from federation.scheduler.state import Surroundings
from federation.scheduler.waiting.queue import Seen
from federation.services.ports import StoredBinding
from federation.services.scheduling.queue import Attempt
from federation.services.scheduling.seeing import seen_by
from federation.services.scheduling.working_copy import WorkingCopy

# However many were overtaken: each keeps others from some of the room there is.
MOST_EARMARKS = 10


def beside_claims(
    working: WorkingCopy,
    attempt: Attempt,
    available: Estimates,
    now: float,
) -> tuple[Estimates, str]:
    """What of that is available which is kept for nobody that comes before the attempt, and for
    whom the rest is kept, "" where all is available.
    """
    earmarked = [each for each in attempt.claims.earmarked if _is_before(each[0], attempt)]
    first = [
        (stored, profile)
        for stored, profile in attempt.claims.first
        if profile.name == attempt.profile.name and _is_first(stored, attempt)
    ]
    if not (earmarked or first):
        return available, ""
    asked = attempt.candidate.certificate or attempt.profile.certificate
    left_c = _beside(working, attempt, earmarked, asked, now)
    for stored, profile in first:
        seen = _seen(working, stored, profile, now)
        left_c[[working.snapshot.positions[name] for name in seen.reach]] = 0
    if not (left_c < available.replicas_c).any():
        return available, ""
    kept_for = ", ".join(stored.binding.key for stored, _ in (*earmarked, *first))
    left = replace(available, replicas_c=np.minimum(available.replicas_c, left_c))
    return left, f"room is kept for {kept_for}, which waited before"


def _is_before(stored: StoredBinding, attempt: Attempt) -> bool:
    """Whether it is another one, of equal or higher priority."""
    is_higher = stored.binding.priority >= attempt.candidate.priority
    return is_higher and not _goes_with(stored.binding, attempt.candidate)


def _goes_with(one: Binding, other: Binding) -> bool:
    """Whether they are the same, or of one gang."""
    gang = other.gang.name if other.gang else ""
    is_of_gang = bool(gang) and one.gang is not None and one.gang.name == gang
    return one.namespace == other.namespace and (one.name == other.name or is_of_gang)


def _is_first(stored: StoredBinding, attempt: Attempt) -> bool:
    """Whether it is another one, which comes first in the order of the queue."""
    binding, wait, known = stored.binding, stored.wait, attempt.known
    since = known.wait.place_at if known and known.wait else math.inf
    own = -attempt.candidate.priority, since, attempt.key
    key = binding.namespace, binding.name
    is_before = wait is not None and (-binding.priority, wait.place_at, key) < own
    return is_before and not _goes_with(binding, attempt.candidate)


def _beside(
    working: WorkingCopy,
    attempt: Attempt,
    earmarked: Iterable[tuple[StoredBinding, Profile]],
    asked: Certificate | None,
    now: float,
) -> npt.NDArray[np.int64]:
    """What is available beside as much as fits of what is earmarked, in every cluster."""
    kept = []
    for stored, profile in earmarked:
        remainder = stored.wait.remainder if stored.wait else 0
        room = _seen(working, stored, profile, now).room
        positions = working.snapshot.positions
        units = {positions[name]: min(count, remainder) for name, count in room.items()}
        kept.append((stored.binding, units))
    shadow = working.beside(kept) if kept else working
    return shadow.availability(attempt.candidate, asked).replicas_c.copy()


def _seen(working: WorkingCopy, stored: StoredBinding, profile: Profile, now: float) -> Seen:
    around = Surroundings(observed_affinity=stored.observed_affinity)
    return seen_by(working, stored.binding, profile, around, now)
