"""Replicas packed into cells: what is promised, and what is left for the next promise.

Pure; closed form, for many clusters at once, never a loop over replicas. Must not rank clusters.
Whatever is placed here can be placed on the real nodes: each has at least the minimum of its cell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from federation.capacity.cells import (
    AMOUNTS,
    COUNT,
    POOL,
    SIZE,
    VIEWS,
    Residues,
    View,
    apart,
)
from federation.capacity.wants import Want, WantedByCluster, Wants, fits_k
from federation.model.arrays import BoolArray, IntArray
from federation.model.estimate import MAX_REPLICAS
from federation.model.pools.cell_order import size_k
from federation.model.resources import is_extended

# Sizes have 30 bits; one more says whether there are devices nobody asked for.
_SIZE_BITS: Final = 30
_ORDER_BITS: Final = _SIZE_BITS + 1
# The cells of so few segments are put in order sooner than looked through.
_FEW: Final = 32
_AFTER_ALL: Final = 1 << _ORDER_BITS
_NONE: Final = np.zeros(1, dtype=np.int64)

# By the lowest bit of a segment.
_IS_FILLED: Final = np.array([view is View.FILLED for view in View])


class Take(NamedTuple):
    """``replicas`` on each of ``nodes`` nodes of one pool, which had ``free`` before."""

    pool: int
    free: tuple[int, ...]
    nodes: int
    replicas: int


class Takes(NamedTuple):
    """What is taken of cells (axis j) of several clusters, in order, segment after segment.

    ``column_xj`` are the cells before. ``full_j`` of their nodes take ``unit_j`` replicas each,
    and one more takes ``left_j``. What is taken of segment s begins at ``first_s[s]``.
    """

    resources: tuple[str, ...]
    first_s: npt.NDArray[np.intp]
    column_xj: IntArray
    unit_j: IntArray
    full_j: IntArray
    left_j: IntArray

    def of(self, cluster: int, resources: Sequence[str]) -> list[Take]:
        """What best fit takes of one cluster, with free amounts of these resources."""
        row_r = [AMOUNTS + self.resources.index(name) for name in resources]
        segment = cluster * VIEWS + View.FILLED
        takes = []
        for j in range(int(self.first_s[segment]), int(self.first_s[segment + 1])):
            pool, free = int(self.column_xj[POOL, j]), tuple(self.column_xj[row_r, j].tolist())
            full, left = int(self.full_j[j]), int(self.left_j[j])
            if full:
                takes.append(Take(pool, free, nodes=full, replicas=int(self.unit_j[j])))
            if left:
                takes.append(Take(pool, free, nodes=1, replicas=left))
        return takes


class Packing(NamedTuple):
    """How many replicas found room in each view of each cluster, where, and what is left.

    ``room_s`` is the room that is left for more of them, None where it must be counted.
    """

    placed_s: IntArray
    takes: Takes
    left: Residues
    room_s: IntArray | None


class _Turns(NamedTuple):
    """What nodes take: all nodes of a cell first ``base_k`` replicas, and then, by turns, cell by
    cell and node by node, ``unit_k`` more, as long as any of ``rest_s`` replicas are left.

    ``room_k`` is what all nodes of a cell could take by turns.
    """

    base_k: IntArray | None
    unit_k: IntArray
    room_k: IntArray
    rest_s: IntArray


class _Touched(NamedTuple):
    """Cells (axis j) in the order of the turns: ``full_j`` of their nodes take ``unit_j`` replicas
    each, and one more takes ``left_j``.
    """

    segment_j: IntArray
    cell_j: npt.NDArray[np.intp]
    unit_j: IntArray
    full_j: IntArray
    left_j: IntArray


def room_by_segment(
    residues: Residues, request: Mapping[str, int], suiting_p: BoolArray | None = None
) -> IntArray:
    """How many replicas the cells of every segment hold; ``suiting_p`` are kinds, None all."""
    room_k = fits_k(residues, Want(request, suiting_p))
    room_k *= residues.table_xk[COUNT]
    total_s: IntArray = np.add.reduceat(room_k, residues.first_s[:-1])
    return total_s


def pack(
    residues: Residues,
    request: Mapping[str, int],
    replicas_c: IntArray,
    suiting_p: BoolArray | None = None,
) -> Packing:
    """Pack up to so many replicas of a shape into every cluster, in both views.

    FILLED: the smallest cell that takes one comes first, so that large holes stay whole; cells
    with devices that the shape does not ask for come last. Nodes are filled one after the other.
    SPREAD: round after round one on every node that has room, the largest cells first in each
    round, so that the last, partial one goes to them.
    """
    return packed_in_place(apart(residues), request, replicas_c, suiting_p)


def packed_in_place(
    residues: Residues,
    request: Mapping[str, int],
    replicas_c: IntArray,
    suiting_p: BoolArray | None = None,
) -> Packing:
    """``pack`` for whoever gathered the residues for it: what is left is written over them.

    Once: what is left may lack the columns that a further packing in place would write to.
    """
    everywhere = np.zeros(len(residues), dtype=np.int64)
    wants = Wants.of(residues.resources, [Want(request, suiting_p)])
    return packed_each_in_place(residues, wants.by_cluster(everywhere), replicas_c)


def packed_each_in_place(
    residues: Residues, asked: WantedByCluster, replicas_c: IntArray
) -> Packing:
    """The same with as many of another shape in each cluster: of what is asked for there."""
    fits_k = asked.fits_k(residues)
    room_s = np.add.reduceat(fits_k * residues.table_xk[COUNT], residues.first_s[:-1])
    placed_s = np.minimum(replicas_c.repeat(VIEWS), room_s)
    segment_k = np.arange(len(placed_s)).repeat(residues.capacity_s)
    turns = _turns(residues, fits_k, placed_s, segment_k)
    touched = _touched(residues, turns, segment_k, asked)
    # What is taken of is looked at before it is written over.
    takes = _takes(residues, touched)
    if turns.base_k is not None:
        _deal_base(residues, turns.base_k, segment_k, asked)
    added_s = _deal_turns(residues, touched, asked)
    # A node that takes one holds one less of them, unless it holds more than is counted.
    is_counted = room_s.max(initial=0) < MAX_REPLICAS
    return Packing(
        placed_s=placed_s,
        takes=takes,
        left=residues.with_used(residues.used_s + added_s),
        room_s=room_s - placed_s if is_counted else None,
    )


def _turns(residues: Residues, fits_k: IntArray, placed_s: IntArray, segment_k: IntArray) -> _Turns:
    """A node is filled in one turn, or takes one replica a turn after all whole rounds."""
    count_k, starts_s = residues.table_xk[COUNT], residues.first_s[:-1]
    # Cells of clusters where nothing is to be packed need not be put in order.
    most_s = (placed_s > 0).astype(np.int64)
    most_s[View.FILLED :: VIEWS] *= MAX_REPLICAS
    most_k = most_s.repeat(residues.capacity_s)
    unit_k = np.minimum(fits_k, most_k)
    room_k = unit_k * count_k
    # A round that is not whole is dealt by turns: most promises are smaller than one.
    is_deep_s = placed_s > np.add.reduceat(room_k, starts_s)
    if not is_deep_s.any():
        return _Turns(base_k=None, unit_k=unit_k, room_k=room_k, rest_s=placed_s)
    rounds_s = _whole_rounds(residues, fits_k, np.where(is_deep_s, placed_s, 0), segment_k)
    base_k = np.minimum(fits_k, rounds_s[segment_k])
    unit_k = np.minimum(fits_k - base_k, most_k)
    return _Turns(
        base_k=base_k,
        unit_k=unit_k,
        room_k=unit_k * count_k,
        rest_s=placed_s - np.add.reduceat(base_k * count_k, starts_s),
    )


def _whole_rounds(
    residues: Residues, fits_k: IntArray, replicas_s: IntArray, segment_k: IntArray
) -> IntArray:
    """The most rounds that do not place more than ``replicas_s``; no more than there are."""
    count_k, starts_s = residues.table_xk[COUNT], residues.first_s[:-1]
    low_s = np.zeros_like(replicas_s)
    high_s = np.minimum(np.maximum.reduceat(fits_k, starts_s), replicas_s)
    while (low_s < high_s).any():
        middle_s = (low_s + high_s + 1) // 2
        used_k = np.minimum(fits_k, middle_s[segment_k]) * count_k
        is_enough_s = np.add.reduceat(used_k, starts_s) <= replicas_s
        low_s = np.where(is_enough_s, middle_s, low_s)
        high_s = np.where(is_enough_s, high_s, middle_s - 1)
    return low_s


def _touched(
    residues: Residues, turns: _Turns, segment_k: IntArray, asked: WantedByCluster
) -> _Touched:
    """The cells whose turn comes before all replicas are dealt.

    All cells stand in ascending order; FILLED takes its turns from the segment's first on, SPREAD
    from its last back. Running sums over all segments tell what comes before a cell's turn: from
    where its segment begins, or to where it ends.
    """
    is_open_k = turns.room_k > 0
    if np.count_nonzero(turns.rest_s) > _FEW:
        is_open_k &= _is_within_reach(
            residues, turns, _keys(residues, slice(None), segment_k, asked)
        )
    (cell_i,) = is_open_k.nonzero()
    segment_i = segment_k.take(cell_i)
    # The cells of a segment stay together.
    key_i = _keys(residues, cell_i, segment_i, asked) | (segment_i << _ORDER_BITS)
    cell_i = cell_i.take(key_i.argsort(kind="stable"))
    room_i = turns.room_k.take(cell_i)
    end_i = room_i.cumsum()
    first_s = segment_i.searchsorted(np.arange(len(turns.rest_s) + 1))
    edge_s = np.concatenate([_NONE, end_i]).take(first_s)
    limit_s = turns.rest_s - edge_s[1:]
    limit_s[View.FILLED :: VIEWS] = (turns.rest_s + edge_s[:-1])[View.FILLED :: VIEWS]
    taken_i = limit_s.take(segment_i)
    taken_i += np.where(_IS_FILLED.take(segment_i & 1), room_i - end_i, end_i)
    (place_j,) = (taken_i > 0).nonzero()
    cell_j = cell_i.take(place_j)
    unit_j = turns.unit_k.take(cell_j)
    taken_j = np.minimum(taken_i, room_i).take(place_j)
    full_j = taken_j // unit_j
    return _Touched(
        segment_j=segment_i.take(place_j),
        cell_j=cell_j,
        unit_j=unit_j,
        full_j=full_j,
        left_j=taken_j - full_j * unit_j,
    )


def _keys(
    residues: Residues,
    cells: npt.NDArray[np.intp] | slice,
    segment_i: IntArray,
    asked: WantedByCluster,
) -> IntArray:
    """Larger for larger cells of a segment, and largest for those with devices nobody asked for."""
    key_i: IntArray = residues.table_xk[SIZE][cells]
    for row, name in enumerate(residues.resources):
        if is_extended(name) and not asked.amount_rc[row].all():
            spare_i = np.minimum(residues.amount_rk[row][cells], 1)
            spare_i *= asked.amount(row, segment_i // VIEWS) == 0
            key_i = key_i | (spare_i << _SIZE_BITS)
    return key_i


def _is_within_reach(residues: Residues, turns: _Turns, key_k: IntArray) -> BoolArray:
    """Cells that do not come after another of their segment with room for all that is left.

    Of most segments only one or two remain to be put in order. ``last_s`` is the first place where
    all finds room; of a segment without one it comes after all places.
    """
    capacity_s, room_k = residues.capacity_s, turns.room_k
    # SPREAD begins with the largest.
    flipped_s = np.zeros_like(capacity_s)
    flipped_s[View.SPREAD :: VIEWS] = _AFTER_ALL - 1
    place_k = key_k ^ flipped_s.repeat(capacity_s)
    is_short_k = room_k < turns.rest_s.repeat(capacity_s)
    last_s = np.minimum.reduceat(place_k | (is_short_k * _AFTER_ALL), residues.first_s[:-1])
    within_k: BoolArray = place_k <= last_s.repeat(capacity_s)
    return within_k


def _takes(residues: Residues, touched: _Touched) -> Takes:
    return Takes(
        resources=residues.resources,
        first_s=touched.segment_j.searchsorted(np.arange(len(residues.used_s) + 1)),
        column_xj=residues.table_xk.take(touched.cell_j, axis=1),
        unit_j=touched.unit_j,
        full_j=touched.full_j,
        left_j=touched.left_j,
    )


def _deal_base(
    residues: Residues, base_k: IntArray, segment_k: IntArray, asked: WantedByCluster
) -> None:
    """Write down what all nodes of each cell take alike."""
    table_xk = residues.table_xk
    (cell_i,) = base_k.nonzero()
    cluster_i = segment_k[cell_i] // VIEWS
    table_xk[AMOUNTS:, cell_i] -= base_k[cell_i] * asked.amount(slice(None), cluster_i)
    weight_ri = residues.weight_rc[:, cluster_i]
    table_xk[SIZE, cell_i] = size_k(table_xk[AMOUNTS:, cell_i], weight_ri)


def _deal_turns(residues: Residues, touched: _Touched, asked: WantedByCluster) -> IntArray:
    """Write down what nodes take by turns; how many cells more there are in each segment.

    The nodes of a cell may take nothing, a part of a turn (one of them), or a whole one: up to
    three pieces (axis p). The first that there is stays in place, others go to spare columns.
    """
    # ``take`` costs a fraction of what brackets do, most of all along the columns of a table.
    table_xk, left_j, full_j = residues.table_xk, touched.left_j, touched.full_j
    is_left_j = (left_j > 0).astype(np.int64)
    none_j = table_xk[COUNT].take(touched.cell_j) - full_j - is_left_j
    nodes_pj = np.array([none_j, is_left_j, full_j])
    used_pj = np.array([none_j * 0, left_j, touched.unit_j])
    is_there_pj = nodes_pj > 0
    rank_pj = is_there_pj.astype(np.int64)
    rank_pj[1] += rank_pj[0]
    rank_pj[2] += rank_pj[1]
    # Of a segment's cells only one has several pieces.
    spare_j = (residues.first_s[:-1] + residues.used_s).take(touched.segment_j)
    place_pj = np.where(rank_pj == 1, touched.cell_j, spare_j + (rank_pj - 2))
    (piece_i,) = is_there_pj.ravel().nonzero()
    source_i = piece_i % len(left_j)
    used_i = used_pj.take(piece_i)
    column_xi = table_xk.take(touched.cell_j.take(source_i), axis=1)
    column_xi[COUNT] = nodes_pj.take(piece_i)
    cluster_i = touched.segment_j.take(source_i) // VIEWS
    column_xi[AMOUNTS:] -= used_i * asked.amount(slice(None), cluster_i)
    column_xi[SIZE] = size_k(column_xi[AMOUNTS:], residues.weight_rc.take(cluster_i, axis=1))
    table_xk[:, place_pj.take(piece_i)] = column_xi
    added_s = np.zeros(len(residues.used_s), dtype=np.int64)
    np.add.at(added_s, touched.segment_j, rank_pj[-1] - 1)
    return added_s
