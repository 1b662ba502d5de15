"""Reading: the facts that the store has about bindings, and the bindings as they are to be decided.

Must not decide anything, nor keep a transaction open.
"""

from __future__ import annotations

from collections.abc import Sequence

from federation.model.errors import Conflict, FederationError
from federation.model.placement import Binding, BindingVersion, is_grouped
from federation.scheduler.plugins.profile import Profile, Profiles
from federation.scheduler.waiting.kept import MAX_EARMARKS
from federation.services.binding_ports import StoredBinding
from federation.services.ports import Transaction
from federation.services.scheduling.attempt import (
    NO_EARMARKED,
    NO_HOLDING,
    Attempt,
    EarmarkedBindings,
    StoredFacts,
)
from federation.services.scheduling.drafts import asked_binding, candidate_of, moved_candidate
from federation.services.scheduling.earmarks import MAX_NOMINATED
from federation.services.scheduling.quotas import read_quotas


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
