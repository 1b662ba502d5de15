"""Gangs: the members that are decided together, and the waits of those without a place.

Must not decide: ``together`` does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TypeAlias

from federation.model.errors import InvalidRequest
from federation.model.placement import Binding, BindingName, gang_to_join
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import NO_REASON, Reason, Text, Word
from federation.scheduler.waiting.gangs import GangEntry, GangMember, Roster, gate_of
from federation.services.binding_ports import GangWait, StoredBinding
from federation.services.journal import BindingChanged
from federation.services.ports import Transaction
from federation.services.scheduling.attempt import Attempt, AttemptCause, AttemptRole, GangState
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
