"""What pods ask for, worked out once for all pods that ask for the same.

Must not hold more shapes than it is told to: it remembers the last ones used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from estimator.binpack.arrays import ReplicaRequest
from estimator.binpack.requests import replica_request
from estimator.kube.objects import (
    Container,
    ContainerStatus,
    PodSpec,
    PodStatus,
    Quantities,
    Resources,
)
from federation.model.pod_request import ContainerRequest, PodResources
from federation.model.resources import PODS

# A cluster has about as many as it has workloads.
REMEMBERED_SHAPES: Final = 8_192

_Pairs = tuple[tuple[str, str], ...]
# Whether it is a sidecar, its requests, what is allocated to it and what is actuated.
_ContainerShape = tuple[bool, _Pairs, _Pairs | None, _Pairs | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodShape:
    """What a pod asks for, in base units; shared between pods.

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
                (each.restart_policy == "Always", _requests(each.resources), None, None)
                for each in containers
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
