"""Packing into cells and counting whole sets: the order, what is left, what is not promised."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from federation.model.pools.bounds import per_replica, upper_k
from federation.model.pools.packing import Demand, Take, pack, pack_demands
from federation.model.pools.sets import SetEstimate, sets_that_fit
from federation.model.pools.values import Cells, NodePool, Pools
from federation.model.resources import MAX_AMOUNT
from federation.model.workload import Component, NodeClaim, ReplicaRequirements

RESOURCES = ("cpu", "memory", "pods", "nvidia.com/gpu")
EVERY_POOL = np.ones(1, np.bool_)


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


def left_of(cells: Cells) -> list[tuple[int, tuple[int, ...]]]:
    return [(int(cells.count_k[k]), tuple(cells.min_rk[:, k].tolist())) for k in range(len(cells))]


def component(replicas: int, request: Mapping[str, int], zone: str = "") -> Component:
    claim = NodeClaim(node_selector={"zone": zone}) if zone else None
    return Component(
        name="part",
        replicas=replicas,
        requirements=ReplicaRequirements(request=request, node_claim=claim),
    )


def test_the_smallest_cell_that_takes_one_comes_first() -> None:
    cells = cells_of((2, (8, 8, 9, 0)), (3, (3, 3, 9, 0)), (4, (1, 9, 9, 0)))
    packing = pack(cells, EVERY_POOL, {"cpu": 2}, 4)
    assert packing.takes == (Take(cell=1, nodes=3, replicas=1), Take(cell=0, nodes=1, replicas=1))
    assert packing.placed == 4
    assert left_of(packing.left) == [
        (1, (6, 8, 8, 0)),
        (3, (1, 3, 8, 0)),
        (4, (1, 9, 9, 0)),
        (1, (8, 8, 9, 0)),
    ]


def test_a_partly_used_node_becomes_its_own_cell() -> None:
    packing = pack(cells_of((5, (7, 9, 9, 0))), EVERY_POOL, {"cpu": 2}, 8)
    assert packing.takes == (Take(cell=0, nodes=2, replicas=3), Take(cell=0, nodes=1, replicas=2))
    assert left_of(packing.left) == [(2, (1, 9, 6, 0)), (1, (3, 9, 7, 0)), (2, (7, 9, 9, 0))]


def test_nodes_with_devices_are_for_those_who_ask() -> None:
    cells = cells_of((1, (2, 2, 9, 1)), (1, (90, 90, 90, 0)))
    assert [take.cell for take in pack(cells, EVERY_POOL, {"cpu": 1}, 91).takes] == [1, 0]
    with_device = pack(cells, EVERY_POOL, {"cpu": 1, "nvidia.com/gpu": 1}, 5)
    assert (with_device.placed, with_device.takes) == (1, (Take(cell=0, nodes=1, replicas=1),))


def test_nothing_is_packed_where_nothing_fits() -> None:
    cells = cells_of((3, (1, 1, 1, 0)))
    for request, replicas in (({"cpu": 2}, 5), ({"unheard.of/device": 1}, 5), ({"cpu": 1}, 0)):
        packing = pack(cells, EVERY_POOL, request, replicas)
        assert (packing.placed, packing.takes) == (0, ())
        assert packing.left is cells


def test_a_million_replicas_are_packed_at_once() -> None:
    cells = cells_of((100_000, (64_000, 64_000, 110, 0)))
    packing = pack(cells, EVERY_POOL, {"cpu": 500}, 1_000_000)
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
    left = pack(cells, EVERY_POOL, {"cpu": 4}, 1).left
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
    left = pack(cells, EVERY_POOL, {"cpu": MAX_AMOUNT}, 2).left
    assert left.min_rk[0].tolist() == [0, MAX_AMOUNT]
    assert upper_k(left, per_replica({"cpu": MAX_AMOUNT})).tolist() == [0, 1]


def two_zones() -> Pools:
    return Pools(
        label_keys=("zone",),
        pools=(NodePool(labels={"zone": "a"}), NodePool(labels={"zone": "b"})),
        cells=cells_of((2, (4, 4, 9, 0)), (2, (4, 4, 9, 0)), pool=[0, 1]),
    )


def test_demands_are_packed_in_turn_into_the_pools_that_suit_them() -> None:
    in_a = ReplicaRequirements(
        request={"cpu": 3}, node_claim=NodeClaim(node_selector={"zone": "a"})
    )
    packed = pack_demands(
        two_zones(),
        [
            Demand(requirements=in_a, replicas=3),
            Demand(requirements=ReplicaRequirements(request={"cpu": 1}), replicas=2),
        ],
    )
    assert packed.unplaced == (1, 0)
    assert packed.pools.cells.pool_k.tolist() == [0, 1]
    assert left_of(packed.pools.cells) == [(2, (0, 4, 7, 0)), (2, (4, 4, 9, 0))]


def test_nothing_is_promised_on_a_label_that_pools_do_not_carry() -> None:
    claim = NodeClaim(node_selector={"disk": "ssd"})
    demand = Demand(requirements=ReplicaRequirements(node_claim=claim), replicas=1)
    assert pack_demands(two_zones(), [demand]).unplaced == (1,)


def test_sets_need_room_for_every_component() -> None:
    manager, workers = component(1, {"cpu": 2}), component(4, {"cpu": 1, "memory": 1})
    pools = Pools(label_keys=(), pools=(NodePool(),), cells=cells_of((100, (6, 100, 110, 0))))
    assert sets_that_fit(pools, [manager, workers]) == SetEstimate(sets=100)
    assert sets_that_fit(pools, [manager, workers], most=7) == SetEstimate(sets=7)
    assert sets_that_fit(pools, [component(0, {"cpu": 1})]) == SetEstimate(sets=0)
    assert sets_that_fit(pools, []) == SetEstimate(sets=0)
    assert sets_that_fit(pools, [manager, component(1, {"nvidia.com/gpu": 1})]).sets == 0


def test_components_go_to_the_pools_that_suit_each() -> None:
    parts = [component(1, {"cpu": 3}, "a"), component(1, {"cpu": 2}, "b")]
    assert sets_that_fit(two_zones(), parts) == SetEstimate(sets=2)


def test_sets_are_unknown_when_a_component_is() -> None:
    claim = NodeClaim(node_selector={"disk": "ssd"})
    unknown = Component(name="part", replicas=1, requirements=ReplicaRequirements(node_claim=claim))
    found = sets_that_fit(two_zones(), [component(1, {"cpu": 1}), unknown])
    assert not found.answered
    assert found.reason == "the cluster's pools do not tell nodes apart by disk"
