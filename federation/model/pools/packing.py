"""Replicas packed into cells: what is promised, and what is left for the next promise.

Pure; closed form, never a loop over replicas. Must not rank clusters. Whatever is placed here can
be placed on the real nodes: each has at least the minimum of its cell.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from federation.model.pools.bounds import fit_k, per_replica
from federation.model.pools.grid import group_keys
from federation.model.pools.matching import Verdict, pool_verdict
from federation.model.pools.values import BoolArray, Cells, Int64Array, Pools, combined
from federation.model.resources import MAX_AMOUNT, is_extended
from federation.model.workload import NodeClaim, ReplicaRequirements


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Replicas of one shape that hold room, such as an outstanding reservation."""

    requirements: ReplicaRequirements
    replicas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Take:
    """``replicas`` on each of ``nodes`` nodes of the cell at position ``cell``."""

    cell: int
    nodes: int
    replicas: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Packing:
    """Replicas ``placed``, the smallest cells first, and the cells that are ``left``.

    ``takes`` name the cells packed into. A cell of which some nodes were used is left as several.
    """

    placed: int
    takes: tuple[Take, ...]
    left: Cells


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PackedPools:
    """Pools with their cells after packing, and how many replicas of each demand found no room."""

    pools: Pools
    unplaced: tuple[int, ...]


def pack_demands(pools: Pools, demands: Iterable[Demand]) -> PackedPools:
    """Pack demand after demand, in their order; of one that does not fit, what does is packed."""
    cells = pools.cells
    unplaced = []
    for each in demands:
        suiting_p = suiting_pools(pools, each.requirements.node_claim)
        packing = pack(cells, suiting_p, each.requirements.request, each.replicas)
        cells = packing.left
        unplaced.append(each.replicas - packing.placed)
    return PackedPools(pools=replace(pools, cells=_coalesced(cells)), unplaced=tuple(unplaced))


def suiting_pools(pools: Pools, claim: NodeClaim | None) -> BoolArray:
    """The pools (axis p) that surely suit a claim: nothing is promised on others."""
    return np.array(
        [pool_verdict(pool, pools.label_keys, claim) is Verdict.YES for pool in pools.pools],
        dtype=np.bool_,
    )


def pack(cells: Cells, suiting_p: BoolArray, request: Mapping[str, int], replicas: int) -> Packing:
    """Pack up to ``replicas`` of a shape into the cells of the pools that suit it.

    The smallest cell that takes one comes first, so that large holes stay whole; cells with
    devices that the shape does not ask for come last. Nodes are filled one after the other.
    """
    demanded = per_replica(request)
    fits_k = np.where(suiting_p[cells.pool_k], fit_k(cells, demanded), 0)
    order = smallest_first(cells, demanded)
    order = order[fits_k[order] > 0]
    room = (fits_k * cells.count_k)[order]
    taken = np.clip(replicas - (np.cumsum(room) - room), 0, room)
    used = order[taken > 0]
    if len(used) == 0:
        return Packing(placed=0, takes=(), left=cells)
    *whole, last = used.tolist()
    taken_last = int(taken[len(whole)])
    fit_last, nodes_last = int(fits_k[last]), int(cells.count_k[last])
    takes = [Take(cell=k, nodes=int(cells.count_k[k]), replicas=int(fits_k[k])) for k in whole]
    full, rest = divmod(taken_last, fit_last)
    pieces = [(full, fit_last), (1 if rest else 0, rest)]
    takes += [Take(cell=last, nodes=nodes, replicas=each) for nodes, each in pieces if nodes]
    pieces.append((nodes_last - full - (1 if rest else 0), 0))
    left = _filled(cells, np.array(whole, dtype=np.intp), fits_k, demanded)
    return Packing(
        placed=int(taken.sum()),
        takes=tuple(takes),
        left=_split(left, last, [piece for piece in pieces if piece[0]], demanded),
    )


