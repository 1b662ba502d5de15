"""Namespace quotas in decisions: told where something is decided, held where it is committed.

What was read for a decision may have changed by then: the commit holds the quota and counts anew.
Must not write anything.
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
    """Which limits of its namespace it would pass; NO_REASON: none, and it is counted."""
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
    """Those that pass no limit, one after the other. Nobody else promises more in their namespaces
    until the transaction ends.
    """
    limited = [attempt for attempt in attempts if attempt.facts.quota and attempt.result.reserved]
    if not limited:
        return list(attempts)
    quotas = await tx.quotas.find({attempt.key[0] for attempt in limited}, lock=True)
    # Only now: another statement sees what was committed while this one waited for the lock.
    used = {**await tx.quotas.used(quotas)} if quotas else {}
    held = await tx.quotas.held({attempt.key for attempt in limited})
    refused = set[str]()
    # Who makes room for another one does so first.
    for attempt in sorted(limited, key=lambda attempt: attempt.role is not AttemptRole.VICTIM):
        quota = quotas.get(attempt.key[0])
        if quota is None or attempt.result.reserved is None:
            continue
        before = held.get(attempt.key, {})
        every = attempt.result.reserved.reservations
        # What it leaves counts until it is gone, and keeps nobody from leaving.
        placed = attempt.result.requested.shares if attempt.result.requested else {}
        after = _held_by(each for each in every if each.cluster in placed)
        if beyond_quota(quota, used[quota.namespace], before, after):
            refused.add(attempt.id)
        else:
            used[quota.namespace] = moved_amounts(used[quota.namespace], before, _held_by(every))
    return [attempt for attempt in attempts if attempt.id not in refused]


def _held_by(reservations: Iterable[Reservation]) -> dict[str, int]:
    return held_amounts((each.replicas - each.finished, each.requirements) for each in reservations)
