"""Drafts of decisions: the binding as it is to be decided, and what becomes of it once it is.

Plain functions of their arguments, for one thread of their own: one attempt after the other on a
working copy. Must not read or write the store.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
from federation.model.errors import NotFound, PreconditionFailed
from federation.model.placement import Binding, Certificate, EvictionTask, binding_key
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import NO_REASON, Reason
from federation.model.reservations import Share
from federation.scheduler.decide import Decided, Draft
from federation.scheduler.decision import Decision
from federation.scheduler.fleet import Fleet
from federation.scheduler.promisable import without_room
from federation.scheduler.resolved_placement import group_of_clusters
from federation.scheduler.triggers import evicting_taints, is_settled, leaving, triggers_of
from federation.services.binding_ports import Peers, StoredBinding
from federation.services.fleet.snapshot import FleetSnapshot
from federation.services.scheduling.answer import decision_record
from federation.services.scheduling.attempt import Attempt
from federation.services.scheduling.seeing import surroundings_of
from federation.services.scheduling.shares import (
    NO_SHARES,
    ReservationRequest,
    Reserved,
    parts,
    shares_of,
)
from federation.services.scheduling.working_copy import WorkingCopy
from federation.services.values import DecisionRecord, Verdict

# What times are told apart by.
LEAST_SECONDS = 0.001


def candidate_of(binding: Binding, known: StoredBinding | None, *, adopt: bool) -> Binding:
    """The binding as it will be decided: what is asked for now, on what is known of it.

    Raises PreconditionFailed when the known one has another uid.
    """
    if known is None:
        fresh, affinity = _is_fresh(binding), binding.observed_affinity
        stated = binding.generation, binding.resource_version, binding.fresh, affinity
        if stated == (1, 0, fresh, ""):
            return binding
        return replace(binding, generation=1, resource_version=0, fresh=fresh, observed_affinity="")
    before = known.binding
    if binding.uid and before.uid and binding.uid != before.uid:
        raise other_uid(before, binding.uid)
    candidate = replace(
        binding,
        uid=binding.uid or before.uid,
        clusters=binding.clusters if adopt else before.clusters,
        eviction_tasks=(*_others(binding), *_ours(before)),
        last_scheduled_time=before.last_scheduled_time,
        is_unsettled=binding.is_unsettled or before.is_unsettled,
        observed_affinity="",
        clusters_are_stated=before.clusters_are_stated,
        generation=before.generation,
        resource_version=before.resource_version,
        stored_id=before.stored_id,
        expected_version=None,
    )
    if not asks_the_same(candidate, before):
        candidate = replace(candidate, generation=before.generation + 1)
    return replace(candidate, fresh=_is_fresh(candidate))


def moved_candidate(attempt: Attempt, candidate: Binding) -> Binding:
    """Where it is to be, of one that is moved. Raises PreconditionFailed where that cannot be."""
    return candidate if attempt.stated is None else attempt.stated.candidate(candidate)


def asked_binding(attempt: Attempt, known: StoredBinding | None) -> Binding:
    """The binding as it is asked for: as it is stored, where only another decision is, or where it
    is decided with another one of its gang.

    Raises NotFound when that is not there, or does not wait any more, and PreconditionFailed for
    another uid, or when it was suspended.
    """
    binding, wait = attempt.binding, known.wait if known else None
    if attempt.again:
        if known is None or wait is None or not wait.is_tried:
            raise NotFound(f"Binding {binding.key!r} does not wait any more.")
        return known.binding
    is_suspended = wait is not None and wait.is_suspended
    if is_suspended or (attempt.is_moved and known is not None and known.binding.suspended):
        raise PreconditionFailed(
            f"Binding {binding.key!r} was suspended: resume it first.", reason="SUSPENDED"
        )
    if attempt.rescheduled_at is None and not (attempt.is_moved or attempt.is_companion):
        return binding
    if known is None:
        raise no_binding(binding.namespace, binding.name)
    if attempt.rescheduled_at is None:
        return known.binding
    if binding.uid and binding.uid != known.binding.uid:
        raise other_uid(known.binding, binding.uid)
    # By whatever clock it was scheduled last, it is to be redone.
    last = known.binding.last_scheduled_time or 0.0
    triggered_at = max(attempt.rescheduled_at, last + LEAST_SECONDS)
    return replace(known.binding, reschedule_triggered_at=triggered_at)


def no_binding(namespace: str, name: str) -> NotFound:
    return NotFound(f"There is no binding {binding_key(namespace, name)!r}.")


def asks_the_same(one: Binding, other: Binding) -> bool:
    """Whether two bindings of one name ask for the same, wherever they run."""
    return _spec_of(one) == _spec_of(other)


def other_uid(known: Binding, uid: str) -> PreconditionFailed:
    return PreconditionFailed(
        f"Binding {known.key!r} has metadata.uid {known.uid!r}, not {uid!r}: "
        "delete it before another one takes its name."
    )


def reserve(working: WorkingCopy, attempt: Attempt) -> Refused | None:
    """Take the room that was requested, for all shares or for none; None where it was taken."""
    if attempt.requested is None:
        return None
    reserved = working.reserve(attempt.requested)
    if isinstance(reserved, Refused):
        return reserved
    _take(attempt, reserved)
    return None


def reserve_less(working: WorkingCopy, attempts: Sequence[Attempt]) -> bool:
    """Leave to all of these what was requested, which is less than they have; whether that was."""
    reserved = working.reserve_less([each.requested for each in attempts if each.requested])
    if isinstance(reserved, Refused):
        return False
    for attempt in attempts:
        _take(attempt, reserved[attempt.binding.key])
    return True


def _take(attempt: Attempt, reserved: Reserved) -> None:
    attempt.reserved = reserved
    attempt.verdict = replace(attempt.verdict, promises=reserved.promises)


def tell(attempt: Attempt, why: Reason) -> None:
    """Add to the reason of its decision."""
    decision = attempt.verdict.decision.explained(why)
    attempt.verdict = replace(attempt.verdict, decision=decision)
    attempt.standing = standing_of(attempt)


def request_room(
    working: WorkingCopy, attempt: Attempt, asked: Certificate | None
) -> ReservationRequest:
    """Request what the decision about the attempt takes, and what it leaves."""
    # A plan says where it goes as if it were there.
    placed_as = attempt.known.binding if attempt.known and attempt.stated else attempt.candidate
    attempt.requested = working.request(
        attempt.candidate,
        attempt.id,
        attempt.verdict.decision.clusters,
        asked=asked,
        held=attempt.holding.clusters,
        adopts=attempt.adopts,
        watched=_watched(working, attempt),
        refines=attempt.is_refined,
        placed=placed_as.clusters,
    )
    return attempt.requested


def refuse(attempt: Attempt, reasons: Mapping[str, Reason]) -> None:
    """Nothing of it is placed; why not, as ``without_room`` takes it."""
    attempt.requested = None
    decision = without_room(attempt.verdict.decision, reasons)
    attempt.verdict = replace(attempt.verdict, decision=decision, refused=reasons)


def draft_of(attempt: Attempt, fleet: Fleet, now: float, peers: Peers) -> Draft:
    """Return the attempt as a draft: without the clusters that the binding has to leave."""
    binding, known, planned = attempt.candidate, attempt.known, attempt.stated
    before, taints = known.binding if known else None, _taints(attempt, fleet, now)
    if planned is not None:
        remaining, triggers = planned.whole(binding), planned.triggers
    else:
        remaining = leaving(binding, taints)
        ended = _reservation_end(attempt, fleet.index)
        triggers = triggers_of(before, binding, fleet, taints, ended, by_queue=attempt.again)
    around = surroundings_of(attempt, peers, triggers)
    if attempt.takes_back is not None:
        # The share may be of another affinity group than what replaced it.
        group = group_of_clusters(binding, fleet)
        around = replace(
            around,
            observed_affinity=group or around.observed_affinity,
            is_settled=is_settled(None, remaining),
        )
    elif planned is None:
        around = replace(around, is_settled=is_settled(before, remaining))
    return Draft(
        binding=binding,
        remaining=remaining,
        profile=attempt.profile,
        surroundings=around,
        unreserved=attempt.unpromised,
    )


def verdict_of(decided: Decided[Reserved], snapshot: FleetSnapshot, now: float) -> Verdict:
    """The decision with why it was made, the reports it was made on, and what was reserved."""
    return Verdict(
        decision=decided.decision,
        evidence=snapshot.evidence_at(now),
        inputs=decided.inputs,
        refused=decided.refused,
        promises=decided.reserved.promises if decided.reserved else (),
    )


def take_over(
    attempt: Attempt, decided: Decided[Reserved], snapshot: FleetSnapshot, now: float
) -> None:
    """Make a decision that places it the attempt's, with the evictions that it leaves."""
    attempt.verdict = verdict_of(decided, snapshot, now)
    binding, known, planned = attempt.candidate, attempt.known, attempt.stated
    clusters = decided.decision.clusters
    if planned and known:
        attempt.evictions = planned.evictions(known.binding, clusters, now)
        return
    taints = _taints(attempt, decided.inputs.fleet, now)
    tasks = eviction_tasks(binding, taints, clusters, now)
    leaves = replace(binding, eviction_tasks=tasks)
    attempt.evictions = with_evictions(leaves, PROMISE_ENDED, decided.lapsed, clusters, now)


