"""Roles of callers that an identity provider vouches for: rules over claims; the first match
decides.

Must not know how claims are proved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias

from federation.model.access import EVERYTHING, NO_LIMITS, CallerLimits, Role, Scope, matches

# The values of each claim about a caller, such as its names and its groups.
SubjectClaims: TypeAlias = Mapping[str, Sequence[str]]


class Voucher(StrEnum):
    """The authority behind a caller's identity, if that is no token."""

    OIDC = "oidc"
    KUBERNETES = "kubernetes"
    CERTIFICATE = "certificate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A role, the visible namespaces and clusters, and the limits of a caller."""

    role: Role
    scope: Scope = EVERYTHING
    limits: CallerLimits = NO_LIMITS


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleRule:
    """A grant for callers with this value of a claim; ``*`` stands for any characters.

    With ``namespaces_claim``, the values of that claim are the visible namespaces.
    """

    claim: str
    value: str
    grant: Grant
    namespaces_claim: str = ""

    def grants(self, claims: SubjectClaims) -> Grant | None:
        """Return the grant for callers with these claims, None if the rule does not match."""
        if not any(matches((self.value,), value) for value in claims.get(self.claim, ())):
            return None
        if not self.namespaces_claim:
            return self.grant
        # A star in a foreign claim is ignored: it would open all namespaces.
        named = (name for name in claims.get(self.namespaces_claim, ()) if name and "*" not in name)
        namespaces = tuple(filter(self.grant.scope.sees_namespace, named))
        if not namespaces:
            return None
        return replace(self.grant, scope=replace(self.grant.scope, namespaces=namespaces))


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleRules:
    """Ordered rules by the authority behind the identity."""

    rules: Mapping[Voucher, Sequence[RoleRule]]

    def grants(self, voucher: Voucher, claims: SubjectClaims) -> Grant | None:
        """Return the grant of the first rule that matches these claims; None: no rule does."""
        granted = (rule.grants(claims) for rule in self.rules.get(voucher, ()))
        return next((grant for grant in granted if grant is not None), None)
