"""Rights of rpcs, as the protos declare them: callers, scope, audit, and limits of a request.

Must not know a caller, nor decide whether it may call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, MethodDescriptor

from federation.model.access import Role
from federation.model.placement import binding_key
from federation.v1 import (
    access_pb2,
    agents_pb2,
    clusters_pb2,
    estimates_pb2,
    failover_pb2,
    peers_pb2,
    rebalance_pb2,
    rights_pb2,
    scheduling_pb2,
    scoring_pb2,
    simulation_pb2,
)

PACKAGE: Final = "/federation.v1."
SMALL_REQUEST_BYTES: Final = 64 * 1024
# The word of the protos for all roles.
ANY_ROLE: Final = "any"
FILES: Final = (
    *(clusters_pb2.DESCRIPTOR, agents_pb2.DESCRIPTOR, estimates_pb2.DESCRIPTOR),
    *(scheduling_pb2.DESCRIPTOR, failover_pb2.DESCRIPTOR, rebalance_pb2.DESCRIPTOR),
    *(simulation_pb2.DESCRIPTOR, scoring_pb2.DESCRIPTOR, peers_pb2.DESCRIPTOR),
    access_pb2.DESCRIPTOR,
)


class Audience(IntEnum):
    """The kind of credential with which a method may be called."""

    TOKENS = rights_pb2.AUDIENCE_UNSPECIFIED
    ANYBODY = rights_pb2.AUDIENCE_ANYBODY
    AGENTS = rights_pb2.AUDIENCE_AGENTS
    PEERS = rights_pb2.AUDIENCE_PEERS


class ScopeRule(IntEnum):
    """The part of a caller's scope that the object of a request must be in."""

    NOTHING = rights_pb2.SCOPE_RULE_UNSPECIFIED
    BINDING = rights_pb2.SCOPE_RULE_BINDING
    STATED_BINDING = rights_pb2.SCOPE_RULE_STATED_BINDING
    CLUSTER = rights_pb2.SCOPE_RULE_CLUSTER
    NEW_CLUSTER = rights_pb2.SCOPE_RULE_NEW_CLUSTER
    OBJECT_OF_CLUSTER = rights_pb2.SCOPE_RULE_OBJECT_OF_CLUSTER
    FLEET = rights_pb2.SCOPE_RULE_FLEET
    ANSWER = rights_pb2.SCOPE_RULE_ANSWER


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestObject:
    """One object that a request names; ``parent`` is the path of the message with its name."""

    parent: str
    namespace: str
    name: str
    is_namespaced: bool

    def __str__(self) -> str:
        return binding_key(self.namespace, self.name) if self.is_namespaced else self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectPath:
    """The place of an object's name in a request: ``steps`` lead to the message that holds it, and
    say of each field whether it is repeated.
    """

    steps: tuple[tuple[str, bool], ...]
    namespace: str
    name: str
    alternative: str

    def objects(self, request: Any) -> Iterator[RequestObject]:
        """Yield the objects that the request names, by their paths."""
        parents = [("", request)]
        for field, is_list in self.steps:
            parents = [
                (f"{path}{field}{place}.", value)
                for path, parent in parents
                for place, value in _values(parent, field, is_list=is_list)
            ]
        for path, parent in parents:
            yield RequestObject(
                parent=path,
                namespace=getattr(parent, self.namespace) if self.namespace else "",
                name=str(getattr(parent, self.name)),
                is_namespaced=bool(self.namespace),
            )

    def is_known_later(self, request: Any) -> bool:
        """Tell whether the alternative stands in place of the object's message."""
        return bool(
            self.alternative
            and getattr(request, self.alternative)
            and not request.HasField(self.steps[0][0])
        )


def _values(parent: Any, field: str, *, is_list: bool) -> Iterator[tuple[str, Any]]:
    value = getattr(parent, field)
    if not is_list:
        yield "", value
        return
    for position, item in enumerate(value):
        yield f"[{position}]", item


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """The rights of one method.

    A method that ``changes`` something is audited in its first transaction. One that ``decides`` is
    audited in each transaction that commits its decisions.
    """

    audience: Audience = Audience.TOKENS
    verb: str
    resource: str
    roles: frozenset[Role] = frozenset()
    scope: ScopeRule = ScopeRule.NOTHING
    object: ObjectPath | None = None
    changes: bool = False
    decides: bool = False
    max_request_bytes: int = SMALL_REQUEST_BYTES
    ignores_unknown_fields: bool = False


def _permission(method: MethodDescriptor) -> Permission:
    declared = method.GetOptions().Extensions[rights_pb2.rights]
    roles = Role if ANY_ROLE in declared.roles else map(Role, declared.roles)
    return Permission(
        audience=Audience(declared.audience),
        verb=declared.verb,
        resource=declared.resource,
        roles=frozenset(roles),
        scope=ScopeRule(declared.scope),
        object=_object_path(method.input_type, declared.object),
        changes=declared.audited != rights_pb2.AUDITED_UNSPECIFIED,
        decides=declared.audited == rights_pb2.AUDITED_DECISIONS,
        max_request_bytes=declared.max_request_bytes or SMALL_REQUEST_BYTES,
        ignores_unknown_fields=declared.ignores_unknown_fields,
    )


def _object_path(request: Descriptor, declared: rights_pb2.ObjectPath) -> ObjectPath | None:
    """Raises KeyError for a path that the request does not have."""
    if not declared.name:
        return None
    *parents, name = declared.name.split(".")
    *namespace_parents, namespace = declared.namespace.split(".")
    if namespace and namespace_parents != parents:
        raise KeyError(f"{request.full_name}: namespace and name lie in different messages")
    message, steps = request, []
    for parent in parents:
        field = message.fields_by_name[parent]
        steps.append((parent, field.is_repeated))
        if field.message_type is None:
            raise KeyError(f"{request.full_name}: {parent} is not a message")
        message = field.message_type
    for leaf in filter(None, (namespace, name)):
        message.fields_by_name[leaf]
    if declared.alternative:
        request.fields_by_name[declared.alternative]
    return ObjectPath(
        steps=tuple(steps), namespace=namespace, name=name, alternative=declared.alternative
    )


DECLARED: Final[Mapping[str, Permission]] = {
    f"/{service.full_name}/{method.name}": _permission(method)
    for file in FILES
    for service in file.services_by_name.values()
    for method in service.methods
}


def permission_for(method: str) -> Permission:
    """Return the rights of a method by its short name, such as Scheduling/Schedule."""
    return DECLARED[f"{PACKAGE}{method}"]
