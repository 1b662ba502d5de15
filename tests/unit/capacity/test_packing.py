"""Packing into cells and counting whole sets: the order, what is left, what is not promised."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from federation.capacity.cells import Residues, View, cells_left
from federation.capacity.packing import Take, pack
from federation.model.pools import sets
from federation.model.pools.bounds import per_replica, upper_k
from federation.model.pools.sets import SetEstimate, sets_that_fit
from federation.model.pools.values import Cells, NodePool, Pools
from federation.model.resources import MAX_AMOUNT
from federation.model.workload import Component, NodeClaim, ReplicaRequirements
from lab.packed_nodes import residues_of

RESOURCES = ("cpu", "memory", "pods", "nvidia.com/gpu")


def cells_of(*cells: tuple[int, tuple[int, ...]], pool: Sequence[int] = ()) -> Cells:
    """Cells of (nodes, free cpu, memory, pods and gpus of each)."""
    counts = np.array([nodes for nodes, _ in cells], np.int64)
    free_rk = np.array([free for _, free in cells], np.int64).T
    return Cells(
        resources=RESOURCES,
        pool_k=np.array(pool or [0] * len(cells), np.int32),
        count_k=counts,
        min_rk=free_rk,
        sum_rk=free_rk * counts,
        max_rk=free_rk,
        sum_exact_k=np.ones(len(cells), np.bool_),
    )


def pools_of(cells: Cells) -> Pools:
    return Pools(label_keys=(), pools=(NodePool(),), cells=cells)


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """Where best fit packs replicas into one cluster, and the cells it leaves."""

    placed: int
    takes: list[Take]
    left: Cells


def packed(cells: Cells, request: Mapping[str, int], replicas: int) -> Packed:
    packing = pack(residues_of(pools_of(cells)), request, np.array([replicas]))
    return Packed(
        placed=int(packing.placed_s[View.FILLED]),
        takes=packing.takes.of(0, cells.resources),
        left=cells_left(packing.left, View.FILLED, cells),
    )


def left_of(cells: Cells) -> list[tuple[int, tuple[int, ...]]]:
    return sorted(
        (int(cells.count_k[k]), tuple(cells.min_rk[:, k].tolist())) for k in range(len(cells))
    )


def component(replicas: int, request: Mapping[str, int], zone: str = "") -> Component:
    claim = NodeClaim(node_selector={"zone": zone}) if zone else None
    return Component(
        name="part",
        replicas=replicas,
        requirements=ReplicaRequirements(request=request, node_claim=claim),
    )


def test_the_smallest_cell_that_takes_one_comes_first() -> None:
    cells = cells_of((2, (8, 8, 9, 0)), (3, (3, 3, 9, 0)), (4, (1, 9, 9, 0)))
    packing = packed(cells, {"cpu": 2}, 4)
    assert packing.takes == [
        Take(pool=0, free=(3, 3, 9, 0), nodes=3, replicas=1),
        Take(pool=0, free=(8, 8, 9, 0), nodes=1, replicas=1),
    ]
    assert packing.placed == 4
    assert left_of(packing.left) == [
        (1, (6, 8, 8, 0)),
        (1, (8, 8, 9, 0)),
        (3, (1, 3, 8, 0)),
        (4, (1, 9, 9, 0)),
    ]


def test_a_partly_used_node_becomes_its_own_cell() -> None:
    packing = packed(cells_of((5, (7, 9, 9, 0))), {"cpu": 2}, 8)
    assert packing.takes == [
        Take(pool=0, free=(7, 9, 9, 0), nodes=2, replicas=3),
        Take(pool=0, free=(7, 9, 9, 0), nodes=1, replicas=2),
    ]
    assert left_of(packing.left) == [(1, (3, 9, 7, 0)), (2, (1, 9, 6, 0)), (2, (7, 9, 9, 0))]


def test_nodes_with_devices_are_for_those_who_ask() -> None:
    cells = cells_of((1, (2, 2, 9, 1)), (1, (90, 90, 90, 0)))
    takes = packed(cells, {"cpu": 1}, 91).takes
    assert [take.free for take in takes] == [(90, 90, 90, 0), (2, 2, 9, 1)]
    with_device = packed(cells, {"cpu": 1, "nvidia.com/gpu": 1}, 5)
    assert with_device.placed == 1
    assert with_device.takes == [Take(pool=0, free=(2, 2, 9, 1), nodes=1, replicas=1)]


def test_nothing_is_packed_where_nothing_fits() -> None:
    cells = cells_of((3, (1, 1, 1, 0)))
    for request, replicas in (({"cpu": 2}, 5), ({"unheard.of/device": 1}, 5), ({"cpu": 1}, 0)):
        packing = packed(cells, request, replicas)
        assert (packing.placed, packing.takes) == (0, [])
        assert left_of(packing.left) == left_of(cells)


def test_a_million_replicas_are_packed_at_once() -> None:
    cells = cells_of((100_000, (64_000, 64_000, 110, 0)))
    packing = packed(cells, {"cpu": 500}, 1_000_000)
    assert packing.placed == 1_000_000
    assert len(packing.left) == 3


def test_pieces_of_a_cell_of_unlike_nodes_have_the_least_sums() -> None:
    free_rk = [[4], [4], [9], [0]]
    cells = Cells(
        resources=RESOURCES,
        pool_k=np.zeros(1, np.int32),
        count_k=np.array([3]),
        min_rk=np.array(free_rk),
        sum_rk=np.array([[18], [12], [27], [0]]),
        max_rk=np.array([[8], [4], [9], [0]]),
        sum_exact_k=np.ones(1, np.bool_),
    )
    left = packed(cells, {"cpu": 4}, 1).left
    # One node has at most 8 of the 18, so the other two have at least 10; and one at least 4.
    assert left.sum_rk[0].tolist() == [4 - 4, 10]
    assert left.max_rk[0].tolist() == [4, 8]
    assert left.sum_exact_k.tolist() == [False, False]
    assert upper_k(left, per_replica({"cpu": 4})).tolist() == [1, 4]


def test_an_enormous_sum_is_not_taken_for_what_is_left_of_it() -> None:
    cells = Cells(
        resources=("cpu", "memory", "pods"),
        pool_k=np.zeros(1, np.int32),
        count_k=np.array([3]),
        min_rk=np.full((3, 1), MAX_AMOUNT),
        sum_rk=np.full((3, 1), MAX_AMOUNT),
        max_rk=np.full((3, 1), MAX_AMOUNT),
        sum_exact_k=np.zeros(1, np.bool_),
    )
    left = packed(cells, {"cpu": MAX_AMOUNT}, 2).left
    assert left.min_rk[0].tolist() == [0, MAX_AMOUNT]
    assert upper_k(left, per_replica({"cpu": MAX_AMOUNT})).tolist() == [0, 1]


def two_zones() -> Pools:
    return Pools(
        label_keys=("zone",),
        pools=(NodePool(labels={"zone": "a"}), NodePool(labels={"zone": "b"})),
        cells=cells_of((2, (4, 4, 9, 0)), (2, (4, 4, 9, 0)), pool=[0, 1]),
    )


def test_only_pools_that_suit_are_packed_into() -> None:
    pools = two_zones()
    packing = pack(residues_of(pools), {"cpu": 3}, np.array([3]), np.array([True, False]))
    assert packing.placed_s.tolist() == [2, 2]
    left = cells_left(packing.left, View.FILLED, pools.cells)
    assert dict(zip(left.pool_k.tolist(), left_of(left), strict=True)) == {
        0: (2, (1, 4, 8, 0)),
        1: (2, (4, 4, 9, 0)),
    }


def test_cells_that_become_equal_again_are_one() -> None:
    cells = cells_of((40, (6, 9, 9, 0)))
    residues: Residues = residues_of(pools_of(cells))
    for _ in range(30):
        residues = pack(residues, {"cpu": 2}, np.array([4])).left
    assert residues.table_xk.shape[1] <= 4 * 8
    left = cells_left(residues, View.FILLED, cells)
    assert left_of(left) == [(40, (0, 9, 6, 0))]


def test_sets_need_room_for_every_component() -> None:
    manager, workers = component(1, {"cpu": 2}), component(4, {"cpu": 1, "memory": 1})
    pools = Pools(label_keys=(), pools=(NodePool(),), cells=cells_of((100, (6, 100, 110, 0))))
    assert sets_that_fit(pools, [manager, workers]) == SetEstimate(sets=100)
    assert sets_that_fit(pools, [manager, workers], most=7) == SetEstimate(sets=7)
    assert sets_that_fit(pools, [component(0, {"cpu": 1})]) == SetEstimate(sets=0)
    assert sets_that_fit(pools, []) == SetEstimate(sets=0)
    assert sets_that_fit(pools, [manager, component(1, {"nvidia.com/gpu": 1})]).sets == 0


def test_what_takes_too_long_is_finished_on_single_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred nodes of 10 for sets of 3 + 3: one on a node, and half of one between two."""
    pools = Pools(label_keys=(), pools=(NodePool(),), cells=cells_of((100, (10, 100, 110, 0))))
    parts = [component(1, {"cpu": 3}), component(1, {"cpu": 3, "memory": 1})]
    assert sets_that_fit(pools, parts) == SetEstimate(sets=150)
    monkeypatch.setattr(sets, "MOST_STEPS", 0)
    assert sets_that_fit(pools, parts) == SetEstimate(sets=100)
    monkeypatch.setattr(sets, "MOST_STEPS", 2)
    assert 100 <= sets_that_fit(pools, parts).sets < 150
    assert sets_that_fit(pools, parts, most=7) == SetEstimate(sets=7)


def test_components_go_to_the_pools_that_suit_each() -> None:
    parts = [component(1, {"cpu": 3}, "a"), component(1, {"cpu": 2}, "b")]
    assert sets_that_fit(two_zones(), parts) == SetEstimate(sets=2)


def test_sets_are_unknown_when_a_component_is() -> None:
    claim = NodeClaim(node_selector={"disk": "ssd"})
    unknown = Component(name="part", replicas=1, requirements=ReplicaRequirements(node_claim=claim))
    found = sets_that_fit(two_zones(), [component(1, {"cpu": 1}), unknown])
    assert not found.answered
    assert found.reason == "the cluster's pools do not tell nodes apart by disk"
