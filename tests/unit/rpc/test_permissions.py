"""Rights of rpcs: each method declares them, and they agree with one another.

Must not repeat them: docs/reference/rights.md is the record that `make check` holds.
"""

from __future__ import annotations

import pytest

from federation.codec.rights import DECLARED, Audience, ScopeRule
from federation.model.access import Role, Scope
from federation.rpc.permissions import PERMISSIONS
from federation.rpc.served import SERVICES
from tests.api.calls import PATHS, SERVICES_OF_PROTOS

WITHOUT_OBJECT = {ScopeRule.NOTHING, ScopeRule.FLEET, ScopeRule.ANSWER}


def test_every_method_of_every_proto_has_a_row_and_every_row_a_method() -> None:
    assert {service.full_name for service in SERVICES_OF_PROTOS} == set(SERVICES)
    assert {path for path in PERMISSIONS if path.startswith("/federation.")} == set(PATHS)


def test_every_method_declares_its_rights() -> None:
    for path, row in DECLARED.items():
        assert row.verb, path
        assert row.resource, path
        assert bool(row.roles) is (row.audience is Audience.TOKENS), path
        assert row.object or row.scope in WITHOUT_OBJECT, path


def test_what_not_everybody_may_do_is_audited_unless_it_reads() -> None:
    reads = {"get", "list", "watch"}
    unaudited = {
        path
        for path, row in PERMISSIONS.items()
        if row.audience is Audience.TOKENS and row.roles != set(Role) and not row.changes
    }
    assert {PERMISSIONS[path].verb for path in unaudited} <= reads
    assert not any(row.changes and row.verb in reads for row in PERMISSIONS.values())
    assert all(row.changes for row in PERMISSIONS.values() if row.decides)


@pytest.mark.parametrize(
    ("patterns", "seen", "hidden"),
    [
        ((), ["", "shop", "a\nb"], []),
        (("shop",), ["shop"], ["", "shop-a", "ashop"]),
        (("shop-*", "web"), ["shop-", "shop-a", "web"], ["shop", "web-a"]),
        (("*-prod",), ["-prod", "a-b-prod"], ["prod", "a-prod-b"]),
        (("*",), ["", "anything"], []),
        (("a.c",), ["a.c"], ["abc"]),
        # Ends at once: every star is tried once.
        (("*a" * 31 + "b",), [], ["a" * 253]),
    ],
)
def test_a_star_stands_for_any_characters(
    patterns: tuple[str, ...], seen: list[str], hidden: list[str]
) -> None:
    for scope in (Scope(namespaces=patterns), Scope(clusters=patterns)):
        sees = scope.sees_namespace if scope.namespaces else scope.sees_cluster
        assert [name for name in seen + hidden if sees(name)] == seen
