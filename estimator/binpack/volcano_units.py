"""Amounts as Volcano counts them: cpu in millis, memory and pods whole, all else in thousandths.

Must not be mixed with base units on one set of nodes. Both give the same scores but for what
is finer than one whole unit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from estimator.binpack.arrays import ReplicaRequest
from federation.model.pod_request import ContainerRequest, PodResources, pod_request
from federation.model.quantity import parse_quantity
from federation.model.resources import CPU, MEMORY, PODS, format_amount

# Quota of objects, not of anything a node has.
_OBJECT_COUNTS = "count/"


def volcano_amounts(quantities: Mapping[str, str]) -> dict[str, int]:
    """Quantities in Volcano's units, rounded up. Raises QuantityError for what is none."""
    return {
        name: parse_quantity(text).whole()
        if name in (MEMORY, PODS)
        else parse_quantity(text).milli()
        for name, text in quantities.items()
        if not name.startswith(_OBJECT_COUNTS)
    }


def quantity_text(resource: str, amount: int) -> str:
    """An amount in Volcano's units as a quantity for people."""
    if resource in (CPU, MEMORY, PODS):
        return format_amount(resource, amount)
    whole, rest = divmod(amount, 1000)
    return f"{amount}m" if rest else format_amount(resource, whole)


def volcano_request(pod: PodResources) -> ReplicaRequest:
    """What Volcano counts for ``pod``: no defaults, and always one pod slot.

    Every container is rounded up by itself, where kube-scheduler rounds the pod once.
    """
    rounded = replace(
        pod,
        containers=tuple(map(_rounded, pod.containers)),
        init_containers=tuple(map(_rounded, pod.init_containers)),
        overhead=_in_units(pod.overhead),
        pod_level=_in_units(pod.pod_level),
    )
    return ReplicaRequest(amounts=pod_request(rounded) | {PODS: 1}, nonzero={}, nonzero_placed={})


def _rounded(container: ContainerRequest) -> ContainerRequest:
    return replace(container, requests=_in_units(container.requests))


def _in_units(quantities: Mapping[str, str]) -> dict[str, str]:
    """Each amount as the quantity that the pod rule counts as that many units."""
    amounts = volcano_amounts(quantities)
    return {name: f"{amount}m" if name == CPU else str(amount) for name, amount in amounts.items()}