def smallest_first(cells: Cells, demanded: Mapping[str, int]) -> npt.NDArray[np.intp]:
    """Positions of the cells, those with devices nobody asked for last, else by free amounts.

    Amounts are compared as shares of the cluster's; equal ones keep their order.
    """
    spare_k = np.zeros(len(cells), dtype=np.bool_)
    size_k = np.zeros(len(cells), dtype=np.float64)
    for name, min_k in zip(cells.resources, cells.min_rk, strict=True):
        if is_extended(name) and name not in demanded:
            spare_k |= min_k > 0
        size_k += min_k / max(float((min_k.astype(np.float64) * cells.count_k).sum()), 1.0)
    return np.lexsort((size_k, spare_k))


def _filled(
    cells: Cells, whole: npt.NDArray[np.intp], fits_k: Int64Array, demanded: Mapping[str, int]
) -> Cells:
    """The cells with every node of the ``whole`` ones holding as many replicas as fit."""
    if len(whole) == 0:
        return cells
    min_rk, sum_rk, max_rk = cells.min_rk.copy(), cells.sum_rk.copy(), cells.max_rk.copy()
    for name, amount in demanded.items():
        row = cells.resources.index(name)
        a_node = fits_k[whole] * amount
        min_rk[row, whole] -= a_node
        max_rk[row, whole] -= a_node
        # Of a sum that is only known to be enormous, nothing is known after a subtraction.
        is_known = sum_rk[row, whole] < MAX_AMOUNT
        sum_rk[row, whole] -= np.where(is_known, a_node * cells.count_k[whole], MAX_AMOUNT)
    return replace(cells, min_rk=min_rk, sum_rk=sum_rk, max_rk=max_rk)


def _split(
    cells: Cells, cell: int, pieces: list[tuple[int, int]], demanded: Mapping[str, int]
) -> Cells:
    """The cells with one divided into pieces of (nodes, replicas on each), later ones at the end.

    Which nodes make a piece is not known, so the sum of each is the least it can be.
    """
    used_r = [demanded.get(name, 0) for name in cells.resources]
    count = int(cells.count_k[cell])
    columns: list[tuple[list[int], list[int], list[int]]] = []
    exact = []
    for nodes, replicas in pieces:
        column: tuple[list[int], list[int], list[int]] = ([], [], [])
        is_exact = bool(cells.sum_exact_k[cell])
        for row, used in enumerate(used_r):
            least, most = int(cells.min_rk[row, cell]), int(cells.max_rk[row, cell])
            total, others = int(cells.sum_rk[row, cell]), count - nodes
            low = max(nodes * least, total - others * most)
            is_exact &= low == min(nodes * most, total - others * least)
            column[0].append(least - replicas * used)
            column[1].append(min(low - nodes * replicas * used, MAX_AMOUNT))
            column[2].append(most - replicas * used)
        columns.append(column)
        exact.append(is_exact)
    amounts_trp = np.array(columns, dtype=np.int64).transpose(1, 2, 0)

    def with_pieces(rows: np.ndarray, piece_p: np.ndarray) -> np.ndarray:
        rows = np.concatenate([rows, piece_p[..., 1:]], axis=-1)
        rows[..., cell] = piece_p[..., 0]
        return rows

    return Cells(
        resources=cells.resources,
        pool_k=with_pieces(cells.pool_k, np.repeat(cells.pool_k[cell], len(pieces))),
        count_k=with_pieces(cells.count_k, np.array([nodes for nodes, _ in pieces])),
        min_rk=with_pieces(cells.min_rk, amounts_trp[0]),
        sum_rk=with_pieces(cells.sum_rk, amounts_trp[1]),
        max_rk=with_pieces(cells.max_rk, amounts_trp[2]),
        sum_exact_k=with_pieces(cells.sum_exact_k, np.array(exact)),
    )


def _coalesced(cells: Cells) -> Cells:
    """Cells of one pool with equal minimums as one: nothing packs differently into it."""
    _, group_k = group_keys(np.vstack([cells.pool_k, cells.min_rk]))
    return combined(cells, group_k, int(group_k.max(initial=-1)) + 1)
