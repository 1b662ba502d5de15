"""Verdicts of attempts: what was decided, what it asks of the ledgers, and whether it is news.

Plain functions of their arguments, for one thread of their own: one attempt after the other on a
working copy. Must not read or write the store.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from federation.capacity.reserve import Refused
from federation.failover.moves import (
    PLANNED_MOVE,
    PREEMPTED,
    PROMISE_ENDED,
    TAINT_UNTOLERATED,
    eviction_tasks,
    with_evictions,
)
from federation.model.placement import Certificate
from federation.model.reasons import Reason
from federation.model.reservations import Share
from federation.model.workload import TargetCluster
from federation.scheduler.decide import Decided, Draft
from federation.scheduler.decision import Decision
from federation.scheduler.promisable import without_room
from federation.services.fleet.snapshot import FleetSnapshot
from federation.services.scheduling.answer import decision_record
from federation.services.scheduling.attempt import Attempt
from federation.services.scheduling.shares import (
    NO_SHARES,
    ReservationRequest,
    Reserved,
    parts,
    shares_of,
)
from federation.services.scheduling.working_copy import WorkingCopy
from federation.services.values import DecisionRecord, Verdict


def reserve(working: WorkingCopy, attempt: Attempt) -> Refused | None:
    """Take the room that was requested, for all shares or for none; None where it was taken."""
    if attempt.result.requested is None:
        return None
    reserved = working.reserve(attempt.result.requested)
    if isinstance(reserved, Refused):
        return reserved
    take(attempt, reserved)
    return None


def reserve_less(working: WorkingCopy, attempts: Sequence[Attempt]) -> bool:
    """Leave to all of these what was requested, which is less than they have; whether that was."""
    reserved = working.reserve_less(
        [attempt.result.requested for attempt in attempts if attempt.result.requested]
    )
    if isinstance(reserved, Refused):
        return False
    for attempt in attempts:
        take(attempt, reserved[attempt.binding.key])
    return True


def request_room(
    working: WorkingCopy,
    attempt: Attempt,
    certificate: Certificate | None,
    clusters: Iterable[TargetCluster] | None = None,
) -> ReservationRequest:
    """Request what the decision about the attempt takes, and what it leaves.

    With ``clusters`` only these shares are taken by now.
    """
    # A plan says where it goes as if it were there.
    placed_as = (attempt.former if attempt.stated else None) or attempt.candidate
    attempt.result.requested = working.request(
        attempt.candidate,
        attempt.id,
        attempt.decision.clusters if clusters is None else clusters,
        certificate=certificate,
        held=attempt.facts.holding.clusters,
        adopts=attempt.adopts,
        watched=_watched(working, attempt),
        refines=attempt.result.is_refined,
        placed=placed_as.clusters,
    )
    return attempt.result.requested


def tell(attempt: Attempt, why: Reason) -> None:
    """Add to the reason of its decision."""
    decision = attempt.decision.explained(why)
    attempt.result.verdict = replace(attempt.result.verdict, decision=decision)
    attempt.result.standing = standing_of(attempt)


def refuse(attempt: Attempt, reasons: Mapping[str, Reason]) -> None:
    """Nothing of it is placed; why not, as ``without_room`` takes it."""
    attempt.result.requested = None
    decision = without_room(attempt.decision, reasons)
    attempt.result.verdict = replace(attempt.result.verdict, decision=decision, refused=reasons)


def verdict_of(decided: Decided[Reserved], snapshot: FleetSnapshot, now: float) -> Verdict:
    """The decision with why it was made, and the reports it was made on."""
    return Verdict(
        decision=decided.decision,
        evidence=snapshot.evidence_at(now),
        inputs=decided.inputs,
        refused=decided.refused,
    )


def take_over(
    attempt: Attempt, draft: Draft, decided: Decided[Reserved], snapshot: FleetSnapshot, now: float
) -> None:
    """Make a decision that places it the attempt's, with the evictions that it leaves."""
    attempt.result.verdict = verdict_of(decided, snapshot, now)
    binding, stored, planned = attempt.candidate, attempt.facts.stored, attempt.stated
    clusters = decided.decision.clusters
    if planned and stored:
        attempt.result.evictions = planned.evictions(stored.binding, clusters, now)
        return
    tasks = eviction_tasks(binding, draft.evicting, clusters, now)
    leaves = replace(binding, eviction_tasks=tasks)
    attempt.result.evictions = with_evictions(leaves, PROMISE_ENDED, decided.lapsed, clusters, now)


def standing_of(attempt: Attempt) -> DecisionRecord | None:
    """The newest decision where it still stands: nothing changed, this one says the same, what was
    reserved is held still, and what waited does.

    A reschedule that was triggered always is a new decision. Of one that was tried again in vain
    this one is answered, and not kept: to be refused once more is no news, whatever the reason is.
    """
    stored, packed, decision = attempt.facts.stored, attempt.facts.newest, attempt.decision
    if stored is None or (packed is None and not attempt.is_retried):
        return None
    if attempt.candidate != stored.binding and not attempt.is_retried:
        return None
    if attempt.leaves_waiting is not (stored.wait is not None):
        return None
    if attempt.is_placed:
        requested, holding = attempt.result.requested, attempt.facts.holding
        shares = requested.shares.keys() if requested else frozenset()
        leaving = _left_for(attempt, PLANNED_MOVE, PREEMPTED, TAINT_UNTOLERATED)
        is_held = set(holding.clusters) - leaving == set(shares)
        is_held = is_held and not holding.has_expired
        if decision.clusters != stored.binding.clusters or not is_held or attempt.adopts:
            return None
    if packed is None:
        return decision_record(attempt, stored.decision_id, decision.trace.now)
    newest = packed.unpacked()
    if newest.binding_generation != attempt.candidate.generation:
        return None
    return newest if _gist(newest.decision) == _gist(decision) else None


def take(attempt: Attempt, reserved: Reserved) -> None:
    """Note what was reserved for an attempt."""
    attempt.result.reserved = reserved
    attempt.result.verdict = replace(attempt.result.verdict, promises=reserved.promises)


def _watched(working: WorkingCopy, attempt: Attempt) -> Mapping[str, tuple[Share, ...]]:
    """Return the shares that it keeps in clusters that it leaves.

    These are no replicas where its pods end at once, and are looked for alone. Where they stay
    until others run, they are what it holds: any of them may start as long.
    """
    binding = attempt.candidate
    if not attempt.decided.eviction_tasks:
        return NO_SHARES
    nothing = tuple(share._replace(replicas=0) for share in parts(binding, 0))
    watched = dict.fromkeys(_left_for(attempt, PREEMPTED), nothing)
    for name in _left_for(attempt, PLANNED_MOVE, TAINT_UNTOLERATED):
        position = working.snapshot.positions.get(name)
        if position is not None:
            watched[name] = shares_of(working.ledger(position).newest(binding.key))
    return watched


def _left_for(attempt: Attempt, *reasons: str) -> set[str]:
    """The clusters that it leaves for one of these reasons: its pods may be there still."""
    return {t.from_cluster for t in attempt.decided.eviction_tasks if t.reason in reasons}


def _gist(decision: Decision) -> tuple[object, ...]:
    trace = decision.trace
    return (
        decision.outcome,
        decision.clusters,
        decision.remainder,
        # The newest one was stored.
        str(decision.reason),
        trace.profile,
        trace.affinity_group,
    )
