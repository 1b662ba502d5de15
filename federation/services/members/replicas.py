"""One control plane among its peers: their endpoints, and the credential for them.

Must not dial peers.
"""

from __future__ import annotations

from collections.abc import Mapping

from federation.services.journal_ports import Replica
from federation.services.members.identity import issue_credential
from federation.services.ports import Clock, Store, Transaction
from federation.services.values import IssuedCredential, PrincipalKind

CREDENTIAL_SECONDS = 24 * 3600
# Long before its end, so that an outage of hours locks no control plane out.
RENEW_SECONDS = CREDENTIAL_SECONDS / 4
# A control plane that was not heard for three of the slowest rounds is gone.
LOST_SECONDS = 15.0


class Replicas:
    """The control planes that run, as of the last round.

    ``id`` is this one's, which no other process ever has; ``endpoint`` is where peers dial it.
    """

    def __init__(self, store: Store, clock: Clock, replica_id: str) -> None:
        self.id = replica_id
        self.endpoint = ""
        self._store = store
        self._clock = clock
        self._peers: Mapping[str, Replica] = {}
        self._credential: IssuedCredential | None = None
        self._renew_at = 0.0

    @property
    def bearer(self) -> str:
        """The token for peers, empty before the first ``keep_credential``."""
        return self._credential.credential if self._credential else ""

    @property
    def endpoints(self) -> frozenset[str]:
        """The endpoints of peers."""
        return frozenset(peer.endpoint for peer in self._peers.values())

    def peer(self, replica_id: str) -> Replica | None:
        """Return another control plane, if it runs."""
        return self._peers.get(replica_id)

    async def meet(self, tx: Transaction) -> bool:
        """Write that this one runs, and read the others; return whether they changed."""
        last = self._peers
        await tx.replicas.put(Replica(id=self.id, endpoint=self.endpoint))
        self._peers = {
            replica.id: replica
            for replica in await tx.replicas.all(LOST_SECONDS)
            if replica.id != self.id
        }
        return self._peers != last

    async def keep_credential(self) -> None:
        """Make a credential when there is none or it is due; the old one ends by itself."""
        now = self._clock.now()
        if now < self._renew_at:
            return
        async with self._store.transaction() as tx:
            issued = await issue_credential(
                tx, PrincipalKind.REPLICA, ttl_seconds=CREDENTIAL_SECONDS
            )
        self._credential, self._renew_at = issued, now + RENEW_SECONDS

    async def leave(self) -> None:
        """Remove this control plane, so that peers do not dial it, and its credential."""
        async with self._store.transaction() as tx:
            if self._credential is not None:
                await tx.credentials.discard([self._credential.id])
            await tx.replicas.remove(self.id)
