"""What is packed into cells can be placed on the nodes they stand for, whichever those are.

The oracles place one replica, or one set, at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.model.pools.bounds import lower_k, per_replica, tighter_lower_k, upper_k
from federation.model.pools.packing import Demand, pack, pack_demands, smallest_first
from federation.model.pools.sets import sets_that_fit
from federation.model.pools.values import Cells, NodePool, Pools
from federation.model.workload import Component, ReplicaRequirements

RESOURCES = ("cpu", "memory", "pods", "nvidia.com/gpu")
EVERY_POOL = np.ones(1, np.bool_)

node_amounts = st.tuples(
    st.integers(0, 30), st.integers(0, 30), st.integers(0, 12), st.sampled_from([0, 0, 0, 2])
)
node_groups = st.lists(st.lists(node_amounts, min_size=1, max_size=5), min_size=1, max_size=5)
requests = st.dictionaries(
    st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]), st.integers(0, 9), max_size=3
)


def table(groups: Sequence[Sequence[tuple[int, ...]]]) -> Cells:
    free = [np.array(group, np.int64).T for group in groups]
    return Cells(
        resources=RESOURCES,
        pool_k=np.zeros(len(groups), np.int32),
        count_k=np.array([len(group) for group in groups], np.int64),
        min_rk=np.stack([each.min(axis=1) for each in free], axis=1),
        sum_rk=np.stack([each.sum(axis=1) for each in free], axis=1),
        max_rk=np.stack([each.max(axis=1) for each in free], axis=1),
        sum_exact_k=np.ones(len(groups), np.bool_),
    )


def amounts_of(request: Mapping[str, int]) -> tuple[int, ...]:
    demanded = per_replica(request)
    return tuple(demanded.get(name, 0) for name in RESOURCES)


def fit(node: Sequence[int], amounts: Sequence[int]) -> int:
    return min(free // amount for free, amount in zip(node, amounts, strict=True) if amount)


def minimums(cells: Cells) -> Counter[tuple[int, ...]]:
    nodes: Counter[tuple[int, ...]] = Counter()
    for k in range(len(cells)):
        nodes[tuple(cells.min_rk[:, k].tolist())] += int(cells.count_k[k])
    return nodes


def one_at_a_time(cells: Cells, request: Mapping[str, int], replicas: int) -> list[list[int]]:
    """Every node of exactly its cell's minimum, after each replica took the first with room."""
    nodes = [
        list(cells.min_rk[:, k].tolist())
        for k in smallest_first(cells, per_replica(request)).tolist()
        for _ in range(int(cells.count_k[k]))
    ]
    amounts = amounts_of(request)
    for _ in range(replicas):
        node = next((each for each in nodes if fit(each, amounts) > 0), None)
        if node is None:
            break
        for row, amount in enumerate(amounts):
            node[row] -= amount
    return nodes


@settings(max_examples=200, deadline=None)
@given(groups=node_groups, shapes=st.lists(st.tuples(requests, st.integers(0, 40)), max_size=4))
def test_packing_in_closed_form_is_packing_one_at_a_time(
    groups: list[list[tuple[int, ...]]], shapes: list[tuple[dict[str, int], int]]
) -> None:
    cells = table(groups)
    for request, replicas in shapes:
        packing = pack(cells, EVERY_POOL, request, replicas)
        nodes = one_at_a_time(cells, request, replicas)
        assert minimums(packing.left) == Counter(map(tuple, nodes))
        assert packing.placed == min(replicas, int(lower_k(cells, per_replica(request)).sum()))
        assert packing.placed == sum(take.nodes * take.replicas for take in packing.takes)
        cells = packing.left


@settings(max_examples=200, deadline=None)
@given(
    groups=node_groups,
    request=requests,
    replicas=st.integers(1, 60),
    probe=requests,
    seed=st.integers(0, 999),
)
def test_a_packing_replays_on_any_nodes_of_the_cells(
    groups: list[list[tuple[int, ...]]],
    request: dict[str, int],
    replicas: int,
    probe: dict[str, int],
    seed: int,
) -> None:
    random = np.random.default_rng(seed)
    packing = pack(table(groups), EVERY_POOL, request, replicas)
    untouched = [[list(node) for node in random.permutation(group)] for group in groups]
    after = []
    amounts = amounts_of(request)
    for take in packing.takes:
        for _ in range(take.nodes):
            node = untouched[take.cell].pop()
            left = [free - take.replicas * q for free, q in zip(node, amounts, strict=True)]
            assert min(left) >= 0
            after.append(left)
    after += [node for group in untouched for node in group]
    demanded = per_replica(probe)
    truth = sum(fit(node, amounts_of(probe)) for node in after)
    assert lower_k(packing.left, demanded).sum() <= tighter_lower_k(packing.left, demanded).sum()
    assert tighter_lower_k(packing.left, demanded).sum() <= truth
    assert truth <= upper_k(packing.left, demanded).sum()


@settings(max_examples=100, deadline=None)
@given(groups=node_groups, shapes=st.lists(st.tuples(requests, st.integers(0, 40)), max_size=5))
def test_demands_leave_what_packing_them_in_turn_leaves(
    groups: list[list[tuple[int, ...]]], shapes: list[tuple[dict[str, int], int]]
) -> None:
    pools = Pools(label_keys=(), pools=(NodePool(),), cells=table(groups))
    packed = pack_demands(
        pools,
        [
            Demand(requirements=ReplicaRequirements(request=request), replicas=replicas)
            for request, replicas in shapes
        ],
    )
    cells = pools.cells
    for (request, replicas), unplaced in zip(shapes, packed.unplaced, strict=True):
        packing = pack(cells, EVERY_POOL, request, replicas)
        assert unplaced == replicas - packing.placed
        cells = packing.left
    assert minimums(packed.pools.cells) == minimums(cells)
    assert len(packed.pools.cells) == len(minimums(cells))


def sets_one_at_a_time(cells: Cells, components: Sequence[Component], most: int) -> int:
    demanded = {
        name: amount
        for component in components
        if component.replicas
        for name, amount in per_replica(component.requirements.request).items()
    }
    nodes = [
        list(cells.min_rk[:, k].tolist())
        for k in smallest_first(cells, demanded).tolist()
        for _ in range(int(cells.count_k[k]))
    ]
    if not any(component.replicas for component in components):
        return 0
    for sets in range(most):
        for component in components:
            amounts = amounts_of(component.requirements.request)
            for _ in range(component.replicas):
                node = next((each for each in nodes if fit(each, amounts) > 0), None)
                if node is None:
                    return sets
                for row, amount in enumerate(amounts):
                    node[row] -= amount
    return most


@st.composite
def uniform_cells(draw: st.DrawFn) -> Cells:
    """A few cells of many equal nodes: what repeats is taken at once only there."""
    kinds = draw(st.lists(st.tuples(node_amounts, st.integers(1, 40)), min_size=1, max_size=3))
    return table([[amounts] * nodes for amounts, nodes in kinds])


components = st.lists(
    st.builds(
        Component,
        name=st.just("part"),
        replicas=st.integers(0, 4),
        requirements=st.builds(ReplicaRequirements, request=requests),
    ),
    min_size=1,
    max_size=3,
)


@settings(max_examples=200, deadline=None)
@given(cells=uniform_cells() | node_groups.map(table), parts=components)
def test_sets_in_closed_form_are_sets_one_at_a_time(cells: Cells, parts: list[Component]) -> None:
    pools = Pools(label_keys=(), pools=(NodePool(),), cells=cells)
    assert sets_that_fit(pools, parts, 100).sets == sets_one_at_a_time(cells, parts, 100)
