"""The cells of all clusters as flat arrays, in blocks of clusters small enough for the cache.

Pure. Must not estimate anything; ``federation.capacity.pool_estimates`` does.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from federation.model.arrays import BoolArray, IntArray
from federation.model.pools.values import Cells, NodePool, Pools
from federation.model.positions import Moves

# 64 clusters of 256 cells take 128 KiB a resource: a pass stays within a core's own cache.
CLUSTERS_A_BLOCK: Final = 64
# Where clusters came, before the block is divided.
_MOST_A_BLOCK: Final = 96


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CarriedPool:
    """A pool and the label keys that its cluster's pools carry."""

    pool: NodePool
    label_keys: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CellBlock:
    """Some neighbouring clusters of a fleet, axis c, and all their cells in one table.

    ``start`` is the position of the first cluster in the fleet. The cells of cluster c begin at
    ``first_c``, and ``cluster_k`` says whose each is; every cluster has at least one, if need be of
    no nodes. ``cells.pool_k`` are positions in ``pools``, where clusters share what is equal;
    ``known_verdicts`` are on those, by the key of a claim. ``reported_c`` is false where a cluster
    has no pools.
    """

    start: int
    reported_c: BoolArray
    first_c: IntArray
    cluster_k: IntArray
    pools: tuple[CarriedPool, ...]
    cells: Cells
    known_verdicts: dict[Hashable, npt.NDArray[np.int8] | None] = field(default_factory=dict)

    @property
    def here(self) -> slice:
        """Where its clusters stand in the fleet."""
        return slice(self.start, self.start + len(self))

    def __len__(self) -> int:
        return len(self.first_c)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FleetCells:
    """The pools of a fleet's clusters (None where one reported none), by position, and as blocks.

    Blocks are never changed: what was computed from one holds as long as it is part of the fleet.
    """

    pools: tuple[Pools | None, ...]
    blocks: tuple[CellBlock, ...]

    @classmethod
    def of(cls, pools: Iterable[Pools | None]) -> FleetCells:
        pools = tuple(pools)
        return cls(pools=pools, blocks=tuple(_blocks(pools, 0, len(pools))))

    def with_clusters(self, changes: Mapping[int, Pools | None]) -> FleetCells:
        """The same fleet with newer pools at some positions; only their blocks are made again."""
        pools = list(self.pools)
        for position, newer in changes.items():
            pools[position] = newer
        blocks, starts = list(self.blocks), [block.start for block in self.blocks]
        for place in {bisect_right(starts, position) - 1 for position in changes}:
            blocks[place] = _block(pools, starts[place], starts[place] + len(blocks[place]))
        return FleetCells(pools=tuple(pools), blocks=tuple(blocks))

    def after(self, moves: Moves) -> FleetCells:
        """Of the fleet after clusters left and came, newcomers without pools; blocks of others
        only move, with the same ``cells``.
        """
        pools = moves.items(self.pools, (None,) * len(moves.taken))
        sizes = [len(block) for block in self.blocks] or [0]
        changed = set[int]()
        starts = list(accumulate(sizes, initial=0))
        for position in moves.left:
            place = bisect_right(starts, position) - 1
            sizes[place] -= 1
            changed.add(place)
        for position in moves.taken:
            starts = list(accumulate(sizes, initial=0))[: len(sizes)]
            place = bisect_right(starts, position) - 1
            sizes[place] += 1
            changed.add(place)
        blocks: list[CellBlock] = []
        start = 0
        for place, size in enumerate(sizes):
            if place in changed:
                blocks += _blocks(pools, start, start + size)
            else:
                blocks.append(replace(self.blocks[place], start=start))
            start += size
        return FleetCells(pools=pools, blocks=tuple(blocks))

    def __len__(self) -> int:
        return len(self.pools)


_Identity: TypeAlias = tuple[object, ...]


def _blocks(pools: Sequence[Pools | None], start: int, stop: int) -> list[CellBlock]:
    """Some neighbouring clusters in one block, or in several where they are too many for one."""
    size = stop - start if stop - start <= _MOST_A_BLOCK else CLUSTERS_A_BLOCK
    return [
        _block(pools, first, min(first + size, stop)) for first in range(start, stop, size or 1)
    ]


def _block(pools: Sequence[Pools | None], start: int, stop: int) -> CellBlock:
    clusters = pools[start:stop]
    sizes = [1 if each is None else max(len(each.cells), 1) for each in clusters]
    stop_c = np.cumsum(sizes, dtype=np.int64)
    names = dict.fromkeys(
        name for each in clusters if each is not None for name in each.cells.resources
    )
    table = _Table(tuple(names), int(stop_c[-1]))
    shared: dict[_Identity, int] = {}
    carried: list[CarriedPool] = []
    for first, each in zip((stop_c - sizes).tolist(), clusters, strict=True):
        if each is None or len(each.cells) == 0:
            continue
        places = []
        for pool in each.pools:
            identity = (pool.taints, each.label_keys, *sorted(pool.labels.items()))
            place = shared.setdefault(identity, len(carried))
            if place == len(carried):
                carried.append(CarriedPool(pool=pool, label_keys=each.label_keys))
            places.append(place)
        table.write(first, each.cells, np.array(places, dtype=np.int32))
    return CellBlock(
        start=start,
        reported_c=np.array([each is not None for each in clusters]),
        first_c=stop_c - sizes,
        cluster_k=np.arange(len(sizes)).repeat(sizes),
        pools=tuple(carried),
        cells=table.sealed(),
    )


class _Table:
    """The cells of several clusters while they are written; what none writes has no nodes."""

    def __init__(self, resources: tuple[str, ...], size: int) -> None:
        self._resources = resources
        self._pool_k = np.zeros(size, dtype=np.int32)
        self._count_k = np.zeros(size, dtype=np.int64)
        self._amounts_trk = np.zeros((3, len(resources), size), dtype=np.int64)
        self._sum_exact_k = np.ones(size, dtype=np.bool_)

    def write(self, first: int, cells: Cells, place_p: np.ndarray) -> None:
        span = slice(first, first + len(cells))
        self._pool_k[span] = place_p[cells.pool_k]
        self._count_k[span] = cells.count_k
        self._sum_exact_k[span] = cells.sum_exact_k
        for row, name in enumerate(cells.resources):
            place = self._resources.index(name)
            for amounts_rk, given_rk in zip(
                self._amounts_trk, (cells.min_rk, cells.sum_rk, cells.max_rk), strict=True
            ):
                amounts_rk[place, span] = given_rk[row]

    def sealed(self) -> Cells:
        min_rk, sum_rk, max_rk = self._amounts_trk
        return Cells(
            resources=self._resources,
            pool_k=self._pool_k,
            count_k=self._count_k,
            min_rk=min_rk,
            sum_rk=sum_rk,
            max_rk=max_rk,
            sum_exact_k=self._sum_exact_k,
        )
