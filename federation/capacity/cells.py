"""What is left of the cells of several clusters, side by side in one table, in two views.

Pure values. Must not pack: ``packing`` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from federation.model.arrays import BoolArray, IntArray
from federation.model.pools.cell_order import size_k, weight_r1
from federation.model.pools.values import Cells
from federation.model.resources import MAX_AMOUNT


class View(IntEnum):
    """Who places the pods: one that fills small holes first, or one that likes empty nodes."""

    FILLED = 0
    SPREAD = 1


VIEWS: Final = len(View)


# The rows of a table before its amounts: nodes, free amounts as one number, the pool by its
# position in the cluster, the cell of the report, and the pool among all kinds of them.
COUNT: Final = 0
SIZE: Final = 1
POOL: Final = 2
ORIGIN: Final = 3
KIND: Final = 4
AMOUNTS: Final = 5

# One packing divides at most one cell of a segment into three.
PIECES: Final = 2
_VIEWS: Final = np.arange(VIEWS)
# A cluster has fewer cells than this has numbers, and sizes have 30 bits.
_ORIGIN_BITS: Final = 32
_SIZE_BITS: Final = 30
# Sums below this are safe in int64.
_SAFE: Final = 2.0**62


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Residues:
    """The cells of clusters (axis c), each cluster as two segments (axis s): its views in order.

    The cells of segment s are columns of ``table_xk`` from ``first_s[s]``, ``used_s[s]`` of them;
    the columns from there to ``first_s[s + 1]`` are spare and all zero, at least one. The rows are
    named above, the last ones are the least that every node of the cell has of ``resources``.
    ``weight_rc`` makes sizes of amounts: shares of what the report shows in all, at most 1 a cell.
    Arrays are read-only.
    """

    resources: tuple[str, ...]
    table_xk: IntArray
    first_s: IntArray
    used_s: IntArray
    weight_rc: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.used_s) // VIEWS

    @property
    def amount_rk(self) -> IntArray:
        return self.table_xk[AMOUNTS:]

    @property
    def capacity_s(self) -> IntArray:
        return self.first_s[1:] - self.first_s[:-1]

    def with_used(self, used_s: IntArray) -> Residues:
        """The same table, in which more or fewer columns are spare."""
        return Residues(
            resources=self.resources,
            table_xk=self.table_xk,
            first_s=self.first_s,
            used_s=used_s,
            weight_rc=self.weight_rc,
        )


def bare_residues(every: Sequence[Cells], kinds: Sequence[IntArray]) -> Residues:
    """The cells of clusters side by side before anything is packed: both views are the same.

    ``kinds`` has the kind of each pool of each cluster.
    """
    resources = tuple(dict.fromkeys(name for cells in every for name in cells.resources))
    size_c = np.array([len(cells) for cells in every], dtype=np.int64)
    first_c, cluster_k = _starts(size_c), np.arange(len(every)).repeat(size_c)
    table_xk = np.zeros((AMOUNTS + len(resources), len(cluster_k)), dtype=np.int64)
    weight_rc = np.zeros((len(resources), len(every)), dtype=np.float64)
    table_xk[COUNT] = np.concatenate([cells.count_k for cells in every])
    table_xk[POOL] = np.concatenate([cells.pool_k for cells in every])
    table_xk[KIND] = _kinds_of(table_xk[POOL], cluster_k, kinds)
    table_xk[ORIGIN] = np.arange(len(cluster_k)) - first_c[cluster_k]
    for place, (cells, first) in enumerate(zip(every, first_c.tolist(), strict=False)):
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
    weight_rc: npt.NDArray[np.float64],
) -> Residues:
    """The columns of each cluster twice, with spare ones."""
    used_c = np.bincount(cluster_k, minlength=weight_rc.shape[1])
    first_s = _starts((used_c + _spare(used_c)).repeat(VIEWS))
    rank_k = np.arange(len(cluster_k)) - _starts(used_c)[cluster_k]
    table_xk = np.zeros((len(cells_xk), int(first_s[-1])), dtype=np.int64)
    for view in View:
        table_xk[:, first_s[cluster_k * VIEWS + view] + rank_k] = cells_xk
    return Residues(
        resources=resources,
        table_xk=table_xk,
        first_s=first_s,
        used_s=used_c.repeat(VIEWS),
        weight_rc=weight_rc,
    )


def gathered(sources: Sequence[tuple[Residues, npt.ArrayLike]]) -> Residues:
    """Some of the clusters of each source side by side, in a table that is nobody else's yet.

    Every segment has room for the pieces of one more packing. Where it had none, equal cells
    become one; how much is added grows with the segment, so copying costs little on the whole.
    """
    resources = tuple(dict.fromkeys(name for each, _ in sources for name in each.resources))
    picks = [_picked(each, np.asarray(clusters), resources) for each, clusters in sources]
    return Residues(
        resources=resources,
        table_xk=np.concatenate([part for pick in picks for part in pick.parts], axis=1),
        first_s=_starts(np.concatenate([each.capacity_s for each in picks])),
        used_s=np.concatenate([each.used_s for each in picks]),
        weight_rc=np.concatenate([each.weight_rc for each in picks], axis=1),
    )


def head(residues: Residues, clusters: int) -> Residues:
    """So many of the first clusters, in a table that is nobody else's yet."""
    first_s = residues.first_s[: VIEWS * clusters + 1]
    return Residues(
        resources=residues.resources,
        table_xk=residues.table_xk[:, : int(first_s[-1])].copy(),
        first_s=first_s,
        used_s=residues.used_s[: VIEWS * clusters],
        weight_rc=residues.weight_rc[:, :clusters],
    )


