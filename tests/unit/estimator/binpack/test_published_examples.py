"""The worked examples that Kubernetes' and Volcano's pages publish."""

from __future__ import annotations

from dataclasses import replace

import pytest

from estimator.binpack.arrays import NodeArrays, ReplicaRequest
from estimator.binpack.fit_strategies.least_allocated import LeastAllocated
from estimator.binpack.fit_strategies.most_allocated import MostAllocated
from estimator.binpack.fit_strategies.requested_to_capacity_ratio import (
    RequestedToCapacityRatio,
    Scale,
)
from estimator.binpack.node_load import NodeLoad, tabulate
from estimator.binpack.shape import ShapePoint
from estimator.binpack.strategy import ResourceWeight, Strategy
from estimator.binpack.volcano import VolcanoBinpack

FOO, GPU = "intel.com/foo", "nvidia.com/gpu"
MI, GI = 2**20, 2**30

WEIGHTS = tuple(
    ResourceWeight(resource=resource, weight=weight)
    for resource, weight in ((FOO, 5), ("memory", 1), ("cpu", 3))
)
RISING = (ShapePoint(utilization=0, score=0), ShapePoint(utilization=100, score=10))
SHAPED = RequestedToCapacityRatio(weights=WEIGHTS, shape=RISING)


@pytest.fixture
def nodes() -> NodeArrays:
    return tabulate(
        [
            NodeLoad(
                allocatable={FOO: 4, "memory": GI, "cpu": 8000},
                requested={FOO: 1, "memory": 256 * MI, "cpu": 1000},
            ),
            NodeLoad(
                allocatable={FOO: 8, "memory": GI, "cpu": 8000},
                requested={FOO: 2, "memory": 512 * MI, "cpu": 6000},
            ),
        ]
    )


@pytest.mark.parametrize(
    ("strategy", "scores"),
    [
        (replace(SHAPED, scale=Scale.DOCUMENTATION), [5, 7]),
        (SHAPED, [60, 69]),
        (MostAllocated(weights=WEIGHTS), [59, 69]),
        (LeastAllocated(weights=WEIGHTS), [40, 30]),
    ],
)
def test_kubernetes_page(nodes: NodeArrays, strategy: Strategy, scores: list[int]) -> None:
    request = ReplicaRequest.of({FOO: 2, "memory": 256 * MI, "cpu": 2000})
    assert strategy.score(nodes, request).tolist() == scores


def test_kubernetes_page_per_resource(nodes: NodeArrays) -> None:
    request = ReplicaRequest.of({FOO: 2, "memory": 256 * MI, "cpu": 2000})
    strategy = replace(SHAPED, scale=Scale.DOCUMENTATION)
    columns = strategy.columns(nodes, request)
    scores = [column.score_n.tolist() for column in columns if column.score_n is not None]
    assert scores == [[7, 5], [5, 7], [3, 10]]


def test_volcano_page() -> None:
    binpack = VolcanoBinpack(
        weight=5,
        weights=tuple(
            ResourceWeight(resource=resource, weight=weight)
            for resource, weight in (("cpu", 1), ("memory", 1), (GPU, 2))
        ),
    )
    capacity = {"cpu": 4000, "memory": 8 * GI, GPU: 8}
    nodes = tabulate(
        [
            NodeLoad(allocatable=capacity, requested={"cpu": 1000, "memory": 2 * GI, GPU: 4}),
            NodeLoad(allocatable=capacity, requested={"cpu": 2000, "memory": 2 * GI, GPU: 4}),
        ]
    )
    request = ReplicaRequest.of({"cpu": 2000, "memory": 4 * GI, GPU: 4})
    assert binpack.score(nodes, request).tolist() == [437.5, 468.75]
