"""Kubernetes' nodes and pods as the values capacity depends on.

Pure. Must not fetch anything. What an API server would refuse raises Untranslatable.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from sys import intern
from types import MappingProxyType
from typing import Final, NamedTuple

from estimator.binpack.arrays import ReplicaRequest
from estimator.binpack.requests import replica_request
from estimator.kube.objects import (
    Affinity,
    Container,
    ContainerStatus,
    NodeStatus,
    PodMetadata,
    PodSpec,
    PodStatus,
    Quantities,
    RawNode,
    RawPod,
    RawRequirement,
    Resources,
)
from estimator.nodes import Node, Pod, PodState, Repulsion, WorkloadRef
from federation.model import echoes
from federation.model.cluster import Taint, TaintEffect
from federation.model.echoes import BINDING_LABEL, COMPONENT_LABEL, DECISION_LABEL, PodOrigin
from federation.model.pod_request import ContainerRequest, PodResources
from federation.model.quantity import QuantityError, parse_quantity
from federation.model.resources import PODS, base_units_down
from federation.model.selectors import UNSCHEDULABLE
from federation.model.tolerations import NOT_READY, UNREACHABLE
from federation.model.workload import Operator, Requirement

# A cluster has about as many as it has ReplicaSets and Jobs.
REMEMBERED_ORIGINS: Final = 32_768

_NO_LABELS: Final[Mapping[str, str]] = MappingProxyType({})
_TEMPLATE_HASH_LABEL: Final = "pod-template-hash"
# The CronJob controller writes the scheduled time, in minutes, behind the name.
_CRON_JOBS_NAME: Final = re.compile(r"(.+)-[0-9]+", re.ASCII)


class Belonging(NamedTuple):
    """Whom a pod runs for; shared between pods that say the same.

    ``owner`` is a Deployment rather than its ReplicaSet, and ``revision`` which ReplicaSet that
    is. ``origin`` is what promises find the pod by.
    """

    owner: WorkloadRef | None
    revision: str
    origin: PodOrigin


def belonging_of(metadata: PodMetadata) -> Belonging:
    label = (metadata.labels or _NO_LABELS).get
    owner = None
    for reference in metadata.owner_references or ():
        if reference.controller:
            owner = reference.api_version, reference.kind, metadata.namespace or "", reference.name
            break
    return _belonging(
        owner,
        label(_TEMPLATE_HASH_LABEL, ""),
        label(BINDING_LABEL, ""),
        label(COMPONENT_LABEL),
        label(DECISION_LABEL),
    )


@lru_cache(maxsize=REMEMBERED_ORIGINS)
def _belonging(
    owner: tuple[str, str, str, str] | None,
    template_hash: str,
    binding_uid: str,
    component: str | None,
    decision: str | None,
) -> Belonging:
    if owner is None:
        return Belonging(None, "", PodOrigin(binding_uid, component, decision))
    _, kind, namespace, name = owner
    deployment = _deployment(kind, name, template_hash)
    if deployment:
        nearest = WorkloadRef(kind="Deployment", namespace=namespace, name=deployment)
    else:
        nearest = WorkloadRef(kind=kind, namespace=namespace, name=name)
    owners = tuple(_owners(echoes.Owner(*owner), template_hash))
    return Belonging(
        nearest,
        template_hash if deployment else "",
        PodOrigin(binding_uid, component, decision, owners),
    )


def _owners(owner: echoes.Owner, template_hash: str) -> Iterator[echoes.Owner]:
    deployment = _deployment(owner.kind, owner.name, template_hash)
    yield owner._replace(kind="Deployment", name=deployment) if deployment else owner
    cron_job = _CRON_JOBS_NAME.fullmatch(owner.name)
    if owner.kind == "Job" and cron_job is not None:
        yield owner._replace(kind="CronJob", name=cron_job[1])


def _deployment(kind: str, name: str, template_hash: str) -> str:
    """The name of the Deployment whose ReplicaSet this is; empty: it is none's."""
    ending = f"-{template_hash}"
    is_deployments = kind == "ReplicaSet" and template_hash and name.endswith(ending)
    return name.removesuffix(ending) if is_deployments else ""


# A cluster has about as many as it has workloads.
REMEMBERED_SHAPES: Final = 8_192

