"""Free cells: what outstanding promises leave of the cells of several clusters, in one table.

Pure values. Must not pack: ``packing`` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from federation.model.arrays import BoolArray, FloatArray, IntArray
from federation.model.pools.cell_order import size_k, weight_r1
from federation.model.pools.values import Cells
from federation.model.resources import MAX_AMOUNT


class View(IntEnum):
    """How pods are placed: FILLED is best fit, into small holes first; SPREAD is by turns."""

    FILLED = 0
    SPREAD = 1


VIEWS: Final = len(View)


# The rows of a table above its amounts. COUNT: nodes; SIZE: free amounts as one number; POOL: its
# position in the cluster; ORIGIN: the reported cell; KIND: the kind of the pool in the fleet.
COUNT: Final = 0
SIZE: Final = 1
POOL: Final = 2
ORIGIN: Final = 3
KIND: Final = 4
AMOUNTS: Final = 5

# A packing splits at most one cell of a segment, into three pieces: two more columns.
PIECES: Final = 2
_VIEWS: Final = np.arange(VIEWS)
# Bits of an origin and of a size in a sort key; a cluster has fewer than 2**32 cells.
_ORIGIN_BITS: Final = 32
_SIZE_BITS: Final = 30
# Sums below this fit in int64.
_SAFE: Final = 2.0**62


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FreeCells:
    """Free cells of clusters (axis c), in one segment (axis s) for each view of each cluster.

    ``table_xk`` has a column for each cell (axis k). Its first rows (axis x) are named above, the
    others are the minimums of ``resources`` (axis r) over the nodes of the cell. Segment s
    begins at column ``first_s[s]`` and uses ``used_s[s]`` columns. The columns from there to
    ``first_s[s + 1]``, at least one, are spare and all zero. Cell sizes are amounts weighted by
    ``weight_rc``: shares of the cluster's reported total, at most 1 a cell. Arrays are read-only.
    """

    resources: tuple[str, ...]
    table_xk: IntArray
    first_s: IntArray
    used_s: IntArray
    weight_rc: FloatArray

    def __len__(self) -> int:
        return len(self.used_s) // VIEWS

    @property
    def amount_rk(self) -> IntArray:
        return self.table_xk[AMOUNTS:]

    @property
    def capacity_s(self) -> IntArray:
        return self.first_s[1:] - self.first_s[:-1]

    def with_used(self, used_s: IntArray) -> FreeCells:
        """Return the same table with other numbers of used columns."""
        return FreeCells(
            resources=self.resources,
            table_xk=self.table_xk,
            first_s=self.first_s,
            used_s=used_s,
            weight_rc=self.weight_rc,
        )


def unpacked_cells(reported: Sequence[Cells], kinds: Sequence[IntArray]) -> FreeCells:
    """Return the reported cells of clusters with nothing packed: both views are equal.

    ``kinds`` has the kind of each pool of each cluster.
    """
    resources = tuple(dict.fromkeys(name for cells in reported for name in cells.resources))
    size_c = np.array([len(cells) for cells in reported], dtype=np.int64)
    first_c, cluster_k = _starts(size_c), np.arange(len(reported)).repeat(size_c)
    table_xk = np.zeros((AMOUNTS + len(resources), len(cluster_k)), dtype=np.int64)
    weight_rc = np.zeros((len(resources), len(reported)), dtype=np.float64)
    table_xk[COUNT] = np.concatenate([cells.count_k for cells in reported])
    table_xk[POOL] = np.concatenate([cells.pool_k for cells in reported])
    table_xk[KIND] = _kinds_of(table_xk[POOL], cluster_k, kinds)
    table_xk[ORIGIN] = np.arange(len(cluster_k)) - first_c[cluster_k]
    for place, (cells, first) in enumerate(zip(reported, first_c.tolist(), strict=False)):
        part_rk = table_xk[AMOUNTS:, first : first + len(cells)]
        if cells.resources == resources:
            part_rk[:] = cells.min_rk
            weight_rc[:, place] = weight_r1(cells)[:, 0]
        else:
            row_r = [resources.index(name) for name in cells.resources]
            part_rk[row_r] = cells.min_rk
            weight_rc[row_r, place] = weight_r1(cells)[:, 0]
    table_xk[SIZE] = size_k(table_xk[AMOUNTS:], weight_rc[:, cluster_k])
    order_k = np.argsort(table_xk[SIZE] | (cluster_k << _SIZE_BITS), kind="stable")
    order_k = order_k[table_xk[COUNT, order_k] > 0]
    return _in_both_views(resources, table_xk[:, order_k], cluster_k[order_k], weight_rc)


def _in_both_views(
    resources: tuple[str, ...],
    cells_xk: IntArray,
    cluster_k: IntArray,
    weight_rc: FloatArray,
) -> FreeCells:
    """Copy the columns of each cluster into both views, with spare columns."""
    used_c = np.bincount(cluster_k, minlength=weight_rc.shape[1])
    first_s = _starts((used_c + _spare(used_c)).repeat(VIEWS))
    rank_k = np.arange(len(cluster_k)) - _starts(used_c)[cluster_k]
    table_xk = np.zeros((len(cells_xk), int(first_s[-1])), dtype=np.int64)
    for view in View:
        table_xk[:, first_s[cluster_k * VIEWS + view] + rank_k] = cells_xk
    return FreeCells(
        resources=resources,
        table_xk=table_xk,
        first_s=first_s,
        used_s=used_c.repeat(VIEWS),
        weight_rc=weight_rc,
    )


def gathered(sources: Sequence[tuple[FreeCells, npt.ArrayLike]]) -> FreeCells:
    """Copy some clusters of each source, side by side, into a table that only the caller has.

    Each segment gets spare columns for one packing. Where it had too few, equal cells are merged.
    The spare columns grow with the segment, so that the cost of copies is amortised.
    """
    resources = tuple(
        dict.fromkeys(name for free_cells, _ in sources for name in free_cells.resources)
    )
    picks = [_picked(free_cells, np.asarray(places), resources) for free_cells, places in sources]
    return FreeCells(
        resources=resources,
        table_xk=np.concatenate([part for pick in picks for part in pick.parts], axis=1),
        first_s=_starts(np.concatenate([pick.capacity_s for pick in picks])),
        used_s=np.concatenate([pick.used_s for pick in picks]),
        weight_rc=np.concatenate([pick.weight_rc for pick in picks], axis=1),
    )


def head(free_cells: FreeCells, clusters: int) -> FreeCells:
    """Copy the first clusters into a table that only the caller has."""
    first_s = free_cells.first_s[: VIEWS * clusters + 1]
    return FreeCells(
        resources=free_cells.resources,
        table_xk=free_cells.table_xk[:, : int(first_s[-1])].copy(),
        first_s=first_s,
        used_s=free_cells.used_s[: VIEWS * clusters],
        weight_rc=free_cells.weight_rc[:, :clusters],
    )


def apart(free_cells: FreeCells) -> FreeCells:
    """Copy all clusters into a table that only the caller has, with spare columns."""
    if (free_cells.capacity_s - free_cells.used_s < PIECES).any():
        return gathered([(free_cells, range(len(free_cells)))])
    return FreeCells(
        resources=free_cells.resources,
        table_xk=free_cells.table_xk.copy(),
        first_s=free_cells.first_s,
        used_s=free_cells.used_s,
        weight_rc=free_cells.weight_rc,
    )


class _Picked(NamedTuple):
    """Clusters of one source, to be copied into a new table."""

    parts: list[IntArray]
    capacity_s: IntArray
    used_s: IntArray
    weight_rc: FloatArray


def _picked(
    free_cells: FreeCells, place_c: npt.NDArray[np.intp], resources: tuple[str, ...]
) -> _Picked:
    segment_s = (place_c[:, np.newaxis] * VIEWS + _VIEWS).ravel()
    start_s, used_s = free_cells.first_s[segment_s], free_cells.used_s[segment_s]
    capacity_s = free_cells.first_s[segment_s + 1] - start_s
    weight_rc = free_cells.weight_rc[:, place_c]
    is_short_c = (capacity_s - used_s < PIECES).reshape(-1, VIEWS).any(axis=1)
    longer_xk = free_cells.table_xk[:, :0]
    if is_short_c.any():
        is_short_s = is_short_c.repeat(VIEWS)
        cells_xk = _side_by_side(free_cells.table_xk, start_s[is_short_s], used_s[is_short_s])
        cells_xk, used_s[is_short_s] = _coalesced(cells_xk, used_s[is_short_s])
        spare_s = _spare(used_s[is_short_s])
        longer_xk = _spaced(cells_xk, used_s[is_short_s], spare_s)
        capacity_s[is_short_s] = used_s[is_short_s] + spare_s
    parts = []
    for first, last in _runs(place_c, is_short_c):
        if is_short_c[first]:
            width = int(capacity_s[VIEWS * first : VIEWS * (first + 1)].sum())
            parts.append(longer_xk[:, :width])
            longer_xk = longer_xk[:, width:]
        else:
            start = free_cells.first_s[VIEWS * place_c[first]]
            stop = free_cells.first_s[VIEWS * (place_c[last] + 1)]
            parts.append(free_cells.table_xk[:, start:stop])
    if free_cells.resources != resources:
        row_r = [resources.index(name) for name in free_cells.resources]
        parts = [_with_rows(part, row_r, len(resources)) for part in parts]
        narrow_rc = weight_rc
        weight_rc = np.zeros((len(resources), len(place_c)), dtype=np.float64)
        weight_rc[row_r] = narrow_rc
    return _Picked(parts=parts, capacity_s=capacity_s, used_s=used_s, weight_rc=weight_rc)


def _runs(place_c: npt.NDArray[np.intp], is_short_c: BoolArray) -> list[tuple[int, int]]:
    """Return the first and last of each run of neighbours; a short cluster is a run of its own."""
    is_first_c = np.ones(len(place_c), dtype=np.bool_)
    is_first_c[1:] = (place_c[1:] - place_c[:-1] != 1) | is_short_c[1:] | is_short_c[:-1]
    firsts = is_first_c.nonzero()[0].tolist()
    lasts = [first - 1 for first in firsts[1:]] + [len(place_c) - 1]
    return list(zip(firsts, lasts, strict=True))


def _with_rows(part_xk: IntArray, row_r: Sequence[int], resources: int) -> IntArray:
    """Widen the columns to ``resources`` rows of amounts; ``row_r`` are the rows they have."""
    wider_xk = np.zeros((AMOUNTS + resources, part_xk.shape[1]), dtype=np.int64)
    wider_xk[:AMOUNTS] = part_xk[:AMOUNTS]
    wider_xk[[AMOUNTS + row for row in row_r]] = part_xk[AMOUNTS:]
    return wider_xk


def only(free_cells: FreeCells, cluster: int) -> FreeCells:
    """Copy one cluster into a table of its own."""
    segment = cluster * VIEWS
    first_s = free_cells.first_s[segment : segment + VIEWS + 1]
    return FreeCells(
        resources=free_cells.resources,
        table_xk=free_cells.table_xk[:, first_s[0] : first_s[-1]].copy(),
        first_s=first_s - first_s[0],
        used_s=free_cells.used_s[segment : segment + VIEWS],
        weight_rc=free_cells.weight_rc[:, cluster : cluster + 1],
    )


def with_view(free_cells: FreeCells, view: View, columns_xk: IntArray) -> FreeCells:
    """Replace the cells of a view of a single cluster, in a table of its own."""
    parts, used = [], free_cells.used_s.copy()
    used[view] = columns_xk.shape[1]
    for other in View:
        start = int(free_cells.first_s[other])
        own_xk = free_cells.table_xk[:, start : start + int(free_cells.used_s[other])]
        parts.append(columns_xk if other is view else own_xk)
    spare_s = _spare(used)
    return FreeCells(
        resources=free_cells.resources,
        table_xk=_spaced(np.concatenate(parts, axis=1), used, spare_s),
        first_s=_starts(used + spare_s),
        used_s=used,
        weight_rc=free_cells.weight_rc,
    )


def with_kinds(free_cells: FreeCells, kinds: Sequence[IntArray]) -> FreeCells:
    """Set the kind of each pool of each cluster."""
    cluster_k = np.arange(len(kinds)).repeat(np.diff(free_cells.first_s[::VIEWS]))
    table_xk = free_cells.table_xk.copy()
    table_xk[KIND] = _kinds_of(table_xk[POOL], cluster_k, kinds)
    return replace(free_cells, table_xk=table_xk)


def _kinds_of(pool_k: IntArray, cluster_k: IntArray, kinds: Sequence[IntArray]) -> IntArray:
    first_c = _starts(np.array([len(kind_p) for kind_p in kinds], dtype=np.int64))
    kind_k: IntArray = np.concatenate(kinds)[pool_k + first_c[cluster_k]]
    return kind_k


def cells_left(free_cells: FreeCells, view: View, report: Cells) -> Cells:
    """Return the cells of a single cluster in a view, which come from its reported cells.

    The sum of a cell is its least possible value, because a part of a reported cell may hold any
    of its nodes.
    """
    start, used = int(free_cells.first_s[view]), int(free_cells.used_s[view])
    columns_xk, _ = _coalesced(
        free_cells.table_xk[:, start : start + used], np.array([used], dtype=np.int64)
    )
    row_r = [AMOUNTS + free_cells.resources.index(name) for name in report.resources]
    origin_k, count_k, min_rk = columns_xk[ORIGIN], columns_xk[COUNT], columns_xk[row_r]
    taken_rk = report.min_rk[:, origin_k] - min_rk
    sum_rk, sum_exact_k = _least_sums(report, origin_k, count_k, taken_rk)
    return Cells(
        resources=report.resources,
        pool_k=columns_xk[POOL].astype(np.int32),
        count_k=count_k,
        min_rk=min_rk,
        sum_rk=sum_rk,
        max_rk=report.max_rk[:, origin_k] - taken_rk,
        sum_exact_k=sum_exact_k,
    )


def _least_sums(
    report: Cells, origin_k: IntArray, count_k: IntArray, taken_rk: IntArray
) -> tuple[IntArray, BoolArray]:
    """Return the least sums of ``count_k`` nodes of the cells ``origin_k``, and which are exact.

    Each node has lost ``taken_rk``. Of n nodes of a reported cell of N:
    sum >= max(n min, total - (N - n) max), less n taken.
    """
    largest_sum = (report.max_rk.astype(np.float64) * report.count_k).max(initial=0.0)
    dtype = np.int64 if largest_sum < _SAFE else object
    min_rk, max_rk, total_rk, taken_rk = (
        amounts_rk.astype(dtype)
        for amounts_rk in (
            report.min_rk[:, origin_k],
            report.max_rk[:, origin_k],
            report.sum_rk[:, origin_k],
            taken_rk,
        )
    )
    rest_k = report.count_k[origin_k] - count_k
    low_rk = np.maximum(count_k * min_rk, total_rk - rest_k * max_rk)
    high_rk = np.minimum(count_k * max_rk, total_rk - rest_k * min_rk)
    sum_rk = np.minimum(low_rk - count_k * taken_rk, MAX_AMOUNT).astype(np.int64)
    return sum_rk, report.sum_exact_k[origin_k] & (low_rk == high_rk).astype(np.bool_).all(axis=0)


def _coalesced(cells_xk: IntArray, used_s: IntArray) -> tuple[IntArray, IntArray]:
    """Sort the columns of each segment by size, and merge cells of equal origin and amounts.

    ``used_s`` is the number of columns of each segment; the second value is the number after it.
    """
    segment_k = np.arange(len(used_s)).repeat(used_s)
    key_k = (cells_xk[SIZE] << _ORIGIN_BITS) + cells_xk[ORIGIN]
    order_k = np.lexsort((key_k, segment_k))
    sorted_xk, key_k = cells_xk[:, order_k], key_k[order_k]
    is_like_k = (key_k[1:] == key_k[:-1]) & (segment_k[1:] == segment_k[:-1])
    (like_j,) = is_like_k.nonzero()
    if not len(like_j):
        return sorted_xk, used_s
    amount_rk = sorted_xk[AMOUNTS:]
    is_first_k = np.ones(len(key_k), dtype=np.bool_)
    is_first_k[like_j + 1] = (amount_rk[:, like_j] != amount_rk[:, like_j + 1]).any(axis=0)
    (first_g,) = is_first_k.nonzero()
    merged_xk = sorted_xk[:, first_g]
    merged_xk[COUNT] = np.add.reduceat(sorted_xk[COUNT], first_g)
    return merged_xk, np.bincount(segment_k[first_g], minlength=len(used_s))


def _side_by_side(table_xk: IntArray, start_s: IntArray, used_s: IntArray) -> IntArray:
    """Return the used columns of some segments, without spare ones."""
    first_s = _starts(used_s)
    return table_xk[:, np.arange(first_s[-1]) + (start_s - first_s[:-1]).repeat(used_s)]


def _spaced(cells_xk: IntArray, used_s: IntArray, spare_s: IntArray) -> IntArray:
    """Add ``spare_s`` zero columns behind the ``used_s`` columns of each segment."""
    shift_s, used = _starts(spare_s), cells_xk.shape[1]
    spaced_xk = np.zeros((len(cells_xk), used + int(shift_s[-1])), dtype=np.int64)
    spaced_xk[:, np.arange(used) + shift_s[:-1].repeat(used_s)] = cells_xk
    return spaced_xk


def _spare(used_c: IntArray) -> IntArray:
    """Return the number of spare columns for so many used ones."""
    return np.maximum(4 * PIECES, used_c // 4)


def _starts(capacity_s: IntArray) -> IntArray:
    first_s = np.zeros(len(capacity_s) + 1, dtype=np.int64)
    np.cumsum(capacity_s, out=first_s[1:])
    return first_s
