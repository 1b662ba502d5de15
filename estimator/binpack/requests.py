"""One pod in the views that scoring keeps apart.

Must not sum by itself: the rule for containers, sidecars and overhead is the model's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from estimator.binpack.arrays import DEFAULT_CPU_MILLIS, DEFAULT_MEMORY_BYTES, ReplicaRequest
from federation.model.pod_request import ContainerRequest, PodResources, pod_request
from federation.model.resources import CPU, HUGEPAGES_PREFIX, MEMORY, PODS, is_countable

_DEFAULTS = {CPU: f"{DEFAULT_CPU_MILLIS}m", MEMORY: str(DEFAULT_MEMORY_BYTES)}


def replica_request(pod: PodResources) -> ReplicaRequest:
    """Return kube-scheduler's amounts of ``pod``. Raises QuantityError for no quantity.

    kube-scheduler 1.36 overlooks pod-level resources when it scores the incoming pod, though
    not once the pod is on its node; an evident oversight, kept because scores must agree.
    """
    amounts = pod_request(pod)
    undefined: Iterable[str] = _DEFAULTS
    if any(name in _DEFAULTS or name.startswith(HUGEPAGES_PREFIX) for name in pod.pod_level):
        undefined = [name for name in _DEFAULTS if not amounts.get(name)]
    return ReplicaRequest(
        amounts={name: amount for name, amount in amounts.items() if is_countable(name)}
        | {PODS: 1},
        nonzero=_cpu_and_memory(replace(_with_defaults(pod, _DEFAULTS), pod_level={})),
        nonzero_placed=_cpu_and_memory(_with_defaults(pod, undefined)),
    )


def _with_defaults(pod: PodResources, resources: Iterable[str]) -> PodResources:
    """The pod with the default for those of ``resources`` that a container does not name."""
    defaults = {name: _DEFAULTS[name] for name in resources}

    def filled(container: ContainerRequest) -> ContainerRequest:
        return replace(
            container,
            requests=defaults | dict(container.requests),
            allocated=_completed(defaults, container.allocated),
            actuated=_completed(defaults, container.actuated),
        )

    return replace(
        pod,
        containers=tuple(map(filled, pod.containers)),
        init_containers=tuple(map(filled, pod.init_containers)),
    )


def _completed(
    defaults: Mapping[str, str], quantities: Mapping[str, str] | None
) -> dict[str, str] | None:
    return None if quantities is None else {**defaults, **quantities}


def _cpu_and_memory(pod: PodResources) -> dict[str, int]:
    total = pod_request(pod)
    return {name: total.get(name, 0) for name in (CPU, MEMORY)}
