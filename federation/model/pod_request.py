"""What one pod asks of its node: containers, init containers, sidecars, overhead, pod-level.

Sums are exact and rounded up once a pod. Pure; must not read Kubernetes objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from federation.model.quantity import divide_up, parse_quantity
from federation.model.resources import CPU, HUGEPAGES_PREFIX, MEMORY, nanos_per_base_unit

_Nanos = dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerRequest:
    """A container's requests as written, by resource name.

    ``restart_always`` marks an init container that keeps running: a native sidecar.
    ``allocated`` is what the kubelet has set aside while a resize is under way; None when it has
    not said.
    """

    requests: Mapping[str, str] = field(default_factory=dict)
    restart_always: bool = False
    allocated: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodResources:
    """The parts of a pod that ask for resources; init containers in the order they start."""

    containers: tuple[ContainerRequest, ...] = ()
    init_containers: tuple[ContainerRequest, ...] = ()
    overhead: Mapping[str, str] = field(default_factory=dict)
    pod_level: Mapping[str, str] = field(default_factory=dict)


def pod_request(pod: PodResources) -> dict[str, int]:
    """kube-scheduler's rule, in base units by resource name; ``pods`` is not among them.

    Sidecars run beside everything that starts after them; pod-level cpu, memory and huge pages
    replace the sum; overhead comes on top. During a resize a container counts the larger of what
    is wanted and what is allocated. Raises QuantityError for a text that is no quantity.
    """
    running: _Nanos = {}
    for container in pod.containers:
        _add(running, _wanted(container))
    sidecars: _Nanos = {}
    starting: _Nanos = {}
    for container in pod.init_containers:
        wanted = _wanted(container)
        if container.restart_always:
            _add(running, wanted)
            _add(sidecars, wanted)
            _raise_to(starting, sidecars)
        else:
            _add(wanted, sidecars)
            _raise_to(starting, wanted)
    _raise_to(running, starting)
    for name, nanos in _nanos(pod.pod_level).items():
        if name in (CPU, MEMORY) or name.startswith(HUGEPAGES_PREFIX):
            running[name] = nanos
    _add(running, _nanos(pod.overhead))
    return _rounded_up(running)


def _wanted(container: ContainerRequest) -> _Nanos:
    wanted = _nanos(container.requests)
    if container.allocated is not None:
        _raise_to(wanted, _nanos(container.allocated))
    return wanted


def _nanos(quantities: Mapping[str, str]) -> _Nanos:
    return {name: parse_quantity(text).nanos for name, text in quantities.items()}


def _add(total: _Nanos, more: _Nanos) -> None:
    for name, nanos in more.items():
        total[name] = total.get(name, 0) + nanos


def _raise_to(total: _Nanos, least: _Nanos) -> None:
    for name, nanos in least.items():
        if name not in total or total[name] < nanos:
            total[name] = nanos


def _rounded_up(total: _Nanos) -> dict[str, int]:
    return {name: divide_up(nanos, nanos_per_base_unit(name)) for name, nanos in total.items()}
