"""Cells of some clusters of a fleet in one table, with the resources of a question only.

Pure. Must not estimate anything.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self, TypeVar

import numpy as np
import numpy.typing as npt

from federation.capacity.fleet_cells import CELLS_A_TABLE, CellBlock, FleetCells
from federation.model.arrays import IntArray, LevelArray
from federation.model.pools.matching import Match
from federation.model.pools.values import Cells
from federation.model.workload import NodeClaim

_Amount = TypeVar("_Amount", bound=np.generic)


class _Piece(NamedTuple):
    """Cells of some clusters of one block: ``source`` columns of its table, ``target`` of ours."""

    block: CellBlock
    source: IntArray | slice
    target: slice

    def copy(self, amount_k: npt.NDArray[_Amount], some_k: npt.NDArray[_Amount]) -> None:
        """Copy a value of the block's cells to our columns."""
        if isinstance(self.source, slice):
            some_k[self.target] = amount_k[self.source]
        else:
            amount_k.take(self.source, out=some_k[self.target], mode="clip")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SomeClusters:
    """Cells (axis k) of clusters (axis c), which are at ``position_c`` in their fleet.

    The cells of cluster c begin at ``first_c``; ``cluster_k`` is the cluster of each cell.
    ``cells`` has a row for each named resource and no pools; sums and maximums are empty unless
    requested. ``verdict_k`` None: all cells suit the claim.
    """

    position_c: IntArray
    first_c: IntArray
    cluster_k: IntArray
    cells: Cells
    verdict_k: LevelArray | None

    @classmethod
    def of(
        cls,
        cells: FleetCells,
        position_c: IntArray,
        names: Collection[str],
        claim: NodeClaim | None,
        *,
        with_sums: bool,
    ) -> Self:
        """Copy the clusters at some positions, at least one, in ascending order."""
        pieces, size_c = _pieces(cells, position_c)
        cell_count = pieces[-1].target.stop
        count_k = np.empty(cell_count, dtype=np.int64)
        sum_exact_k = np.ones(cell_count, dtype=np.bool_)
        for piece in pieces:
            piece.copy(piece.block.cells.count_k, count_k)
            piece.copy(piece.block.cells.sum_exact_k, sum_exact_k)

        def rows(amounts: Callable[[Cells], IntArray]) -> IntArray:
            some_rk = np.zeros((len(names), cell_count), dtype=np.int64)
            for piece in pieces:
                amount_rk, resources = amounts(piece.block.cells), piece.block.cells.resources
                for row, name in enumerate(names):
                    if name in resources:
                        piece.copy(amount_rk[resources.index(name)], some_rk[row])
            return some_rk

        nothing_rk = np.zeros((0, cell_count), dtype=np.int64)
        return cls(
            position_c=position_c,
            first_c=np.cumsum(size_c) - size_c,
            cluster_k=np.arange(len(size_c)).repeat(size_c),
            cells=Cells(
                resources=tuple(names),
                pool_k=np.zeros(0, dtype=np.int32),
                count_k=count_k,
                min_rk=rows(lambda table: table.min_rk),
                sum_rk=rows(lambda table: table.sum_rk) if with_sums else nothing_rk,
                max_rk=rows(lambda table: table.max_rk) if with_sums else nothing_rk,
                sum_exact_k=sum_exact_k,
            ),
            verdict_k=_verdicts(pieces, claim, cell_count),
        )

    def suiting(self, amount_k: IntArray) -> IntArray:
        """Set the value to 0 in cells that do not suit the claim."""
        return amount_k if self.verdict_k is None else amount_k * (self.verdict_k == Match.YES)

    def __len__(self) -> int:
        return len(self.first_c)


def in_tables(cells: FleetCells, position_c: IntArray) -> Sequence[IntArray]:
    """Divide positions, ascending, into parts whose cells fit a core's cache."""
    if not len(position_c):
        return []
    size_c = np.concatenate([block.size_c for block in cells.blocks])[position_c]
    table_c = np.cumsum(size_c) // CELLS_A_TABLE
    return np.split(position_c, np.flatnonzero(np.diff(table_c)) + 1)


def _pieces(cells: FleetCells, position_c: IntArray) -> tuple[list[_Piece], IntArray]:
    """Return where the cells of clusters stand, and how many each has."""
    pieces, sizes, start = [], [], 0
    for block, place_c in _places(cells, position_c):
        size_c = block.size_c.take(place_c)
        source, cell_count = _cells_of(block, place_c, size_c)
        pieces.append(_Piece(block, source, slice(start, start + cell_count)))
        sizes.append(size_c)
        start += cell_count
    return pieces, np.concatenate(sizes)


def _cells_of(
    block: CellBlock, place_c: IntArray, size_c: IntArray
) -> tuple[IntArray | slice, int]:
    """Return the columns of a block's clusters, and their number.

    Neighbours are one slice, which is copied four times as fast.
    """
    first, cell_count = int(block.first_c[place_c[0]]), int(size_c.sum())
    if place_c[-1] - place_c[0] + 1 == len(place_c):
        return slice(first, first + cell_count), cell_count
    before_c = np.cumsum(size_c) - size_c
    index_k = (block.first_c.take(place_c) - before_c).repeat(size_c)
    index_k += np.arange(cell_count)
    return index_k, cell_count


def _places(cells: FleetCells, position_c: IntArray) -> Iterator[tuple[CellBlock, IntArray]]:
    """Yield the blocks of the clusters, and their places in each."""
    stops = position_c.searchsorted([block.here.stop for block in cells.blocks]).tolist()
    first = 0
    for block, stop in zip(cells.blocks, stops, strict=True):
        if stop > first:
            yield block, position_c[first:stop] - block.start
        first = stop


def _verdicts(pieces: list[_Piece], claim: NodeClaim | None, cell_count: int) -> LevelArray | None:
    verdicts = [(piece, piece.block.cell_verdicts(claim)) for piece in pieces]
    if all(verdict_k is None for _, verdict_k in verdicts):
        return None
    some_k = np.full(cell_count, Match.YES, dtype=np.int8)
    for piece, verdict_k in verdicts:
        if verdict_k is not None:
            piece.copy(verdict_k, some_k)
    return some_k