def apart(residues: Residues) -> Residues:
    """All of it in a table that is nobody else's yet, with room as ``gathered`` gives it."""
    if (residues.capacity_s - residues.used_s < PIECES).any():
        return gathered([(residues, range(len(residues)))])
    return Residues(
        resources=residues.resources,
        table_xk=residues.table_xk.copy(),
        first_s=residues.first_s,
        used_s=residues.used_s,
        weight_rc=residues.weight_rc,
    )


class _Picked(NamedTuple):
    """Clusters of one source on their way to a new table."""

    parts: list[IntArray]
    capacity_s: IntArray
    used_s: IntArray
    weight_rc: npt.NDArray[np.float64]


def _picked(
    residues: Residues, place_c: npt.NDArray[np.intp], resources: tuple[str, ...]
) -> _Picked:
    segment_s = (place_c[:, np.newaxis] * VIEWS + _VIEWS).ravel()
    start_s, used_s = residues.first_s[segment_s], residues.used_s[segment_s]
    capacity_s = residues.first_s[segment_s + 1] - start_s
    weight_rc = residues.weight_rc[:, place_c]
    is_short_c = (capacity_s - used_s < PIECES).reshape(-1, VIEWS).any(axis=1)
    longer_xk = residues.table_xk[:, :0]
    if is_short_c.any():
        is_short_s = is_short_c.repeat(VIEWS)
        cells_xk = _side_by_side(residues.table_xk, start_s[is_short_s], used_s[is_short_s])
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
            start = residues.first_s[VIEWS * place_c[first]]
            stop = residues.first_s[VIEWS * (place_c[last] + 1)]
            parts.append(residues.table_xk[:, start:stop])
    if residues.resources != resources:
        row_r = [resources.index(name) for name in residues.resources]
        parts = [_with_rows(part, row_r, len(resources)) for part in parts]
        known_rc = weight_rc
        weight_rc = np.zeros((len(resources), len(place_c)), dtype=np.float64)
        weight_rc[row_r] = known_rc
    return _Picked(parts=parts, capacity_s=capacity_s, used_s=used_s, weight_rc=weight_rc)


def _runs(place_c: npt.NDArray[np.intp], is_short_c: BoolArray) -> list[tuple[int, int]]:
    """The first and the last of clusters side by side; short ones are by themselves."""
    is_first_c = np.ones(len(place_c), dtype=np.bool_)
    is_first_c[1:] = (place_c[1:] - place_c[:-1] != 1) | is_short_c[1:] | is_short_c[:-1]
    firsts = is_first_c.nonzero()[0].tolist()
    return list(zip(firsts, [each - 1 for each in firsts[1:]] + [len(place_c) - 1], strict=True))


def _with_rows(part_xk: IntArray, row_r: Sequence[int], resources: int) -> IntArray:
    """The columns with a row for each of so many resources; ``row_r`` are those they have."""
    wider_xk = np.zeros((AMOUNTS + resources, part_xk.shape[1]), dtype=np.int64)
    wider_xk[:AMOUNTS] = part_xk[:AMOUNTS]
    wider_xk[[AMOUNTS + row for row in row_r]] = part_xk[AMOUNTS:]
    return wider_xk


def only(residues: Residues, cluster: int) -> Residues:
    """One of the clusters by itself."""
    segment = cluster * VIEWS
    first_s = residues.first_s[segment : segment + VIEWS + 1]
    return Residues(
        resources=residues.resources,
        table_xk=residues.table_xk[:, first_s[0] : first_s[-1]].copy(),
        first_s=first_s - first_s[0],
        used_s=residues.used_s[segment : segment + VIEWS],
        weight_rc=residues.weight_rc[:, cluster : cluster + 1],
    )


