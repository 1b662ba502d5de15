"""Pools and cells of a cluster: which keys are carried, what is exact, when cells are made anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from federation.model.cluster import Taint, TaintEffect
from federation.model.errors import InvalidRequest
from federation.model.pools.building import build_pools, partition_nodes
from federation.model.pools.refreshing import refresh_pools
from federation.model.pools.values import NodeColumn, NodeColumns, NodePool, Pools
from federation.model.resources import MAX_AMOUNT

GIB = 1 << 30
ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
NO_SCHEDULE = Taint(key="dedicated", value="ml", effect=TaintEffect.NO_SCHEDULE)


def nodes_of(
    free: Mapping[str, Sequence[int]],
    labels: Mapping[str, Sequence[str | None]] | None = None,
    taints: Sequence[tuple[Taint, ...]] | None = None,
) -> NodeColumns:
    size = len(next(iter(free.values())))
    rows = np.arange(size, dtype=np.int32)
    return NodeColumns(
        free={name: np.array(column, np.int64) for name, column in free.items()},
        taints=NodeColumn(values=taints or [()] * size, code_n=rows),
        labels={k: NodeColumn(values=values, code_n=rows) for k, values in (labels or {}).items()},
    )


def many_nodes(size: int, seed: int = 0) -> NodeColumns:
    random = np.random.default_rng(seed)
    return nodes_of(
        {
            "cpu": random.integers(0, 32_000, size).tolist(),
            "memory": random.integers(0, 128 * GIB, size).tolist(),
            "pods": random.integers(0, 110, size).tolist(),
        },
        {ZONE: [f"zone-{node % 3}" for node in range(size)]},
    )


def counts_of(pools: Pools) -> dict[tuple[int, ...], int]:
    cells = pools.cells
    return {tuple(cells.min_rk[:, k].tolist()): int(cells.count_k[k]) for k in range(len(cells))}


@pytest.mark.parametrize(
    ("free", "cells"),
    [
        # Equal nodes are one cell.
        (
            {"cpu": [4000, 4000, 500], "pods": [110, 110, 3]},
            {(500, 0, 3): 1, (4000, 0, 110): 2},
        ),
        # Amounts stay in bytes.
        ({"memory": [3 * GIB + 12_345], "pods": [1]}, {(0, 3 * GIB + 12_345, 1): 1}),
        # What a node is overdrawn of counts as none.
        (
            {"cpu": [-200, 100], "pods": [5, 5], "example.com/fpga": [0, -1]},
            {(0, 0, 5): 1, (100, 0, 5): 1},
        ),
    ],
)
def test_cells_of_nodes(free: dict[str, list[int]], cells: dict[tuple[int, ...], int]) -> None:
    pools = build_pools(nodes_of(free))
    assert pools.cells.resources == ("cpu", "memory", "pods")
    assert counts_of(pools) == cells
    assert pools.pools == (NodePool(),)
    assert pools.cells.sum_exact_k.all()


def test_resources_come_in_a_fixed_order_and_only_where_there_are_any() -> None:
    pools = build_pools(
        nodes_of({"nvidia.com/gpu": [8], "ephemeral-storage": [GIB], "pods": [1], "zzz.io/a": [0]})
    )
    assert pools.cells.resources == ("cpu", "memory", "pods", "ephemeral-storage", "nvidia.com/gpu")


def test_a_cluster_without_nodes_has_no_cells() -> None:
    nodes = nodes_of({"cpu": [], "pods": []})
    built = partition_nodes(nodes, 256, [ZONE])
    assert len(built.pools.cells) == 0
    assert built.pools.pools == ()
    assert len(refresh_pools(nodes, built.partition).pools.cells) == 0


def test_pools_are_nodes_with_equal_taints_and_labels() -> None:
    soft = replace(NO_SCHEDULE, effect=TaintEffect.PREFER_NO_SCHEDULE)
    later = replace(NO_SCHEDULE, time_added=12.0)
    pools = build_pools(
        nodes_of(
            {"cpu": [1000] * 5, "pods": [9] * 5},
            {ZONE: ["a", "b", None, "a", "a"]},
            [(), (soft,), (), (NO_SCHEDULE,), (later, later)],
        ),
        label_keys=[ZONE],
    )
    assert pools.label_keys == (ZONE,)
    # Soft taints keep nobody away, and when a taint was added makes no other pool of it.
    assert pools.pools == (
        NodePool(),
        NodePool(labels={ZONE: "a"}),
        NodePool(labels={ZONE: "b"}),
        NodePool(taints=(NO_SCHEDULE,), labels={ZONE: "a"}),
    )
    assert pools.cells.count_k.tolist() == [1, 1, 1, 2]
    assert pools.cells.pool_k.tolist() == [0, 1, 2, 3]


def test_a_key_that_makes_too_many_pools_does_not_cost_the_keys_after_it() -> None:
    size = 40
    nodes = nodes_of(
        {"cpu": [1000] * size, "pods": [9] * size},
        {
            HOST: [f"node-{node}" for node in range(size)],
            ZONE: [f"zone-{node % 4}" for node in range(size)],
            "arch": ["amd64", "arm64"] * (size // 2),
        },
    )
    assert build_pools(nodes, 16, [HOST, ZONE, "arch"]).label_keys == (ZONE, "arch")
    assert build_pools(nodes, 256, [HOST, ZONE]).label_keys == (HOST, ZONE)
    assert build_pools(nodes, 16, ["arch", "arch", "not-reported"]).label_keys == ("arch",)


def test_taints_make_pools_even_above_the_budget() -> None:
    taints = [(replace(NO_SCHEDULE, value=str(node)),) for node in range(20)]
    pools = build_pools(nodes_of({"cpu": [1] * 20, "pods": [1] * 20}, {}, taints), 16)
    assert len(pools.pools) == len(pools.cells) == 20


@pytest.mark.parametrize("budget", [16, 64, 256, 4096])
def test_the_budget_is_for_the_cluster_and_not_for_each_pool(budget: int) -> None:
    pools = build_pools(many_nodes(600), budget, [ZONE])
    assert len(pools.cells) == min(budget, 600)
    assert set(pools.cells.pool_k.tolist()) == {0, 1, 2}


@pytest.mark.parametrize("budget", [-1, 0, 15, 4097])
def test_a_budget_out_of_range_is_refused(budget: int) -> None:
    with pytest.raises(InvalidRequest, match=r"budget: .* 16\.\.4096"):
        build_pools(many_nodes(1), budget)


def test_sums_past_int64_are_known_to_be_at_least_the_greatest_number() -> None:
    pools = build_pools(nodes_of({"memory": [MAX_AMOUNT] * 3, "pods": [1] * 3}))
    assert pools.cells.sum_rk[1].tolist() == [MAX_AMOUNT]
    assert not pools.cells.sum_exact_k.any()


def test_a_refresh_keeps_cells_and_follows_some_changes_without_building_anew() -> None:
    nodes = many_nodes(900)
    built = partition_nodes(nodes, 64, [ZONE])
    same = refresh_pools(nodes, built.partition)
    assert counts_of(same.pools) == counts_of(built.pools)
    cpu = nodes.free["cpu"].copy()
    cpu[:20] //= 2
    changed = refresh_pools(replace(nodes, free={**nodes.free, "cpu": cpu}), built.partition)
    assert int(changed.pools.cells.sum_rk[0].sum()) == int(cpu.sum())
    assert len(changed.pools.cells) <= 64
    # A pool that was not there gets a cell.
    zone = nodes.labels[ZONE]
    new_zone = NodeColumn(values=["zone-new", *zone.values[1:]], code_n=zone.code_n)
    moved = refresh_pools(replace(nodes, labels={ZONE: new_zone}), built.partition)
    assert NodePool(labels={ZONE: "zone-new"}) in moved.pools.pools
    assert int(moved.pools.cells.count_k.sum()) == 900
    assert {each.partition is built.partition for each in (same, changed, moved)} == {True}


def test_a_worn_out_partition_and_a_new_resource_are_built_anew() -> None:
    nodes = many_nodes(900)
    built = partition_nodes(nodes, 64, [ZONE])
    worn = refresh_pools(many_nodes(900, seed=1), built.partition)
    assert worn.partition is not built.partition
    with_gpus = {**nodes.free, "nvidia.com/gpu": np.ones(900, dtype=np.int64)}
    refreshed = refresh_pools(replace(nodes, free=with_gpus), built.partition)
    assert "nvidia.com/gpu" in refreshed.pools.cells.resources
