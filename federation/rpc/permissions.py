"""One table: who may call each method, and what of its request the caller's scope must hold.

Must not know credentials. Lists, watches and estimates are narrowed where they are answered.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeAlias

from federation.model.access import Role, Scope
from federation.model.errors import NotFound, PermissionRefused
from federation.model.placement import binding_key
from federation.services.values import Principal, PrincipalKind


class Audience(StrEnum):
    """Who a method is for."""

    ANYBODY = "anybody"
    AGENTS = "agents"
    PEERS = "control planes"
    TOKENS = "tokens"


ScopeCheck: TypeAlias = Callable[[Any, Principal], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """``check`` raises where a request is not within its caller's scope; ``within`` names that.

    What ``changes`` something is audited: in its first transaction, or, where it ``decides``, in
    each that commits decisions of it.
    """

    audience: Audience = Audience.TOKENS
    verb: str
    resource: str
    roles: frozenset[Role] = frozenset()
    check: ScopeCheck | None = None
    within: str = "-"
    changes: bool = False
    decides: bool = False


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
    if permission is not None and permission.check is not None:
        permission.check(request, principal)


def _seen_binding(request: Any, principal: Principal) -> None:
    if not principal.scope.sees_namespace(request.namespace):
        raise NotFound(f"There is no binding {binding_key(request.namespace, request.name)!r}.")


def _seen_cluster(name: str, principal: Principal) -> None:
    if not principal.scope.sees_cluster(name):
        raise NotFound(f"There is no cluster {name!r}.")


def _own_namespace(binding: Any, principal: Principal, field: str) -> None:
    namespace = binding.metadata.namespace
    if not principal.scope.sees_namespace(namespace):
        raise PermissionRefused(
            f"{field}.metadata.namespace: the {principal} may schedule in "
            f"{', '.join(principal.scope.namespaces)}, not in {namespace[:64]!r}"
        )


def _own_binding(request: Any, principal: Principal) -> None:
    # Of what namespace a preview is, is known as it is committed.
    if request.HasField("binding") or not request.preview_token:
        _own_namespace(request.binding, principal, "binding")


def _own_items(request: Any, principal: Principal) -> None:
    if principal.scope.namespaces:
        for position, item in enumerate(request.items):
            _own_namespace(item.binding, principal, f"items[{position}].binding")


def _new_cluster(request: Any, principal: Principal) -> None:
    if not principal.scope.sees_cluster(request.cluster):
        raise PermissionRefused(
            f"cluster: the {principal} is for {', '.join(principal.scope.cluster_texts)}, "
            f"not for {request.cluster[:64]!r}"
        )


def _whole_fleet(_: Any, principal: Principal) -> None:
    scope = principal.scope
    if scope != Scope():
        limits = ", ".join((*scope.namespaces, *scope.cluster_texts))
        raise PermissionRefused(
            f"this concerns the whole fleet, and the {principal} is for {limits} alone"
        )


_READ: Final = frozenset(Role)
_SCHEDULE: Final = frozenset({Role.SCHEDULER, Role.BRIDGE, Role.ADMIN})
_OPERATE: Final = frozenset({Role.OPERATOR, Role.ADMIN})
_KEEP_CLUSTERS: Final = frozenset({Role.OPERATOR, Role.BRIDGE, Role.ADMIN})
_ADMIN: Final = frozenset({Role.ADMIN})

_ANSWER: Final = "what is answered"


def _bindings(verb: str, roles: frozenset[Role]) -> Permission:
    return Permission(
        verb=verb,
        resource="bindings",
        roles=roles,
        check=_seen_binding,
        within="namespace",
        changes=roles is not _READ,
        decides=verb == "reschedule",
    )


def _cluster(verb: str, roles: frozenset[Role]) -> Permission:
    return Permission(
        verb=verb,
        resource="clusters",
        roles=roles,
        check=lambda request, principal: _seen_cluster(request.name, principal),
        within="cluster",
        changes=roles is not _READ,
    )


def _reading(verb: str, resource: str, within: str = _ANSWER) -> Permission:
    return Permission(verb=verb, resource=resource, roles=_READ, within=within)


def _failover(verb: str) -> Permission:
    return Permission(
        verb=verb,
        resource="failover",
        roles=_OPERATE,
        check=_whole_fleet,
        within="the fleet",
        changes=True,
    )


def _plan(verb: str, roles: frozenset[Role]) -> Permission:
    return Permission(
        verb=verb,
        resource="plans",
        roles=roles,
        check=_whole_fleet,
        within="the fleet",
        changes=roles is not _READ,
    )


def _health(verb: str) -> Permission:
    return Permission(audience=Audience.ANYBODY, verb=verb, resource="health")


_OURS: Final[Mapping[str, Permission]] = {
    "Access/CreateToken": Permission(verb="create", resource="tokens", roles=_ADMIN, changes=True),
    "Access/ListTokens": Permission(verb="list", resource="tokens", roles=_ADMIN),
    "Access/RevokeToken": Permission(verb="revoke", resource="tokens", roles=_ADMIN, changes=True),
    "Access/WhoAmI": _reading("get", "caller", "-"),
    "Access/SetQuota": Permission(verb="set", resource="quotas", roles=_ADMIN, changes=True),
    "Access/ListQuotas": _reading("list", "quotas"),
    "Access/ListAudit": Permission(verb="list", resource="audit", roles=_ADMIN),
    "Access/GetAuditChain": Permission(verb="get", resource="audit", roles=_ADMIN),
    "Agents/Connect": Permission(audience=Audience.AGENTS, verb="connect", resource="agents"),
    "Clusters/CreateJoinToken": Permission(
        verb="create",
        resource="join-tokens",
        roles=_KEEP_CLUSTERS,
        check=_new_cluster,
        within="cluster",
        changes=True,
    ),
    "Clusters/ListJoinTokens": Permission(
        verb="list", resource="join-tokens", roles=_OPERATE, within=_ANSWER
    ),
    "Clusters/RevokeJoinToken": Permission(
        verb="revoke", resource="join-tokens", roles=_OPERATE, within="cluster", changes=True
    ),
    "Clusters/AcceptCluster": _cluster("accept", _OPERATE),
    "Clusters/RejectCluster": _cluster("reject", _OPERATE),
    "Clusters/EnrollCluster": Permission(
        audience=Audience.ANYBODY, verb="enroll", resource="clusters", changes=True
    ),
    "Clusters/ListClusters": _reading("list", "clusters"),
    "Clusters/WatchClusters": _reading("watch", "clusters"),
    "Clusters/GetCluster": _cluster("get", _READ),
    "Clusters/UpdateCluster": Permission(
        verb="update",
        resource="clusters",
        roles=_KEEP_CLUSTERS,
        check=lambda request, who: _seen_cluster(request.cluster.metadata.name, who),
        within="cluster",
        changes=True,
    ),
    "Clusters/CordonCluster": _cluster("cordon", _OPERATE),
    "Clusters/DeleteCluster": _cluster("delete", _KEEP_CLUSTERS),
    "Clusters/ReplaceCluster": _cluster("replace", _KEEP_CLUSTERS),
    "Clusters/RevokeCluster": _cluster("revoke", _OPERATE),
    "Estimates/EstimateReplicas": _reading("estimate", "clusters"),
    "Estimates/EstimateComponentSets": _reading("estimate", "clusters"),
    "Failover/GetFailover": _reading("get", "failover"),
    "Failover/FreezeFailover": _failover("freeze"),
    "Failover/ResumeFailover": _failover("resume"),
    "Peers/AskAgent": Permission(audience=Audience.PEERS, verb="ask", resource="agents"),
    "Rebalance/CreatePlan": _plan("create", _OPERATE),
    "Rebalance/GetPlan": _plan("get", _READ),
    "Rebalance/ListPlans": _plan("list", _READ),
    "Rebalance/ApprovePlan": _plan("approve", _OPERATE),
    "Rebalance/StopPlan": _plan("stop", _OPERATE),
    "Rebalance/WatchPlan": _plan("watch", _READ),
    "Scheduling/Schedule": Permission(
        verb="schedule",
        resource="bindings",
        roles=_SCHEDULE,
        check=_own_binding,
        within="namespace",
        changes=True,
        decides=True,
    ),
    "Scheduling/ScheduleBatch": Permission(
        verb="schedule",
        resource="bindings",
        roles=_SCHEDULE,
        check=_own_items,
        within="namespace",
        changes=True,
        decides=True,
    ),
    "Scheduling/GetBinding": _bindings("get", _READ),
    "Scheduling/ListBindings": _reading("list", "bindings"),
    "Scheduling/WatchBindings": _reading("watch", "bindings"),
    "Scheduling/DeleteBinding": _bindings("delete", _SCHEDULE),
    "Scheduling/ReleaseReservation": _bindings("release", _SCHEDULE),
    "Scheduling/RenewLease": _bindings("renew", _SCHEDULE),
    "Scheduling/SuspendBinding": _bindings("suspend", _SCHEDULE),
    "Scheduling/RescheduleBinding": _bindings("reschedule", _SCHEDULE),
    "Scheduling/ListQueue": _reading("list", "queue"),
    "Scheduling/GetDecision": _reading("get", "decisions"),
    "Scheduling/ListDecisions": _reading("list", "decisions"),
    "Scheduling/ReplayDecision": _reading("replay", "decisions"),
    "Scheduling/ExportTrace": Permission(
        verb="export",
        resource="decisions",
        roles=_READ,
        check=_whole_fleet,
        within="the fleet",
    ),
    "Scoring/ScoreNodes": _reading("score", "nodes of the request", "-"),
    "Simulation/Simulate": _reading("simulate", "clusters of the request", "-"),
}
PERMISSIONS: Final[Mapping[str, Permission]] = {
    **{f"/federation.v1.{name}": permission for name, permission in _OURS.items()},
    "/grpc.health.v1.Health/Check": _health("get"),
    "/grpc.health.v1.Health/List": _health("list"),
    "/grpc.health.v1.Health/Watch": _health("watch"),
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": _reading("read", "API", "-"),
}


def methods_for(audience: Audience) -> Collection[str]:
    """The paths of the methods that are for them."""
    return frozenset(path for path, row in PERMISSIONS.items() if row.audience is audience)
