"""Who calls: bearer tokens to principals.

Must not decide what a principal may do.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Protocol, TypeAlias

from federation.model.access import LabelsOf, Role
from federation.model.audit import AuditRecord
from federation.model.errors import PermissionRefused, Unauthenticated, Unavailable
from federation.services.member_ports import StoredCredential
from federation.services.ports import Clock, Store, StoredToken, TokenUse, Transaction
from federation.services.secrets import TOKEN_PREFIX, Secret, make_secret, parse_secret
from federation.services.troubles import Trouble
from federation.services.values import Principal, PrincipalKind

TRUSTED_SECONDS = 30.0
# While the store is away: what people have, which may have been revoked elsewhere, is believed for
# less long than the credentials of agents and of other control planes.
OUTAGE_SECONDS = 600.0
MEMBER_OUTAGE_SECONDS = 3600.0
MAX_REMEMBERED = 20_000
# A token that is revoked at another control plane ends here within so long.
LOOK_SECONDS = 1.0
# Between two times that the last uses of tokens are written.
USES_SECONDS = 10.0

StoredSecret: TypeAlias = StoredCredential | StoredToken

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustedCredential:
    """A credential or token that was found valid, and when (Unix seconds)."""

    credential: StoredSecret
    seen_at: float

    def is_trusted_at(self, now: float, seconds: float) -> bool:
        expires_at = self.credential.expires_at
        return now - self.seen_at <= seconds and (expires_at is None or now < expires_at)


class Authenticator(Protocol):
    """Tells callers by credentials that others made."""

    def takes(self, bearer: str) -> bool:
        """Whether it is a credential of that form."""
        ...

    def knows(self, bearer: str) -> bool:
        """Whether it was found valid before, and still is."""
        ...

    async def identify(self, bearer: str) -> Principal:
        """Raises Unauthenticated, PermissionRefused and Unavailable."""
        ...


class CertificateReader(Protocol):
    """Tells callers by client certificates that the TLS handshake has verified."""

    def identify(self, pem: bytes) -> Principal:
        """Raises Unauthenticated and PermissionRefused."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Vouchers:
    """What tells callers by credentials that others made."""

    bearers: Sequence[Authenticator] = ()
    certificates: CertificateReader | None = None


