"""Namespace quotas in decisions: checked by a decision, and checked again by its commit.

The numbers that a decision read may have changed by its commit, which locks the quotas and counts
again. Must not write anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from federation.model.namespace_quotas import beyond_quota, held_amounts, moved_amounts
from federation.model.reasons import NO_REASON, Reason
from federation.model.reservations import Reservation
from federation.services.ports import Transaction
from federation.services.scheduling.attempt import Attempt, AttemptRole, QuotaRoom


async def read_quotas(read: Transaction, attempts: Sequence[Attempt]) -> None:
    """Add the quotas of namespaces to the facts of their attempts."""
    quotas = await read.quotas.find({attempt.key[0] for attempt in attempts})
    if not quotas:
        return
    used = await read.quotas.used(quotas)
    rooms = {
        name: QuotaRoom(quota=quota, read=used[name], used=used[name])
        for name, quota in quotas.items()
    }
    limited = [attempt for attempt in attempts if attempt.key[0] in rooms]
    held = await read.quotas.held({attempt.key for attempt in limited})
    for attempt in limited:
        attempt.facts.quota = rooms[attempt.key[0]]
        attempt.facts.quota_held = held.get(attempt.key, {})


def beyond(attempt: Attempt) -> Reason:
    """Return which limits of its namespace an attempt exceeds.

    Return NO_REASON if it exceeds none, and count it for later attempts of the batch.
    """
    room, requested = attempt.facts.quota, attempt.result.requested
    if room is None or requested is None:
        return NO_REASON
    shares = (share for shares in requested.shares.values() for share in shares)
    after = held_amounts((share.replicas, share.requirements) for share in shares)
    passed = beyond_quota(room.quota, room.used, attempt.facts.quota_held, after)
    attempt.result.is_beyond_quota = bool(passed)
    if not passed:
        room.used = moved_amounts(room.used, attempt.facts.quota_held, after)
    return passed


async def within_quotas(tx: Transaction, attempts: Sequence[Attempt]) -> list[Attempt]:
    """Return the attempts that exceed no limit, counted one after the other.

    Locks the quotas: until the end of the transaction no other one promises more in the namespaces.
    """
    limited = [attempt for attempt in attempts if attempt.facts.quota and attempt.result.reserved]
    if not limited:
        return list(attempts)
    quotas = await tx.quotas.find({attempt.key[0] for attempt in limited}, lock=True)
    # A statement after the lock sees what was committed while the lock was awaited.
    used = {**await tx.quotas.used(quotas)} if quotas else {}
    held = await tx.quotas.held({attempt.key for attempt in limited})
    refused = set[str]()
    # Victims of preemption release their amounts first.
    for attempt in sorted(limited, key=lambda attempt: attempt.role is not AttemptRole.VICTIM):
        quota = quotas.get(attempt.key[0])
        if quota is None or attempt.result.reserved is None:
            continue
        former = held.get(attempt.key, {})
        reservations = attempt.result.reserved.reservations
        # Reservations in clusters that a binding leaves are used, but do not prevent its leaving.
        placed = attempt.result.requested.shares if attempt.result.requested else {}
        after = _held_by(item for item in reservations if item.cluster in placed)
        if beyond_quota(quota, used[quota.namespace], former, after):
            refused.add(attempt.id)
        else:
            used[quota.namespace] = moved_amounts(
                used[quota.namespace], former, _held_by(reservations)
            )
    return [attempt for attempt in attempts if attempt.id not in refused]


def _held_by(reservations: Iterable[Reservation]) -> dict[str, int]:
    return held_amounts((item.replicas - item.finished, item.requirements) for item in reservations)
