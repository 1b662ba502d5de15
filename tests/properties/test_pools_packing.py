"""What is packed into cells can be placed on the nodes they stand for, whichever those are.

The oracles place one replica, or one set, at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.capacity.cells import (
    Residues,
    View,
    apart,
    cells_left,
    gathered,
    only,
)
from federation.capacity.packing import pack, packed_each_in_place, room_by_segment
from federation.capacity.wants import Want, Wants
from federation.model.estimate import MAX_REPLICAS
from federation.model.pools.bounds import per_replica, tighter_lower_k, upper_k
from federation.model.pools.cell_order import smallest_first
from federation.model.pools.sets import sets_that_fit
from federation.model.pools.values import Cells, NodePool, Pools
from federation.model.workload import Component, ReplicaRequirements
from lab.packed_nodes import nodes_in_turn, residues_of
from lab.simple_bounds import lower_k
from tests.properties.test_reserve_packing import RESOURCES, node_amounts, requests

# No pool suits, of the one kind that there is.
NOWHERE = np.array([False])

node_groups = st.lists(st.lists(node_amounts, min_size=1, max_size=5), min_size=1, max_size=5)


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


def fresh(cells: Cells) -> Residues:
    return residues_of(Pools(label_keys=(), pools=(NodePool(),), cells=cells))


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


def one_at_a_time(residues: Residues, request: Mapping[str, int], replicas: int) -> list[list[int]]:
    """Every node of exactly its cell's minimum, after each replica took the first with room."""
    nodes = [list(free) for _, free in nodes_in_turn(residues, View.FILLED, request)]
    amounts = amounts_of(request)
    for _ in range(replicas):
        node = next((each for each in nodes if fit(each, amounts) > 0), None)
        if node is None:
            break
        for row, amount in enumerate(amounts):
            node[row] -= amount
    return nodes


@settings(max_examples=80, deadline=None)
@given(groups=node_groups, shapes=st.lists(st.tuples(requests, st.integers(0, 40)), max_size=4))
def test_packing_in_closed_form_is_packing_one_at_a_time(
    groups: list[list[tuple[int, ...]]], shapes: list[tuple[dict[str, int], int]]
) -> None:
    report = table(groups)
    residues = fresh(report)
    for request, replicas in shapes:
        before = cells_left(residues, View.FILLED, report)
        packing = pack(residues, request, np.array([replicas]))
        nodes = one_at_a_time(residues, request, replicas)
        residues = packing.left
        left = cells_left(residues, View.FILLED, report)
        assert minimums(left) == Counter(map(tuple, nodes))
        placed = int(packing.placed_s[View.FILLED])
        assert placed == min(replicas, int(lower_k(before, per_replica(request)).sum()))
        takes = packing.takes.of(0, RESOURCES)
        assert placed == sum(take.nodes * take.replicas for take in takes)


@settings(max_examples=80, deadline=None)
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
    report = table(groups)
    packing = pack(fresh(report), request, np.array([replicas]))
    left = cells_left(packing.left, View.FILLED, report)
    untouched = [[list(node) for node in random.permutation(group)] for group in groups]
    cells_by_free: dict[tuple[int, ...], list[int]] = {}
    for cell, column in enumerate(report.min_rk.T.tolist()):
        cells_by_free.setdefault(tuple(column), []).append(cell)
    after = []
    amounts = amounts_of(request)
    for take in packing.takes.of(0, RESOURCES):
        for _ in range(take.nodes):
            # Of cells with equal minimums any will do.
            alike = [untouched[cell] for cell in cells_by_free[take.free] if untouched[cell]]
            node = alike[0].pop()
            rest = [free - take.replicas * q for free, q in zip(node, amounts, strict=True)]
            assert min(rest) >= 0
            after.append(rest)
    after += [node for group in untouched for node in group]
    demanded = per_replica(probe)
    truth = sum(fit(node, amounts_of(probe)) for node in after)
    assert lower_k(left, demanded).sum() <= tighter_lower_k(left, demanded).sum()
    assert tighter_lower_k(left, demanded).sum() <= truth
    assert truth <= upper_k(left, demanded).sum()


wanted_of_one = st.tuples(requests, st.integers(0, 60), st.sampled_from([True, True, False]))
rounds = st.lists(wanted_of_one, min_size=3, max_size=3)


@settings(max_examples=80, deadline=None)
@given(
    clusters=st.lists(node_groups, min_size=3, max_size=3),
    shapes=st.lists(rounds, max_size=12),
    permuted=st.permutations(range(3)),
    copies=st.sampled_from([1, 12]),
    alike=st.booleans(),
)
def test_many_clusters_at_once_are_packed_like_one_after_the_other(
    clusters: list[list[list[tuple[int, ...]]]],
    shapes: list[list[tuple[dict[str, int], int, bool]]],
    permuted: list[int],
    copies: int,
    alike: bool,
) -> None:
    alone = [fresh(table(groups)) for groups in clusters]
    # Where many clusters take something, cells are looked through before they are put in order.
    order = permuted * copies
    together = gathered([(alone[c], [0]) for c in order])
    for each in shapes:
        asked = [each[0] if alike else one for one in each]
        wants = [Want(request, None if suits else NOWHERE) for request, _, suits in asked]
        replicas = [count for _, count, _ in each]
        every = Wants.of(together.resources, wants[:1] if alike else wants)
        packing = packed_each_in_place(
            apart(together),
            every.asked(np.array([0 if alike else c for c in order])),
            np.array([replicas[c] for c in order]),
        )
        together = packing.left
        singles = [
            pack(alone[c], want.request, np.array([replicas[c]]), want.suiting_p)
            for c, want in enumerate(wants)
        ]
        alone = [single.left for single in singles]
        for place, c in enumerate(order):
            single = singles[c]
            assert packing.takes.of(place, RESOURCES) == single.takes.of(0, RESOURCES)
            span = slice(place * len(View), (place + 1) * len(View))
            assert packing.placed_s[span].tolist() == single.placed_s.tolist()
            assert packing.room_s is not None
            room_s = room_by_segment(single.left, *wants[c])
            assert packing.room_s[span].tolist() == room_s.tolist()
            left = only(together, place)
            assert left.table_xk.tolist() == alone[c].table_xk.tolist()
            assert left.used_s.tolist() == alone[c].used_s.tolist()


def test_room_beyond_what_is_counted_is_counted_again() -> None:
    most = MAX_REPLICAS + 10
    nodes = table([[(most, most, most, *(0 for _ in RESOURCES[3:]))]])
    packing = pack(fresh(nodes), {"cpu": 1}, np.array([4]))
    assert packing.room_s is None
    assert room_by_segment(packing.left, {"cpu": 1}).tolist() == [MAX_REPLICAS] * len(View)


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


@settings(max_examples=80, deadline=None)
@given(cells=uniform_cells() | node_groups.map(table), parts=components)
def test_sets_in_closed_form_are_sets_one_at_a_time(cells: Cells, parts: list[Component]) -> None:
    pools = Pools(label_keys=(), pools=(NodePool(),), cells=cells)
    assert sets_that_fit(pools, parts, 100).sets == sets_one_at_a_time(cells, parts, 100)
