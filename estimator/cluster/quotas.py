"""The ResourceQuotas of a cluster as they are now, kept current event by event.

Must not be shared between threads; what ``all`` hands out may be.
"""

from __future__ import annotations

from collections.abc import Iterable

from estimator.estimation.quota import Quota


class ResourceQuotas:
    """Quotas by namespace and name; none where they are not watched."""

    def __init__(self) -> None:
        self._quotas: dict[tuple[str, str], Quota] = {}

    def put(self, quota: Quota) -> None:
        """Add or replace a quota."""
        self._quotas[quota.namespace, quota.name] = quota

    def remove(self, quota: Quota) -> None:
        self._quotas.pop((quota.namespace, quota.name), None)

    def replace(self, quotas: Iterable[Quota]) -> None:
        """Make these the quotas; what was not listed is gone."""
        self._quotas = {(quota.namespace, quota.name): quota for quota in quotas}

    def all(self) -> tuple[Quota, ...]:
        return tuple(self._quotas.values())
