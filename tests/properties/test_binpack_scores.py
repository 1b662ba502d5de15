"""Whole-array scores equal the formulas written out for one node in plain Python.

The oracles use Python's integers and Go's two divisions: truncating, and that of doubles.
"""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from estimator.binpack.arrays import ReplicaRequest
from estimator.binpack.balanced_allocation import BalancedAllocation
from estimator.binpack.fit_strategies.least_allocated import LeastAllocated
from estimator.binpack.fit_strategies.most_allocated import MostAllocated
from estimator.binpack.fit_strategies.requested_to_capacity_ratio import RequestedToCapacityRatio
from estimator.binpack.node_load import NodeLoad, tabulate
from estimator.binpack.shape import ShapePoint
from estimator.binpack.strategy import ResourceWeight
from estimator.binpack.volcano import VolcanoBinpack

NATIVE = ("cpu", "memory", "ephemeral-storage")
RESOURCES = (*NATIVE, "nvidia.com/gpu", "hugepages-2Mi", "storage")

amounts = st.one_of(st.integers(0, 12), st.integers(0, 2**44))
mappings = st.dictionaries(st.sampled_from(RESOURCES), amounts)
nodes = st.lists(
    st.builds(
        NodeLoad, allocatable=mappings, requested=mappings, nonzero_requested=st.just({"cpu": 7})
    ),
    min_size=1,
    max_size=6,
)
weights = st.lists(
    st.builds(ResourceWeight, resource=st.sampled_from(RESOURCES), weight=st.integers(1, 100)),
    min_size=1,
    max_size=5,
).map(tuple)
plain_weights = st.lists(st.sampled_from(RESOURCES), min_size=1, max_size=5, unique=True).map(
    lambda names: tuple(ResourceWeight(resource=name, weight=1) for name in names)
)
requests = mappings.map(ReplicaRequest.of)
shapes = st.lists(
    st.tuples(st.integers(0, 100), st.integers(0, 10)),
    min_size=1,
    max_size=5,
    unique_by=lambda point: point[0],
).map(lambda points: tuple(ShapePoint(utilization=u, score=s) for u, s in sorted(points)))


def counted(
    node: NodeLoad, request: ReplicaRequest, names: tuple[ResourceWeight, ...]
) -> list[tuple[int, int, int]]:
    """(total, allocatable, weight) of each resource that counts in Fit scoring."""
    found = []
    for item in names:
        name, asked = item.resource, request.scored(item.resource)
        capacity = node.allocatable.get(name, 0)
        if name == "storage" or capacity == 0 or (name not in NATIVE and asked == 0):
            continue
        used = 7 if name == "cpu" else node.requested.get(name, 0)
        found.append((used + asked, capacity, item.weight))
    return found


@settings(deadline=None)
@given(nodes=nodes, request=requests, weights=weights)
def test_most_and_least(
    nodes: list[NodeLoad], request: ReplicaRequest, weights: tuple[ResourceWeight, ...]
) -> None:
    most, least = [], []
    for node in nodes:
        parts = counted(node, request, weights)
        total_weight = sum(weight for _, _, weight in parts) or 1
        used = sum(min(total, size) * 100 // size * weight for total, size, weight in parts)
        free = sum(max(size - total, 0) * 100 // size * weight for total, size, weight in parts)
        most.append(used // total_weight)
        least.append(free // total_weight)
    arrays = tabulate(nodes)
    assert MostAllocated(weights=weights).score(arrays, request).tolist() == most
    assert LeastAllocated(weights=weights).score(arrays, request).tolist() == least


def on_line(shape: tuple[ShapePoint, ...], percent: int) -> int:
    for position, point in enumerate(shape):
        if percent <= point.utilization:
            if position == 0:
                return 10 * point.score
            left = shape[position - 1]
            rise = 10 * (point.score - left.score) * (percent - left.utilization)
            # Go truncates towards zero; the operands are small enough for an exact double.
            return 10 * left.score + math.trunc(rise / (point.utilization - left.utilization))
    return 10 * shape[-1].score


@settings(deadline=None)
@given(nodes=nodes, request=requests, weights=weights, shape=shapes)
def test_requested_to_capacity_ratio(
    nodes: list[NodeLoad],
    request: ReplicaRequest,
    weights: tuple[ResourceWeight, ...],
    shape: tuple[ShapePoint, ...],
) -> None:
    expected = []
    for node in nodes:
        scored = [
            (on_line(shape, 100 if total > size else total * 100 // size), weight)
            for total, size, weight in counted(node, request, weights)
        ]
        total_weight = sum(weight for score, weight in scored if score)
        total_score = sum(score * weight for score, weight in scored)
        expected.append(math.floor(total_score / total_weight + 0.5) if total_weight else 0)
    strategy = RequestedToCapacityRatio(weights=weights, shape=shape)
    assert strategy.score(tabulate(nodes), request).tolist() == expected


def balance(fractions: list[float]) -> int:
    deviation = 0.0
    if len(fractions) == 2:
        deviation = abs((fractions[0] - fractions[1]) / 2)
    elif len(fractions) > 2:
        total = 0.0
        for fraction in fractions:
            total += fraction
        mean, squares = total / len(fractions), 0.0
        for fraction in fractions:
            squares += (fraction - mean) * (fraction - mean)
        deviation = math.sqrt(squares / len(fractions))
    return int((1 - deviation) * 100)


@settings(deadline=None)
@given(nodes=nodes, request=requests, weights=plain_weights)
def test_balanced_allocation(
    nodes: list[NodeLoad], request: ReplicaRequest, weights: tuple[ResourceWeight, ...]
) -> None:
    expected = []
    for node in nodes:
        before, after = [], []
        for item in weights:
            name, asked = item.resource, request.amounts.get(item.resource, 0)
            capacity, used = node.allocatable.get(name, 0), node.requested.get(name, 0)
            if name == "storage" or capacity == 0 or (name not in NATIVE and asked == 0):
                continue
            before.append(min(used / capacity, 1.0))
            after.append(min((used + asked) / capacity, 1.0))
        expected.append(50 + (50 + balance(after) - balance(before)) // 2)
    scores = BalancedAllocation(weights=weights).score(tabulate(nodes), request)
    assert scores.tolist() == expected


@settings(deadline=None)
@given(
    nodes=nodes,
    request=requests,
    weights=plain_weights,
    resource_weight=st.integers(0, 20),
    weight=st.integers(-5, 20),
)
def test_volcano(
    nodes: list[NodeLoad],
    request: ReplicaRequest,
    weights: tuple[ResourceWeight, ...],
    resource_weight: int,
    weight: int,
) -> None:
    weights = (ResourceWeight(resource=weights[0].resource, weight=resource_weight), *weights[1:])
    expected = []
    for node in nodes:
        total, total_weight = 0.0, 0
        for item in weights:
            asked = request.amounts.get(item.resource, 0)
            if asked == 0:
                continue
            total_weight += item.weight
            size = node.allocatable.get(item.resource, 0)
            if size == 0 or item.weight == 0:
                continue
            wanted = node.requested.get(item.resource, 0) + asked
            if wanted > size:
                total = 0.0
                break
            total += wanted * item.weight / size
        expected.append(total / (total_weight or 1) * 100 * weight)
    scores = VolcanoBinpack(weight=weight, weights=weights).score(tabulate(nodes), request)
    np.testing.assert_allclose(scores, expected, rtol=1e-12)
