"""Pools of hand-made nodes, as reports have them. Must not decide what a test is about."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from federation.model.pools.values import Cells, NodePool, Pools

Free = tuple[int, ...]
RESOURCES = ("cpu", "memory", "pods")


def alike(count: int, free: Free) -> list[Free]:
    return [free] * count


def cells_of(
    groups: Sequence[Sequence[Free]],
    resources: Sequence[str] = RESOURCES,
    pool: Sequence[int] = (),
    allocatable: Sequence[Free] | None = None,
) -> Cells:
    """A cell of each group of nodes; ``allocatable`` has CPU and memory of a cell's nodes."""
    nodes = [np.array(group, np.int64).T for group in groups]
    return Cells(
        resources=tuple(resources),
        pool_k=np.array(pool or [0] * len(groups), np.int32),
        count_k=np.array([len(group) for group in groups], np.int64),
        min_rk=np.stack([each.min(axis=1) for each in nodes], axis=1),
        sum_rk=np.stack([each.sum(axis=1) for each in nodes], axis=1),
        max_rk=np.stack([each.max(axis=1) for each in nodes], axis=1),
        sum_exact_k=np.ones(len(groups), np.bool_),
        allocatable_rk=None if allocatable is None else np.array(allocatable, np.int64).T,
    )


def one_pool(cells: Cells, pool: NodePool | None = None, label_keys: Sequence[str] = ()) -> Pools:
    return Pools(label_keys=tuple(label_keys), pools=(pool or NodePool(),), cells=cells)
