"""Placing replicas by score: gangs, and how little is computed; the rest is a property."""

from __future__ import annotations

import numpy as np
import pytest

from estimator.binpack.arrays import NodeArrays, ReplicaRequest
from estimator.binpack.fit_strategies.least_allocated import LeastAllocated
from estimator.binpack.fit_strategies.most_allocated import MostAllocated
from estimator.binpack.place import NodePlacements, PlacementRequest, place
from estimator.binpack.strategy import ResourceColumn, ResourceWeight, Strategy
from federation.model.arrays import IntArray

WEIGHTS = (
    ResourceWeight(resource="cpu", weight=1),
    ResourceWeight(resource="memory", weight=2),
    ResourceWeight(resource="nvidia.com/gpu", weight=9),
)
MOST = MostAllocated(weights=WEIGHTS)
LEAST = LeastAllocated(weights=WEIGHTS)
REQUEST = ReplicaRequest.of({"cpu": 1000, "memory": 2000})


def alike(size: int, **requested: int) -> NodeArrays:
    """Nodes with room for 10 replicas each, less what ``requested`` takes."""
    amounts = {"cpu": 10_000, "memory": 20_000, "pods": 110}
    return NodeArrays(
        size=size,
        allocatable={name: np.full(size, amount) for name, amount in amounts.items()},
        requested={name: np.full(size, amount) for name, amount in requested.items()},
    )


def placed(
    nodes: NodeArrays, replicas: int, strategy: Strategy, minimum: int = 0
) -> NodePlacements:
    demand = PlacementRequest(request=REQUEST, replicas=replicas, minimum=minimum)
    return place(nodes, demand, strategy, np.ones(nodes.size, dtype=np.bool_))


@pytest.mark.parametrize(("minimum", "expected"), [(0, 20), (20, 20), (21, 0)])
def test_a_gang_is_placed_from_its_minimum_on_or_not_at_all(minimum: int, expected: int) -> None:
    placement = placed(alike(2), 25, MOST, minimum)
    assert (placement.placed, placement.fitting) == (expected, 20)
    assert len(list(placement.nodes())) == (2 if expected else 0)


class Counted:
    """A strategy that counts how many node states it was asked to score."""

    def __init__(self, strategy: MostAllocated | LeastAllocated) -> None:
        self.strategy = strategy
        self.calls = 0
        self.states = 0

    @property
    def name(self) -> str:
        return self.strategy.name

    @property
    def resources(self) -> frozenset[str]:
        return self.strategy.resources

    def score(self, nodes: NodeArrays, request: ReplicaRequest) -> IntArray:
        self.calls += 1
        self.states += nodes.size
        return self.strategy.score(nodes, request)

    def columns(self, nodes: NodeArrays, request: ReplicaRequest) -> tuple[ResourceColumn, ...]:
        return self.strategy.columns(nodes, request)


@pytest.mark.parametrize("strategy", [MOST, LEAST], ids=lambda strategy: strategy.name)
def test_alike_nodes_cost_no_step_per_replica(strategy: MostAllocated | LeastAllocated) -> None:
    counted = Counted(strategy)
    nodes, replicas = 2000, 1500
    assert placed(alike(nodes), replicas, counted).placed == replicas
    # Seats are doubled: at most four rounds until the 10 of a node are known, `replicas` each.
    assert counted.calls <= 6
    assert counted.states <= nodes + 5 * replicas
