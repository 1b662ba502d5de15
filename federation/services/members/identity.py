"""Callers by their bearer tokens.

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
from federation.services.secrets import TOKEN_PREFIX, make_secret, parse_secret
from federation.services.troubles import Trouble
from federation.services.values import IssuedCredential, Principal, PrincipalKind

TRUSTED_SECONDS = 30.0
# While the store is away, credentials of people, which may have been revoked elsewhere, are trusted
# for less long than those of agents and of other control planes.
OUTAGE_SECONDS = 600.0
MEMBER_OUTAGE_SECONDS = 3600.0
MAX_REMEMBERED = 20_000
# A token that is revoked at another control plane ends here within this time.
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
    """A reader of credentials that others made."""

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
    """A reader of client certificates that the TLS handshake has verified."""

    def identify(self, pem: bytes) -> Principal:
        """Raises Unauthenticated and PermissionRefused."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Vouchers:
    """Readers of credentials that others made."""

    bearers: Sequence[Authenticator] = ()
    certificates: CertificateReader | None = None


class Identity:
    """Principals by bearer tokens.

    A credential is trusted for ``TRUSTED_SECONDS`` after the store confirmed it, so that a
    revocation takes that long. While the store cannot be reached, it is trusted for
    ``OUTAGE_SECONDS`` (one of a member for ``MEMBER_OUTAGE_SECONDS``), so that answers from memory
    go on. ``keep_looking`` looks at tokens in use every ``LOOK_SECONDS``.
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
        """Return the caller with this token, from an address (empty: not known).

        Raises Unauthenticated, with a reason only for a caller that has the secret, and
        PermissionRefused for an address that the token may not be used from.
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
        """Return the caller if the store need not be asked, else None.

        Raises as ``identify`` does, for a caller that has the secret.
        """
        trusted = None if self._authenticator(bearer) else self._remembered_of(bearer)
        if trusted is None or not trusted.is_trusted_at(self._clock.now(), TRUSTED_SECONDS):
            return None
        return self._principal(trusted.credential, address)

    def _remembered_of(self, bearer: str) -> TrustedCredential | None:
        """Return the remembered credential of a bearer with its secret."""
        presented = parse_secret(bearer)
        trusted = self._remembered.get(presented.id) if presented else None
        if presented is None or trusted is None:
            return None
        return trusted if presented.matches(trusted.credential.secret_hash) else None

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
        """Return a future that ends once a token is revoked; it is shared: do not cancel it."""
        if token_id not in self._revocations:
            self._revocations[token_id] = asyncio.get_running_loop().create_future()
        return self._revocations[token_id]

    def forget(self, token_id: str) -> None:
        """Forget a token that was revoked, and end the future of its revocation."""
        self._remembered.pop(token_id, None)
        if (waiting := self._revocations.pop(token_id, None)) is not None:
            waiting.set_result(None)

    async def keep_looking(self) -> None:
        """Forget tokens that are revoked elsewhere, and write uses, until cancelled."""
        trouble = Trouble(logger, "tokens not looked at")
        while True:
            try:
                await self.look()
                trouble.over()
            except Exception as error:  # noqa: BLE001 - told; revocations have to be noticed later
                trouble.met(error)
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Forget tokens that are revoked elsewhere, and write uses when it is time."""
        ids = {key for key in self._remembered if key.startswith(TOKEN_PREFIX)}
        if ids := ids | self._revocations.keys():
            async with self._store.reading() as read:
                valid = await read.tokens.unrevoked(ids)
            for token_id in ids.difference(valid):
                self.forget(token_id)
        now = self._clock.now()
        if self._uses and now - self._uses_written_at >= USES_SECONDS:
            uses, self._uses, self._uses_written_at = self._uses, {}, now
            async with self._store.transaction() as tx:
                await tx.tokens.put_uses(uses)

    def is_known(self, bearer: str) -> bool:
        """Whether the token was valid before: then it costs no stranger's share."""
        if (authenticator := self._authenticator(bearer)) is not None:
            return authenticator.knows(bearer)
        return self._remembered_of(bearer) is not None

    def of_certificate(self, pem: bytes) -> Principal:
        """Return the caller with a verified client certificate.

        Raises Unauthenticated, and PermissionRefused.
        """
        if self._vouchers.certificates is None:
            raise Unauthenticated
        return self._vouchers.certificates.identify(pem)

    def is_of_others(self, bearer: str) -> bool:
        """Whether others made the token: then the store does not know it."""
        return self._authenticator(bearer) is not None

    def _authenticator(self, bearer: str) -> Authenticator | None:
        return next(
            (
                authenticator
                for authenticator in self._vouchers.bearers
                if authenticator.takes(bearer)
            ),
            None,
        )

    async def ensure_admin_token(self, keep: Callable[[str], None]) -> bool:
        """Make the admin's token unless there is one; return whether this made it.

        ``keep`` gets the token before the commit, so that no valid one is lost.
        """
        async with self._store.transaction() as tx:
            if await tx.credentials.lock_admin():
                return False
            keep((await issue_credential(tx, PrincipalKind.ADMIN)).credential)
        return True

    async def _find(self, credential_id: str) -> StoredSecret | None:
        now = self._clock.now()
        trusted = self._remembered.get(credential_id)
        if trusted is not None and trusted.is_trusted_at(now, TRUSTED_SECONDS):
            return trusted.credential
        try:
            async with self._store.reading() as read:
                credential: StoredSecret | None
                if credential_id.startswith(TOKEN_PREFIX):
                    credential = await read.tokens.find(credential_id)
                else:
                    credential = await read.credentials.find(credential_id)
                if credential is None:
                    # In a database that was emptied every credential is unknown.
                    await read.histories.check()
        except Unavailable:
            if trusted is not None and trusted.is_trusted_at(
                now, _outage_seconds(trusted.credential)
            ):
                return trusted.credential
            raise
        self._remember(credential_id, credential, now)
        return credential

    def _remember(self, credential_id: str, credential: StoredSecret | None, now: float) -> None:
        self._remembered.pop(credential_id, None)
        if credential is None or (isinstance(credential, StoredToken) and credential.has_ended):
            return
        if len(self._remembered) >= MAX_REMEMBERED:
            self._remembered.pop(next(iter(self._remembered)))  # The one looked up longest ago.
        self._remembered[credential_id] = TrustedCredential(credential=credential, seen_at=now)


async def replace_admin_token(store: Store, actor: str) -> str:
    """Replace all admin tokens by a new one, with an audit record of the ``actor``.

    An old one that was used lately is valid for ``TRUSTED_SECONDS`` more.
    """
    async with store.transaction() as tx:
        await tx.credentials.lock_admin()
        await tx.credentials.revoke_admins()
        issued = await issue_credential(tx, PrincipalKind.ADMIN)
        record = AuditRecord(actor=actor, method="federation admin-token", objects=(issued.id,))
        await tx.audit.add([record])
    return issued.credential


async def issue_credential(
    tx: Transaction,
    kind: PrincipalKind,
    *,
    cluster_id: int | None = None,
    ttl_seconds: int | None = None,
) -> IssuedCredential:
    """Make a credential and store its hash; without ``ttl_seconds`` it never expires."""
    secret = make_secret()
    expires_at = await tx.credentials.add(
        credential_id=secret.id,
        secret_hash=secret.hash,
        kind=kind,
        cluster_id=cluster_id,
        ttl_seconds=ttl_seconds,
    )
    return IssuedCredential(credential=secret.token, expires_at=expires_at or 0.0)


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