class Identity:
    """Tells callers by their bearer tokens.

    A credential is believed for ``TRUSTED_SECONDS`` after the store confirmed it, so revoking one
    takes that long to be felt; and for ``OUTAGE_SECONDS`` while the store cannot be reached (those
    of members for ``MEMBER_OUTAGE_SECONDS``), so that what is answered from memory stays answered.
    Tokens in use are looked at every
    ``LOOK_SECONDS`` by ``keep_looking``.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        vouchers: Vouchers | None = None,
        labels_of: LabelsOf | None = None,
    ) -> None:
        self._labels_of = labels_of
        self._vouchers = vouchers or Vouchers()
        self._store = store
        self._clock = clock
        self._remembered: dict[str, TrustedCredential] = {}
        self._revocations: dict[str, asyncio.Future[None]] = {}
        self._uses: dict[str, TokenUse] = {}
        self._uses_written_at = 0.0

    async def identify(self, bearer: str, address: str = "") -> Principal:
        """Who calls from an address (empty: not known).

        Raises Unauthenticated, saying the same whatever was wrong, but to who has the secret; and
        PermissionRefused from where a token may not be used.
        """
        if (authenticator := self._authenticator(bearer)) is not None:
            return await authenticator.identify(bearer)
        presented = parse_secret(bearer)
        if presented is None:
            raise Unauthenticated
        credential = await self._find(presented.id)
        # An unknown id costs a comparison too, so that ids cannot be told by the time it takes.
        expected = credential.secret_hash if credential else bytes(len(presented.hash))
        if not presented.matches(expected) or credential is None:
            raise Unauthenticated
        return self._principal(credential, address)

    def recognized(self, bearer: str, address: str = "") -> Principal | None:
        """What ``identify`` says, of one that the store need not be asked about; None of others.

        Raises as ``identify`` does, for who has the secret.
        """
        presented = None if self._authenticator(bearer) else parse_secret(bearer)
        known = self._remembered.get(presented.id) if presented else None
        if presented is None or known is None:
            return None
        is_trusted = known.is_trusted_at(self._clock.now(), TRUSTED_SECONDS)
        if not is_trusted or not presented.matches(known.credential.secret_hash):
            return None
        return self._principal(known.credential, address)

    def _principal(self, credential: StoredSecret, address: str) -> Principal:
        """Raises Unauthenticated, and PermissionRefused."""
        if isinstance(credential, StoredToken):
            return self._holder(credential, address)
        return Principal(
            kind=credential.kind,
            cluster=credential.cluster,
            credential_id=credential.id,
            role=Role.ADMIN if credential.kind is PrincipalKind.ADMIN else None,
        )

    def _holder(self, token: StoredToken, address: str) -> Principal:
        """Raises Unauthenticated, and PermissionRefused."""
        if token.revoked_at is not None:
            raise Unauthenticated(f"The token {token.id} was revoked at {_text(token.revoked_at)}.")
        if token.is_expired:
            raise Unauthenticated(f"The token {token.id} expired at {_text(token.expires_at)}.")
        if token.networks and not _is_within(address, token.networks):
            raise PermissionRefused(
                f"the token {token.id} may be used from {', '.join(token.networks)} alone, "
                f"not from {address or 'an unknown address'}"
            )
        self._uses[token.id] = TokenUse(at=self._clock.now(), address=address)
        return Principal(
            kind=PrincipalKind.TOKEN,
            credential_id=token.id,
            role=token.role,
            scope=replace(token.scope, labels_of=self._labels_of),
            limits=token.limits,
            name=token.name,
        )

    def revocation(self, token_id: str) -> asyncio.Future[None]:
        """Is done once a token is found to be revoked. Not to be cancelled: others wait as well."""
        if token_id not in self._revocations:
            self._revocations[token_id] = asyncio.get_running_loop().create_future()
        return self._revocations[token_id]

    def forget(self, token_id: str) -> None:
        """A token was revoked: the store is asked about it again, and who waits is told."""
        self._remembered.pop(token_id, None)
        if (waiting := self._revocations.pop(token_id, None)) is not None:
            waiting.set_result(None)

    async def keep_looking(self) -> None:
        """Forgets tokens that are revoked elsewhere, and writes uses, until cancelled."""
        trouble = Trouble(logger, "tokens not looked at")
        while True:
            try:
                await self.look()
                trouble.over()
            except Exception as error:  # noqa: BLE001 - told; revocations have to be noticed later
                trouble.met(error)
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Forgets tokens that are revoked elsewhere, and writes uses when it is time."""
        known = {key for key in self._remembered if key.startswith(TOKEN_PREFIX)}
        if known := known | self._revocations.keys():
            async with self._store.reading() as read:
                left = await read.tokens.unrevoked(known)
            for token_id in known.difference(left):
                self.forget(token_id)
        now = self._clock.now()
        if self._uses and now - self._uses_written_at >= USES_SECONDS:
            uses, self._uses, self._uses_written_at = self._uses, {}, now
            async with self._store.transaction() as tx:
                await tx.tokens.put_uses(uses)

    def is_known(self, bearer: str) -> bool:
        """Whether it was found valid before: asking about it again costs no stranger's share."""
        if (authenticator := self._authenticator(bearer)) is not None:
            return authenticator.knows(bearer)
        presented = parse_secret(bearer)
        known = self._remembered.get(presented.id) if presented else None
        return (
            presented is not None
            and known is not None
            and presented.matches(known.credential.secret_hash)
        )

    def of_certificate(self, pem: bytes) -> Principal:
        """Who has a client certificate that was verified. Raises Unauthenticated, and
        PermissionRefused.
        """
        if self._vouchers.certificates is None:
            raise Unauthenticated
        return self._vouchers.certificates.identify(pem)

    def is_of_others(self, bearer: str) -> bool:
        """Whether somebody else made it: then no look into the store tells whose it is."""
        return self._authenticator(bearer) is not None

    def _authenticator(self, bearer: str) -> Authenticator | None:
        return next((each for each in self._vouchers.bearers if each.takes(bearer)), None)

    async def ensure_admin_token(self, keep: Callable[[str], None]) -> bool:
        """Makes the admin's token unless there is one; True when this made it.

        ``keep`` gets the token before it is committed: one that is valid was always kept.
        """
        async with self._store.transaction() as tx:
            if await tx.credentials.lock_admin():
                return False
            keep((await _add_admin(tx)).token)
        return True

    async def _find(self, credential_id: str) -> StoredSecret | None:
        now = self._clock.now()
        known = self._remembered.get(credential_id)
        if known is not None and known.is_trusted_at(now, TRUSTED_SECONDS):
            return known.credential
        try:
            async with self._store.reading() as read:
                found: StoredSecret | None
                if credential_id.startswith(TOKEN_PREFIX):
                    found = await read.tokens.find(credential_id)
                else:
                    found = await read.credentials.find(credential_id)
                if found is None:
                    # In a database that was emptied every credential is unknown.
                    await read.histories.check()
        except Unavailable:
            if known is not None and known.is_trusted_at(now, _outage_seconds(known.credential)):
                return known.credential
            raise
        self._remember(credential_id, found, now)
        return found

    def _remember(self, credential_id: str, found: StoredSecret | None, now: float) -> None:
        self._remembered.pop(credential_id, None)
        if found is None or (isinstance(found, StoredToken) and found.has_ended):
            return
        if len(self._remembered) >= MAX_REMEMBERED:
            self._remembered.pop(next(iter(self._remembered)))  # The one looked up longest ago.
        self._remembered[credential_id] = TrustedCredential(credential=found, seen_at=now)


async def replace_admin_token(store: Store, actor: str) -> str:
    """A new admin token, in place of all others, as the audit says with its ``actor``. Where one of
    the others was used lately, it opens for ``TRUSTED_SECONDS`` more.
    """
    async with store.transaction() as tx:
        await tx.credentials.lock_admin()
        await tx.credentials.revoke_admins()
        made = await _add_admin(tx)
        record = AuditRecord(actor=actor, method="federation admin-token", objects=(made.id,))
        await tx.audit.add([record])
    return made.token


async def _add_admin(tx: Transaction) -> Secret:
    made = make_secret()
    await tx.credentials.add(
        credential_id=made.id,
        secret_hash=made.hash,
        kind=PrincipalKind.ADMIN,
        cluster_id=None,
        ttl_seconds=None,
    )
    return made


def _outage_seconds(credential: StoredSecret) -> float:
    is_of_people = isinstance(credential, StoredToken) or credential.kind is PrincipalKind.ADMIN
    return OUTAGE_SECONDS if is_of_people else MEMBER_OUTAGE_SECONDS


def _is_within(address: str, networks: tuple[str, ...]) -> bool:
    try:
        place = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(place, ipaddress.IPv6Address) and place.ipv4_mapped is not None:
        place = place.ipv4_mapped
    return any(place in ipaddress.ip_network(network) for network in networks)


def _text(unix_seconds: float) -> str:
    return datetime.fromtimestamp(unix_seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
