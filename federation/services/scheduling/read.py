"""Reading: the facts that the store has about bindings, and the bindings as they are to be decided.

Must not decide anything, nor keep a transaction open.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from federation.model.errors import Conflict, FederationError, NotFound, PreconditionFailed
from federation.model.placement import (
    Binding,
    BindingVersion,
    EvictionTask,
    binding_key,
    is_grouped,
)
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import NO_REASON, Reason
from federation.scheduler.decide import Draft
from federation.scheduler.fleet import Fleet
from federation.scheduler.plugins.profile import Profile, Profiles
from federation.scheduler.resolved_placement import group_of_clusters
from federation.scheduler.triggers import evicting_taints, is_settled, leaving, triggers_of
from federation.scheduler.waiting.kept import MAX_EARMARKS
from federation.services.binding_ports import Peers, StoredBinding
from federation.services.ports import Transaction
from federation.services.scheduling.attempt import (
    NO_EARMARKED,
    NO_HOLDING,
    Attempt,
    EarmarkedBindings,
    StoredFacts,
)
from federation.services.scheduling.earmarks import MAX_NOMINATED
from federation.services.scheduling.eligible_clusters import context_of
from federation.services.scheduling.quotas import read_quotas
from federation.services.scheduling.stated_moves import UndoneEviction

# What times are told apart by.
MIN_SECONDS = 0.001


def candidate_of(binding: Binding, stored: StoredBinding | None, *, adopt: bool) -> Binding:
    """The binding as it will be decided: what is asked for now, on what is known of it.

    Raises PreconditionFailed when the stored one has another uid.
    """
    if stored is None:
        fresh, affinity = _is_fresh(binding), binding.observed_affinity
        stated = binding.generation, binding.resource_version, binding.fresh, affinity
        if stated == (1, 0, fresh, ""):
            return binding
        return replace(binding, generation=1, resource_version=0, fresh=fresh, observed_affinity="")
    former = stored.binding
    if binding.uid and former.uid and binding.uid != former.uid:
        raise other_uid(former, binding.uid)
    candidate = replace(
        binding,
        uid=binding.uid or former.uid,
        clusters=binding.clusters if adopt else former.clusters,
        eviction_tasks=(*_others(binding), *_ours(former)),
        last_scheduled_time=former.last_scheduled_time,
        is_unsettled=binding.is_unsettled or former.is_unsettled,
        observed_affinity="",
        clusters_are_stated=former.clusters_are_stated,
        generation=former.generation,
        resource_version=former.resource_version,
        stored_id=former.stored_id,
        expected_version=None,
    )
    if not asks_the_same(candidate, former):
        candidate = replace(candidate, generation=former.generation + 1)
    return replace(candidate, fresh=_is_fresh(candidate))


def moved_candidate(attempt: Attempt, candidate: Binding) -> Binding:
    """The binding where it is to be, if it is moved.

    Raises PreconditionFailed where that cannot be.
    """
    return candidate if attempt.stated is None else attempt.stated.candidate(candidate)


def asked_binding(attempt: Attempt, stored: StoredBinding | None) -> Binding:
    """The binding as it is asked for: as it is stored, where only another decision is, or where it
    is decided with another one of its gang.

    Raises NotFound when that is not there, or does not wait any more, and PreconditionFailed for
    another uid, or when it was suspended.
    """
    binding, wait = attempt.binding, stored.wait if stored else None
    if attempt.is_retried:
        if stored is None or wait is None or not wait.is_tried:
            raise NotFound(f"Binding {binding.key!r} does not wait any more.")
        return stored.binding
    is_suspended = wait is not None and wait.is_suspended
    if is_suspended or (attempt.is_moved and stored is not None and stored.binding.suspended):
        raise PreconditionFailed(
            f"Binding {binding.key!r} was suspended: resume it first.", reason="SUSPENDED"
        )
    if attempt.rescheduled_at is None and not (attempt.is_moved or attempt.is_companion):
        return binding
    if stored is None:
        raise no_binding(binding.namespace, binding.name)
    if attempt.rescheduled_at is None:
        return stored.binding
    if binding.uid and binding.uid != stored.binding.uid:
        raise other_uid(stored.binding, binding.uid)
    # By whatever clock it was scheduled last, it is to be redone.
    last = stored.binding.last_scheduled_time or 0.0
    triggered_at = max(attempt.rescheduled_at, last + MIN_SECONDS)
    return replace(stored.binding, reschedule_triggered_at=triggered_at)


def no_binding(namespace: str, name: str) -> NotFound:
    return NotFound(f"There is no binding {binding_key(namespace, name)!r}.")


def asks_the_same(one: Binding, other: Binding) -> bool:
    """Whether two bindings of one name ask for the same, wherever they run."""
    return _spec_of(one) == _spec_of(other)


def other_uid(stored: Binding, uid: str) -> PreconditionFailed:
    return PreconditionFailed(
        f"Binding {stored.key!r} has metadata.uid {stored.uid!r}, not {uid!r}: "
        "delete it before another one takes its name."
    )


def draft_of(attempt: Attempt, fleet: Fleet, now: float, peers: Peers) -> Draft:
    """Return the attempt as a draft: without the clusters that the binding has to leave."""
    binding, stored, planned = attempt.candidate, attempt.facts.stored, attempt.stated
    former, taints = stored.binding if stored else None, _evicting(attempt, fleet, now)
    if planned is not None:
        remaining, triggers = planned.whole(binding), planned.triggers
    else:
        remaining = leaving(binding, taints)
        ended = _reservation_end(attempt, fleet.index)
        triggers = triggers_of(former, binding, fleet, taints, ended, by_queue=attempt.is_retried)
    context = context_of(attempt, peers, triggers)
    if isinstance(planned, UndoneEviction):
        # The share may be of another affinity group than what replaced it.
        group = group_of_clusters(binding, fleet)
        context = replace(
            context,
            observed_affinity=group or context.observed_affinity,
            is_settled=is_settled(None, remaining),
        )
    elif planned is None:
        context = replace(context, is_settled=is_settled(former, remaining))
    return Draft(
        binding=binding,
        remaining=remaining,
        profile=attempt.profile,
        surroundings=context,
        evicting=taints,
        unreserved=attempt.unpromised,
    )


def _evicting(attempt: Attempt, fleet: Fleet, now: float) -> Mapping[str, str]:
    """The NoExecute taints, by cluster, for which the binding has to leave.

    A binding that waits for room moves nothing that has some, and a plan moves what it says alone.
    """
    if attempt.is_retried or attempt.stated:
        return {}
    return evicting_taints(attempt.candidate, fleet, now)


def _reservation_end(attempt: Attempt, positions: Mapping[str, int]) -> Reason:
    """How what was reserved for the binding has ended, NO_REASON where it is held still.

    In a cluster that is gone nothing can be held: that is a reason of its own.
    """
    former = attempt.former
    if former is None or former.last_scheduled_time is None:
        return NO_REASON
    if attempt.facts.holding.has_expired:
        return Reason(ReasonCode.LEASE_ENDED)
    ran = {item.name for item in former.clusters if item.replicas and item.name in positions}
    is_held = ran.issubset(attempt.facts.holding.clusters)
    return NO_REASON if is_held else Reason(ReasonCode.PROMISE_RELEASED)


def _is_fresh(binding: Binding) -> bool:
    """A reschedule was triggered after the last scheduling; never scheduled is nothing to redo."""
    triggered, last = binding.reschedule_triggered_at, binding.last_scheduled_time
    return triggered is not None and last is not None and triggered > last


def _ours(binding: Binding) -> Iterator[EvictionTask]:
    return (item for item in binding.eviction_tasks if item.is_ours)


def _others(binding: Binding) -> Iterator[EvictionTask]:
    return (item for item in binding.eviction_tasks if not item.is_ours)


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


async def read_attempts(
    read: Transaction, attempts: Sequence[Attempt], profiles: Profiles, history: str
) -> None:
    """Add the facts of the store to attempts, or an ``error``.

    Reservations are read after the bindings. If they are newer, nothing is committed with them.
    ``history`` is that of the database.
    """
    rows = await read.bindings.to_decide([attempt.key for attempt in attempts])
    bindings = rows.known
    holdings = await read.reservations.holdings(bindings.keys()) if bindings else {}
    earmarks = await _earmarks(read, profiles, room_is_kept=rows.room_is_kept)
    for attempt in attempts:
        holding = holdings.get(attempt.key, NO_HOLDING)
        attempt.facts = StoredFacts(
            stored=bindings.get(attempt.key), holding=holding, earmarks=earmarks
        )
    if rows.has_quotas:
        await read_quotas(read, attempts)
    for attempt in attempts:
        stored, attempt.error = attempt.facts.stored, None
        try:
            if attempt.key in rows.unread:
                raise rows.unread[attempt.key]
            check_version(attempt.binding, stored, history)
            attempt.binding = asked_binding(attempt, stored)
            attempt.profile = profiles.profile_of(attempt.binding)
            candidate = candidate_of(attempt.binding, stored, adopt=attempt.adopt)
            attempt.candidate = moved_candidate(attempt, candidate)
        except FederationError as error:
            attempt.error = error
            continue
        if is_grouped(attempt.candidate):
            attempt.facts.peers = await read.bindings.peers(attempt.candidate)
    repeated = {
        attempt.facts.stored.decision_id: attempt
        for attempt in attempts
        if attempt.error is None
        and attempt.facts.stored
        and not attempt.is_retried
        and attempt.stated is None
        and attempt.candidate == attempt.facts.stored.binding
    }
    for decision_id, newest in (await read.decisions.find(repeated.keys())).items():
        repeated[decision_id].facts.newest = newest


def check_version(binding: Binding, stored: StoredBinding | None, history: str) -> None:
    """Raise Conflict if the stored binding is not in the state that the caller has read."""
    expected = binding.expected_version
    if expected is None:
        return
    current = stored and BindingVersion(history, stored.id, stored.binding.resource_version)
    if current != expected:
        state = f"is at version {current}" if current else "is gone"
        raise Conflict(f"Binding {binding.key!r} {state}, not at {expected}: read it again.")


async def _earmarks(
    read: Transaction, profiles: Profiles, *, room_is_kept: bool
) -> EarmarkedBindings:
    """Return the waiting bindings that room is kept for."""
    earmarked: Sequence[StoredBinding] = ()
    if room_is_kept:
        earmarked = await read.bindings.earmarked(MAX_EARMARKS, MAX_NOMINATED)
    # Nobody overtakes in these profiles.
    strict = profiles.strict_names
    first = await read.bindings.first_waiting(strict) if strict else ()
    if not (earmarked or first):
        return NO_EARMARKED
    return EarmarkedBindings(
        earmarked=_with_profiles(earmarked, profiles), first=_with_profiles(first, profiles)
    )


def _with_profiles(
    bindings: Sequence[StoredBinding], profiles: Profiles
) -> Sequence[tuple[StoredBinding, Profile]]:
    return [
        (stored, profiles.profile_of(stored.binding))
        for stored in bindings
        if not profiles.violations_of(stored.binding)
    ]
