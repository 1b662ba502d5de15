"""Deciding batches: one attempt after the other, or all of them placed or none.

Plain functions of their arguments, for one thread of their own. Must not read or write the store.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from functools import partial
from uuid import uuid4

from federation.model.errors import NotPlacedTogether
from federation.model.placement import Binding, gang_to_join
from federation.scheduler.decide import decide_each, decide_moves, settle_gang
from federation.scheduler.decision import Outcome
from federation.scheduler.waiting.queue import Seen
from federation.services.scheduling.attempt import Attempt, AttemptCause, AttemptRole
from federation.services.scheduling.deciding import (
    AttemptBatch,
    TrialCapacity,
    is_together,
    tried_together,
)
from federation.services.scheduling.eligible_clusters import context_of, find_eligible
from federation.services.scheduling.hooks import let_go
from federation.services.scheduling.verdicts import reserve
from federation.services.scheduling.working_copy import WorkingCopy


def moved_attempts(bindings: Iterable[Binding]) -> list[Attempt]:
    """Return attempts at moves that are committed together, or not at all."""
    batch = str(uuid4())
    return [
        Attempt(binding=binding, cause=AttemptCause.MOVED, place=place, atomic=batch)
        for place, binding in enumerate(bindings, start=1)
    ]


def moves_as_group(attempts: Sequence[Attempt]) -> bool:
    """Tell whether these are the moves of one group."""
    return bool(attempts) and bool(attempts[0].atomic) and attempts[0].is_moved


def decide_measured(working: WorkingCopy, attempts: Sequence[Attempt], now: float) -> float:
    """Decide, and return the CPU seconds: the work of other threads must not shrink batches."""
    started = time.thread_time()
    decide_all(working, attempts, now)
    # Computed here: the ledgers of all clusters would hold up the event loop.
    _ = working.after_commit
    return time.thread_time() - started


def decide_all(working: WorkingCopy, attempts: Sequence[Attempt], now: float) -> None:
    """Decide attempts in order on the working copy. An error of one becomes its ``error``.

    If one of an atomic batch is not placed, none is, and the working copy must be dropped. If a
    gang is incomplete, or one member is not placed, all of it waits. A group of bindings leaves
    clusters as a whole, or stays.
    """
    batch = AttemptBatch(working=working, attempts=attempts, now=now)
    if moves_as_group(attempts):
        decide_moves(batch)
        return
    missed = decide_each(batch)
    if attempts and attempts[0].atomic:
        place_all_or_none(attempts, [attempts[position] for position in missed])
    elif attempts and attempts[0].is_joining and (missed or attempts[0].gang.gate):
        _leave_waiting(batch, missed)


def decide_again(working: WorkingCopy, attempts: Sequence[Attempt], now: float) -> None:
    """Decide attempts again whose working copy was built on a batch that failed.

    Shares of whole workloads stay if there is room for them.
    """
    if is_atomic(attempts):
        decide_all(working, attempts, now)
        return
    for attempt in attempts:
        is_whole = attempt.result.reserved and attempt.decision.outcome is Outcome.SCHEDULED
        if not is_whole or reserve(working, attempt) is not None:
            decide_all(working, [attempt], now)


def is_atomic(attempts: Sequence[Attempt]) -> bool:
    """Tell whether all of them are written, or none.

    They are an atomic batch, a gang, or a preempting attempt with its victims.
    """
    first = attempts[0] if attempts else None
    return first is not None and (is_together(first) or first.role is AttemptRole.VICTIM)


def place_all_or_none(attempts: Iterable[Attempt], missed: Sequence[Attempt]) -> None:
    """Withdraw all of an atomic batch if some ``missed`` their places.

    The others get an error that names the first of these.
    """
    if not missed:
        return
    first, unplaced = min(missed, key=lambda attempt: attempt.place), frozenset(missed)
    for attempt in attempts:
        attempt.result.requested = attempt.result.reserved = attempt.result.standing = None
        let_go([attempt])
        if attempt not in unplaced:
            attempt.error = not_placed_together(first.place, first.binding.key, len(missed) - 1)


def not_placed_together(place: int, key: str, further: int) -> NotPlacedTogether:
    """Return the error of an item that was not placed because of another one.

    The other one has this place, from 1. ``further`` items were not placed either.
    """
    named = f"items[{place - 1}] ({key})" if key else f"items[{place - 1}]"
    rest = f", nor {'was' if further == 1 else 'were'} {further} more" if further else ""
    return NotPlacedTogether(
        f"Not placed, because {named} of the same atomic batch was not placed{rest}."
    )


def seen_together(working: WorkingCopy, attempts: Sequence[Attempt], now: float) -> Seen:
    """Return the room for a gang as a whole (1 or 0), and the clusters that pass for members.

    Only the working copy is changed. Raises PluginFailed.
    """
    reach: set[str] = set()
    for attempt in attempts:
        context = context_of(attempt, attempt.facts.peers)
        reach |= find_eligible(working, attempt.candidate, attempt.profile, context, now).reach
    places = tried_together(attempts, partial(TrialCapacity.of, working, now=now))
    return Seen(room={"": int(places is not None)}, reach=frozenset(reach))


def _leave_waiting(batch: AttemptBatch, missed: Sequence[int]) -> None:
    """Withdraw a gang that is not complete, or not placed as a whole."""
    attempts = batch.attempts
    first, gang = attempts[0], gang_to_join(attempts[0].candidate)
    if gang is None:
        raise LookupError(f"{first.candidate.key} joins no gang")
    if first.is_retried:
        # It is tried again after a while: the fault may pass.
        first.error = next((attempt.error for attempt in attempts if attempt.error), None)
    settle_gang(batch, gang, missed, first.gang.gate)
    is_ready = not (first.gang.gate or first.has_waited_for_reports)
    unseen = dict.fromkeys(
        name for position in missed for name in attempts[position].result.unseen_in
    )
    first.result.unseen_in = tuple(unseen) if is_ready else ()
    if first.is_retried and first.error is None:
        first.result.seen = seen_together(batch.working, attempts, batch.now)
        batch.undo()
