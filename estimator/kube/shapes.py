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
# Whether it is a sidecar, what it requests, what is allocated to it while it is resized.
_ContainerShape = tuple[bool, _Pairs, _Pairs | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodShape:
    """What a pod asks for, in base units; shared between pods.

    ``counted`` is what is above 0, without the pod's slot.
    """

    request: ReplicaRequest
    counted: Mapping[str, int]


def pod_shape(spec: PodSpec, status: PodStatus) -> PodShape:
    """Raises QuantityError for a text that is no quantity."""
    return _shape(
        _container_shapes(spec.containers, status.container_statuses),
        _container_shapes(spec.init_containers, status.init_container_statuses),
        _pairs(spec.overhead),
        _requests(spec.resources),
    )


@lru_cache(maxsize=REMEMBERED_SHAPES)
def _shape(
    containers: tuple[_ContainerShape, ...],
    init_containers: tuple[_ContainerShape, ...],
    overhead: _Pairs,
    pod_level: _Pairs,
) -> PodShape:
    request = replica_request(
        PodResources(
            containers=tuple(map(_container_request, containers)),
            init_containers=tuple(map(_container_request, init_containers)),
            overhead=dict(overhead),
            pod_level=dict(pod_level),
        )
    )
    counted = {
        name: amount for name, amount in request.amounts.items() if amount > 0 and name != PODS
    }
    return PodShape(request=request, counted=counted)


def _container_request(shape: _ContainerShape) -> ContainerRequest:
    restart_always, requests, allocated = shape
    return ContainerRequest(
        requests=dict(requests),
        restart_always=restart_always,
        allocated=dict(allocated) if allocated is not None else None,
    )


def _container_shapes(
    containers: Sequence[Container] | None, statuses: list[ContainerStatus] | None
) -> tuple[_ContainerShape, ...]:
    if not containers:
        return ()
    allocated = {
        status.name: _pairs(status.allocated_resources)
        for status in statuses or ()
        if status.allocated_resources is not None
    }
    return tuple(
        [
            (
                container.restart_policy == "Always",
                _requests(container.resources),
                allocated.get(container.name),
            )
            for container in containers
        ]
    )


def _requests(resources: Resources | None) -> _Pairs:
    return _pairs(resources.requests) if resources is not None else ()


def _pairs(quantities: Quantities | None) -> _Pairs:
    return tuple(quantities.items()) if quantities else ()
