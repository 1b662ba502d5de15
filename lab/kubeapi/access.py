"""Who asks, and whether they may: bearer tokens and RBAC rules.

Must not answer requests.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from lab.kubeapi.faults import Asked
from lab.kubeapi.resources import Document
from lab.kubeapi.statuses import NO_SNIFFING, Refused, failure

ANONYMOUS: Final = "system:anonymous"
OPEN_PATHS: Final = frozenset({"/readyz", "/healthz", "/livez", "/version"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One RBAC rule; ``namespace`` is set for a Role's, empty for a ClusterRole's."""

    groups: frozenset[str]
    resources: frozenset[str]
    verbs: frozenset[str]
    names: frozenset[str] = frozenset()
    namespace: str = ""

    @classmethod
    def of(cls, document: Document, namespace: str = "") -> Rule:
        return cls(
            groups=frozenset(document.get("apiGroups", ())),
            resources=frozenset(document.get("resources", ())),
            verbs=frozenset(document.get("verbs", ())),
            names=frozenset(document.get("resourceNames", ())),
            namespace=namespace,
        )

    def allows(self, asked: Asked) -> bool:
        target = f"{asked.resource}/{asked.subresource}" if asked.subresource else asked.resource
        return (
            _covers(self.groups, asked.group)
            and _covers(self.resources, target)
            and _covers(self.verbs, asked.verb)
            and self.namespace in ("", asked.namespace)
            and (not self.names or asked.name in self.names)
        )


EVERYTHING: Final = Rule(groups=frozenset("*"), resources=frozenset("*"), verbs=frozenset("*"))


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """Whom a token stands for."""

    name: str
    rules: tuple[Rule, ...] = (EVERYTHING,)

    def may(self, asked: Asked) -> bool:
        return any(rule.allows(asked) for rule in self.rules)


def rules_of(documents: Iterable[Document]) -> tuple[Rule, ...]:
    """The rules of Roles and ClusterRoles as manifests write them."""
    return tuple(
        Rule.of(rule, document["metadata"].get("namespace", ""))
        for document in documents
        for rule in document["rules"]
    )


def unauthorized() -> Refused:
    return Refused(failure(401, "Unauthorized", "Unauthorized"))


def forbidden(user: str, asked: Asked) -> Refused:
    """403 in RBAC's words."""
    target = f"{asked.resource}/{asked.subresource}" if asked.subresource else asked.resource
    where = f'in the namespace "{asked.namespace}"' if asked.namespace else "at the cluster scope"
    qualified = f"{asked.resource}.{asked.group}" if asked.group else asked.resource
    what = f'{qualified} "{asked.name}"' if asked.name else qualified
    message = (
        f'{what} is forbidden: User "{user}" cannot {asked.verb} resource "{target}" '
        f'in API group "{asked.group}" {where}'
    )
    details: Document = {"name": asked.name} if asked.name else {}
    if asked.group:
        details["group"] = asked.group
    details["kind"] = asked.resource
    status = failure(403, message, "Forbidden", details=details)
    return Refused(status, **NO_SNIFFING)


def _covers(listed: frozenset[str], wanted: str) -> bool:
    return "*" in listed or wanted in listed
