"""Answers to attempts: new decisions, standing ones, and answers of an idempotency key.

Must not copy decisions: a key is stored with the id of its decision.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from federation.model.errors import Conflict, NotFound, PreconditionFailed
from federation.runtime.typed_values import from_json
from federation.services.journal_ports import KnownRequest
from federation.services.ports import Store, Transaction
from federation.services.scheduling.attempt import Attempt
from federation.services.threads import UNDER_LOCKS
from federation.services.values import DecisionRecord, IdempotencyKey, Scheduled


class _AnswerLocation(msgspec.Struct, frozen=True):
    """The place of an answer in the store."""

    decision: str
    namespace: str
    name: str


async def answer_as_before(read: Transaction, attempt: Attempt) -> bool:
    """Answer an attempt whose idempotency key has an answer. Tell whether it has one.

    Raises PreconditionFailed if the key is that of another request, NotFound if the decision is
    no longer stored.
    """
    once = attempt.once
    answered = await read.requests.get(once.caller, once.key) if once else None
    if once is None or answered is None:
        return False
    attempt.succeed(await _answer_of(read, answered, once))
    return True


async def answer_unwritten(store: Store, attempts: Iterable[Attempt], now: float) -> None:
    """Answer the attempts that have no decision to write."""
    for attempt in attempts:
        if attempt.error is not None:
            attempt.fail(attempt.error)
        elif attempt.result.standing is not None:
            await _answer_standing(store, attempt, attempt.result.standing)
        elif not attempt.is_stored:
            attempt.succeed(Scheduled(record=unstored_record(attempt, now), binding=None))


async def keep_answers(tx: Transaction, attempts: Iterable[Attempt]) -> None:
    """Store answers under their idempotency keys.

    Raises Conflict if the same request was answered meanwhile.
    """
    keyed = [(attempt.once, attempt) for attempt in attempts if attempt.once is not None]
    # In one order everywhere, so that two batches never wait for each other.
    for once, attempt in sorted(keyed, key=lambda pair: (pair[0].caller, pair[0].key)):
        if await _keep(tx, once, attempt.scheduled):
            raise Conflict("The same request was answered meanwhile.")


def unstored_record(attempt: Attempt, now: float) -> DecisionRecord:
    """Return the record of a decision that is not stored, or not yet: it has no id."""
    return decision_record(attempt, "", now)


def decision_record(attempt: Attempt, decision_id: str, created_at: float) -> DecisionRecord:
    candidate, verdict = attempt.candidate, attempt.result.verdict
    return DecisionRecord(
        id=decision_id,
        namespace=candidate.namespace,
        name=candidate.name,
        binding_generation=candidate.generation,
        created_at=created_at,
        decision=verdict.decision,
        evidence=verdict.evidence,
        promises=verdict.promises,
    )


async def _answer_standing(store: Store, attempt: Attempt, standing: DecisionRecord) -> None:
    """Answer with the newest decision, which still stands, and store it under the key."""
    scheduled = Scheduled(record=standing, binding=attempt.candidate, queued=attempt.leaves_waiting)
    once = attempt.once
    if once is not None:
        async with store.transaction() as tx:
            answered = await _keep(tx, once, scheduled)
            if answered is not None:
                scheduled = await _answer_of(tx, answered, once)
    attempt.succeed(scheduled)


async def _keep(tx: Transaction, once: IdempotencyKey, scheduled: Scheduled) -> KnownRequest | None:
    """Store an answer under its key. Return the answer that the key has already, if any."""
    record = scheduled.record
    location = _AnswerLocation(decision=record.id, namespace=record.namespace, name=record.name)
    return await tx.requests.add(
        once.caller, once.key, once.body_hash, msgspec.json.encode(location)
    )


async def _answer_of(read: Transaction, answered: KnownRequest, once: IdempotencyKey) -> Scheduled:
    """Return the answer of a key: its decision, and the binding as it is now."""
    if answered.body_hash != once.body_hash:
        raise PreconditionFailed(
            "The idempotency key was used for another request within the last day.",
            reason="IDEMPOTENCY_KEY_REUSED",
        )
    location = from_json(answered.answer, _AnswerLocation)
    packed = await read.decisions.get(location.decision)
    if packed is None:
        raise NotFound(f"Decision {location.decision!r} is not kept any more.")
    record = await UNDER_LOCKS.run(packed.unpacked)
    stored = await read.bindings.get(location.namespace, location.name)
    if stored is None:
        return Scheduled(record=record, binding=None)
    superseded = stored.decision_id != record.id
    return Scheduled(
        record=record,
        binding=stored.binding,
        queued=stored.wait is not None,
        superseded=superseded,
    )
