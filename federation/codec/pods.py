"""Pod templates as replica requirements, read leniently: their schema is Kubernetes' own.

Must not know which kinds hold a template.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, TypeVar

from google.protobuf.message import Message

from federation.codec.requirements import quantities_of, read_amounts
from federation.codec.strict import message_from_document
from federation.codec.violations import Violations, joined
from federation.model.errors import InvalidRequest
from federation.model.pod_request import ContainerRequest, PodResources, pod_request
from federation.v1 import resource_pb2

M = TypeVar("M", bound=Message)

_REQUIRED_AFFINITY: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def requirements_of_pod(
    spec: Mapping[str, Any], namespace: str, path: str, found: Violations
) -> resource_pb2.ReplicaRequirements:
    """What one pod of this spec asks for; nothing when something in it cannot be read."""
    before = len(found)
    resources = resources_of_pod(spec, path, found)
    claim = _node_claim(spec, path, found)
    named = {"priorityClassName": spec.get("priorityClassName")}
    requirements = message_at(named, resource_pb2.ReplicaRequirements, path, found)
    if len(found) > before:
        return resource_pb2.ReplicaRequirements()
    requirements.namespace = namespace
    requirements.resource_request.update(quantities_of(pod_request(resources)))
    if claim is not None:
        requirements.node_claim.CopyFrom(claim)
    return requirements


def resources_of_pod(spec: Mapping[str, Any], path: str, found: Violations) -> PodResources:
    """The parts of a pod's spec that ask for resources."""
    containers = _containers(spec, "containers", path, found)
    init_containers = _containers(spec, "initContainers", path, found)
    asked = {name for each in (*containers, *init_containers) for name in each.requests}
    return PodResources(
        containers=containers,
        init_containers=init_containers,
        overhead=quantities_at(spec.get("overhead"), f"{path}.overhead", found),
        pod_level=_requests(spec, path, found, asked_elsewhere=asked),
    )


def object_at(value: Any, path: str, found: Violations) -> Mapping[str, Any]:
    """A mapping; empty when it is absent, or when it is something else and that was noted."""
    if value is None:
        return {}
    if isinstance(value, Mapping):
        return value
    found.add(path, "must be an object")
    return {}


def list_at(value: Any, path: str, found: Violations) -> list[Any]:
    """A list; empty when it is absent, or when it is something else and that was noted."""
    if value is None:
        return []
    if isinstance(value, list):
        return value
    found.add(path, "must be a list")
    return []


def fields_at(
    value: object, path: str, known: Iterable[str], found: Violations
) -> Mapping[str, Any]:
    """An object's fields; empty when it is absent. Others than the known ones are noted."""
    fields, names = object_at(value, path, found), tuple(known)
    for name in fields:
        if name not in names:
            rule = f"there is no such field; fields are {', '.join(names)}"
            found.add(joined(path, str(name)), rule)
    return fields


def message_at(value: Any, message_class: type[M], path: str, found: Violations) -> M:
    """A message of ours out of a part of the document that has the same shape."""
    try:
        return message_from_document(value, message_class, path)
    except InvalidRequest as error:
        found.extend(error.violations)
        return message_class()


def quantities_at(value: Any, path: str, found: Violations) -> dict[str, str]:
    """Quantity texts by resource name; empty when one of them is wrong, and that was noted."""
    wrapped = {"resourceRequest": object_at(value, path, found)}
    try:
        message = message_from_document(wrapped, resource_pb2.ReplicaRequirements)
    except InvalidRequest as error:
        for each in error.violations:
            found.add(path + each.field.removeprefix("resourceRequest"), each.rule)
        return {}
    quantities = dict(message.resource_request)
    read_amounts(quantities, path, found)
    return quantities


def _containers(
    spec: Mapping[str, Any], field: str, path: str, found: Violations
) -> tuple[ContainerRequest, ...]:
    containers = []
    for position, value in enumerate(list_at(spec.get(field), f"{path}.{field}", found)):
        here = f"{path}.{field}[{position}]"
        container = object_at(value, here, found)
        containers.append(
            ContainerRequest(
                requests=_requests(container, here, found),
                restart_always=container.get("restartPolicy") == "Always",
            )
        )
    return tuple(containers)


def _requests(
    holder: Mapping[str, Any],
    path: str,
    found: Violations,
    *,
    asked_elsewhere: Collection[str] = (),
) -> dict[str, str]:
    """Requests; a limit without one counts as one, as the API server would fill it in.

    It does not for a pod as a whole when a container asks for the resource.
    """
    here = f"{path}.resources"
    resources = object_at(holder.get("resources"), here, found)
    limits = quantities_at(resources.get("limits"), f"{here}.limits", found)
    assumed = {name: text for name, text in limits.items() if name not in asked_elsewhere}
    return assumed | quantities_at(resources.get("requests"), f"{here}.requests", found)


def _node_claim(
    spec: Mapping[str, Any], path: str, found: Violations
) -> resource_pb2.NodeClaim | None:
    same = {name: spec.get(name) for name in ("nodeSelector", "tolerations")}
    claim = message_at(same, resource_pb2.NodeClaim, path, found)
    here = f"{path}.affinity"
    affinity = object_at(spec.get("affinity"), here, found)
    nodes = object_at(affinity.get("nodeAffinity"), f"{here}.nodeAffinity", found)
    required = nodes.get(_REQUIRED_AFFINITY)
    if required is not None:
        here = f"{here}.nodeAffinity.{_REQUIRED_AFFINITY}"
        claim.hard_node_affinity.CopyFrom(
            message_at(required, resource_pb2.NodeSelector, here, found)
        )
    return claim if claim.ByteSize() or required is not None else None
