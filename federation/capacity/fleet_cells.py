"""Reported cells of all clusters as flat arrays, in blocks of clusters that fit a core's cache.

Pure. Must not estimate anything; ``federation.capacity.pool_estimates`` does.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, count, islice
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from federation.capacity.pool_kinds import pool_identity
from federation.model.arrays import BoolArray, IntArray, LevelArray
from federation.model.pools.matching import Match, pool_match
from federation.model.pools.values import Cells, NodePool, Pools
from federation.model.positions import GONE, Moves
from federation.model.workload import NodeClaim

# 128 KiB for each resource in int64: one pass stays within a core's own cache.
CELLS_A_TABLE: Final = 16_384
# With 256 cells each, the default of agents.
CLUSTERS_A_BLOCK: Final = 64
# A block that grew beyond this is divided.
_MAX_A_BLOCK: Final = 96
# Claims whose verdicts a block caches.
_MAX_CACHED_CLAIMS: Final = 256
# Moves of clusters that lazy cells replay; after more, all cells are made again.
_MAX_MOVES: Final = 32
# The cells of a cluster without any: one of no nodes.
_NO_CELLS: Final = Cells(
    resources=(),
    pool_k=np.zeros(1, dtype=np.int32),
    count_k=np.zeros(1, dtype=np.int64),
    min_rk=np.zeros((0, 1), dtype=np.int64),
    sum_rk=np.zeros((0, 1), dtype=np.int64),
    max_rk=np.zeros((0, 1), dtype=np.int64),
    sum_exact_k=np.ones(1, dtype=np.bool_),
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CarriedPool:
    """A pool, and the label keys that all pools of its cluster carry."""

    pool: NodePool
    label_keys: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UnevenCells:
    """Cells of a table whose nodes differ in their amounts (axis u).

    ``place_u`` is the column of each in the table.
    """

    place_u: npt.NDArray[np.intp]
    cells: Cells

    @classmethod
    def of(cls, cells: Cells) -> UnevenCells:
        place_u = np.flatnonzero((cells.min_rk != cells.max_rk).any(axis=0))
        return cls(
            place_u=place_u,
            cells=Cells(
                resources=cells.resources,
                pool_k=cells.pool_k.take(place_u),
                count_k=cells.count_k.take(place_u),
                min_rk=cells.min_rk.take(place_u, axis=1),
                sum_rk=cells.sum_rk.take(place_u, axis=1),
                max_rk=cells.max_rk.take(place_u, axis=1),
                sum_exact_k=cells.sum_exact_k.take(place_u),
            ),
        )

    def __len__(self) -> int:
        return len(self.place_u)

    def at(self, place_j: npt.NDArray[np.intp], names: Collection[str]) -> Cells:
        """Return some of the cells (axis j), with the named resources only."""
        cells = self.cells
        rows = [cells.resources.index(name) for name in names] if len(place_j) else []

        def picked(amount_rk: IntArray) -> IntArray:
            some_rj = np.zeros((len(names), len(place_j)), dtype=np.int64)
            for target, row in enumerate(rows):
                amount_rk[row].take(place_j, out=some_rj[target], mode="clip")
            return some_rj

        return Cells(
            resources=tuple(names),
            pool_k=cells.pool_k.take(place_j),
            count_k=cells.count_k.take(place_j),
            min_rk=picked(cells.min_rk),
            sum_rk=picked(cells.sum_rk),
            max_rk=picked(cells.max_rk),
            sum_exact_k=cells.sum_exact_k.take(place_j),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CellBlock:
    """Neighbouring clusters of a fleet (axis c), and all their cells (axis k) in one table.

    ``start`` is the position of the first cluster in the fleet. Cluster c has ``size_c[c]`` cells
    from ``first_c[c]`` on, at least one: a cell of no nodes where it reported none. ``cluster_k``
    is the cluster of each cell. ``cells.pool_k`` indexes ``pools``, which equal pools of several
    clusters share; ``places`` finds a pool by its identity. ``cached_verdicts`` are verdicts on
    the pools by the key of a claim. ``reported_c`` is false for a cluster without pools.
    ``uneven`` are the cells whose nodes differ.
    """

    start: int
    reported_c: BoolArray
    first_c: IntArray
    size_c: IntArray
    cluster_k: IntArray
    pools: tuple[CarriedPool, ...]
    places: Mapping[Hashable, int]
    cells: Cells
    uneven: UnevenCells
    cached_verdicts: dict[Hashable, LevelArray | None] = field(default_factory=dict)

    @property
    def here(self) -> slice:
        """The positions of its clusters in the fleet."""
        return slice(self.start, self.start + len(self))

    def cell_verdicts(self, claim: NodeClaim | None) -> LevelArray | None:
        """Return the verdict on each cell (axis k); None where all match, the usual case."""
        verdict_p = self.pool_verdicts(claim)
        return None if verdict_p is None else verdict_p[self.cells.pool_k]

    def pool_verdicts(self, claim: NodeClaim | None) -> LevelArray | None:
        """Return the verdict on each pool (axis p); None where all match."""
        key, cached = claim and claim.key, self.cached_verdicts
        try:
            return cached[key]
        except KeyError:
            pass
        verdicts = [pool_match(carried.pool, carried.label_keys, claim) for carried in self.pools]
        is_yes = all(verdict is Match.YES for verdict in verdicts)
        verdict_p = None if is_yes else np.array(verdicts, dtype=np.int8)
        if len(cached) >= _MAX_CACHED_CLAIMS:
            cached.clear()
        cached[key] = verdict_p
        return verdict_p

    def __len__(self) -> int:
        return len(self.first_c)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FleetCells:
    """The pools of a fleet's clusters by position, None where unreported, and their blocks.

    Blocks never change: a result computed from a block holds while the block is in the fleet.
    A result for one cluster holds as long as its number in ``version_c`` is the same, which no
    other pools have in any fleet.
    """

    pools: tuple[Pools | None, ...]
    blocks: tuple[CellBlock, ...]
    version_c: IntArray

    @classmethod
    def of(cls, pools: Iterable[Pools | None]) -> FleetCells:
        pools = tuple(pools)
        return cls(
            pools=pools,
            blocks=tuple(_blocks(pools, 0, len(pools))),
            version_c=_new_versions(len(pools)),
        )

    def with_clusters(self, changes: Mapping[int, Pools | None]) -> FleetCells:
        """Replace the pools at some positions; only the blocks of these are made again."""
        pools = list(self.pools)
        for position, newer in changes.items():
            pools[position] = newer
        blocks, starts = list(self.blocks), [block.start for block in self.blocks]
        changed = defaultdict[int, list[int]](list)
        for position in sorted(changes):
            changed[bisect_right(starts, position) - 1].append(position)
        for place, positions in changed.items():
            blocks[place] = _changed_block(blocks[place], pools, positions)
        version_c = self.version_c.copy()
        version_c[list(changes)] = _new_versions(len(changes))
        return FleetCells(pools=tuple(pools), blocks=tuple(blocks), version_c=version_c)

    def after(self, moves: Moves) -> FleetCells:
        """Follow clusters that left and joined; new clusters have no pools.

        Blocks without changes only move, and keep the same ``cells``.
        """
        pools = moves.items(self.pools, (None,) * len(moves.added))
        sizes = [len(block) for block in self.blocks] or [0]
        changed = set[int]()
        starts = list(accumulate(sizes, initial=0))
        for position in moves.removed:
            place = bisect_right(starts, position) - 1
            sizes[place] -= 1
            changed.add(place)
        for position in moves.added:
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
        version_c = moves.array(self.version_c, _new_versions(len(moves.added)))
        return FleetCells(pools=pools, blocks=tuple(blocks), version_c=version_c)

    @property
    def nodes_c(self) -> IntArray:
        """The number of nodes in pools, by cluster."""
        counts = [np.add.reduceat(block.cells.count_k, block.first_c) for block in self.blocks]
        return np.concatenate([np.zeros(0, dtype=np.int64), *counts])

    def __len__(self) -> int:
        return len(self.pools)


@dataclass(slots=True, eq=False)
class LazyCells:
    """The cells of all clusters, made on the first read.

    ``earlier`` has the cells of an earlier fleet, and the changes and moves since. It is replaced
    as one value, because several threads may read a fleet.
    """

    earlier: tuple[FleetCells, tuple[Moves | frozenset[int], ...]] | None = None

    def after(self, changed: Iterable[int]) -> LazyCells:
        """Follow changes of the pools at some positions."""
        if self.earlier is None:
            return LazyCells()
        cells, later = self.earlier
        newest = later[-1] if later else None
        if isinstance(newest, frozenset):
            return LazyCells((cells, (*later[:-1], newest.union(changed))))
        return LazyCells((cells, (*later, frozenset(changed))))

    def moved(self, moves: Moves) -> LazyCells:
        """Follow clusters that left and joined."""
        if self.earlier is None or len(self.earlier[1]) >= _MAX_MOVES:
            return LazyCells()
        cells, later = self.earlier
        return LazyCells((cells, (*later, moves)))

    def cells(self, size: int, pools_at: Callable[[int], Pools | None]) -> FleetCells:
        """Return the cells of ``size`` clusters; ``pools_at`` has the pools that changed."""
        if self.earlier is None:
            cells = FleetCells.of(pools_at(position) for position in range(size))
        else:
            cells, later = self.earlier
            stale = set[int]()
            for change in later:
                if isinstance(change, Moves):
                    moved_c = change.positions(len(cells))
                    stale = {int(moved_c[c]) for c in stale} - {GONE}
                    cells = cells.after(change)
                else:
                    stale |= change
            if stale:
                cells = cells.with_clusters({c: pools_at(c) for c in sorted(stale)})
        self.earlier = cells, ()
        return cells


_NUMBERS: Final = count()


def _new_versions(clusters: int) -> IntArray:
    return np.fromiter(islice(_NUMBERS, clusters), dtype=np.int64, count=clusters)


def _blocks(pools: Sequence[Pools | None], start: int, stop: int) -> list[CellBlock]:
    """Put neighbouring clusters into one block, or into several where they are too many."""
    size = stop - start if stop - start <= _MAX_A_BLOCK else CLUSTERS_A_BLOCK
    return [
        _block(pools, first, min(first + size, stop)) for first in range(start, stop, size or 1)
    ]


class _Piece(NamedTuple):
    """Neighbouring clusters on their way into a block.

    ``pool_k`` is the place of each cell's pool in the block, ``size_c`` the number of cells.
    """

    cells: Cells
    pool_k: npt.NDArray[np.int32]
    size_c: IntArray
    reported_c: BoolArray


def _block(pools: Sequence[Pools | None], start: int, stop: int) -> CellBlock:
    carried: dict[Hashable, CarriedPool] = {}
    for cluster_pools in pools[start:stop]:
        carried |= _carried(cluster_pools)
    places = {identity: place for place, identity in enumerate(carried)}
    pieces = [_piece(cluster_pools, places) for cluster_pools in pools[start:stop]]
    return _assembled(start, pieces, tuple(carried.values()), places)


def _changed_block(
    block: CellBlock, pools: Sequence[Pools | None], positions: Sequence[int]
) -> CellBlock:
    """Return the block after the pools at some positions changed.

    Runs of unchanged clusters are copied as they are, unless there is a pool new to the block.
    """
    if any(_carried(pools[position]).keys() - block.places.keys() for position in positions):
        return _block(pools, block.start, block.here.stop)
    pieces, start = [], 0
    for position in positions:
        place = position - block.start
        if place > start:
            pieces.append(_run(block, start, place))
        pieces.append(_piece(pools[position], block.places))
        start = place + 1
    if start < len(block):
        pieces.append(_run(block, start, len(block)))
    return _assembled(block.start, pieces, block.pools, block.places)


def _run(block: CellBlock, start: int, stop: int) -> _Piece:
    last = stop - 1
    columns = slice(int(block.first_c[start]), int(block.first_c[last] + block.size_c[last]))
    cells = block.cells.between(columns)
    return _Piece(cells, cells.pool_k, block.size_c[start:stop], block.reported_c[start:stop])


def _piece(pools: Pools | None, places: Mapping[Hashable, int]) -> _Piece:
    if pools is None or not len(pools.cells):
        cells, place_p = _NO_CELLS, [0]
    else:
        cells, place_p = pools.cells, [places[identity] for identity in _identities(pools)]
    return _Piece(
        cells=cells,
        pool_k=np.array(place_p, dtype=np.int32)[cells.pool_k],
        size_c=np.array([len(cells)], dtype=np.int64),
        reported_c=np.array([pools is not None]),
    )


def _assembled(
    start: int,
    pieces: Sequence[_Piece],
    pools: tuple[CarriedPool, ...],
    places: Mapping[Hashable, int],
) -> CellBlock:
    size_c = np.concatenate([piece.size_c for piece in pieces])
    cells = side_by_side(
        [piece.cells for piece in pieces], np.concatenate([piece.pool_k for piece in pieces])
    )
    return CellBlock(
        start=start,
        reported_c=np.concatenate([piece.reported_c for piece in pieces]),
        first_c=np.cumsum(size_c) - size_c,
        size_c=size_c,
        cluster_k=np.arange(len(size_c)).repeat(size_c),
        pools=pools,
        places=places,
        cells=cells,
        uneven=UnevenCells.of(cells),
    )


def _carried(pools: Pools | None) -> dict[Hashable, CarriedPool]:
    """Return the pools of a cluster that has cells, by their identity in a block."""
    if pools is None or not len(pools.cells):
        return {}
    return {
        identity: CarriedPool(pool=pool, label_keys=pools.label_keys)
        for identity, pool in zip(_identities(pools), pools.pools, strict=True)
    }


def _identities(pools: Pools) -> list[Hashable]:
    return [pool_identity(pool, pools.label_keys) for pool in pools.pools]


def side_by_side(tables: Sequence[Cells], pool_k: npt.NDArray[np.int32]) -> Cells:
    """Join the cells of several clusters in one table; absent resources are 0."""
    names = tuple(dict.fromkeys(name for cells in tables for name in cells.resources))
    return Cells(
        resources=names,
        pool_k=pool_k,
        count_k=np.concatenate([cells.count_k for cells in tables]),
        min_rk=_rows(names, [(cells.resources, cells.min_rk) for cells in tables]),
        sum_rk=_rows(names, [(cells.resources, cells.sum_rk) for cells in tables]),
        max_rk=_rows(names, [(cells.resources, cells.max_rk) for cells in tables]),
        sum_exact_k=np.concatenate([cells.sum_exact_k for cells in tables]),
    )


def _rows(names: tuple[str, ...], amounts: Iterable[tuple[tuple[str, ...], IntArray]]) -> IntArray:
    """Join the amounts of several clusters, whose rows differ, in rows by name."""
    tables = []
    for resources, amount_rk in amounts:
        if resources == names:
            tables.append(amount_rk)
            continue
        table_rk = np.zeros((len(names), amount_rk.shape[1]), dtype=np.int64)
        table_rk[[names.index(name) for name in resources]] = amount_rk
        tables.append(table_rk)
    return np.concatenate(tables, axis=1)
