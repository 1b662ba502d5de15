"""The node pools of a cluster: how much its nodes have free, as rectangles beside one another.

Must not know how they are drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from federation.capacity.cluster_room import Room
from federation.model.cluster import Taint
from federation.model.pools.values import Pools
from federation.model.resources import CPU, MEMORY

MOST_POOLS: Final = 50
MOST_RECTANGLES: Final = 60
WIDTH: Final = 100.0


class Rectangle(NamedTuple):
    """Nodes that have about the same free: as wide as they are many, filled as far as they have
    free beside what is promised, 0 to 1 of the emptiest node of the cluster.
    """

    x: float
    width: float
    free: float
    nodes: int
    cpu_millis: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPicture:
    """One pool. ``free`` is by resource what its nodes have in all by the report, ``left`` what
    promises leave of it, as far as that is proven.
    """

    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    nodes: int
    free: Mapping[str, int]
    left: Mapping[str, int]
    rectangles: tuple[Rectangle, ...]


def pool_pictures(room: Room) -> tuple[PoolPicture, ...]:
    """The pools with most nodes, at most ``MOST_POOLS``."""
    reported, filled = room.pools, room.filled
    cpu = filled.cells.resources.index(CPU) if CPU in filled.cells.resources else None
    most = (
        int(reported.cells.max_rk[reported.cells.resources.index(CPU)].max(initial=1))
        if (cpu is not None)
        else 1
    )
    pictures = [
        PoolPicture(
            labels=pool.labels,
            taints=pool.taints,
            nodes=_nodes(reported, position),
            free=_free(reported, position),
            left=_free(filled, position),
            rectangles=_rectangles(filled, position, cpu, max(1, most)),
        )
        for position, pool in enumerate(reported.pools)
    ]
    return tuple(sorted(pictures, key=lambda each: -each.nodes)[:MOST_POOLS])


def common_labels(pools: Sequence[PoolPicture]) -> Mapping[str, str]:
    """What does not tell one pool from another; of one pool alone nothing."""
    if len(pools) < 2:
        return {}
    return dict(set.intersection(*({*each.labels.items()} for each in pools)))


def _nodes(pools: Pools, position: int) -> int:
    return int(pools.cells.count_k[pools.cells.pool_k == position].sum())


def _free(pools: Pools, position: int) -> Mapping[str, int]:
    """The least that the nodes of a pool have in all, of cpu and memory."""
    cells = pools.cells
    of_pool_k = cells.pool_k == position
    return {
        name: int((cells.min_rk[row, of_pool_k] * cells.count_k[of_pool_k]).sum())
        for row, name in enumerate(cells.resources)
        if name in (CPU, MEMORY)
    }


def _rectangles(pools: Pools, position: int, cpu: int | None, most: int) -> tuple[Rectangle, ...]:
    """The cells of a pool, the emptiest first; beyond so many the rest is one."""
    cells = pools.cells
    if cpu is None:
        return ()
    place_k = np.flatnonzero((cells.pool_k == position) & (cells.count_k > 0))
    place_k = place_k[np.argsort(-cells.min_rk[cpu, place_k], kind="stable")]
    parts = [(int(cells.count_k[k]), int(cells.min_rk[cpu, k])) for k in place_k[:MOST_RECTANGLES]]
    rest = place_k[MOST_RECTANGLES:]
    if len(rest):
        parts.append((int(cells.count_k[rest].sum()), int(cells.min_rk[cpu, rest].min())))
    nodes = max(1, sum(count for count, _ in parts))
    made, x = [], 0.0
    for count, free in parts:
        width = WIDTH * count / nodes
        made.append(Rectangle(x, width, min(1.0, free / most), count, free))
        x += width
    return tuple(made)