def with_view(residues: Residues, view: View, columns_xk: IntArray) -> Residues:
    """The only cluster with these cells in a view, in a table of its own."""
    parts, used = [], residues.used_s.copy()
    used[view] = columns_xk.shape[1]
    for other in View:
        start = int(residues.first_s[other])
        mine_xk = residues.table_xk[:, start : start + int(residues.used_s[other])]
        parts.append(columns_xk if other is view else mine_xk)
    spare_s = _spare(used)
    return Residues(
        resources=residues.resources,
        table_xk=_spaced(np.concatenate(parts, axis=1), used, spare_s),
        first_s=_starts(used + spare_s),
        used_s=used,
        weight_rc=residues.weight_rc,
    )


def with_kinds(residues: Residues, kinds: Sequence[IntArray]) -> Residues:
    """With the kind of each pool of each cluster."""
    cluster_k = np.arange(len(kinds)).repeat(np.diff(residues.first_s[::VIEWS]))
    table_xk = residues.table_xk.copy()
    table_xk[KIND] = _kinds_of(table_xk[POOL], cluster_k, kinds)
    return replace(residues, table_xk=table_xk)


def _kinds_of(pool_k: IntArray, cluster_k: IntArray, kinds: Sequence[IntArray]) -> IntArray:
    first_c = _starts(np.array([len(kind_p) for kind_p in kinds], dtype=np.int64))
    kind_k: IntArray = np.concatenate(kinds)[pool_k + first_c[cluster_k]]
    return kind_k


def cells_left(residues: Residues, view: View, report: Cells) -> Cells:
    """The cells of the only cluster in a view, out of the ``report`` that they come from.

    Which of its nodes are in a cell is not known, so their sum is the least it can be.
    """
    start, used = int(residues.first_s[view]), int(residues.used_s[view])
    columns_xk, _ = _coalesced(
        residues.table_xk[:, start : start + used], np.array([used], dtype=np.int64)
    )
    row_r = [AMOUNTS + residues.resources.index(name) for name in report.resources]
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
    """What ``count_k`` nodes of the cells ``origin_k`` surely add up to, less what was taken of
    each; and whether that is exact.
    """
    most = (report.max_rk.astype(np.float64) * report.count_k).max(initial=0.0)
    kind = np.int64 if most < _SAFE else object
    least_rk, most_rk, total_rk, taken_rk = (
        amounts_rk.astype(kind)
        for amounts_rk in (
            report.min_rk[:, origin_k],
            report.max_rk[:, origin_k],
            report.sum_rk[:, origin_k],
            taken_rk,
        )
    )
    others_k = report.count_k[origin_k] - count_k
    low_rk = np.maximum(count_k * least_rk, total_rk - others_k * most_rk)
    high_rk = np.minimum(count_k * most_rk, total_rk - others_k * least_rk)
    sum_rk = np.minimum(low_rk - count_k * taken_rk, MAX_AMOUNT).astype(np.int64)
    return sum_rk, report.sum_exact_k[origin_k] & (low_rk == high_rk).astype(np.bool_).all(axis=0)


def _coalesced(cells_xk: IntArray, used_s: IntArray) -> tuple[IntArray, IntArray]:
    """Segments side by side, ``used_s`` columns each, and how many each has in the end: in the
    order of their sizes, those of the same nodes with the same left as one.
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
    """The columns of some segments without spare ones."""
    first_s = _starts(used_s)
    return table_xk[:, np.arange(first_s[-1]) + (start_s - first_s[:-1]).repeat(used_s)]


def _spaced(cells_xk: IntArray, used_s: IntArray, spare_s: IntArray) -> IntArray:
    """Segments side by side, ``used_s`` columns each, with so many spare ones behind each."""
    shift_s, used = _starts(spare_s), cells_xk.shape[1]
    spaced_xk = np.zeros((len(cells_xk), used + int(shift_s[-1])), dtype=np.int64)
    spaced_xk[:, np.arange(used) + shift_s[:-1].repeat(used_s)] = cells_xk
    return spaced_xk


def _spare(used_c: IntArray) -> IntArray:
    """How many spare columns there are beside so many others."""
    return np.maximum(4 * PIECES, used_c // 4)


def _starts(capacity_s: IntArray) -> IntArray:
    first_s = np.zeros(len(capacity_s) + 1, dtype=np.int64)
    np.cumsum(capacity_s, out=first_s[1:])
    return first_s
