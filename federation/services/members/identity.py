"""Who calls: bearer tokens to principals.

Must not decide what a principal may do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from federation.model.errors import Unauthenticated, Unavailable
from federation.services.member_ports import StoredCredential
from federation.services.ports import Clock, Store, Transaction
from federation.services.secrets import Secret, make_secret, parse_secret
from federation.services.values import Principal, PrincipalKind

TRUSTED_SECONDS = 30.0
OUTAGE_SECONDS = 3600.0
MAX_REMEMBERED = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustedCredential:
    """A credential that was found valid, and when (Unix seconds)."""

    credential: StoredCredential
    seen_at: float

    def is_trusted_at(self, now: float, seconds: float) -> bool:
        expires_at = self.credential.expires_at
        return now - self.seen_at <= seconds and (expires_at is None or now < expires_at)


class Identity:
    """Tells callers by their bearer tokens.

    A credential is believed for ``TRUSTED_SECONDS`` after the store confirmed it, so revoking one
    takes that long to be felt; and for ``OUTAGE_SECONDS`` while the store cannot be reached, so
    that what is answered from memory stays answered.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._remembered: dict[str, TrustedCredential] = {}

    async def identify(self, bearer: str) -> Principal:
        """Raises Unauthenticated, saying the same whatever was wrong with the token."""
        presented = parse_secret(bearer)
        if presented is None:
            raise Unauthenticated
        credential = await self._find(presented.id)
        # An unknown id costs a comparison too, so that ids cannot be told by the time it takes.
        expected = credential.secret_hash if credential else bytes(len(presented.hash))
        if not presented.matches(expected) or credential is None:
            raise Unauthenticated
        return Principal(
            kind=credential.kind, cluster=credential.cluster, credential_id=credential.id
        )

    def is_known(self, bearer: str) -> bool:
        """Whether it was found valid before: asking about it again costs no stranger's share."""
        presented = parse_secret(bearer)
        known = self._remembered.get(presented.id) if presented else None
        return (
            presented is not None
            and known is not None
            and presented.matches(known.credential.secret_hash)
        )

    async def ensure_admin_token(self, keep: Callable[[str], None]) -> bool:
        """Makes the admin's token unless there is one; True when this made it.

        ``keep`` gets the token before it is committed: one that is valid was always kept.
        """
        async with self._store.transaction() as tx:
            if await tx.credentials.lock_admin():
                return False
            keep(await _add_admin(tx))
        return True

    async def _find(self, credential_id: str) -> StoredCredential | None:
        now = self._clock.now()
        known = self._remembered.get(credential_id)
        if known is not None and known.is_trusted_at(now, TRUSTED_SECONDS):
            return known.credential
        try:
            async with self._store.reading() as read:
                found = await read.credentials.find(credential_id)
                if found is None:
                    # In a database that was emptied every credential is unknown.
                    await read.histories.get()
        except Unavailable:
            if known is not None and known.is_trusted_at(now, OUTAGE_SECONDS):
                return known.credential
            raise
        self._remember(credential_id, found, now)
        return found

    def _remember(self, credential_id: str, found: StoredCredential | None, now: float) -> None:
        self._remembered.pop(credential_id, None)
        if found is None:
            return
        if len(self._remembered) >= MAX_REMEMBERED:
            self._remembered.pop(next(iter(self._remembered)))  # The one looked up longest ago.
        self._remembered[credential_id] = TrustedCredential(credential=found, seen_at=now)


async def replace_admin_token(store: Store) -> str:
    """A new admin token, in place of all others. Where one of these was used lately, it opens for
    ``TRUSTED_SECONDS`` more.
    """
    async with store.transaction() as tx:
        await tx.credentials.lock_admin()
        await tx.credentials.revoke_admins()
        return await _add_admin(tx)


async def _add_admin(tx: Transaction) -> str:
    made: Secret = make_secret()
    await tx.credentials.add(
        credential_id=made.id,
        secret_hash=made.hash,
        kind=PrincipalKind.ADMIN,
        cluster_id=None,
        ttl_seconds=None,
    )
    return made.token
