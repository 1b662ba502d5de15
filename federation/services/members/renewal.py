"""Agents' credentials over time: which are still good, which are due, the new one.

Must not end a credential that is in use: an agent that misses the new one comes back with it.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence

from federation.model.errors import NotFound, Unauthenticated
from federation.services.members.join import CREDENTIAL_SECONDS
from federation.services.ports import Store
from federation.services.secrets import make_secret
from federation.services.values import IssuedCredential, PrincipalKind

# Renewed this early, as a part of the interval: agents that joined together do not come together,
# and a credential is never older than the interval while its agent is connected.
EARLIEST, LATEST = 0.7, 0.95


class Renewal:
    """Renews credentials that are older than ``renew_seconds``, or nearly so."""

    def __init__(self, store: Store, *, renew_seconds: float) -> None:
        self._store = store
        self._renew_seconds = renew_seconds

    async def ages(self, credential_ids: Sequence[str]) -> Mapping[str, float]:
        """How old those are that are valid, in seconds by id; revoked and expired ones lack.

        Raises Unavailable.
        """
        async with self._store.reading() as read:
            ages = await read.credentials.ages(credential_ids)
            if len(ages) < len(credential_ids):
                # In a database that was emptied none is revoked.
                await read.histories.check()
        return ages

    def is_due(self, credential_id: str, age_seconds: float) -> bool:
        """Whether it is time for a new one; each credential has a moment of its own."""
        part = EARLIEST + (LATEST - EARLIEST) * _fraction(credential_id)
        return age_seconds >= part * self._renew_seconds

    async def renew(self, cluster: str, in_use: str) -> IssuedCredential:
        """A new credential; only the one in use stays valid beside it.

        Raises NotFound, and Unauthenticated when the one in use is not valid any more.
        """
        made = make_secret()
        async with self._store.transaction() as tx:
            stored = await tx.clusters.lock(cluster)
            if stored is None:
                raise NotFound(f"There is no cluster {cluster!r}.")
            if in_use not in await tx.credentials.ages([in_use]):
                raise Unauthenticated(f"The credential of cluster {cluster!r} was revoked.")
            await tx.credentials.keep_only(stored.id, in_use)
            expires_at = await tx.credentials.add(
                credential_id=made.id,
                secret_hash=made.hash,
                kind=PrincipalKind.AGENT,
                cluster_id=stored.id,
                ttl_seconds=CREDENTIAL_SECONDS,
            )
        return IssuedCredential(credential=made.token, expires_at=expires_at or 0.0)


def _fraction(credential_id: str) -> float:
    """From 0 to 1, the same for the same id and any for another."""
    return zlib.crc32(credential_id.encode()) / 2**32
