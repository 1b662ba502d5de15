"""Packing of replicas into free cells: where they are placed, and the cells that remain free.

Pure; closed form, many clusters at once, never a loop over replicas. Must not rank clusters.
A placement here is possible on the real nodes, because each has at least its cell's minimum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from federation.capacity.cells import (
    AMOUNTS,
    COUNT,
    KIND,
    POOL,
    SIZE,
    VIEWS,
    FreeCells,
    View,
    apart,
)
from federation.model.arrays import BoolArray, IntArray
from federation.model.estimate import MAX_REPLICAS
from federation.model.pools.bounds import fit_in_k, per_replica
from federation.model.pools.cell_order import size_k
from federation.model.resources import is_extended


class CellRequest(NamedTuple):
    """A replica's request; ``suiting_p`` marks the kinds of pools that match, None: all."""

    request: Mapping[str, int]
    suiting_p: BoolArray | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CellRequests:
    """Distinct requests (axis q).

    ``amount_rq`` is what a replica takes of each resource (axis r, the rows of the free cells).
    ``has_rows_q`` tells whether these rows have all resources of the request. ``chooses``: some
    request does not match all kinds of pools.
    """

    requests: Sequence[CellRequest]
    amount_rq: IntArray
    has_rows_q: BoolArray
    chooses: bool

    @classmethod
    def of(cls, resources: Sequence[str], requests: Sequence[CellRequest]) -> CellRequests:
        amount_rq = np.zeros((len(resources), len(requests)), dtype=np.int64)
        has_rows_q = np.zeros(len(requests), dtype=np.bool_)
        row_by = {name: row for row, name in enumerate(resources)}
        for column, replica_request in enumerate(requests):
            amounts = per_replica(replica_request.request)
            has_rows_q[column] = amounts.keys() <= row_by.keys()
            for name, amount in amounts.items():
                if name in row_by:
                    amount_rq[row_by[name], column] = amount
        return cls(
            requests=requests,
            amount_rq=amount_rq,
            has_rows_q=has_rows_q,
            chooses=any(replica_request.suiting_p is not None for replica_request in requests),
        )

    def by_cluster(self, request_c: IntArray) -> RequestsByCluster:
        """Return a view in which the request of cluster c is ``requests[request_c[c]]``."""
        first = int(request_c[0]) if len(request_c) else 0
        if (request_c == first).all():
            return RequestsByCluster(
                self, request_c, self.requests[first], self.amount_rq[:, first : first + 1]
            )
        return RequestsByCluster(self, request_c, None, self.amount_rq.take(request_c, axis=1))


