"""Answers that are given again: what is kept of an answer under an idempotency key.

Must not keep what the store has: it keeps where to find it.
"""

from __future__ import annotations

import msgspec

from federation.model.errors import NotFound, PreconditionFailed
from federation.services.journal_ports import KnownRequest
from federation.services.ports import Transaction
from federation.services.values import Once, Scheduled


class _Kept(msgspec.Struct, frozen=True):
    """Where an answer is found again."""

    decision: str
    namespace: str
    name: str


def kept_answer(scheduled: Scheduled) -> bytes:
    """What is kept of the answer to a request that stored its decision."""
    record = scheduled.record
    return msgspec.json.encode(
        _Kept(decision=record.id, namespace=record.namespace, name=record.name)
    )


async def answer_of(read: Transaction, known: KnownRequest, once: Once) -> Scheduled:
    """The same answer again; of the binding only its decision is as it was then.

    Raises PreconditionFailed when the key was used for another request, NotFound when the decision
    is not kept any more.
    """
    if known.body_hash != once.body_hash:
        raise PreconditionFailed(
            "The idempotency key was used for another request within the last day.",
            reason="IDEMPOTENCY_KEY_REUSED",
        )
    kept = msgspec.json.decode(known.answer, type=_Kept)
    record = await read.decisions.get(kept.decision)
    if record is None:
        raise NotFound(f"Decision {kept.decision!r} is not kept any more.")
    stored = await read.bindings.get(kept.namespace, kept.name)
    if stored is None:
        return Scheduled(record=record, binding=None)
    superseded = stored.decision_id != record.id
    return Scheduled(record=record, binding=stored.binding, superseded=superseded)
