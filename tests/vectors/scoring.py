"""Turns recorded scoring lines into the scorer's values.

Must not judge them: expectations stand in each test.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from estimator.binpack.balanced_allocation import BalancedAllocation
from estimator.binpack.fit_strategies.least_allocated import LeastAllocated
from estimator.binpack.fit_strategies.most_allocated import MostAllocated
from estimator.binpack.fit_strategies.requested_to_capacity_ratio import RequestedToCapacityRatio
from estimator.binpack.strategy import PluginStrategy, ResourceWeight, ShapePoint
from federation.model.pod_request import ContainerRequest, PodResources


def pod_resources(pod: Mapping[str, Any]) -> PodResources:
    return PodResources(
        containers=tuple(map(_container, pod["containers"])),
        init_containers=tuple(map(_container, pod.get("init") or ())),
        overhead=pod.get("overhead") or {},
        pod_level=pod.get("pod_level_requests") or {},
    )


def _container(container: Mapping[str, Any]) -> ContainerRequest:
    return ContainerRequest(
        requests=container["requests"], restart_always=container.get("restart") == "Always"
    )


def totals(recorded: Mapping[str, Any]) -> dict[str, int]:
    """Go's record of totals, under the names of the resources."""
    named: dict[str, int] = {
        "cpu": recorded["milli_cpu"],
        "memory": recorded["memory"],
        "ephemeral-storage": recorded["ephemeral_storage"],
    }
    if "pods" in recorded:
        named["pods"] = recorded["pods"]
    named.update(recorded["scalar"])
    return named


def shape_of(points: Iterable[Sequence[int]]) -> tuple[ShapePoint, ...]:
    return tuple(ShapePoint(utilization=utilization, score=score) for utilization, score in points)


def fit_strategy(line: Mapping[str, Any]) -> PluginStrategy:
    weights = tuple(
        ResourceWeight(resource=item["name"], weight=item["weight"]) for item in line["resources"]
    )
    if line["strategy"] == "RequestedToCapacityRatio":
        shape = shape_of(line["shape"])
        return RequestedToCapacityRatio(weights=weights, shape=shape)
    if line["strategy"] == "MostAllocated":
        return MostAllocated(weights=weights)
    return LeastAllocated(weights=weights)


def balanced(resources: Iterable[str]) -> BalancedAllocation:
    return BalancedAllocation(
        weights=tuple(ResourceWeight(resource=name, weight=1) for name in resources)
    )
