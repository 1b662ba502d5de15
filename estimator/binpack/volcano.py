"""Volcano's binpack plugin: how full the requested resources get, as a float.

Amounts are in Volcano's units: cpu in millis, memory and pods whole, all else in thousandths. They
give the same scores as base units but for what is finer than one whole unit. Must not be mixed with
those on one set of nodes, nor added to kube-scheduler's scores: the scales differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from estimator.binpack.arrays import NodeArrays, ReplicaRequest
from estimator.binpack.strategy import ResourceColumn, ResourceWeight, Skip
from federation.model.arrays import FloatArray
from federation.model.pod_request import ContainerRequest, PodResources, pod_request
from federation.model.quantity import parse_quantity
from federation.model.resources import CPU, MEMORY, PODS, format_amount

# Quota of objects, not of anything a node has.
_OBJECT_COUNTS = "count/"


@dataclass(frozen=True, slots=True, kw_only=True)
class VolcanoBinpack:
    """Weighted average of (used + request) / allocatable, times 100, times the plugin's weight.

    Only requested resources with a weight of their own count. One that the node lacks adds
    nothing but keeps its weight; one that would overflow makes the whole node 0. ``weight`` may
    be negative, and the result is neither rounded nor confined.
    """

    weight: int
    weights: tuple[ResourceWeight, ...]

    @property
    def name(self) -> str:
        return "VolcanoBinpack"

    @property
    def resources(self) -> frozenset[str]:
        return frozenset(item.resource for item in self.weights)

    def most(self, request: ReplicaRequest) -> float:  # noqa: ARG002 - the same for every replica
        return 100.0 * abs(self.weight)

    def score(self, nodes: NodeArrays, request: ReplicaRequest) -> FloatArray:
        sum_n = np.zeros(nodes.size)
        weight_sum = 0
        overflows_n = np.zeros(nodes.size, dtype=np.bool_)
        for column in self.columns(nodes, request):
            if column.dropped is not None:
                continue
            weight_sum += column.weight
            if column.weight == 0:
                continue
            total_n = (column.used_n + column.request).astype(np.float64)
            exists_n = column.allocatable_n > 0
            overflows_n |= exists_n & (total_n > column.allocatable_n)
            share_n = total_n * column.weight / np.maximum(column.allocatable_n, 1)
            sum_n += np.where(exists_n, share_n, 0.0)
        if weight_sum > 0:
            sum_n /= weight_sum
        sum_n[overflows_n] = 0.0
        return sum_n * (100.0 * self.weight)

    def columns(self, nodes: NodeArrays, request: ReplicaRequest) -> tuple[ResourceColumn, ...]:
        return tuple(self._column(item, nodes, request) for item in self.weights)

    def _column(
        self, item: ResourceWeight, nodes: NodeArrays, request: ReplicaRequest
    ) -> ResourceColumn:
        name = item.resource
        requested = request.amounts.get(name, 0)
        used_n = nodes.requested_n(name)
        allocatable_n = nodes.allocatable_n(name)
        percent_n = (used_n + requested) * 100.0 / np.maximum(allocatable_n, 1)
        return ResourceColumn(
            strategy=self.name,
            resource=name,
            weight=item.weight,
            request=requested,
            used_n=used_n,
            allocatable_n=allocatable_n,
            counted_n=np.full(nodes.size, requested > 0),
            score_n=np.where(allocatable_n > 0, percent_n, 0.0),
            dropped=None if requested > 0 else Skip.NOT_REQUESTED,
        )


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
    """Return Volcano's amounts of ``pod``: no defaults, and always one pod slot.

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