_Pairs = tuple[tuple[str, str], ...]
# Whether it is a sidecar, its requests, what is allocated to it and what is actuated.
_ContainerShape = tuple[bool, _Pairs, _Pairs | None, _Pairs | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodShape:
    """Return the request of a pod, in base units; shared between pods.

    ``counted`` is what is above 0, without the pod's slot.
    """

    request: ReplicaRequest
    counted: Mapping[str, int]


def pod_shape(spec: PodSpec, status: PodStatus) -> PodShape:
    """Raises QuantityError for a text that is no quantity."""
    is_infeasible = _is_infeasible(status)
    return _shape(
        _container_shapes(spec.containers, status.container_statuses, is_infeasible),
        _container_shapes(spec.init_containers, status.init_container_statuses, is_infeasible),
        _pairs(spec.overhead),
        _requests(spec.resources),
        _whole_pod(status) if status.resources is not None else None,
        is_infeasible,
    )


@lru_cache(maxsize=REMEMBERED_SHAPES)
def _shape(
    containers: tuple[_ContainerShape, ...],
    init_containers: tuple[_ContainerShape, ...],
    overhead: _Pairs,
    pod_level: _Pairs,
    whole_pod: tuple[_Pairs | None, _Pairs | None] | None,
    is_infeasible: bool,
) -> PodShape:
    allocated, actuated = whole_pod or (None, None)
    request = replica_request(
        PodResources(
            containers=tuple(map(_container_request, containers)),
            init_containers=tuple(map(_container_request, init_containers)),
            overhead=dict(overhead),
            pod_level=dict(pod_level),
            allocated=_quantities(allocated),
            actuated=_quantities(actuated),
            is_infeasible=is_infeasible,
        )
    )
    counted = {
        name: amount for name, amount in request.amounts.items() if amount > 0 and name != PODS
    }
    return PodShape(request=request, counted=counted)


def _container_request(shape: _ContainerShape) -> ContainerRequest:
    restart_always, requests, allocated, actuated = shape
    return ContainerRequest(
        requests=dict(requests),
        restart_always=restart_always,
        allocated=_quantities(allocated),
        actuated=_quantities(actuated),
    )


def _container_shapes(
    containers: Sequence[Container] | None,
    statuses: list[ContainerStatus] | None,
    is_infeasible: bool,
) -> tuple[_ContainerShape, ...]:
    if not containers:
        return ()
    resized = {status.name: status for status in statuses or () if _has_resources(status)}
    if not resized and not is_infeasible:
        return tuple(
            [
                (container.restart_policy == "Always", _requests(container.resources), None, None)
                for container in containers
            ]
        )
    return tuple(
        [
            _resized(container, resized.get(container.name), is_infeasible)
            for container in containers
        ]
    )


def _resized(
    container: Container,
    status: ContainerStatus | None,
    is_infeasible: bool,
) -> _ContainerShape:
    """Return a container's shape; what its status does not say is as the requests.

    Of an infeasible resize kube-scheduler counts nothing that the status does not say.
    """
    requests = _requests(container.resources)
    allocated: _Pairs | None = () if is_infeasible else None
    if status is not None and status.allocated_resources is not None:
        allocated = _pairs(status.allocated_resources)
    actuated = None
    if status is not None and status.resources is not None and status.resources.requests:
        actuated = _pairs(status.resources.requests)
    if actuated == (requests if allocated is None else allocated):
        actuated = None
    if allocated == requests:
        allocated = None
    return container.restart_policy == "Always", requests, allocated, actuated


def _has_resources(status: ContainerStatus) -> bool:
    return status.allocated_resources is not None or status.resources is not None


def _whole_pod(status: PodStatus) -> tuple[_Pairs | None, _Pairs | None] | None:
    """Return what is allocated to the pod as a whole, and what is actuated."""
    requests = status.resources.requests if status.resources is not None else None
    if requests is None:
        return None
    allocated = status.allocated_resources
    return None if allocated is None else _pairs(allocated), _pairs(requests)


def _is_infeasible(status: PodStatus) -> bool:
    """Whether the kubelet refuses to resize the pod to what its spec asks for."""
    for condition in status.conditions or ():
        if condition.type == "PodResizePending":
            return condition.reason == "Infeasible"
    return False


def _quantities(pairs: _Pairs | None) -> dict[str, str] | None:
    return None if pairs is None else dict(pairs)


def _requests(resources: Resources | None) -> _Pairs:
    return _pairs(resources.requests) if resources is not None else ()


def _pairs(quantities: Quantities | None) -> _Pairs:
    return tuple(quantities.items()) if quantities else ()


# Python 3.11 is slow to look a member of an enum up.
_BOUND: Final = PodState.BOUND
_WAITING: Final = PodState.WAITING
_GATED: Final = PodState.GATED

_SUCCEEDED: Final = "Succeeded"
_TERMINAL: Final = frozenset({_SUCCEEDED, "Failed"})


class Untranslatable(ValueError):
    """An object holds something no API server stores; the text names the object."""


def node_from_raw(raw: RawNode) -> Node:
    """A node, with the taints that the node controller would give it for its state.

    Where no node controller runs, nothing taints a cordoned or unreachable node, and pods must
    not be promised there all the same.
    """
    ready_status = _ready_status(raw.status)
    unschedulable = bool(raw.spec.unschedulable)
    try:
        allocatable = {
            name: max(0, base_units_down(name, parse_quantity(text)))
            for name, text in (raw.status.allocatable or {}).items()
        }
        taints = [
            Taint(key=taint.key, value=taint.value or "", effect=TaintEffect(taint.effect))
            for taint in raw.spec.taints or ()
        ]
    except (QuantityError, ValueError) as error:
        raise Untranslatable(f"node {raw.metadata.name}: {error}") from error
    for implied, applies in (
        (UNSCHEDULABLE, unschedulable),
        (UNREACHABLE, ready_status == "Unknown"),
        (NOT_READY, ready_status not in ("True", "Unknown")),
    ):
        if applies and all((taint.key, taint.effect) != _identity(implied) for taint in taints):
            taints.append(implied)
    return Node(
        name=raw.metadata.name,
        uid=raw.metadata.uid or "",
        labels=raw.metadata.labels or {},
        taints=tuple(taints),
        ready=ready_status == "True",
        unschedulable=unschedulable,
        allocatable=allocatable,
        provider_id=raw.spec.provider_id or "",
        kubelet_version=raw.status.node_info.kubelet_version if raw.status.node_info else "",
    )


def pod_from_raw(raw: RawPod) -> Pod:
    """A pod with its request; what has ended without a node asks for what it would have had."""
    metadata, spec, status = raw.metadata, raw.spec, raw.status
    # One text for all pods of a node: the cache looks its place up by it.
    node = intern(spec.node_name) if spec.node_name else ""
    try:
        shape = pod_shape(spec, status)
        created_at = unix_seconds(metadata.creation_timestamp)
        unschedulable_since = _unschedulable_since(status) if not node else None
        repulsions = tuple(_repulsions(raw)) if spec.affinity is not None else ()
    except ValueError as error:
        raise Untranslatable(f"pod {metadata.namespace}/{metadata.name}: {error}") from error
    owner, revision, origin = belonging_of(metadata)
    return Pod(
        # In the order of the fields: naming them doubles the cost.
        metadata.uid or f"{metadata.namespace}/{metadata.name}",
        metadata.namespace or "",
        metadata.name,
        _pod_state(node, status.phase, spec.scheduling_gates),
        node,
        shape.counted,
        shape.request.nonzero_placed,
        owner,
        revision,
        created_at,
        unschedulable_since,
        repulsions,
        origin,
        _selects_by(spec),
        (status.nominated_node_name or "") if not node else "",
        spec.priority or 0,
    )


def _pod_state(node: str, phase: str, gates: Sequence[object] | None) -> PodState:
    if phase not in _TERMINAL:
        if node:
            return _BOUND
        return _GATED if gates else _WAITING
    if not node:
        return PodState.DROPPED
    return PodState.SUCCEEDED if phase == _SUCCEEDED else PodState.DONE


def unix_seconds(timestamp: str | None) -> float:
    """A timestamp of Kubernetes', 0 for none. Raises ValueError."""
    return datetime.fromisoformat(timestamp).timestamp() if timestamp else 0.0


def requirements(raw: Iterable[RawRequirement] | None) -> tuple[Requirement, ...]:
    """Expressions over labels or fields. Raises ValueError for an operator that there is not."""
    return tuple(
        Requirement(
            key=requirement.key,
            operator=Operator(requirement.operator),
            values=tuple(requirement.values or ()),
        )
        for requirement in raw or ()
    )


def _selects_by(spec: PodSpec) -> tuple[str, ...]:
    """The node labels that the pod's selector and its required affinity look at."""
    if spec.node_selector is None and spec.affinity is None:
        return ()
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    required = affinity.required if affinity is not None else None
    terms = (required.node_selector_terms if required is not None else None) or ()
    expressions = (expression for term in terms for expression in term.match_expressions or ())
    return _shared(
        tuple(dict.fromkeys([*(spec.node_selector or ()), *(e.key for e in expressions)]))
    )


@lru_cache(maxsize=1024)
def _shared(keys: tuple[str, ...]) -> tuple[str, ...]:
    """The same tuple for all pods that look at the same labels."""
    return keys


def _repulsions(raw: RawPod) -> Iterator[Repulsion]:
    """Yield the selectors of pods that it keeps away; a missing selector selects nothing."""
    affinity = raw.spec.affinity or Affinity()
    terms = affinity.pod_anti_affinity.required if affinity.pod_anti_affinity is not None else None
    for term in terms or ():
        selector = term.label_selector
        if selector is None:
            continue
        labels = tuple(
            Requirement(key=key, operator=Operator.IN, values=(value,))
            for key, value in (selector.match_labels or {}).items()
        )
        named = frozenset(term.namespaces or [raw.metadata.namespace or ""])
        yield Repulsion(
            namespaces=named if term.namespace_selector is None else None,
            requirements=labels + requirements(selector.match_expressions),
        )


def _unschedulable_since(status: PodStatus) -> float | None:
    for condition in status.conditions or ():
        if condition.type == "PodScheduled":
            found_no_node = condition.status == "False" and condition.reason == "Unschedulable"
            return unix_seconds(condition.last_transition_time) if found_no_node else None
    return None


def _identity(taint: Taint) -> tuple[str, TaintEffect]:
    return taint.key, taint.effect


def _ready_status(status: NodeStatus) -> str:
    """The Ready condition; a node that has none was registered and has not reported yet."""
    for condition in status.conditions or ():
        if condition.type == "Ready":
            return condition.status
    return "False"