def _taints(attempt: Attempt, fleet: Fleet, now: float) -> Mapping[str, str]:
    """The NoExecute taints, by cluster, for which the binding has to leave.

    A binding that waits for room moves nothing that has some, and a plan moves what it says alone.
    """
    if attempt.again or attempt.stated:
        return {}
    return evicting_taints(attempt.candidate, fleet, now)


def standing_of(attempt: Attempt) -> DecisionRecord | None:
    """The newest decision where it still stands: nothing changed, this one says the same, what was
    reserved is held still, and what waited does.

    A reschedule that was triggered always is a new decision. Of one that was tried again in vain
    this one is answered, and not kept: to be refused once more is no news, whatever the reason is.
    """
    known, packed, decision = attempt.known, attempt.newest, attempt.verdict.decision
    if known is None or (packed is None and not attempt.again):
        return None
    if attempt.candidate != known.binding and not attempt.again:
        return None
    if attempt.leaves_waiting is not (known.wait is not None):
        return None
    if attempt.is_placed:
        requested, holding = attempt.requested, attempt.holding
        shares = requested.shares.keys() if requested else frozenset()
        leaving = _left_for(attempt, PLANNED_MOVE, PREEMPTED, TAINT_UNTOLERATED)
        is_held = set(holding.clusters) - leaving == set(shares)
        is_held = is_held and not holding.has_expired
        if decision.clusters != known.binding.clusters or not is_held or attempt.adopts:
            return None
    if packed is None:
        return decision_record(attempt, known.decision_id, decision.trace.now)
    newest = packed.unpacked()
    if newest.binding_generation != attempt.candidate.generation:
        return None
    return newest if _gist(newest.decision) == _gist(decision) else None