class RequestsByCluster(NamedTuple):
    """The request of each cluster (axis c); ``common`` is that of all, None where they differ.

    ``amount_rc`` is what a replica takes: a single column where it is the same everywhere.
    """

    requests: CellRequests
    request_c: IntArray
    common: CellRequest | None
    amount_rc: IntArray

    def amount(self, row: int | slice, cluster_i: IntArray) -> IntArray:
        """Return what a replica takes of one resource, or of several, in the clusters."""
        amount_c: IntArray = self.amount_rc[row]
        return amount_c if self.common is not None else amount_c.take(cluster_i, axis=-1)

    def fits_k(self, free_cells: FreeCells) -> IntArray:
        """Return how many replicas each node of the cells holds."""
        if self.common is not None:
            return fits_k(free_cells, self.common)
        requests = self.requests
        width_c = np.diff(free_cells.first_s[::VIEWS])
        fit_k = (requests.has_rows_q.take(self.request_c) * np.int64(MAX_REPLICAS)).repeat(width_c)
        for amount_k, amount_c in zip(free_cells.amount_rk, self.amount_rc, strict=True):
            is_requested_c = amount_c > 0
            if is_requested_c.any():
                divisor_k = np.maximum(amount_c, 1).view(np.uint64).repeat(width_c)
                quotient_k = (amount_k.view(np.uint64) // divisor_k).view(np.int64)
                if not is_requested_c.all():
                    quotient_k[~is_requested_c.repeat(width_c)] = MAX_REPLICAS
                np.minimum(fit_k, quotient_k, out=fit_k)
        if not requests.chooses:
            return fit_k
        # Only the requests of these clusters, because there may be many kinds of pools.
        used_u, use_c = np.unique(self.request_c, return_inverse=True)
        suiting = [requests.requests[column].suiting_p for column in used_u.tolist()]
        restricted = [suiting_p for suiting_p in suiting if suiting_p is not None]
        if restricted:
            all_p = np.ones_like(restricted[0])
            suiting_up = np.array(
                [all_p if suiting_p is None else suiting_p for suiting_p in suiting]
            )
            fit_k *= suiting_up[use_c.repeat(width_c), free_cells.table_xk[KIND]]
        return fit_k


def fits_k(free_cells: FreeCells, replica_request: CellRequest) -> IntArray:
    """Return how many replicas each node of the cells holds, with one request for all clusters."""
    fit_k = fit_in_k(
        free_cells.resources, free_cells.amount_rk, per_replica(replica_request.request)
    )
    if replica_request.suiting_p is not None:
        fit_k *= replica_request.suiting_p[free_cells.table_xk[KIND]]
    return fit_k


# Sizes have 30 bits; one more marks cells with devices that the request does not ask for.
_SIZE_BITS: Final = 30
_ORDER_BITS: Final = _SIZE_BITS + 1
# Up to this number of segments, sorting all cells is faster than selecting the needed ones first.
_FEW: Final = 32
_AFTER_ALL: Final = 1 << _ORDER_BITS
_NONE: Final = np.zeros(1, dtype=np.int64)

# The view of a segment is its lowest bit.
_IS_FILLED: Final = np.array([view is View.FILLED for view in View])


class Take(NamedTuple):
    """Replicas on equal nodes: ``replicas`` on each of ``nodes``, which had ``free`` first."""

    pool: int
    free: tuple[int, ...]
    nodes: int
    replicas: int


class Takes(NamedTuple):
    """Placed replicas by cell (axis j), for several clusters, segment after segment.

    ``column_xj`` are the cells before the packing. ``full_j`` nodes of a cell take ``unit_j``
    replicas each, and one more node takes ``left_j``. Segment s begins at ``first_s[s]``.
    """

    resources: tuple[str, ...]
    first_s: npt.NDArray[np.intp]
    column_xj: IntArray
    unit_j: IntArray
    full_j: IntArray
    left_j: IntArray

    def of(self, cluster: int, resources: Sequence[str]) -> list[Take]:
        """Return the placement by best fit in one cluster, with free amounts of the resources."""
        row_r = [AMOUNTS + self.resources.index(name) for name in resources]
        segment = cluster * VIEWS + View.FILLED
        takes = []
        for j in range(int(self.first_s[segment]), int(self.first_s[segment + 1])):
            pool, free = int(self.column_xj[POOL, j]), tuple(self.column_xj[row_r, j].tolist())
            full, rest = int(self.full_j[j]), int(self.left_j[j])
            if full:
                takes.append(Take(pool, free, nodes=full, replicas=int(self.unit_j[j])))
            if rest:
                takes.append(Take(pool, free, nodes=1, replicas=rest))
        return takes


class Packing(NamedTuple):
    """The result of a packing: ``placed_s`` replicas by segment, and the ``free_cells`` after it.

    ``room_s`` is the number of further replicas that fit, None where it must be counted.
    """

    placed_s: IntArray
    takes: Takes
    free_cells: FreeCells
    room_s: IntArray | None


class _Turns(NamedTuple):
    """The turns in which nodes are dealt replicas.

    All nodes of a cell first take ``base_k`` replicas. Then the nodes come by turns, cell by cell,
    and take ``unit_k`` more each, until the ``rest_s`` replicas of the segment are dealt.
    ``room_k`` is the number that all nodes of a cell can take by turns.
    """

    base_k: IntArray | None
    unit_k: IntArray
    room_k: IntArray
    rest_s: IntArray


class _Touched(NamedTuple):
    """Cells (axis j) that take replicas by turns, in the order of their turns.

    ``full_j`` nodes of a cell take ``unit_j`` replicas each, and one more node takes ``left_j``.
    """

    segment_j: IntArray
    cell_j: npt.NDArray[np.intp]
    unit_j: IntArray
    full_j: IntArray
    left_j: IntArray


def room_by_segment(
    free_cells: FreeCells, request: Mapping[str, int], suiting_p: BoolArray | None = None
) -> IntArray:
    """Return how many replicas the cells of each segment hold; ``suiting_p``: kinds, None all."""
    room_k = fits_k(free_cells, CellRequest(request, suiting_p))
    room_k *= free_cells.table_xk[COUNT]
    total_s: IntArray = np.add.reduceat(room_k, free_cells.first_s[:-1])
    return total_s


def pack(
    free_cells: FreeCells,
    request: Mapping[str, int],
    replicas_c: IntArray,
    suiting_p: BoolArray | None = None,
) -> Packing:
    """Pack up to ``replicas_c`` replicas of a request into each cluster, in both views.

    FILLED: the smallest cell with room comes first, so that large holes stay whole; cells with
    devices that the request does not ask for come last. A node is filled before the next one.
    SPREAD: in each round every node with room takes one replica, the largest cells first. The
    last round may be partial.
    """
    return pack_in_place(apart(free_cells), request, replicas_c, suiting_p)


def pack_in_place(
    free_cells: FreeCells,
    request: Mapping[str, int],
    replicas_c: IntArray,
    suiting_p: BoolArray | None = None,
) -> Packing:
    """Pack as ``pack`` does, but write into the table of ``free_cells``, which the caller owns.

    Call once: there may be no spare columns for a second packing.
    """
    everywhere = np.zeros(len(free_cells), dtype=np.int64)
    requests = CellRequests.of(free_cells.resources, [CellRequest(request, suiting_p)])
    return pack_requests_in_place(free_cells, requests.by_cluster(everywhere), replicas_c)


def pack_requests_in_place(
    free_cells: FreeCells, requested: RequestsByCluster, replicas_c: IntArray
) -> Packing:
    """Pack as ``pack_in_place`` does, with a request and a number of replicas by cluster."""
    fits_k = requested.fits_k(free_cells)
    room_s = np.add.reduceat(fits_k * free_cells.table_xk[COUNT], free_cells.first_s[:-1])
    placed_s = np.minimum(replicas_c.repeat(VIEWS), room_s)
    segment_k = np.arange(len(placed_s)).repeat(free_cells.capacity_s)
    turns = _turns(free_cells, fits_k, placed_s, segment_k)
    touched = _touched(free_cells, turns, segment_k, requested)
    # Read the cells before they are overwritten.
    takes = _takes(free_cells, touched)
    if turns.base_k is not None:
        _deal_base(free_cells, turns.base_k, segment_k, requested)
    added_s = _deal_turns(free_cells, touched, requested)
    # Each placed replica takes the room of one, unless the room was too large to be counted.
    is_counted = room_s.max(initial=0) < MAX_REPLICAS
    return Packing(
        placed_s=placed_s,
        takes=takes,
        free_cells=free_cells.with_used(free_cells.used_s + added_s),
        room_s=room_s - placed_s if is_counted else None,
    )


def _turns(
    free_cells: FreeCells, fits_k: IntArray, placed_s: IntArray, segment_k: IntArray
) -> _Turns:
    """Deal FILLED nodes full in one turn; deal SPREAD nodes whole rounds, then one a turn."""
    count_k, starts_s = free_cells.table_xk[COUNT], free_cells.first_s[:-1]
    # Cells of clusters where nothing is to be packed need not be sorted.
    max_unit_s = (placed_s > 0).astype(np.int64)
    max_unit_s[View.FILLED :: VIEWS] *= MAX_REPLICAS
    max_unit_k = max_unit_s.repeat(free_cells.capacity_s)
    unit_k = np.minimum(fits_k, max_unit_k)
    room_k = unit_k * count_k
    # A partial round is dealt by turns: most promises are smaller than one round.
    is_deep_s = placed_s > np.add.reduceat(room_k, starts_s)
    if not is_deep_s.any():
        return _Turns(base_k=None, unit_k=unit_k, room_k=room_k, rest_s=placed_s)
    rounds_s = _whole_rounds(free_cells, fits_k, np.where(is_deep_s, placed_s, 0), segment_k)
    base_k = np.minimum(fits_k, rounds_s[segment_k])
    unit_k = np.minimum(fits_k - base_k, max_unit_k)
    return _Turns(
        base_k=base_k,
        unit_k=unit_k,
        room_k=unit_k * count_k,
        rest_s=placed_s - np.add.reduceat(base_k * count_k, starts_s),
    )


def _whole_rounds(
    free_cells: FreeCells, fits_k: IntArray, replicas_s: IntArray, segment_k: IntArray
) -> IntArray:
    """Return the largest number of rounds, by segment, that place at most ``replicas_s``."""
    count_k, starts_s = free_cells.table_xk[COUNT], free_cells.first_s[:-1]
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
    free_cells: FreeCells, turns: _Turns, segment_k: IntArray, requested: RequestsByCluster
) -> _Touched:
    """Return the cells whose turn comes before all replicas are dealt.

    Sort all cells of a segment by size. FILLED takes its turns from the first cell on, SPREAD from
    the last one back. Running sums of the room over all segments give the room before a cell's
    turn: since the beginning of its segment, or up to its end.
    """
    is_open_k = turns.room_k > 0
    if np.count_nonzero(turns.rest_s) > _FEW:
        is_open_k &= _is_within_reach(
            free_cells, turns, _keys(free_cells, slice(None), segment_k, requested)
        )
    (cell_i,) = is_open_k.nonzero()
    segment_i = segment_k.take(cell_i)
    # Keep the cells of a segment together.
    key_i = _keys(free_cells, cell_i, segment_i, requested) | (segment_i << _ORDER_BITS)
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
    free_cells: FreeCells,
    cells: npt.NDArray[np.intp] | slice,
    segment_i: IntArray,
    requested: RequestsByCluster,
) -> IntArray:
    """Return sort keys: by size, and larger than all sizes for cells with unrequested devices."""
    key_i: IntArray = free_cells.table_xk[SIZE][cells]
    for row, name in enumerate(free_cells.resources):
        if is_extended(name) and not requested.amount_rc[row].all():
            spare_i = np.minimum(free_cells.amount_rk[row][cells], 1)
            spare_i *= requested.amount(row, segment_i // VIEWS) == 0
            key_i = key_i | (spare_i << _SIZE_BITS)
    return key_i


def _is_within_reach(free_cells: FreeCells, turns: _Turns, key_k: IntArray) -> BoolArray:
    """Tell which cells come no later than the first with room for all that is left.

    Few cells of a segment remain to be sorted. ``last_s`` is the key of that first cell; without
    one it is larger than all keys.
    """
    capacity_s, room_k = free_cells.capacity_s, turns.room_k
    # SPREAD begins with the largest cell.
    flipped_s = np.zeros_like(capacity_s)
    flipped_s[View.SPREAD :: VIEWS] = _AFTER_ALL - 1
    place_k = key_k ^ flipped_s.repeat(capacity_s)
    is_short_k = room_k < turns.rest_s.repeat(capacity_s)
    last_s = np.minimum.reduceat(place_k | (is_short_k * _AFTER_ALL), free_cells.first_s[:-1])
    within_k: BoolArray = place_k <= last_s.repeat(capacity_s)
    return within_k


def _takes(free_cells: FreeCells, touched: _Touched) -> Takes:
    return Takes(
        resources=free_cells.resources,
        first_s=touched.segment_j.searchsorted(np.arange(len(free_cells.used_s) + 1)),
        column_xj=free_cells.table_xk.take(touched.cell_j, axis=1),
        unit_j=touched.unit_j,
        full_j=touched.full_j,
        left_j=touched.left_j,
    )


def _deal_base(
    free_cells: FreeCells, base_k: IntArray, segment_k: IntArray, requested: RequestsByCluster
) -> None:
    """Write the replicas that all nodes of a cell take alike into the table."""
    table_xk = free_cells.table_xk
    (cell_i,) = base_k.nonzero()
    cluster_i = segment_k[cell_i] // VIEWS
    table_xk[AMOUNTS:, cell_i] -= base_k[cell_i] * requested.amount(slice(None), cluster_i)
    weight_ri = free_cells.weight_rc[:, cluster_i]
    table_xk[SIZE, cell_i] = size_k(table_xk[AMOUNTS:, cell_i], weight_ri)


def _deal_turns(free_cells: FreeCells, touched: _Touched, requested: RequestsByCluster) -> IntArray:
    """Write the replicas dealt by turns into the table; return the new cells by segment.

    A cell is split into up to three pieces (axis p): nodes that take nothing, a node that takes a
    part of a turn, nodes that take a whole turn. The first piece stays in place; the others go to
    spare columns.
    """
    # ``take`` costs a fraction of indexing by brackets, mostly along the columns of a table.
    table_xk, left_j, full_j = free_cells.table_xk, touched.left_j, touched.full_j
    is_left_j = (left_j > 0).astype(np.int64)
    none_j = table_xk[COUNT].take(touched.cell_j) - full_j - is_left_j
    nodes_pj = np.array([none_j, is_left_j, full_j])
    used_pj = np.array([none_j * 0, left_j, touched.unit_j])
    is_piece_pj = nodes_pj > 0
    rank_pj = is_piece_pj.astype(np.int64)
    rank_pj[1] += rank_pj[0]
    rank_pj[2] += rank_pj[1]
    # Only one cell of a segment is split.
    spare_j = (free_cells.first_s[:-1] + free_cells.used_s).take(touched.segment_j)
    place_pj = np.where(rank_pj == 1, touched.cell_j, spare_j + (rank_pj - 2))
    (piece_i,) = is_piece_pj.ravel().nonzero()
    source_i = piece_i % len(left_j)
    used_i = used_pj.take(piece_i)
    column_xi = table_xk.take(touched.cell_j.take(source_i), axis=1)
    column_xi[COUNT] = nodes_pj.take(piece_i)
    cluster_i = touched.segment_j.take(source_i) // VIEWS
    column_xi[AMOUNTS:] -= used_i * requested.amount(slice(None), cluster_i)
    column_xi[SIZE] = size_k(column_xi[AMOUNTS:], free_cells.weight_rc.take(cluster_i, axis=1))
    table_xk[:, place_pj.take(piece_i)] = column_xi
    added_s = np.zeros(len(free_cells.used_s), dtype=np.int64)
    np.add.at(added_s, touched.segment_j, rank_pj[-1] - 1)
    return added_s
