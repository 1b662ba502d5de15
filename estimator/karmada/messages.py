"""Karmada's questions, from messages to the values they are answered with.

Must not answer. Everything that is wrong is told by its field, all of it at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from google.protobuf.message import DecodeError, Message

from estimator.karmada import estimator_pb2 as karmada
from estimator.nodes import WorkloadRef
from federation.codec.ranges import MAX_REPLICAS
from federation.codec.requirements import read_requirements
from federation.codec.violations import Violations
from federation.model.errors import InvalidRequest
from federation.model.workload import Component, ReplicaRequirements
from federation.v1 import resource_pb2

# Each is placed on all nodes one after the other; nobody waits for more than these.
MAX_COMPONENTS: Final = 10_000
NANOS_PER_SECOND: Final = 1_000_000_000

AnyMessage = TypeVar("AnyMessage", bound=Message)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicasQuestion:
    """How many replicas fit beside the workloads that are assumed to be there already."""

    requirements: ReplicaRequirements
    assumed: tuple[tuple[Component, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SetsQuestion:
    """How many whole sets of these components fit beside the assumed workloads."""

    components: tuple[Component, ...]
    assumed: tuple[tuple[Component, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UnschedulableQuestion:
    """How many of an owner's pods have been found unschedulable for so long."""

    owner: WorkloadRef
    threshold_seconds: float


def replicas_question(content: bytes, cluster: str) -> ReplicasQuestion:
    """Raises InvalidRequest, also for a question about another cluster than ``cluster``."""
    found = Violations()
    message = _decoded(content, karmada.MaxAvailableReplicasRequest)
    _check_cluster(message.cluster, cluster, found)
    asked = message.replicaRequirements
    question = ReplicasQuestion(
        requirements=_requirements(asked, asked.namespace, "replicaRequirements", found),
        assumed=_assumed(message.assumedWorkloads, found),
    )
    found.check()
    return question


def sets_question(content: bytes, cluster: str) -> SetsQuestion:
    """Raises InvalidRequest, also for a question about another cluster than ``cluster``."""
    found = Violations()
    message = _decoded(content, karmada.MaxAvailableComponentSetsRequest)
    _check_cluster(message.cluster, cluster, found)
    if not message.components:
        found.add("components", "must name at least one component")
    question = SetsQuestion(
        components=_components(message.components, message.namespace, "components", found),
        assumed=_assumed(message.assumedWorkloads, found),
    )
    found.check()
    return question


def unschedulable_question(content: bytes, cluster: str) -> UnschedulableQuestion:
    """Raises InvalidRequest, also for a question about another cluster than ``cluster``."""
    found = Violations()
    message = _decoded(content, karmada.UnschedulableReplicasRequest)
    _check_cluster(message.cluster, cluster, found)
    resource = message.resource
    for field, text in (("kind", resource.kind), ("name", resource.name)):
        if not text:
            found.add(f"resource.{field}", "is required")
    found.check()
    return UnschedulableQuestion(
        owner=WorkloadRef(kind=resource.kind, namespace=resource.namespace, name=resource.name),
        threshold_seconds=message.unschedulableThreshold / NANOS_PER_SECOND,
    )


def _check_cluster(named: str, cluster: str, found: Violations) -> None:
    if named and named != cluster:
        found.add("cluster", f"this estimator speaks for {cluster!r}, not for {named!r}")


def _assumed(
    messages: Sequence[karmada.AssumedWorkload], found: Violations
) -> tuple[tuple[Component, ...], ...]:
    number = sum(len(message.components) for message in messages)
    if number > MAX_COMPONENTS:
        rule = f"must have at most {MAX_COMPONENTS} components together, not {number}"
        found.add("assumedWorkloads", rule)
        return ()
    return tuple(
        _components(
            message.components, message.namespace, f"assumedWorkloads[{place}].components", found
        )
        for place, message in enumerate(messages)
    )


def _components(
    messages: Sequence[karmada.Component], namespace: str, path: str, found: Violations
) -> tuple[Component, ...]:
    if len(messages) > MAX_COMPONENTS:
        found.add(path, f"must be at most {MAX_COMPONENTS}, not {len(messages)}")
        return ()
    read = []
    for position, message in enumerate(messages):
        here = f"{path}[{position}]"
        if not 0 <= message.replicas <= MAX_REPLICAS:
            found.add(f"{here}.replicas", f"must be 0 to {MAX_REPLICAS}, not {message.replicas}")
        requirements = _requirements(
            message.replicaRequirements, namespace, f"{here}.replicaRequirements", found
        )
        read.append(
            Component(name=message.name, replicas=message.replicas, requirements=requirements)
        )
    return tuple(read)


def _requirements(
    message: karmada.ReplicaRequirements | karmada.ComponentReplicaRequirements,
    namespace: str,
    path: str,
    found: Violations,
) -> ReplicaRequirements:
    """The requirements, whichever of the two spellings each part has."""
    quantities = {name: quantity.string for name, quantity in message.resourceRequest.items()}
    for name, content in message.resourceRequestBytes.items():
        field = f"{path}.resourceRequestBytes[{name}]"
        quantities[name] = _read(content, karmada.Quantity, field, found).string
    spelled = resource_pb2.ReplicaRequirements(
        # Kubernetes writes nothing at all for an amount that was never set.
        resource_request={name: text or "0" for name, text in quantities.items()},
        node_claim=_node_claim(message.nodeClaim, f"{path}.nodeClaim", found),
        namespace=namespace,
        priority_class_name=message.priorityClassName,
    )
    return read_requirements(spelled, path, found)


def _node_claim(message: karmada.NodeClaim, path: str, found: Violations) -> resource_pb2.NodeClaim:
    """Our messages have the numbers of Kubernetes' own, so its bytes are read into them."""
    affinity = message.nodeAffinityBytes
    has_affinity = message.HasField("nodeAffinityBytes")
    if message.HasField("nodeAffinity") and not has_affinity:
        affinity, has_affinity = message.nodeAffinity.SerializeToString(), True
    tolerations = [each.SerializeToString() for each in message.tolerations]
    tolerations.extend(message.tolerationsBytes)
    return resource_pb2.NodeClaim(
        node_selector=message.nodeSelector,
        hard_node_affinity=(
            _read(affinity, resource_pb2.NodeSelector, f"{path}.nodeAffinityBytes", found)
            if has_affinity
            else None
        ),
        tolerations=[
            _read(content, resource_pb2.Toleration, f"{path}.tolerationsBytes[{position}]", found)
            for position, content in enumerate(tolerations)
        ],
    )


def _decoded(content: bytes, kind: type[AnyMessage]) -> AnyMessage:
    try:
        return kind.FromString(content)
    except DecodeError as error:
        rule = f"is not a {kind.DESCRIPTOR.name} as protobuf"
        raise InvalidRequest.of("", rule) from error


def _read(content: bytes, kind: type[AnyMessage], path: str, found: Violations) -> AnyMessage:
    """A message inside a field of bytes; an empty one, and a violation, where it is none."""
    try:
        return _decoded(content, kind)
    except InvalidRequest as error:
        found.extend(replace(each, field=path) for each in error.violations)
        return kind()
