"""Who others vouch for, as a caller; and those that were found to be so lately.

Must not know how somebody vouches.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from federation.model.errors import PermissionRefused, Unauthenticated
from federation.model.printable import is_printable
from federation.model.role_rules import RoleRules, SubjectClaims, Voucher
from federation.services.ports import Clock
from federation.services.values import Principal, PrincipalKind

MOST_NAME_CHARACTERS: Final = 255
MOST_REMEMBERED: Final = 10_000


def subject_of(
    rules: RoleRules, voucher: Voucher, name: str, claims: SubjectClaims, issuer: str = ""
) -> Principal:
    """Raises Unauthenticated for a name that cannot be shown, and PermissionRefused for who has
    no role.
    """
    if not 1 <= len(name) <= MOST_NAME_CHARACTERS or not is_printable(name):
        rule = f"must be 1 to {MOST_NAME_CHARACTERS} printable characters"
        raise Unauthenticated(f"The name of the subject {rule}.")
    granted = rules.grants(voucher, claims)
    if granted is None:
        raise PermissionRefused(f"no rule gives the subject {name} a role")
    # No secret, and the same for each of its credentials.
    digest = hashlib.sha256(f"{issuer} {name}".encode()).hexdigest()
    return Principal(
        kind=PrincipalKind.SUBJECT,
        credential_id=f"{voucher}-{digest[:16]}",
        role=granted.role,
        scope=granted.scope,
        limits=granted.limits,
        name=name,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    principal: Principal
    ends_at: float
    generation: int


class KnownBearers:
    """Bearers that were verified, by their digests, each until its end."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[bytes, _Known] = {}

    def find(self, bearer: str, generation: int = 0) -> Principal | None:
        """None where it was not verified in this generation, or has ended."""
        if not self._known:
            return None
        known = self._known.get(_digest(bearer))
        if known is None or known.generation != generation or self._clock.now() >= known.ends_at:
            return None
        return known.principal

    def remember(
        self, bearer: str, principal: Principal, ends_at: float, generation: int = 0
    ) -> None:
        """``ends_at`` is in Unix seconds. The one verified longest ago makes place."""
        digest = _digest(bearer)
        self._known.pop(digest, None)
        if len(self._known) >= MOST_REMEMBERED:
            self._known.pop(next(iter(self._known)))
        self._known[digest] = _Known(principal=principal, ends_at=ends_at, generation=generation)


def _digest(bearer: str) -> bytes:
    return hashlib.sha256(bearer.encode()).digest()
