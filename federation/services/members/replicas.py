"""One control plane among its peers: known to them, let in by them, and knowing them.

Must not dial anybody.
"""

from __future__ import annotations

from collections.abc import Mapping

from federation.services.journal_ports import Replica
from federation.services.ports import Clock, Store, Transaction
from federation.services.secrets import Secret, make_secret
from federation.services.values import PrincipalKind

CREDENTIAL_SECONDS = 24 * 3600
# Long before its end: a database that is away for hours locks nobody out.
RENEW_SECONDS = CREDENTIAL_SECONDS / 4
# Three rounds of the slowest: one that has not been heard for so long is gone.
LOST_SECONDS = 15.0


class Replicas:
    """The control planes that run now, as of the last meeting.

    ``id`` is this one's, which no other process ever has; ``endpoint`` is where peers dial it.
    """

    def __init__(self, store: Store, clock: Clock, replica_id: str) -> None:
        self.id = replica_id
        self.endpoint = ""
        self._store = store
        self._clock = clock
        self._peers: Mapping[str, Replica] = {}
        self._credential: Secret | None = None
        self._renew_at = 0.0

    @property
    def bearer(self) -> str:
        """What peers let us in with; empty before the first ``keep_credential``."""
        return self._credential.token if self._credential else ""

    @property
    def endpoints(self) -> frozenset[str]:
        """Where peers are dialled."""
        return frozenset(peer.endpoint for peer in self._peers.values())

    def peer(self, replica_id: str) -> Replica | None:
        """Another control plane, if it runs."""
        return self._peers.get(replica_id)

    async def meet(self, tx: Transaction) -> bool:
        """Tell that this one runs, and learn who else does: whether that changed."""
        before = self._peers
        await tx.replicas.put(Replica(id=self.id, endpoint=self.endpoint))
        self._peers = {
            replica.id: replica
            for replica in await tx.replicas.all(LOST_SECONDS)
            if replica.id != self.id
        }
        return self._peers != before

    async def keep_credential(self) -> None:
        """Make a credential when there is none or it is due; the one before ends by itself."""
        now = self._clock.now()
        if now < self._renew_at:
            return
        made = make_secret()
        async with self._store.transaction() as tx:
            await tx.credentials.add(
                credential_id=made.id,
                secret_hash=made.hash,
                kind=PrincipalKind.REPLICA,
                cluster_id=None,
                ttl_seconds=CREDENTIAL_SECONDS,
            )
        self._credential, self._renew_at = made, now + RENEW_SECONDS

    async def leave(self) -> None:
        """Peers do not dial this one any more, and its credential is good for nothing."""
        async with self._store.transaction() as tx:
            if self._credential is not None:
                await tx.credentials.discard([self._credential.id])
            await tx.replicas.remove(self.id)
