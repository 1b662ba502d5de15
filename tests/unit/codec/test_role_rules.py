"""Rules that give roles, out of a file: what they say, and every fault by its path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from federation.codec.role_rules import read_role_rules, role_rules_from_document
from federation.model.access import Role, Scope
from federation.model.errors import InvalidRequest
from federation.model.role_rules import Grant, Voucher
from tests.unit.codec.documents import violations

HEAD = {"apiVersion": "fedsched.io/v1", "kind": "RoleRules"}
RULE = {"from": "oidc", "claim": "groups", "value": "a*", "role": "scheduler"}


def document(**fields: Any) -> dict[str, Any]:
    return {**HEAD, "rules": [{**RULE, **fields}]}


def test_the_first_rule_that_fits_decides() -> None:
    rules = role_rules_from_document(
        {
            **HEAD,
            "rules": [{**RULE, "namespaces": ["shop"]}, {**RULE, "value": "*", "role": "admin"}],
        }
    )
    shop = Scope(namespaces=("shop",))
    assert rules.grants(Voucher.OIDC, {"groups": ["b", "ab"]}) == Grant(
        role=Role.SCHEDULER, scope=shop
    )
    assert rules.grants(Voucher.OIDC, {"groups": ["b"]}) == Grant(role=Role.ADMIN)
    assert rules.grants(Voucher.OIDC, {"sub": ["ab"]}) is None


def test_namespaces_of_a_claim_stay_within_the_rule_and_are_no_patterns() -> None:
    rules = role_rules_from_document(document(namespaces=["shop-*"], namespacesClaim="teams"))
    claims = {"groups": ["a"], "teams": ["shop-a", "bank", "shop-*", ""]}
    granted = rules.grants(Voucher.OIDC, claims)
    assert granted == Grant(role=Role.SCHEDULER, scope=Scope(namespaces=("shop-a",)))
    assert rules.grants(Voucher.OIDC, {"groups": ["a"], "teams": ["bank"]}) is None
    assert rules.grants(Voucher.OIDC, {"groups": ["a"]}) is None


FAULTS: dict[str, tuple[Any, str]] = {
    "no object": ([], ""),
    "another kind": ({**document(), "kind": "Rules"}, "kind"),
    "no rules": ({**HEAD, "rules": []}, "rules"),
    "unknown field": (document(roles="admin"), "rules[0].roles"),
    "voucher": (document(**{"from": "ldap"}), "rules[0].from"),
    "unhashable voucher": (document(**{"from": ["oidc"]}), "rules[0].from"),
    "role": (document(role="root"), "rules[0].role"),
    "no claim": (document(claim=None), "rules[0].claim"),
    "no value": (document(value=""), "rules[0].value"),
    "number": (document(value=7), "rules[0].value"),
    "limit": (document(callsAtOnce=-1), "rules[0].callsAtOnce"),
    "no number": (document(callsPerSecond="5"), "rules[0].callsPerSecond"),
    "escape codes": (document(value="\x1b[2J"), "rules[0].value"),
    "namespace": (document(namespaces=["Shop"]), "rules[0].namespaces[0]"),
    "clusters": (document(clusters=["eu-1"]), "rules[0].clusters"),
    "admin": (document(role="admin", namespaces=["shop"]), "rules[0].namespaces"),
    "admin by claim": (document(role="admin", namespacesClaim="x"), "rules[0].namespacesClaim"),
}


@pytest.mark.parametrize(("broken", "field"), FAULTS.values(), ids=FAULTS)
def test_a_fault_is_told_by_its_path(broken: Any, field: str) -> None:
    assert field in violations(role_rules_from_document, broken)


def test_a_fault_of_a_file_names_it(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text("apiVersion: fedsched.io/v1\nkind: RoleRules\nrules: []\n")
    with pytest.raises(InvalidRequest, match=r"rules\.yaml: rules: must be 1 to"):
        read_role_rules(file)
