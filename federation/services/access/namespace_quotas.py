"""Namespace quotas: set, and listed with what is held.

Must not hold decisions to them: ``scheduling.quotas`` does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from federation.model.access import Scope
from federation.model.errors import LimitExceeded
from federation.model.namespace_quotas import NamespaceQuota
from federation.services.ports import Store

MOST_QUOTAS: Final = 10_000
# A quota, and what is held in its namespace.
UsedQuota = tuple[NamespaceQuota, Mapping[str, int]]


class QuotaService:
    """What is promised already stays, however low a quota is set."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def set(self, quota: NamespaceQuota) -> UsedQuota:
        """In place of the one before; without limits there is none. Raises LimitExceeded."""
        async with self._store.transaction() as tx:
            if quota.limits and await tx.quotas.count() >= MOST_QUOTAS:
                raise LimitExceeded(f"{MOST_QUOTAS} namespaces have a quota: remove some first")
            await tx.quotas.put(quota)
            used = await tx.quotas.used([quota.namespace])
        return quota, used[quota.namespace]

    async def list(self, after: str, limit: int, scope: Scope) -> Sequence[UsedQuota]:
        """By ascending namespace, those that come after ``after``, of what a caller may see."""
        found: list[NamespaceQuota] = []
        async with self._store.reading() as read:
            while len(found) < limit:
                page = await read.quotas.page(after, limit)
                found += [quota for quota in page if scope.sees_namespace(quota.namespace)]
                if len(page) < limit:
                    break
                after = page[-1].namespace
            found = found[:limit]
            used = await read.quotas.used([quota.namespace for quota in found])
        return [(quota, used[quota.namespace]) for quota in found]
