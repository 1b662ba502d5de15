"""Placing n replicas in closed form is placing them one at a time.

The oracle is the obvious loop: score every node, take the best that has room, book the replica.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from estimator.binpack.arrays import NodeArrays, ReplicaRequest
from estimator.binpack.balanced_allocation import BalancedAllocation
from estimator.binpack.fit_strategies.least_allocated import LeastAllocated
from estimator.binpack.fit_strategies.most_allocated import MostAllocated
from estimator.binpack.fit_strategies.requested_to_capacity_ratio import RequestedToCapacityRatio
from estimator.binpack.place import PlacementRequest, place
from estimator.binpack.profile import ScoringProfile, WeightedPlugin
from estimator.binpack.strategy import ResourceWeight, ShapePoint, Strategy
from estimator.binpack.volcano import VolcanoBinpack
from federation.model.arrays import BoolArray
from federation.model.resources import PODS

RESOURCES = ("cpu", "memory", "example.com/gpu")

WEIGHTS = tuple(
    ResourceWeight(resource=resource, weight=weight)
    for resource, weight in zip(RESOURCES, (1, 2, 5), strict=True)
)

HILL = ((0, 2), (40, 9), (60, 1), (90, 10), (100, 0))  # rises and falls: not monotone
SHAPE = tuple(ShapePoint(utilization=utilization, score=score) for utilization, score in HILL)

BALANCED = BalancedAllocation(weights=WEIGHTS)
SHAPED = RequestedToCapacityRatio(weights=WEIGHTS, shape=SHAPE)

STRATEGIES: list[Strategy] = [
    MostAllocated(weights=WEIGHTS),
    LeastAllocated(weights=WEIGHTS),
    SHAPED,
    BALANCED,
    ScoringProfile(
        scheduler_name="hill",
        plugins=(
            WeightedPlugin(strategy=SHAPED, weight=2),
            WeightedPlugin(strategy=BALANCED, weight=1),
        ),
    ),
    VolcanoBinpack(weight=5, weights=(*WEIGHTS, ResourceWeight(resource=PODS, weight=1))),
    VolcanoBinpack(weight=-1, weights=WEIGHTS),
]


@st.composite
def clusters(draw: st.DrawFn) -> NodeArrays:
    """A few kinds of nodes, each occurring several times in any order: alike nodes are the norm."""
    size = draw(st.integers(1, 8))
    kinds = draw(
        st.lists(
            st.fixed_dictionaries(
                {
                    resource: st.tuples(st.integers(0, 40), st.integers(0, 25))
                    for resource in (*RESOURCES, PODS)
                }
            ),
            min_size=1,
            max_size=3,
        )
    )
    rows = draw(st.lists(st.sampled_from(kinds), min_size=size, max_size=size))
    columns = {
        resource: np.array([row[resource] for row in rows], dtype=np.int64)
        for resource in (*RESOURCES, PODS)
    }
    more = draw(st.integers(0, 3))
    return NodeArrays(
        size=size,
        allocatable={name: column[:, 0].copy() for name, column in columns.items()},
        requested={name: column[:, 1].copy() for name, column in columns.items()},
        nonzero_requested={"cpu": columns["cpu"][:, 1] + more},
    )


@st.composite
def requests(draw: st.DrawFn) -> ReplicaRequest:
    amounts = draw(st.dictionaries(st.sampled_from(RESOURCES), st.integers(0, 6)))
    return ReplicaRequest(
        amounts={**amounts, PODS: 1},
        nonzero={"cpu": amounts.get("cpu", 1), "memory": amounts.get("memory", 2)},
        nonzero_placed={"cpu": amounts.get("cpu", 2), "memory": amounts.get("memory", 2)},
    )


def has_room(nodes: NodeArrays, request: ReplicaRequest, node: int, taken: int) -> bool:
    return all(
        nodes.requested_n(resource)[node] + (taken + 1) * amount
        <= nodes.allocatable_n(resource)[node]
        for resource, amount in request.amounts.items()
        if amount > 0
    )


def one_at_a_time(
    nodes: NodeArrays, request: ReplicaRequest, replicas: int, strategy: Strategy, ok: BoolArray
) -> list[int]:
    taken = [0] * nodes.size
    every = np.arange(nodes.size)
    for _ in range(replicas):
        now = nodes.after(every, np.array(taken), request, (*RESOURCES, PODS))
        scores = strategy.score(now, request).tolist()
        open_nodes = [
            node
            for node in range(nodes.size)
            if ok[node] and has_room(nodes, request, node, taken[node])
        ]
        if not open_nodes:
            break
        taken[min(open_nodes, key=lambda node: (-scores[node], node))] += 1
    return taken


@pytest.mark.parametrize(
    "strategy", STRATEGIES, ids=lambda strategy: f"{strategy.name}{getattr(strategy, 'weight', '')}"
)
@settings(max_examples=60, deadline=None)
@given(
    nodes=clusters(),
    request=requests(),
    replicas=st.integers(0, 60),
    minimum=st.integers(0, 40),
    data=st.data(),
)
def test_placing_in_closed_form_is_placing_one_at_a_time(
    strategy: Strategy,
    nodes: NodeArrays,
    request: ReplicaRequest,
    replicas: int,
    minimum: int,
    data: st.DataObject,
) -> None:
    feasible_n = np.array(
        data.draw(st.lists(st.booleans(), min_size=nodes.size, max_size=nodes.size))
    )
    expected = one_at_a_time(nodes, request, replicas, strategy, feasible_n)

    demand = PlacementRequest(request=request, replicas=replicas, minimum=minimum)
    placement = place(nodes, demand, strategy, feasible_n)

    assert placement.fitting == sum(expected)
    if sum(expected) < minimum:
        expected = [0] * nodes.size
    assert placement.replicas_n.tolist() == expected
    assert placement.placed == sum(expected)


@pytest.mark.parametrize(
    "strategy", STRATEGIES, ids=lambda strategy: f"{strategy.name}{getattr(strategy, 'weight', '')}"
)
@settings(max_examples=40, deadline=None)
@given(nodes=clusters(), request=requests(), replicas=st.integers(1, 60))
def test_no_node_takes_more_than_it_has_room_for(
    strategy: Strategy, nodes: NodeArrays, request: ReplicaRequest, replicas: int
) -> None:
    demand = PlacementRequest(request=request, replicas=replicas)
    placement = place(nodes, demand, strategy, np.ones(nodes.size, dtype=np.bool_))
    for node in placement.nodes():
        assert node.replicas > 0
        assert has_room(nodes, request, node.node, node.replicas - 1)
        assert node.score == placement.score_m[placement.touched_m.tolist().index(node.node)]
        assert node.resources
