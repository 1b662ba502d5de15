"""The table of permissions: a row for every method, and the same rows in the documentation."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
from google.protobuf.descriptor import FileDescriptor

from federation.model.access import Role, Scope
from federation.model.errors import NotFound, PermissionRefused
from federation.rpc.permissions import PERMISSIONS, Audience, check_scope, permit
from federation.rpc.served import SERVICES
from federation.services.values import Principal, PrincipalKind
from federation.v1 import clusters_pb2, failover_pb2, resource_pb2, scheduling_pb2

ROOT = Path(__file__).parents[3]
PROTOS = sorted((ROOT / "proto" / "federation" / "v1").glob("*.proto"))


def descriptor(proto: Path) -> FileDescriptor:
    module = importlib.import_module(f"federation.v1.{proto.stem}_pb2")
    file: FileDescriptor = module.DESCRIPTOR
    return file


def test_every_method_of_every_proto_has_a_row_and_every_row_a_method() -> None:
    services = [
        service for proto in PROTOS for service in descriptor(proto).services_by_name.values()
    ]
    paths = {
        f"/{service.full_name}/{method.name}" for service in services for method in service.methods
    }
    assert {service.full_name for service in services} == set(SERVICES)
    assert {path for path in PERMISSIONS if path.startswith("/federation.")} == paths


def test_the_documentation_has_the_same_rows() -> None:
    page = (ROOT / "docs" / "access.md").read_text(encoding="utf-8")
    rows = dict[str, tuple[str, ...]]()
    for line in page.splitlines():
        if (match := re.fullmatch(r"\| `([A-Z]\w+/\w+)` \|(.+)\|", line)) is not None:
            rows[match[1]] = tuple(cell.strip() for cell in match[2].split("|"))
    said = {
        path.removeprefix("/federation.v1."): (
            f"{row.verb} {row.resource}",
            *("yes" if role in row.roles else "-" for role in Role),
            row.within,
        )
        for path, row in PERMISSIONS.items()
        if row.audience is Audience.TOKENS and path.startswith("/federation.")
    }
    assert rows == said


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


def holder(role: Role, **scope: tuple[str, ...]) -> Principal:
    return Principal(
        kind=PrincipalKind.TOKEN,
        credential_id="tok-1",
        role=role,
        scope=Scope(**scope),
        name="ci",
    )


@pytest.mark.parametrize("role", Role)
def test_a_role_may_call_what_its_row_says(role: Role) -> None:
    for path, row in PERMISSIONS.items():
        if row.audience is Audience.TOKENS and role in row.roles:
            permit(path, holder(role))
        elif row.audience is not Audience.ANYBODY:
            with pytest.raises(PermissionRefused):
                permit(path, holder(role))


def test_a_refusal_names_the_token_and_the_roles() -> None:
    with pytest.raises(PermissionRefused, match=r"token ci .tok-1. has the role viewer") as refusal:
        permit("/federation.v1.Scheduling/Schedule", holder(Role.VIEWER))
    assert "needs admin or bridge or scheduler" in refusal.value.message


def test_a_method_without_a_row_is_for_the_first_admin_alone() -> None:
    permit("/test.Some/Thing", Principal(kind=PrincipalKind.ADMIN, role=Role.ADMIN))
    with pytest.raises(PermissionRefused):
        permit("/test.Some/Thing", holder(Role.ADMIN))


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


def binding(namespace: str) -> resource_pb2.ResourceBinding:
    return resource_pb2.ResourceBinding(
        metadata=resource_pb2.ObjectMeta(namespace=namespace, name="web")
    )


def test_what_may_not_be_seen_is_not_there() -> None:
    caller = holder(Role.OPERATOR, namespaces=("shop",), clusters=("eu-*",))
    with pytest.raises(NotFound, match="There is no binding 'bank/web'"):
        check_scope(
            "/federation.v1.Scheduling/GetBinding",
            scheduling_pb2.GetBindingRequest(namespace="bank", name="web"),
            caller,
        )
    for method, request in {
        "GetCluster": clusters_pb2.GetClusterRequest(name="us-1"),
        "CordonCluster": clusters_pb2.CordonClusterRequest(name="us-1"),
        "UpdateCluster": clusters_pb2.UpdateClusterRequest(
            cluster=resource_pb2.Cluster(metadata=resource_pb2.ObjectMeta(name="us-1"))
        ),
    }.items():
        with pytest.raises(NotFound, match="There is no cluster 'us-1'"):
            check_scope(f"/federation.v1.Clusters/{method}", request, caller)


def test_what_may_not_be_done_is_refused_with_what_may() -> None:
    scheduler = holder(Role.SCHEDULER, namespaces=("shop-*",))
    path = "/federation.v1.Scheduling/Schedule"
    check_scope(path, scheduling_pb2.ScheduleRequest(binding=binding("shop-a")), scheduler)
    check_scope(path, scheduling_pb2.ScheduleRequest(preview_token="given"), scheduler)
    for request in (
        scheduling_pb2.ScheduleRequest(binding=binding("bank")),
        scheduling_pb2.ScheduleRequest(binding=binding("bank"), preview_token="given"),
        scheduling_pb2.ScheduleRequest(),
    ):
        with pytest.raises(PermissionRefused, match=r"may schedule in shop-\*, not in"):
            check_scope(path, request, scheduler)
    items = [scheduling_pb2.ScheduleBatchItem(binding=binding(name)) for name in ("shop-a", "bank")]
    with pytest.raises(PermissionRefused, match=r"items\[1\].binding.metadata"):
        check_scope(f"{path}Batch", scheduling_pb2.ScheduleBatchRequest(items=items), scheduler)
    operator = holder(Role.OPERATOR, clusters=("eu-*",))
    with pytest.raises(PermissionRefused, match=r"is for eu-\*, not for 'us-1'"):
        check_scope(
            "/federation.v1.Clusters/CreateJoinToken",
            clusters_pb2.CreateJoinTokenRequest(cluster="us-1"),
            operator,
        )
    with pytest.raises(PermissionRefused, match="the whole fleet"):
        check_scope(
            "/federation.v1.Failover/ResumeFailover",
            failover_pb2.ResumeFailoverRequest(),
            operator,
        )
