"""Decisions: the binding as it is to be decided, the cycle over it, and the room it takes.

Plain functions of their arguments, for one thread of their own: one attempt after the other on a
working copy. Must not read or write the store.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from federation.capacity.reserve import Refused
from federation.failover.moves import (
    PLANNED_MOVE,
    PREEMPTED,
    PROMISE_ENDED,
    TAINT_UNTOLERATED,
    eviction_tasks,
    with_evictions,
)
from federation.model.errors import FederationError, NotFound, PreconditionFailed
from federation.model.estimate import Estimates
from federation.model.placement import Binding, Certificate, EvictionTask, binding_key
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import NO_REASON, Reason
from federation.model.reservations import Share
from federation.scheduler.decision import Decision, Outcome
from federation.scheduler.promisable import stuck_notes, without_room
from federation.scheduler.replay import DecisionInputs
from federation.scheduler.resolved_placement import group_of_clusters
from federation.scheduler.scarcity import with_scarcity
from federation.scheduler.triggers import evicting_taints, is_settled, leaving, triggers_of
from federation.services.binding_ports import Peers, StoredBinding
from federation.services.fleet.snapshot import FleetSnapshot
from federation.services.scheduling.answer import decision_record
from federation.services.scheduling.attempt import Attempt
from federation.services.scheduling.claims import awaited, beside_claims
from federation.services.scheduling.fresh_reports import unseen_in
from federation.services.scheduling.hooks import keep, let_go
from federation.services.scheduling.quotas import beyond
from federation.services.scheduling.refusals import remember, tell_as_before
from federation.services.scheduling.seeing import seen_by, surroundings_of
from federation.services.scheduling.shares import NO_SHARES, Reserved, parts, shares_of
from federation.services.scheduling.unpromised import beside_unpromised
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


def request_room(working: WorkingCopy, attempt: Attempt, asked: Certificate | None) -> None:
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


def decide_anew(working: WorkingCopy, attempt: Attempt, now: float, peers: Peers) -> None:
    """Decide as if nobody had decided before; what is wrong with it is its ``error``."""
    attempt.requested = attempt.reserved = attempt.standing = attempt.error = None
    attempt.losses, attempt.unseen_in, attempt.nominated = {}, (), None
    attempt.is_beyond_quota = False
    let_go([attempt])
    try:
        decide_one(working, attempt, now, peers)
    except FederationError as error:
        attempt.error = error


def decide_one(working: WorkingCopy, attempt: Attempt, now: float, peers: Peers) -> None:
    """Decide, and take room where there is some. Raises FederationError."""
    asked = attempt.candidate.certificate or attempt.profile.certificate
    attempt.awaits = awaited(working, attempt.known, now)
    available = working.availability(attempt.candidate, asked)
    available, kept_for = beside_claims(working, attempt, available, now)
    if attempt.stated is not None:
        available = attempt.stated.within(available, working.snapshot.positions)
    if not kept_for and tell_as_before(working, attempt, available, now, peers):
        return
    attempt.is_refined = False
    attempt.verdict = verdict_of(attempt, working.snapshot, available, now, peers)
    if _may_look_again(working, attempt) and not kept_for:
        more = working.answers.looked_again(_as_decided(attempt), asked, available)
        if more is not None:
            attempt.is_refined = True
            attempt.verdict = verdict_of(attempt, working.snapshot, more, now, peers)
    if attempt.stated is not None and attempt.is_placed:
        attempt.stated.check(attempt.candidate, attempt.verdict.decision)
    if not attempt.is_placed:
        _tell_scarcity(working, attempt, asked, ())
        if not kept_for:
            remember(working, attempt, available, peers)
        for why in filter(None, (kept_for, attempt.awaits)):
            tell(attempt, why)
        _look_back(working, attempt, now)
        return
    request_room(working, attempt, asked)
    attempt.standing = standing_of(attempt)
    if attempt.standing is None:
        _take_room(working, attempt, asked, now)
    _look_back(working, attempt, now)


def _as_decided(attempt: Attempt) -> Binding:
    """The binding without the clusters that it had to leave."""
    inputs = attempt.verdict.inputs
    return inputs.binding if isinstance(inputs, DecisionInputs) else attempt.candidate


def _may_look_again(working: WorkingCopy, attempt: Attempt) -> bool:
    """Whether it is about to be refused for good: no report that is asked for now will help.

    What waits is decided again with reports anyway, and a plan does not count on luck.
    """
    return (
        attempt.verdict.decision.outcome is Outcome.UNSCHEDULABLE
        and not attempt.again
        and attempt.stated is None
        and not unseen_in(working, attempt)
    )


def _take_room(
    working: WorkingCopy, attempt: Attempt, asked: Certificate | None, now: float
) -> None:
    """What its quota leaves, what plugins keep for it, and room for its shares; where one of them
    is not to be had, none is taken, and the reason says why.
    """
    if objection := beyond(attempt) or keep(working, attempt, now):
        refuse(attempt, {"": objection})
        attempt.standing = standing_of(attempt)
    elif refused := reserve(working, attempt):
        let_go([attempt])
        refuse(attempt, refused.reasons)
        _tell_scarcity(working, attempt, asked, refused.reasons)


def refuse(attempt: Attempt, reasons: Mapping[str, Reason]) -> None:
    """Nothing of it is placed; why not, as ``without_room`` takes it."""
    attempt.requested = None
    decision = without_room(attempt.verdict.decision, reasons)
    attempt.verdict = replace(attempt.verdict, decision=decision, refused=reasons)


def _look_back(working: WorkingCopy, attempt: Attempt, now: float) -> None:
    """Note what one that waits on was refused beside."""
    if attempt.again and not attempt.has_progressed:
        attempt.seen = seen_by(
            working,
            attempt.candidate,
            attempt.profile,
            surroundings_of(attempt, attempt.peers),
            now,
        )


def verdict_of(
    attempt: Attempt, snapshot: FleetSnapshot, available: Estimates, now: float, peers: Peers
) -> Verdict:
    """The decision on one snapshot, with why it was made and the reports it was made on; and the
    evictions that it leaves.

    Clusters with NoExecute taints that the binding does not tolerate (any more) count as left.
    """
    binding, known, planned = attempt.candidate, attempt.known, attempt.stated
    fleet = snapshot.fleet_at(now)
    # What waits for room moves nothing that has some, and a plan moves what it says alone.
    taints = {} if attempt.again or planned else evicting_taints(binding, fleet, now)
    before = known.binding if known else None
    ended = _reservation_end(attempt, snapshot.positions)
    triggers = triggers_of(before, binding, fleet, taints, ended, by_queue=attempt.again)
    around = surroundings_of(attempt, peers, planned.triggers if planned else triggers)
    available, taken = beside_unpromised(attempt, snapshot.positions, available)
    remaining = planned.whole(binding) if planned else leaving(binding, {**taints, **taken})
    if not planned:
        around = replace(around, is_settled=is_settled(before, remaining))
    if attempt.takes_back is not None:
        # The share may be of another affinity group than what replaced it.
        group = group_of_clusters(binding, fleet)
        around = replace(
            around,
            observed_affinity=group or around.observed_affinity,
            is_settled=is_settled(None, remaining),
        )
    inputs = DecisionInputs(
        binding=remaining, fleet=fleet, profile=attempt.profile, surroundings=around
    )
    decision = inputs.decide(available, now)
    if planned and before:
        attempt.evictions = planned.evictions(before, decision.clusters, now)
    else:
        tasks = eviction_tasks(binding, taints, decision.clusters, now)
        leaves = replace(binding, eviction_tasks=tasks)
        attempt.evictions = with_evictions(leaves, PROMISE_ENDED, taken, decision.clusters, now)
    return Verdict(decision=decision, evidence=snapshot.evidence_at(now), inputs=inputs)


def _tell_scarcity(
    working: WorkingCopy,
    attempt: Attempt,
    asked: Certificate | None,
    refused_in: Collection[str],
) -> None:
    """Nothing is placed; the reason says what is scarce, in the clusters that refused their share
    or in those that came into question. Others may have room once all that is promised is seen.
    """
    attempt.unseen_in = unseen_in(working, attempt)
    positions, decision = working.snapshot.positions, attempt.verdict.decision
    decision = with_scarcity(
        decision,
        attempt.candidate,
        partial(working.availability, asked=asked),
        refused=[positions[name] for name in refused_in if name in positions],
        stuck=stuck_notes(decision.trace.inputs.estimate_reasons, working.snapshot.names),
        remembered=working.scarcities(asked),
    )
    attempt.verdict = replace(attempt.verdict, decision=decision)
    attempt.standing = standing_of(attempt)


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
