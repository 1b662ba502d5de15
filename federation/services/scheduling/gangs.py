"""Gangs: who is decided together, and how those wait that have no place yet.

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
from federation.scheduler.waiting.gangs import GangMember, Roster, gate_of, missing
from federation.services.binding_ports import StoredBinding
from federation.services.journal import BindingChanged
from federation.services.ports import Transaction
from federation.services.scheduling.attempt import Attempt, Cause, GangState, Role
from federation.services.values import Scheduled
from federation.services.waiting_ports import GangWait

# Namespace and gang.
GangName: TypeAlias = tuple[str, str]


async def join_gang(read: Transaction, batch: Sequence[Attempt]) -> list[Attempt]:
    """Let them join their gang, one after the other; who cannot has an ``error``. Answers those
    that are placed with them, or not at all: none where the gang is not complete, which is their
    ``gate`` then.
    """
    for attempt in batch:
        attempt.gang = GangState()
    every = await _of_gang(read, batch[0].candidate)
    roster = Roster(GangMember.of(each.binding, each.wait) for each in every)
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
    # It stands for all of them where that is looked at again.
    joined[0].gang.roster = _members(every)
    gang = gang_to_join(joined[0].candidate)
    gate = gate_of(gang, roster.members) if gang else NO_REASON
    for attempt in joined:
        attempt.gang.gate = gate
    if gate:
        return []
    joining_names = {attempt.candidate.name for attempt in joined}
    return [
        Attempt(
            binding=each.binding,
            # Who was gated is decided for the first time.
            cause=Cause.RETRIED if each.wait.is_tried else Cause.STATED,
            role=Role.COMPANION,
            answer=_nobody(),
        )
        for each in every
        if gang_to_join(each.binding)
        and each.wait is not None
        and each.binding.name not in joining_names
    ]


def joins_gang(attempt: Attempt) -> bool:
    """Whether it is placed with others of its gang, or not at all."""
    return not attempt.atomic and gang_to_join(attempt.candidate) is not None


def with_companions(joined: Sequence[Attempt], companions: Sequence[Attempt]) -> Sequence[Attempt]:
    """All that are decided together, the companions as they were read; without these where one
    cannot be decided.
    """
    wrong = next((each for each in companions if each.error is not None), None)
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
    """Whether its gang is as it was when it was read."""
    if attempt.gang.roster is None:
        return True
    return _members(await _of_gang(tx, attempt.candidate)) == attempt.gang.roster


def bindings_to_lock(attempts: Iterable[Attempt]) -> Iterator[Binding]:
    """Bindings of all groups and gangs that the attempts change."""
    for attempt in attempts:
        yield attempt.candidate
        if attempt.former and attempt.former.gang != attempt.candidate.gang:
            yield attempt.former


async def settle_gangs(tx: Transaction, attempts: Sequence[Attempt]) -> list[BindingChanged]:
    """After these were written: how the gangs that they change wait, and what others are told."""
    gangs = {name for attempt in attempts for name in _changed_by(attempt)}
    written = frozenset(attempt.key for attempt in attempts)
    changes = []
    for name in sorted(gangs):
        changes += await settle_gang(tx, name, besides=written)
    return changes


async def settle_gang(
    tx: Transaction, name: GangName, besides: Collection[BindingName] = ()
) -> list[BindingChanged]:
    """See to it that those of a gang that have no place yet wait together, as who is here says.

    What everybody is told of those that may be tried now and might not before, or the other way
    round, ``besides`` some.
    """
    every = await tx.bindings.of_gang(*name)
    members = _members(every)
    waiting = [each for each in every if _waits_together(each)]
    if not waiting:
        return []
    first = waiting[0].binding
    gangs = [each.binding.gang for each in waiting if each.binding.gang]
    gate = gate_of(gangs[0], members)
    timeouts = [each.timeout_seconds for each in gangs if each.timeout_seconds is not None]
    await tx.waiting.put_together(
        GangWait(
            binding_ids=[each.id for each in waiting],
            gang=name[1],
            entry=first.name,
            priority=max(each.binding.priority for each in waiting),
            gate=str(gate),
            short_of=str(missing(gangs[0], members)) if gate else "",
            timeout_seconds=min(timeouts, default=None),
        )
    )
    return [
        BindingChanged.of(each.binding, decision=each.decision_id, waits=True)
        for each in waiting
        if each.wait and each.wait.is_tried is bool(gate) and _key(each) not in besides
    ]


def _changed_by(attempt: Attempt) -> Iterator[GangName]:
    """The gangs of which others may have to wait otherwise, or it has to wait with others."""
    before, after = attempt.former, attempt.candidate
    is_as_before = before is not None and before.gang == after.gang and before.clusters
    if is_as_before and attempt.is_placed:
        return
    for binding in (before, after):
        if binding is not None and binding.gang is not None:
            yield binding.namespace, binding.gang.name


async def _of_gang(read: Transaction, binding: Binding) -> Sequence[StoredBinding]:
    if binding.gang is None:
        return ()
    return await read.bindings.of_gang(binding.namespace, binding.gang.name)


def _members(every: Iterable[StoredBinding]) -> tuple[GangMember, ...]:
    return tuple(GangMember.of(each.binding, each.wait) for each in every)


def _waits_together(stored: StoredBinding) -> bool:
    wait = stored.wait
    return wait is not None and not wait.is_suspended and gang_to_join(stored.binding) is not None


def _key(stored: StoredBinding) -> BindingName:
    return stored.binding.namespace, stored.binding.name


def _nobody() -> asyncio.Future[Scheduled]:
    """Who waits for an answer that nobody has asked for."""
    nobody: asyncio.Future[Scheduled] = asyncio.get_running_loop().create_future()
    nobody.cancel()
    return nobody
