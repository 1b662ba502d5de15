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

MAX_QUOTAS: Final = 10_000
# A quota, and what is held in its namespace.
UsedQuota = tuple[NamespaceQuota, Mapping[str, int]]


class QuotaService:
    """Use cases with quotas; promises stay, however low a quota is set."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def set(self, quota: NamespaceQuota) -> UsedQuota:
        """Replace a quota; one without limits is deleted. Raises LimitExceeded."""
        async with self._store.transaction() as tx:
            if quota.limits and await tx.quotas.count() >= MAX_QUOTAS:
                raise LimitExceeded(f"{MAX_QUOTAS} namespaces have a quota: remove some first")
            await tx.quotas.put(quota)
            used = await tx.quotas.used([quota.namespace])
        return quota, used[quota.namespace]

    async def list(self, after: str, limit: int, scope: Scope) -> Sequence[UsedQuota]:
        """Return the quotas that a caller may see by ascending namespace, behind ``after``."""
        quotas: list[NamespaceQuota] = []
        async with self._store.reading() as read:
            while len(quotas) < limit:
                page = await read.quotas.page(after, limit)
                quotas += [quota for quota in page if scope.sees_namespace(quota.namespace)]
                if len(page) < limit:
                    break
                after = page[-1].namespace
            quotas = quotas[:limit]
            used = await read.quotas.used([quota.namespace for quota in quotas])
        return [(quota, used[quota.namespace]) for quota in quotas]