def _watched(working: WorkingCopy, attempt: Attempt) -> Mapping[str, tuple[Share, ...]]:
    """What it keeps in clusters that it leaves: no replicas where its pods end at once and are
    looked for alone, and what it holds where they stay until others run: any may start as long.
    """
    binding = attempt.candidate
    if not attempt.decided.eviction_tasks:
        return NO_SHARES
    nothing = tuple(each._replace(replicas=0) for each in parts(binding, 0))
    watched = dict.fromkeys(_left_for(attempt, PREEMPTED), nothing)
    for name in _left_for(attempt, PLANNED_MOVE, TAINT_UNTOLERATED):
        position = working.snapshot.positions.get(name)
        if position is not None:
            watched[name] = shares_of(working.ledger(position).newest(binding.key))
    return watched


def _left_for(attempt: Attempt, *reasons: str) -> set[str]:
    """The clusters that it leaves for one of these reasons: its pods may be there still."""
    return {t.from_cluster for t in attempt.decided.eviction_tasks if t.reason in reasons}


def _reservation_end(attempt: Attempt, positions: Mapping[str, int]) -> Reason:
    """How what was reserved for the binding has ended, NO_REASON where it is held still.

    In a cluster that is gone nothing can be held: that is a reason of its own.
    """
    before = attempt.known.binding if attempt.known else None
    if before is None or before.last_scheduled_time is None:
        return NO_REASON
    if attempt.holding.has_expired:
        return Reason(ReasonCode.LEASE_ENDED)
    ran = {each.name for each in before.clusters if each.replicas and each.name in positions}
    is_held = ran.issubset(attempt.holding.clusters)
    return NO_REASON if is_held else Reason(ReasonCode.PROMISE_RELEASED)


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


def _is_fresh(binding: Binding) -> bool:
    """A reschedule was triggered after the last scheduling; never scheduled is nothing to redo."""
    triggered, last = binding.reschedule_triggered_at, binding.last_scheduled_time
    return triggered is not None and last is not None and triggered > last


def _ours(binding: Binding) -> Iterator[EvictionTask]:
    return (each for each in binding.eviction_tasks if each.is_ours)


def _others(binding: Binding) -> Iterator[EvictionTask]:
    return (each for each in binding.eviction_tasks if not each.is_ours)


def _spec_of(binding: Binding) -> Binding:
    """Only what people ask for: what they name it by and where it runs is left out."""
    return replace(
        binding,
        eviction_tasks=tuple(_others(binding)),
        uid="",
        labels={},
        annotations={},
        clusters=(),
        generation=0,
        resource_version=0,
        fresh=False,
        last_scheduled_time=None,
        is_unsettled=False,
        observed_affinity="",
        clusters_are_stated=False,
    )
