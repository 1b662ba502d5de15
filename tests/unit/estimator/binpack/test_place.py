"""Placing replicas by score: order, gangs, what is said about it, and how little is computed."""

from __future__ import annotations

import numpy as np
import pytest

from estimator.binpack.arrays import NodeArrays, ReplicaRequest
from estimator.binpack.breakdown import ResourceScore
from estimator.binpack.fit_strategies.least_allocated import LeastAllocated
from estimator.binpack.fit_strategies.most_allocated import MostAllocated
from estimator.binpack.place import NodePlacements, PlacementRequest, place
from estimator.binpack.strategy import ResourceColumn, ResourceWeight, Skip, Strategy
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


def test_packing_fills_one_node_after_the_other() -> None:
    assert placed(alike(4), 23, MOST).replicas_n.tolist() == [10, 10, 3, 0]


def test_spreading_deals_them_out_in_node_order() -> None:
    assert placed(alike(4), 6, LEAST).replicas_n.tolist() == [2, 2, 1, 1]


def test_the_fuller_node_comes_first() -> None:
    nodes = alike(3, cpu=0)
    nodes.requested["cpu"][2] = 5000
    assert placed(nodes, 7, MOST).replicas_n.tolist() == [2, 0, 5]


def test_pod_slots_are_a_limit_like_any_other() -> None:
    assert placed(alike(2, pods=107), 9, MOST).replicas_n.tolist() == [3, 3]


def test_a_node_masked_out_takes_nothing() -> None:
    demand = PlacementRequest(request=REQUEST, replicas=12)
    placement = place(alike(3), demand, MOST, np.array([False, True, True]))
    assert placement.replicas_n.tolist() == [0, 10, 2]


def test_a_requested_resource_the_nodes_lack_leaves_no_room() -> None:
    demand = PlacementRequest(request=ReplicaRequest.of({"nvidia.com/gpu": 1}), replicas=1)
    placement = place(alike(3), demand, MOST, np.ones(3, dtype=np.bool_))
    assert (placement.placed, placement.fitting) == (0, 0)


@pytest.mark.parametrize(("minimum", "expected"), [(0, 20), (20, 20), (21, 0)])
def test_a_gang_is_placed_from_its_minimum_on_or_not_at_all(minimum: int, expected: int) -> None:
    placement = placed(alike(2), 25, MOST, minimum)
    assert (placement.placed, placement.fitting) == (expected, 20)
    assert len(list(placement.nodes())) == (2 if expected else 0)


def test_nothing_asked_is_nothing_placed() -> None:
    placement = placed(alike(2), 0, MOST)
    assert placement.replicas_n.tolist() == [0, 0]
    assert list(placement.nodes()) == []


def test_every_node_that_takes_replicas_says_how_it_scored() -> None:
    nodes = list(placed(alike(3, cpu=2000), 3, MOST).nodes())
    assert [(node.node, node.replicas, node.score) for node in nodes] == [(0, 3, 36)]
    assert nodes[0].resources == (
        ResourceScore(
            strategy="MostAllocated",
            resource="cpu",
            weight=1,
            used=4000,
            request=1000,
            allocatable=10_000,
            score=50,
            skipped=None,
        ),
        ResourceScore(
            strategy="MostAllocated",
            resource="memory",
            weight=2,
            used=4000,
            request=2000,
            allocatable=20_000,
            score=30,
            skipped=None,
        ),
        ResourceScore(
            strategy="MostAllocated",
            resource="nvidia.com/gpu",
            weight=9,
            used=0,
            request=0,
            allocatable=0,
            score=None,
            skipped=Skip.NOT_REQUESTED,
        ),
    )
    assert [part.utilization_percent for part in nodes[0].resources] == [50, 30, None]


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
