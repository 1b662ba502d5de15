"""Decisions about attempts, made by ``federation.scheduler.decide`` on a working copy.

Plain functions of their arguments, for one thread of their own. Must not read or write the store.
"""

from __future__ import annotations

from federation.model.errors import FederationError
from federation.scheduler.decide import decide
from federation.services.binding_ports import Peers
from federation.services.scheduling.attempt import Attempt
from federation.services.scheduling.claims import awaited
from federation.services.scheduling.drafts import draft_of
from federation.services.scheduling.fresh_reports import unseen_in
from federation.services.scheduling.hooks import let_go
from federation.services.scheduling.live_capacity import LiveCapacity
from federation.services.scheduling.refusals import remember, tell_as_before
from federation.services.scheduling.seeing import seen_by, surroundings_of
from federation.services.scheduling.verdicts import standing_of, take, tell, verdict_of
from federation.services.scheduling.working_copy import WorkingCopy


def decide_anew(working: WorkingCopy, attempt: Attempt, now: float, peers: Peers) -> None:
    """Decide as if nothing had been decided yet. An error of the attempt becomes its ``error``."""
    attempt.requested = attempt.reserved = attempt.standing = attempt.error = None
    attempt.losses, attempt.unseen_in, attempt.nominated = {}, (), None
    attempt.is_beyond_quota = False
    let_go([attempt])
    try:
        _decide(working, attempt, now, peers)
    except FederationError as error:
        attempt.error = error


def _decide(working: WorkingCopy, attempt: Attempt, now: float, peers: Peers) -> None:
    """Decide, and reserve the shares where there is capacity. Raises FederationError."""
    attempt.awaits = awaited(working, attempt.known, now)
    capacity = LiveCapacity(working=working, decision=attempt.id, attempt=attempt, now=now)
    estimates, kept_for = capacity.offer
    if not kept_for and tell_as_before(working, attempt, estimates, now, peers):
        return
    fleet = working.snapshot.fleet_at(now)
    decided = decide(fleet, draft_of(attempt, fleet, now, peers), capacity, now)
    if decided.reserved is not None:
        take(attempt, decided.reserved)
    if not decided.decision.is_placed:
        attempt.verdict = verdict_of(decided, working.snapshot, now)
        attempt.is_refined, attempt.requested = decided.is_refined, None
        if "" not in decided.refused:
            attempt.unseen_in = unseen_in(working, attempt, decided.decision)
        if not decided.refused:
            if not kept_for:
                remember(working, attempt, estimates, peers)
            if attempt.awaits:
                tell(attempt, attempt.awaits)
        attempt.standing = standing_of(attempt)
    if attempt.again and not attempt.has_progressed:
        # A binding that waits keeps what there was for it.
        around = surroundings_of(attempt, attempt.peers)
        attempt.seen = seen_by(working, attempt.candidate, attempt.profile, around, now)
