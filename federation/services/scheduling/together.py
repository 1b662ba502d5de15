"""Attempts that are decided with others: one after the other, together or not at all, and gangs.

A gang waits until its members are there, and is decided as a whole. Must not decide one attempt:
``deciding`` does.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeAlias
from uuid import uuid4

from federation.model.errors import InvalidRequest, NotPlacedTogether
from federation.model.placement import Binding, BindingName, gang_to_join
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import NO_REASON, Reason, Text, Word
from federation.scheduler.decide import decide_each, decide_moves, settle_gang
from federation.scheduler.decision import Outcome
from federation.scheduler.waiting.gangs import GangEntry, GangMember, Roster, gate_of
from federation.scheduler.waiting.queue import Seen
from federation.services.binding_ports import GangWait, StoredBinding
from federation.services.journal import BindingChanged
from federation.services.ports import Transaction
from federation.services.scheduling.attempt import Attempt, AttemptCause, AttemptRole, GangState
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
from federation.services.values import Scheduled

# Namespace and gang.
GangName: TypeAlias = tuple[str, str]


async def join_gang(read: Transaction, batch: Sequence[Attempt]) -> list[Attempt]:
    """Let attempts join their gang in order. One that cannot join has an ``error``.

    Returns attempts at the members that wait, which are decided with them. There are none if the
    gang is not complete: then its ``gate`` says why.
    """
    for attempt in batch:
        attempt.gang = GangState()
    stored_members = await _of_gang(read, batch[0].candidate)
    roster = Roster(_members(stored_members))
    for attempt in batch:
        joining = GangMember.of(attempt.candidate, None)
        refusal = roster.refusal_of(joining)
        if refusal is None:
            roster.add(joining)
        else:
            attempt.error = InvalidRequest([refusal])
    joined = [attempt for attempt in batch if attempt.error is None]
    if not joined:
        return []
    # The first one stands for all of them when the gang is compared again.
    joined[0].gang.roster = _members(stored_members)
    gang = gang_to_join(joined[0].candidate)
    gate = gate_of(gang, roster.members) if gang else NO_REASON
    for attempt in joined:
        attempt.gang.gate = gate
    if gate:
        return []
    joining_names = {attempt.candidate.name for attempt in joined}
    return [
        Attempt(
            binding=member.binding,
            # A gated member is decided for the first time.
            cause=AttemptCause.RETRIED if member.wait.is_tried else AttemptCause.STATED,
            role=AttemptRole.COMPANION,
            answer=_nobody(),
        )
        for member in stored_members
        if gang_to_join(member.binding)
        and member.wait is not None
        and member.binding.name not in joining_names
    ]


def joins_gang(attempt: Attempt) -> bool:
    """Tell whether it is placed with others of its gang, or not at all."""
    return not attempt.atomic and gang_to_join(attempt.candidate) is not None


def with_companions(joined: Sequence[Attempt], companions: Sequence[Attempt]) -> Sequence[Attempt]:
    """Return all attempts that are decided together.

    If a companion cannot be decided, the gang is gated and the companions are left out.
    """
    wrong = next((member for member in companions if member.error is not None), None)
    if wrong is not None:
        gate = Reason.of(
            ReasonCode.GANG_MEMBER_WRONG, Word(wrong.binding.name), Text(str(wrong.error))
        )
        for attempt in joined:
            attempt.gang.gate = gate
        companions = ()
    joined[0].gang.companions = tuple(companions)
    return [*joined, *companions]


async def has_same_gang(tx: Transaction, attempt: Attempt) -> bool:
    """Tell whether its gang is as it was when it was read."""
    if attempt.gang.roster is None:
        return True
    return _members(await _of_gang(tx, attempt.candidate)) == attempt.gang.roster


def bindings_to_lock(attempts: Iterable[Attempt]) -> Iterator[Binding]:
    """Yield bindings of all groups and gangs that the attempts change."""
    for attempt in attempts:
        yield attempt.candidate
        if attempt.former and attempt.former.gang != attempt.candidate.gang:
            yield attempt.former


async def settle_gangs(tx: Transaction, attempts: Sequence[Attempt]) -> list[BindingChanged]:
    """Settle the waits of all gangs that written attempts change. Return the journal's changes."""
    gangs = {name for attempt in attempts for name in _changed_by(attempt)}
    written = frozenset(attempt.key for attempt in attempts)
    changes = []
    for name in sorted(gangs):
        changes += await settle_stored_gang(tx, name, besides=written)
    return changes


async def settle_stored_gang(
    tx: Transaction, name: GangName, besides: Collection[BindingName] = ()
) -> list[BindingChanged]:
    """Let the members of a gang that have no place wait together.

    Returns changes for the journal: the members that may be tried from now on, or no longer, but
    for the names in ``besides``.
    """
    stored_members = await tx.bindings.of_gang(*name)
    members = _members(stored_members)
    waiting = [member for member in stored_members if _waits_together(member)]
    if not waiting:
        return []
    entry = GangEntry.of([member.binding for member in waiting], members)
    await tx.waiting.put_together(
        GangWait(
            binding_ids=[member.id for member in waiting],
            gang=name[1],
            entry=entry.first,
            priority=entry.priority,
            gate=str(entry.gate),
            short_of=str(entry.lacks),
            timeout_seconds=entry.timeout_seconds,
        )
    )
    return [
        BindingChanged.of(member.binding, decision=member.decision_id, waits=True)
        for member in waiting
        if member.wait and member.wait.is_tried is bool(entry.gate) and _key(member) not in besides
    ]


def _changed_by(attempt: Attempt) -> Iterator[GangName]:
    """Yield the gangs whose waits an attempt changes."""
    former, candidate = attempt.former, attempt.candidate
    is_unchanged = former is not None and former.gang == candidate.gang and former.clusters
    if is_unchanged and attempt.is_placed:
        return
    for binding in (former, candidate):
        if binding is not None and binding.gang is not None:
            yield binding.namespace, binding.gang.name


async def _of_gang(read: Transaction, binding: Binding) -> Sequence[StoredBinding]:
    if binding.gang is None:
        return ()
    return await read.bindings.of_gang(binding.namespace, binding.gang.name)


def _members(bindings: Iterable[StoredBinding]) -> tuple[GangMember, ...]:
    return tuple(GangMember.of(stored.binding, stored.wait) for stored in bindings)


def _waits_together(stored: StoredBinding) -> bool:
    wait = stored.wait
    return wait is not None and not wait.is_suspended and gang_to_join(stored.binding) is not None


def _key(stored: StoredBinding) -> BindingName:
    return stored.binding.namespace, stored.binding.name


def _nobody() -> asyncio.Future[Scheduled]:
    """Return a future that nobody waits for."""
    nobody: asyncio.Future[Scheduled] = asyncio.get_running_loop().create_future()
    nobody.cancel()
    return nobody


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
