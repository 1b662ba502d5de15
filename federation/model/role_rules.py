"""Roles of callers that others vouch for: rules over their claims, of which the first decides.

Must not know how claims are proved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias

from federation.model.access import EVERYTHING, NO_LIMITS, CallerLimits, Role, Scope, matches

# What is said of a caller: its names, its groups. By claim, each with all its values.
SubjectClaims: TypeAlias = Mapping[str, Sequence[str]]


class Voucher(StrEnum):
    """Who says who a caller is, beside tokens."""

    OIDC = "oidc"
    KUBERNETES = "kubernetes"
    CERTIFICATE = "certificate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What a caller may do and see, and how much it may ask."""

    role: Role
    scope: Scope = EVERYTHING
    limits: CallerLimits = NO_LIMITS


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleRule:
    """Callers of whom a claim has this value, in which ``*`` stands for any characters.

    Where ``namespaces_claim`` is set, the values of that claim are the namespaces they may see.
    """

    claim: str
    value: str
    grant: Grant
    namespaces_claim: str = ""

    def grants(self, claims: SubjectClaims) -> Grant | None:
        """None where the rule is not for callers with these claims."""
        if not any(matches((self.value,), value) for value in claims.get(self.claim, ())):
            return None
        if not self.namespaces_claim:
            return self.grant
        # Of a star that somebody else wrote nobody has said what it opens.
        named = (name for name in claims.get(self.namespaces_claim, ()) if name and "*" not in name)
        namespaces = tuple(filter(self.grant.scope.sees_namespace, named))
        if not namespaces:
            return None
        return replace(self.grant, scope=replace(self.grant.scope, namespaces=namespaces))


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleRules:
    """Rules in their order, by who vouches."""

    rules: Mapping[Voucher, Sequence[RoleRule]]

    def grants(self, voucher: Voucher, claims: SubjectClaims) -> Grant | None:
        """What the first rule grants that is for callers with these claims."""
        granted = (rule.grants(claims) for rule in self.rules.get(voucher, ()))
        return next((grant for grant in granted if grant is not None), None)
