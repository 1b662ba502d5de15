"""What use cases need from the store for access: tokens, and the audit.

Protocols only. Must not name a technology.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from federation.model.access import NO_LIMITS, CallerLimits, Role, Scope
from federation.model.audit import AuditHead, AuditRecord
from federation.model.namespace_quotas import NamespaceQuota


@dataclass(frozen=True, slots=True, kw_only=True)
class NewToken:
    """A token to be kept: whose it is, what it may do and see, where from, and for how long."""

    name: str
    role: Role
    scope: Scope
    networks: tuple[str, ...]
    limits: CallerLimits = NO_LIMITS
    ttl_seconds: int
    created_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredToken:
    """A token without its secret. Times are Unix seconds; ``is_expired`` by the store's clock."""

    id: str
    name: str
    role: Role
    scope: Scope
    networks: tuple[str, ...]
    limits: CallerLimits
    secret_hash: bytes = field(repr=False)
    created_by: str
    created_at: float
    expires_at: float
    is_expired: bool
    revoked_at: float | None = None
    last_used_at: float | None = None
    last_used_from: str = ""

    @property
    def has_ended(self) -> bool:
        return self.is_expired or self.revoked_at is not None


class TokenUse(NamedTuple):
    """When a token was used last, in Unix seconds, and from which address."""

    at: float
    address: str


class AccessTokens(Protocol):
    """Tokens with roles, as hashes."""

    async def add(self, token_id: str, secret_hash: bytes, token: NewToken) -> StoredToken: ...

    async def count(self) -> int:
        """How many are neither expired nor revoked."""
        ...

    async def find(self, token_id: str) -> StoredToken | None:
        """Expired or revoked as well, until it is forgotten."""
        ...

    async def page(self, after: str, limit: int) -> Sequence[StoredToken]:
        """By ascending id, those that come after ``after``."""
        ...

    async def revoke(self, token_id: str) -> StoredToken | None:
        """Ends it, unless it was revoked before; None where there is none."""
        ...

    async def unrevoked(self, token_ids: Collection[str]) -> Collection[str]:
        """Those of the ids that are there and not revoked."""
        ...

    async def put_uses(self, uses: Mapping[str, TokenUse]) -> None:
        """Keeps the last use of each by id, where it is later than what is kept."""
        ...

    async def prune(self, limit: int) -> int:
        """Forgets those that ended a while ago; how many."""
        ...


class NamespaceQuotas(Protocol):
    """How much namespaces may hold promised, and what they hold; amounts as the model has them."""

    async def put(self, quota: NamespaceQuota) -> None:
        """In place of the one before; one without limits is forgotten."""
        ...

    async def count(self) -> int: ...

    async def page(self, after: str, limit: int) -> Sequence[NamespaceQuota]:
        """By ascending namespace, those that come after ``after``."""
        ...

    async def namespaces(self) -> Collection[str]:
        """Those that have one."""
        ...

    async def version(self) -> str:
        """Another one after every change."""
        ...

    async def find(
        self, namespaces: Collection[str], *, lock: bool = False
    ) -> Mapping[str, NamespaceQuota]:
        """Those of these namespaces; ``lock``: nobody else has them until the transaction ends."""
        ...

    async def used(self, namespaces: Collection[str]) -> Mapping[str, Mapping[str, int]]:
        """What all bindings of each hold."""
        ...

    async def held(
        self, keys: Collection[tuple[str, str]]
    ) -> Mapping[tuple[str, str], Mapping[str, int]]:
        """What each of these bindings holds, where it holds something."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    """Which records; times are Unix seconds, from ``since`` on, before ``until``."""

    since: float | None = None
    until: float | None = None
    credential_id: str = ""


class Audit(Protocol):
    """Records of changes and refusals. They are sealed in the order of a chain, some time later."""

    async def add(self, records: Sequence[AuditRecord]) -> None: ...

    async def page(
        self, wanted: AuditFilter, after: tuple[int, int] | None, limit: int
    ) -> Sequence[AuditRecord]:
        """The newest first, those that come after a time in microseconds and an id."""
        ...

    async def head(self) -> AuditHead: ...

    async def chain(self, after: int, limit: int) -> Sequence[AuditRecord]:
        """By ascending seal, those that come after ``after``."""
        ...

    async def seal(self, limit: int) -> int:
        """Seals the oldest that are not; how many. One transaction at a time does."""
        ...

    async def prune(self, keep_seconds: float, limit: int) -> int:
        """Forgets sealed ones that are older, the first in the chain first; how many."""
        ...
