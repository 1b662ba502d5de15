"""What sets the strategies apart at the edges, and what a breakdown says there."""

from __future__ import annotations

from estimator.binpack.arrays import NodeArrays, ReplicaRequest
from estimator.binpack.balanced_allocation import BalancedAllocation
from estimator.binpack.breakdown import breakdown
from estimator.binpack.fit_strategies.most_allocated import MostAllocated
from estimator.binpack.fit_strategies.requested_to_capacity_ratio import RequestedToCapacityRatio
from estimator.binpack.node_load import NodeLoad, tabulate
from estimator.binpack.profile import ScoringProfile, WeightedPlugin
from estimator.binpack.shape import ShapePoint
from estimator.binpack.strategy import ResourceWeight, Skip, Strategy
from estimator.binpack.volcano import VolcanoBinpack

GPU = "nvidia.com/gpu"


def weights(**amounts: int) -> tuple[ResourceWeight, ...]:
    return tuple(
        ResourceWeight(resource=name.replace("gpu", GPU), weight=weight)
        for name, weight in amounts.items()
    )


def one_node(allocatable: dict[str, int], requested: dict[str, int]) -> NodeArrays:
    return tabulate([NodeLoad(allocatable=allocatable, requested=requested)])


def skips(strategy: Strategy, nodes: NodeArrays, request: ReplicaRequest) -> list[Skip | None]:
    return [part.skipped for part in breakdown(strategy.columns(nodes, request), 0)]


def test_what_takes_no_part_says_why() -> None:
    nodes = one_node({"cpu": 1000, "memory": 0, GPU: 4, "pods": 10}, {})
    most = MostAllocated(weights=weights(cpu=1, memory=1, gpu=1, pods=1))
    assert skips(most, nodes, ReplicaRequest.of({"cpu": 500})) == [
        None,
        Skip.NO_CAPACITY,
        Skip.NOT_REQUESTED,
        Skip.NOT_SCORED,
    ]
    assert most.score(nodes, ReplicaRequest.of({"cpu": 500})).tolist() == [50]


def test_a_resource_that_scores_0_leaves_the_ratio_but_not_the_others() -> None:
    nodes = one_node({"cpu": 1000, "memory": 1000}, {})
    request = ReplicaRequest.of({"cpu": 0, "memory": 500})
    rising = (ShapePoint(utilization=0, score=0), ShapePoint(utilization=100, score=10))
    ratio = RequestedToCapacityRatio(weights=weights(cpu=1, memory=1), shape=rising)
    assert ratio.score(nodes, request).tolist() == [50]
    assert skips(ratio, nodes, request) == [Skip.ZERO_SCORE, None]
    assert MostAllocated(weights=weights(cpu=1, memory=1)).score(nodes, request).tolist() == [25]


def test_no_resource_left_scores_0() -> None:
    nodes = one_node({"memory": 1000}, {})
    most = MostAllocated(weights=weights(gpu=1))
    assert most.score(nodes, ReplicaRequest.of({GPU: 1})).tolist() == [0]


def test_a_container_without_amounts_counts_the_defaults_in_fit_scoring_only() -> None:
    nodes = one_node({"cpu": 1000, "memory": 2000 * 2**20}, {})
    request = ReplicaRequest.of({})
    assert MostAllocated(weights=weights(cpu=1, memory=1)).score(nodes, request).tolist() == [10]
    assert not BalancedAllocation(weights=weights(cpu=1, memory=1)).applies_to(request)


def test_a_profile_adds_weighted_plugins_that_have_a_say() -> None:
    nodes = one_node({"cpu": 1000, "memory": 1000 * 2**20}, {})
    most = WeightedPlugin(strategy=MostAllocated(weights=weights(cpu=1)), weight=3)
    balanced = BalancedAllocation(weights=weights(cpu=1, memory=1))
    profile = ScoringProfile(
        scheduler_name="dense",
        plugins=(most, WeightedPlugin(strategy=balanced, weight=2)),
    )
    assert profile.score(nodes, ReplicaRequest.of({"cpu": 500})).tolist() == [3 * 50 + 2 * 62]
    assert profile.score(nodes, ReplicaRequest.of({})).tolist() == [3 * 10]
    assert profile.resources == {"cpu", "memory"}
    parts = breakdown(profile.columns(nodes, ReplicaRequest.of({"cpu": 500})), 0)
    assert [(part.strategy, part.resource) for part in parts] == [
        ("MostAllocated", "cpu"),
        ("BalancedAllocation", "cpu"),
        ("BalancedAllocation", "memory"),
    ]


def test_a_profile_ignores_extended_resources_only() -> None:
    profile = ScoringProfile(
        scheduler_name="a",
        plugins=(),
        ignored_resources=frozenset({"cpu", "a.example/foo"}),
        ignored_resource_groups=frozenset({"b.example"}),
    )
    names = ("cpu", "a.example/foo", "a.example/bar", "b.example/bar", "b.example")
    assert [name for name in names if profile.ignores(name)] == ["a.example/foo", "b.example/bar"]


def test_volcano_ignores_what_is_not_requested() -> None:
    nodes = one_node({"cpu": 1000, "memory": 1000}, {"memory": 900})
    binpack = VolcanoBinpack(weight=1, weights=weights(cpu=1, memory=1))
    request = ReplicaRequest.of({"cpu": 500})
    assert binpack.score(nodes, request).tolist() == [50.0]
    assert skips(binpack, nodes, request) == [None, Skip.NOT_REQUESTED]
