"""Replicas packed into cells: what is promised, and what is left for the next promise.

Pure; closed form, for many clusters at once, never a loop over replicas. Must not rank clusters.
Whatever is placed here can be placed on the real nodes: each has at least the minimum of its cell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from federation.model.pools.bounds import fit_in_k, per_replica
from federation.model.pools.matching import Verdict, pool_verdict
from federation.model.pools.residues import (
    AMOUNTS,
    COUNT,
    KIND,
    POOL,
    SIZE,
    Residues,
    View,
    size_k,
    weight_r1,
    with_spare_columns,
)
from federation.model.pools.values import BoolArray, Cells, Int64Array, Pools
from federation.model.resources import is_extended
from federation.model.workload import NodeClaim

# Sizes have 30 bits.
_SPARE_BIT: Final = 1 << 30
_ORDER_BITS: Final = 31


class Take(NamedTuple):
    """``replicas`` on each of ``nodes`` nodes of one pool, which had ``free`` before."""

    pool: int
    free: tuple[int, ...]
    nodes: int
    replicas: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Takes:
    """What is taken of cells (axis j) of several clusters, in order, segment after segment.

    ``column_xj`` are the cells before. ``full_j`` of their nodes take ``unit_j`` replicas each,
    and one more takes ``left_j``. What is taken of segment s begins at ``first_s[s]``.
    """

    resources: tuple[str, ...]
    first_s: npt.NDArray[np.intp]
    column_xj: Int64Array
    unit_j: Int64Array
    full_j: Int64Array
    left_j: Int64Array

    def of(self, cluster: int, resources: Sequence[str]) -> list[Take]:
        """What best fit takes of one cluster, with free amounts of these resources."""
        row_r = [AMOUNTS + self.resources.index(name) for name in resources]
        segment = cluster * len(View) + View.FILLED
        takes = []
        for j in range(int(self.first_s[segment]), int(self.first_s[segment + 1])):
            pool, free = int(self.column_xj[POOL, j]), tuple(self.column_xj[row_r, j].tolist())
            full, left = int(self.full_j[j]), int(self.left_j[j])
            if full:
                takes.append(Take(pool, free, nodes=full, replicas=int(self.unit_j[j])))
            if left:
                takes.append(Take(pool, free, nodes=1, replicas=left))
        return takes


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Packing:
    """How many replicas found room in each view of each cluster, where, and what is left."""

    placed_s: Int64Array
    takes: Takes
    left: Residues


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Turns:
    """What nodes take by turns: all nodes of a cell first ``base_k`` replicas, and then, cell by
    cell and node by node, ``unit_k`` more, as long as any of ``rest_s`` replicas are left.
    """

    base_k: Int64Array | None
    unit_k: Int64Array
    rest_s: Int64Array


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Touched:
    """Cells of which nodes take ``taken_j`` replicas in their turn, in the order of the turns."""

    segment_j: Int64Array
    cell_j: Int64Array
    full_j: Int64Array
    left_j: Int64Array


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Pieces:
    """Cells as they are afterwards (axis i): ``nodes_i`` of the nodes of ``origin_i``, each with
    ``used_i`` replicas more than the base. ``added_s`` cells of them are new in segment s.
    """

    cell_i: Int64Array
    origin_i: Int64Array
    nodes_i: Int64Array
    used_i: Int64Array
    added_s: Int64Array


def suiting_pools(pools: Pools, claim: NodeClaim | None) -> BoolArray:
    """The pools (axis p) that surely suit a claim: nothing is promised on others."""
    return np.array(
        [pool_verdict(pool, pools.label_keys, claim) is Verdict.YES for pool in pools.pools],
        dtype=np.bool_,
    )


def _fits(
    residues: Residues, demanded: Mapping[str, int], suiting_p: BoolArray | None
) -> Int64Array:
    """Replicas that each node of the cells holds, in all pools where nothing says which suit."""
    fits_k = fit_in_k(residues.resources, residues.amount_rk, demanded)
    if suiting_p is not None:
        fits_k *= suiting_p[residues.table_xk[KIND]]
    return fits_k


def room_by_segment(
    residues: Residues, request: Mapping[str, int], suiting_p: BoolArray | None = None
) -> Int64Array:
    """How many replicas the cells of every segment hold; ``suiting_p`` are kinds, None all."""
    room_k = _fits(residues, per_replica(request), suiting_p)
    room_k *= residues.table_xk[COUNT]
    total_s: Int64Array = np.add.reduceat(room_k, residues.first_s[:-1])
    return total_s


def pack(
    residues: Residues,
    request: Mapping[str, int],
    replicas_c: Int64Array,
    suiting_p: BoolArray | None = None,
) -> Packing:
    """Pack up to so many replicas of a shape into every cluster, in both views.

    FILLED: the smallest cell that takes one comes first, so that large holes stay whole; cells
    with devices that the shape does not ask for come last. Nodes are filled one after the other.
    SPREAD: round after round one on every node that has room, the largest cells first in each
    round, so that the last, partial one goes to them.
    """
    residues = with_spare_columns(residues)
    demanded = per_replica(request)
    fits_k = _fits(residues, demanded, suiting_p)
    room_s = np.add.reduceat(fits_k * residues.table_xk[COUNT], residues.first_s[:-1])
    placed_s = np.minimum(np.repeat(replicas_c, len(View)), room_s)
    turns = _turns(residues, fits_k, placed_s)
    touched = _touched(residues, turns, demanded)
    return Packing(
        placed_s=placed_s,
        takes=_takes(residues, turns, touched),
        left=_taken(residues, turns, touched, demanded),
    )


def smallest_first(cells: Cells, demanded: Mapping[str, int]) -> npt.NDArray[np.intp]:
    """Positions of the cells, those with devices nobody asked for last, else by free amounts.

    Amounts are compared as shares of the cluster's; equal ones keep their order.
    """
    is_spare_k = np.zeros(len(cells), dtype=np.bool_)
    for name, min_k in zip(cells.resources, cells.min_rk, strict=True):
        if is_extended(name) and name not in demanded:
            is_spare_k |= min_k > 0
    return np.lexsort((size_k(cells.min_rk, weight_r1(cells)), is_spare_k))


def _turns(residues: Residues, fits_k: Int64Array, placed_s: Int64Array) -> _Turns:
    """A node is filled in one turn, or takes one replica a turn after all whole rounds."""
    count_k, starts_s = residues.table_xk[COUNT], residues.first_s[:-1]
    most_s = np.ones_like(placed_s)
    most_s[View.FILLED :: len(View)] = np.iinfo(np.int64).max
    most_k = np.repeat(most_s, residues.capacity_s)
    unit_k = np.minimum(fits_k, most_k)
    # A round that is not whole is dealt by turns: most promises are smaller than one.
    is_deep_s = placed_s > np.add.reduceat(unit_k * count_k, starts_s)
    if not is_deep_s.any():
        return _Turns(base_k=None, unit_k=unit_k, rest_s=placed_s)
    rounds_s = _whole_rounds(residues, fits_k, np.where(is_deep_s, placed_s, 0))
    base_k = np.minimum(fits_k, np.repeat(rounds_s, residues.capacity_s))
    return _Turns(
        base_k=base_k,
        unit_k=np.minimum(fits_k - base_k, most_k),
        rest_s=placed_s - np.add.reduceat(base_k * count_k, starts_s),
    )


def _whole_rounds(residues: Residues, fits_k: Int64Array, replicas_s: Int64Array) -> Int64Array:
    """The most rounds that do not place more than ``replicas_s``; no more than there are."""
    count_k, starts_s = residues.table_xk[COUNT], residues.first_s[:-1]
    low_s = np.zeros_like(replicas_s)
    high_s = np.minimum(np.maximum.reduceat(fits_k, starts_s), replicas_s)
    while (low_s < high_s).any():
        middle_s = (low_s + high_s + 1) // 2
        middle_k = np.repeat(middle_s, residues.capacity_s)
        used_s = np.add.reduceat(np.minimum(fits_k, middle_k) * count_k, starts_s)
        is_enough_s = used_s <= replicas_s
        low_s = np.where(is_enough_s, middle_s, low_s)
        high_s = np.where(is_enough_s, high_s, middle_s - 1)
    return low_s


def _touched(residues: Residues, turns: _Turns, demanded: Mapping[str, int]) -> _Touched:
    """The cells whose turn comes before all replicas are dealt."""
    room_k = turns.unit_k * residues.table_xk[COUNT]
    cell_i = np.flatnonzero(room_k)
    segment_k = np.repeat(np.arange(len(residues.used_s)), residues.capacity_s)
    segment_i = segment_k[cell_i]
    cell_i = cell_i[_order(residues, cell_i, segment_i, demanded)]
    # The cells of a segment stay together.
    room_i = room_k[cell_i]
    end_i = np.cumsum(room_i)
    end_s = np.cumsum(np.add.reduceat(room_k, residues.first_s[:-1]))
    begin_s = np.append(0, end_s[:-1])
    before_i = np.where(
        segment_i % len(View) == View.FILLED,
        end_i - room_i - begin_s[segment_i],
        end_s[segment_i] - end_i,
    )
    taken_i = np.minimum(turns.rest_s[segment_i] - before_i, room_i)
    (touched_j,) = np.nonzero(taken_i > 0)
    cell_j = cell_i[touched_j]
    full_j, left_j = np.divmod(taken_i[touched_j], turns.unit_k[cell_j])
    return _Touched(segment_j=segment_i[touched_j], cell_j=cell_j, full_j=full_j, left_j=left_j)


def _order(
    residues: Residues,
    cell_i: npt.NDArray[np.intp],
    segment_i: Int64Array,
    demanded: Mapping[str, int],
) -> npt.NDArray[np.intp]:
    """Segment by segment the smallest first, those with devices nobody asked for last."""
    key_i = residues.table_xk[SIZE, cell_i]
    for row, name in enumerate(residues.resources):
        if name not in demanded and is_extended(name):
            key_i[residues.amount_rk[row, cell_i] > 0] |= _SPARE_BIT
    key_i |= segment_i << _ORDER_BITS
    return np.argsort(key_i, kind="stable")


def _takes(residues: Residues, turns: _Turns, touched: _Touched) -> Takes:
    return Takes(
        resources=residues.resources,
        first_s=np.searchsorted(touched.segment_j, np.arange(len(residues.used_s) + 1)),
        column_xj=residues.table_xk[:, touched.cell_j],
        unit_j=turns.unit_k[touched.cell_j],
        full_j=touched.full_j,
        left_j=touched.left_j,
    )


def _taken(
    residues: Residues, turns: _Turns, touched: _Touched, demanded: Mapping[str, int]
) -> Residues:
    """What is left: a cell whose nodes hold different numbers of replicas becomes several."""
    if len(touched.cell_j) == 0 and turns.base_k is None:
        return residues
    table_xk = residues.table_xk.copy()
    row_by_name = [(AMOUNTS + residues.resources.index(name), name) for name in demanded]
    changed_i = np.zeros(0, dtype=np.int64)
    if turns.base_k is not None:
        changed_i = np.flatnonzero(turns.base_k)
        for row, name in row_by_name:
            table_xk[row, changed_i] -= turns.base_k[changed_i] * demanded[name]
    pieces = _pieces(residues, turns, touched)
    table_xk[:, pieces.cell_i] = table_xk[:, pieces.origin_i]
    table_xk[COUNT, pieces.cell_i] = pieces.nodes_i
    for row, name in row_by_name:
        table_xk[row, pieces.cell_i] -= pieces.used_i * demanded[name]
    changed_i = np.concatenate([changed_i, pieces.cell_i])
    cluster_k = np.repeat(np.arange(len(residues.used_s)) // len(View), residues.capacity_s)
    table_xk[SIZE, changed_i] = size_k(
        table_xk[AMOUNTS:, changed_i], residues.weight_rc[:, cluster_k[changed_i]]
    )
    return replace(residues, table_xk=table_xk, used_s=residues.used_s + pieces.added_s)


def _pieces(residues: Residues, turns: _Turns, touched: _Touched) -> _Pieces:
    """Cells whose nodes all take a whole turn stay as they are. Of others (one a segment) the
    nodes that take none stay, else the one that takes a part; what is apart goes to spare columns.
    """
    count_j = residues.table_xk[COUNT, touched.cell_j]
    is_whole_j = touched.full_j == count_j
    whole_j, divided_d = np.flatnonzero(is_whole_j), np.flatnonzero(~is_whole_j)
    whole_i = touched.cell_j[whole_j]
    cell_d, segment_d = touched.cell_j[divided_d], touched.segment_j[divided_d]
    full_d, left_d = touched.full_j[divided_d], touched.left_j[divided_d]
    none_d = count_j[divided_d] - full_d - (left_d > 0)
    spare_d = residues.first_s[segment_d] + residues.used_s[segment_d]
    is_full_d, is_left_d = full_d > 0, (left_d > 0) & (none_d > 0)
    full_apart, left_apart = np.flatnonzero(is_full_d), np.flatnonzero(is_left_d)
    added_s = np.zeros_like(residues.used_s)
    added_s[segment_d] = is_full_d.astype(np.int64) + is_left_d
    unit_d = turns.unit_k[cell_d]
    return _Pieces(
        cell_i=np.concatenate(
            [whole_i, spare_d[full_apart], (spare_d + is_full_d)[left_apart], cell_d]
        ),
        origin_i=np.concatenate([whole_i, cell_d[full_apart], cell_d[left_apart], cell_d]),
        nodes_i=np.concatenate(
            [
                count_j[whole_j],
                full_d[full_apart],
                np.ones(len(left_apart), dtype=np.int64),
                np.maximum(none_d, 1),
            ]
        ),
        used_i=np.concatenate(
            [
                turns.unit_k[whole_i],
                unit_d[full_apart],
                left_d[left_apart],
                np.where(none_d > 0, 0, left_d),
            ]
        ),
        added_s=added_s,
    )
