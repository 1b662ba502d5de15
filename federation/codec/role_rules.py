"""Rules that give roles to callers whom others vouch for, out of a file, strictly.

Must not know what a caller claims.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from federation.codec.document_files import read_file
from federation.codec.pods import fields_at, list_at
from federation.codec.scopes import limits_of, scope_of
from federation.codec.violations import Violations, joined
from federation.model.access import Role
from federation.model.printable import is_printable
from federation.model.role_rules import Grant, RoleRule, RoleRules, Voucher

API_VERSION: Final = "fedsched.io/v1"
KIND: Final = "RoleRules"
MOST_RULES: Final = 1000
MOST_CHARACTERS: Final = 255
FIELDS: Final = (
    *("from", "claim", "value", "role", "namespaces", "namespacesClaim", "clusters"),
    *("callsPerSecond", "callsAtOnce"),
)


def read_role_rules(path: Path) -> RoleRules:
    """Raises InvalidRequest with everything that is wrong, under the file's name."""
    return read_file(path, role_rules_from_document)


def role_rules_from_document(document: object) -> RoleRules:
    """Raises InvalidRequest with every broken rule."""
    found = Violations()
    fields = fields_at(document, "", ("apiVersion", "kind", "rules"), found)
    for name, expected in (("apiVersion", API_VERSION), ("kind", KIND)):
        if fields.get(name) != expected:
            found.add(name, f"must be {expected}, not {fields.get(name)!r}")
    entries = list_at(fields.get("rules"), "rules", found)
    if not 1 <= len(entries) <= MOST_RULES:
        found.add("rules", f"must be 1 to {MOST_RULES}")
    rules: dict[Voucher, list[RoleRule]] = {}
    for position, entry in enumerate(entries[:MOST_RULES]):
        path = f"rules[{position}]"
        rule_fields = fields_at(entry, path, FIELDS, found)
        voucher = rule_fields.get("from")
        if voucher in tuple(Voucher):
            rules.setdefault(Voucher(voucher), []).append(_rule(rule_fields, path, found))
        else:
            found.add(f"{path}.from", f"must be one of {', '.join(Voucher)}")
    found.check()
    return RoleRules(rules=rules)


def _rule(fields: Mapping[str, Any], path: str, found: Violations) -> RoleRule:
    role = fields.get("role")
    if role not in tuple(Role):
        found.add(f"{path}.role", f"must be one of {', '.join(Role)}")
        role = None
    scope = scope_of(
        None if role is None else Role(role),
        _texts(fields.get("namespaces"), f"{path}.namespaces", found),
        _texts(fields.get("clusters"), f"{path}.clusters", found),
        found,
        path,
    )
    limits = limits_of(
        _number(fields.get("callsPerSecond"), f"{path}.callsPerSecond", found),
        _number(fields.get("callsAtOnce"), f"{path}.callsAtOnce", found),
        found,
        path,
    )
    namespaces_claim = ""
    if "namespacesClaim" in fields:
        namespaces_claim = _text(fields["namespacesClaim"], f"{path}.namespacesClaim", found)
    if role == Role.ADMIN and namespaces_claim:
        rule = "must be left out: the role admin is for everything"
        found.add(joined(path, "namespacesClaim"), rule)
    return RoleRule(
        claim=_text(fields.get("claim"), f"{path}.claim", found),
        value=_text(fields.get("value"), f"{path}.value", found),
        grant=Grant(role=Role.VIEWER if role is None else Role(role), scope=scope, limits=limits),
        namespaces_claim=namespaces_claim,
    )


def _number(value: object, path: str, found: Violations) -> int:
    if value is None or type(value) is int:
        return value or 0
    found.add(path, "must be a whole number")
    return 0


def _texts(value: Any, path: str, found: Violations) -> list[str]:
    entries = list_at(value, path, found)
    return [_text(entry, f"{path}[{position}]", found) for position, entry in enumerate(entries)]


def _text(value: object, path: str, found: Violations) -> str:
    if (
        not isinstance(value, str)
        or not 1 <= len(value) <= MOST_CHARACTERS
        or not is_printable(value)
    ):
        found.add(path, f"must be a text of 1 to {MOST_CHARACTERS} printable characters")
        return ""
    return value
