"""Deciding one attempt after the other, and those that are placed together or not at all.

Plain functions of their arguments, for one thread of their own. Must not read or write the store.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from copy import copy

from federation.model.errors import NotPlacedTogether
from federation.model.placement import gang_to_join
from federation.scheduler.decide import decide
from federation.scheduler.decision import Outcome
from federation.scheduler.waiting.gangs import unplaced_reason
from federation.scheduler.waiting.queue import Seen
from federation.services.binding_ports import Peers
from federation.services.scheduling.attempt import Attempt
from federation.services.scheduling.decide import draft_of, refuse, reserve, standing_of, tell
from federation.services.scheduling.deciding import decide_anew
from federation.services.scheduling.hooks import let_go
from federation.services.scheduling.moved_groups import (
    decide_moves,
    moves_as_group,
    peers_beside,
    places_of,
)
from federation.services.scheduling.seeing import seen_by, surroundings_of
from federation.services.scheduling.trial_capacity import TrialCapacity
from federation.services.scheduling.working_copy import WorkingCopy


def decide_measured(working: WorkingCopy, attempts: Sequence[Attempt], now: float) -> float:
    """Decide; the CPU seconds that it took: others' work must not shrink the batches."""
    started = time.thread_time()
    decide_all(working, attempts, now)
    # Kept there for the event loop, which must not be held up by the ledgers of all clusters.
    _ = working.after
    return time.thread_time() - started


def decide_all(working: WorkingCopy, attempts: Sequence[Attempt], now: float) -> None:
    """Each on what the ones before it left; what is wrong with one is its own ``error``.

    Where one of an atomic batch is not placed, none is, and nothing may come of the working copy;
    where one of a gang is not, or not all are there, all go on waiting. Bindings that go together
    leave clusters together, or stay.
    """
    if moves_as_group(attempts):
        decide_moves(working, attempts, now)
        return
    for attempt in attempts:
        if attempt.quota is not None:
            attempt.quota.used = attempt.quota.read
    for position, attempt in enumerate(attempts):
        before = attempts[:position] if is_together(attempt) else ()
        decide_anew(working, attempt, now, peers_of(attempt, before))
    missed = [each for each in attempts if each.error or not each.is_placed]
    if attempts and attempts[0].atomic:
        place_all_or_none(attempts, missed)
    elif attempts and attempts[0].is_joining and (missed or attempts[0].gate):
        _leave_waiting(working, attempts, missed, now)


def decide_again(working: WorkingCopy, attempts: Sequence[Attempt], now: float) -> None:
    """The same where they were decided on a fleet that never came to be.

    Shares of whole workloads stay if there is room for them all the same.
    """
    if is_atomic(attempts):
        decide_all(working, attempts, now)
        return
    for attempt in attempts:
        is_whole = attempt.reserved and attempt.verdict.decision.outcome is Outcome.SCHEDULED
        if not is_whole or reserve(working, attempt) is not None:
            decide_all(working, [attempt], now)


def is_atomic(attempts: Sequence[Attempt]) -> bool:
    """Whether all of them are written, or none: an atomic batch, a gang, or who makes room with
    whom.
    """
    first = attempts[0] if attempts else None
    return first is not None and (is_together(first) or first.is_victim)


def is_together(attempt: Attempt) -> bool:
    """Whether it is placed with others or not at all."""
    return bool(attempt.atomic) or attempt.is_joining or attempt.is_companion


def place_all_or_none(attempts: Iterable[Attempt], missed: Sequence[Attempt]) -> None:
    """Where some of an atomic batch are not placed, nothing comes of the others, and they are told
    because of whom.
    """
    if not missed:
        return
    first, unplaced = min(missed, key=lambda each: each.place), frozenset(missed)
    for attempt in attempts:
        attempt.requested = attempt.reserved = attempt.standing = None
        let_go([attempt])
        if attempt not in unplaced:
            attempt.error = not_placed_together(first.place, first.binding.key, len(missed) - 1)


def not_placed_together(place: int, key: str, more: int) -> NotPlacedTogether:
    """What an item is told that was not placed because of the one at that place, from 1."""
    named = f"items[{place - 1}] ({key})" if key else f"items[{place - 1}]"
    others = f", nor {'was' if more == 1 else 'were'} {more} more" if more else ""
    return NotPlacedTogether(
        f"Not placed, because {named} of the same atomic batch was not placed{others}."
    )


def seen_together(working: WorkingCopy, attempts: Sequence[Attempt], now: float) -> Seen:
    """What there is for a gang: room for it as a whole, which is 1, or none; and the clusters that
    let some of it in. Only the working copy is changed. Raises PluginFailed.
    """
    reach: set[str] = set()
    for attempt in attempts:
        around = surroundings_of(attempt, attempt.peers)
        reach |= seen_by(working, attempt.candidate, attempt.profile, around, now).reach
    placed: list[Attempt] = []
    for attempt in attempts:
        trial = _tried(working, attempt, now, placed)
        if trial is None:
            break
        placed.append(trial)
    return Seen(room={"": int(len(placed) == len(attempts))}, reach=frozenset(reach))


def _tried(
    working: WorkingCopy, attempt: Attempt, now: float, before: Sequence[Attempt]
) -> Attempt | None:
    trial = copy(attempt)
    fleet = working.snapshot.fleet_at(now)
    capacity = TrialCapacity(working=working, decision=trial.id, attempt=trial, now=now)
    draft = draft_of(trial, fleet, now, peers_of(trial, before))
    return trial if decide(fleet, draft, capacity, now).decision.is_placed else None


def _leave_waiting(
    working: WorkingCopy, attempts: Sequence[Attempt], missed: Sequence[Attempt], now: float
) -> None:
    """Of a gang that is not complete, or not placed as a whole, nothing is."""
    first = attempts[0]
    if first.again:
        # It is tried again after a while: what failed may pass.
        first.error = next((each.error for each in attempts if each.error), None)
    gang, why = gang_to_join(first.candidate), first.gate
    if gang is not None and not why:
        lacking = missed[0]
        why = unplaced_reason(gang, lacking.binding.name, lacking.lack, len(missed) - 1)
    working.forget()
    for attempt in attempts:
        attempt.requested = attempt.reserved = None
        let_go([attempt])
        # What is wrong with one that joins it is told alone: the others wait as before.
        if attempt.is_companion:
            attempt.error = attempt.error or first.error
        if attempt.error is None and attempt.is_placed:
            refuse(attempt, {"": why})
            attempt.standing = standing_of(attempt)
        elif attempt.error is None and first.gate:
            tell(attempt, why)
    is_ready = not (first.gate or first.has_waited_for_reports)
    unseen = dict.fromkeys(name for each in missed for name in each.unseen_in)
    first.unseen_in = tuple(unseen) if is_ready else ()
    if first.again and first.error is None:
        first.seen = seen_together(working, attempts, now)
        working.forget()


def peers_of(attempt: Attempt, before: Sequence[Attempt]) -> Peers:
    """Its peers as they were read, and those that were placed before it and go with it."""
    return peers_beside(attempt, [(each, names) for each in before if (names := places_of(each))])
