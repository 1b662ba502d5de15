"""Permission to call a method, and to name an object: the caller's kind, role and scope.

Must not know credentials. Lists, watches and estimates are narrowed where they are answered.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, assert_never

from federation.codec.rights import DECLARED, Audience, Permission, RequestObject, ScopeRule
from federation.model.access import EVERYTHING, Role
from federation.model.errors import NotFound, PermissionRefused
from federation.services.values import Principal, PrincipalKind


def _health(verb: str) -> Permission:
    return Permission(audience=Audience.ANYBODY, verb=verb, resource="health")


# The services of gRPC itself are declared in protos of others.
PERMISSIONS: Final[Mapping[str, Permission]] = {
    **DECLARED,
    "/grpc.health.v1.Health/Check": _health("get"),
    "/grpc.health.v1.Health/List": _health("list"),
    "/grpc.health.v1.Health/Watch": _health("watch"),
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": Permission(
        verb="read", resource="API", roles=frozenset(Role)
    ),
}


def permit(method: str, principal: Principal) -> None:
    """Raises PermissionRefused unless the method is for callers of that kind and role."""
    permission = PERMISSIONS.get(method)
    audience = Audience.TOKENS if permission is None else permission.audience
    match principal.kind:
        case PrincipalKind.AGENT if audience is not Audience.AGENTS:
            raise PermissionRefused(
                f"the credential of cluster {principal.cluster}'s agent may call Agents.Connect "
                f"and nothing else; {method} needs a token"
            )
        case PrincipalKind.REPLICA if audience is not Audience.PEERS:
            raise PermissionRefused(
                f"the credential of a control plane may call Peers and nothing else, not {method}"
            )
        case PrincipalKind.ADMIN | PrincipalKind.TOKEN | PrincipalKind.SUBJECT if (
            audience is Audience.AGENTS
        ):
            raise PermissionRefused("Agents.Connect is for the credential of a cluster's agent")
        case PrincipalKind.ADMIN | PrincipalKind.TOKEN | PrincipalKind.SUBJECT if (
            audience is Audience.PEERS
        ):
            raise PermissionRefused("Peers is for control planes of the same fleet alone")
        case PrincipalKind.TOKEN | PrincipalKind.SUBJECT if not _has_role(permission, principal):
            roles = sorted(permission.roles) if permission else [Role.ADMIN]
            raise PermissionRefused(
                f"the {principal} has the role {principal.role}; {method} needs "
                f"{' or '.join(roles)}"
            )


def _has_role(permission: Permission | None, principal: Principal) -> bool:
    return permission is not None and principal.role in permission.roles


def check_scope(method: str, request: Any, principal: Principal) -> None:
    """Raises NotFound for what the caller may not see, PermissionRefused for what it may not do."""
    permission = PERMISSIONS.get(method)
    if permission is None or principal.scope == EVERYTHING:
        return
    if permission.scope is ScopeRule.FLEET:
        raise _fleet_refusal(principal)
    path = permission.object
    if path is not None and not path.is_known_later(request):
        for named in path.objects(request):
            _check_object(permission.scope, named, principal)


def _check_object(rule: ScopeRule, named: RequestObject, principal: Principal) -> None:
    scope = principal.scope
    match rule:
        case ScopeRule.BINDING:
            if not scope.sees_namespace(named.namespace):
                raise NotFound(f"There is no binding {str(named)!r}.")
        case ScopeRule.STATED_BINDING:
            if not scope.sees_namespace(named.namespace):
                raise PermissionRefused(
                    f"{named.parent}namespace: the {principal} may schedule in "
                    f"{', '.join(scope.namespaces)}, not in {named.namespace[:64]!r}"
                )
        case ScopeRule.CLUSTER:
            if not scope.sees_cluster(named.name):
                raise NotFound(f"There is no cluster {named.name!r}.")
        case ScopeRule.NEW_CLUSTER:
            if not scope.sees_cluster(named.name):
                raise PermissionRefused(
                    f"{named.parent}cluster: the {principal} is for "
                    f"{', '.join(scope.cluster_texts)}, not for {named.name[:64]!r}"
                )
        # The use case looks at the cluster of what is stored; answers are limited as they are made.
        case ScopeRule.NOTHING | ScopeRule.OBJECT_OF_CLUSTER | ScopeRule.ANSWER | ScopeRule.FLEET:
            return
        case _:
            assert_never(rule)


def _fleet_refusal(principal: Principal) -> PermissionRefused:
    scope = principal.scope
    limits = ", ".join((*scope.namespaces, *scope.cluster_texts))
    return PermissionRefused(
        f"this concerns the whole fleet, and the {principal} is for {limits} alone"
    )


def methods_for(audience: Audience) -> Collection[str]:
    """Return the paths of the methods for callers of a kind."""
    return frozenset(path for path, row in PERMISSIONS.items() if row.audience is audience)
