"""The resource requests of one pod: containers, init containers, sidecars, overhead, pod level.

Sums are exact and rounded up once a pod. Pure; must not read Kubernetes objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from federation.model.quantity import divide_up, parse_quantity
from federation.model.resources import CPU, HUGEPAGES_PREFIX, MEMORY, nanos_per_base_unit

_Nanos = dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerRequest:
    """A container's requests as written, by resource name.

    ``restart_always`` marks an init container that keeps running: a native sidecar. ``allocated``
    is what the kubelet has set aside for it; None: the requests. ``actuated`` is what the runtime
    gives it; None: what is allocated.
    """

    requests: Mapping[str, str] = field(default_factory=dict)
    restart_always: bool = False
    allocated: Mapping[str, str] | None = None
    actuated: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodResources:
    """The parts of a pod that request resources; init containers in the order they start.

    ``pod_level`` is written in the pod's spec. ``allocated`` and ``actuated`` are its status for
    the pod as a whole, None without one. ``is_infeasible``: the kubelet refuses to resize the pod
    to its requests.
    """

    containers: tuple[ContainerRequest, ...] = ()
    init_containers: tuple[ContainerRequest, ...] = ()
    overhead: Mapping[str, str] = field(default_factory=dict)
    pod_level: Mapping[str, str] = field(default_factory=dict)
    allocated: Mapping[str, str] | None = None
    actuated: Mapping[str, str] | None = None
    is_infeasible: bool = False


def pod_request(pod: PodResources) -> dict[str, int]:
    """Return what kube-scheduler counts, in base units by resource name, without ``pods``.

    The greatest of three sums counts: desired, unless that is infeasible, allocated and actuated.
    Pod-level cpu, memory and huge pages replace it; overhead comes on top. Raises QuantityError
    for a text that is no quantity.
    """
    counted: _Nanos = {}
    for nanos in _sums(pod):
        _raise_to(counted, nanos)
    for name, amount in _pod_level(pod).items():
        if _is_pod_level(name):
            counted[name] = amount
    _add(counted, _nanos(pod.overhead))
    return _rounded_up(counted)


def _sums(pod: PodResources) -> Iterator[_Nanos]:
    """Yield the sums over the containers; the maximum counts."""
    if not pod.is_infeasible:
        yield _sum(pod, lambda container: container.requests)
    if pod.allocated is not None and pod.actuated is not None:
        # The status of the whole pod holds sums already.
        yield _nanos(pod.allocated)
        yield _nanos(pod.actuated)
    elif pod.is_infeasible or any(
        container.allocated is not None or container.actuated is not None
        for container in (*pod.containers, *pod.init_containers)
    ):
        yield _sum(pod, _allocated)
        yield _sum(pod, _actuated)


def _allocated(container: ContainerRequest) -> Mapping[str, str]:
    return container.requests if container.allocated is None else container.allocated


def _actuated(container: ContainerRequest) -> Mapping[str, str]:
    return _allocated(container) if container.actuated is None else container.actuated


def _sum(pod: PodResources, quantities: Callable[[ContainerRequest], Mapping[str, str]]) -> _Nanos:
    """Return the sum of everything that runs at once; sidecars run beside later containers."""
    running: _Nanos = {}
    for container in pod.containers:
        _add(running, _nanos(quantities(container)))
    sidecars: _Nanos = {}
    starting: _Nanos = {}
    for container in pod.init_containers:
        nanos = _nanos(quantities(container))
        if container.restart_always:
            _add(running, nanos)
            _add(sidecars, nanos)
            _raise_to(starting, sidecars)
        else:
            _add(nanos, sidecars)
            _raise_to(starting, nanos)
    _raise_to(running, starting)
    return running


def _pod_level(pod: PodResources) -> _Nanos:
    """Return the pod-level amounts that replace the sums, if the spec has any."""
    if not any(map(_is_pod_level, pod.pod_level)):
        return {}
    if pod.actuated is None:
        return _nanos(pod.pod_level)
    level = {} if pod.is_infeasible else _nanos(pod.pod_level)
    _raise_to(level, _nanos(pod.actuated))
    _raise_to(level, _nanos(pod.allocated or {}))
    return level


def _is_pod_level(name: str) -> bool:
    return name in (CPU, MEMORY) or name.startswith(HUGEPAGES_PREFIX)


def _nanos(quantities: Mapping[str, str]) -> _Nanos:
    return {name: parse_quantity(text).nanos for name, text in quantities.items()}


def _add(total: _Nanos, addend: _Nanos) -> None:
    for name, nanos in addend.items():
        total[name] = total.get(name, 0) + nanos


def _raise_to(total: _Nanos, minimum: _Nanos) -> None:
    for name, nanos in minimum.items():
        if name not in total or total[name] < nanos:
            total[name] = nanos


def _rounded_up(total: _Nanos) -> dict[str, int]:
    return {name: divide_up(nanos, nanos_per_base_unit(name)) for name, nanos in total.items()}
