"""Lower and upper bounds of the replicas that fit, from cells, in integers.

Pure, whole-array. Must not look at pools: callers mask the cells that do not suit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from federation.model.arrays import IntArray
from federation.model.estimate import MAX_REPLICAS
from federation.model.pools.values import Cells
from federation.model.resources import MAX_AMOUNT, PODS

# Bound of products in int64, which holds twice as much; above it a cell keeps its simpler bound.
_SAFE: Final = 2.0**62


def per_replica(request: Mapping[str, int]) -> dict[str, int]:
    """Return what one replica takes from a node: its positive amounts, and always one pod slot.

    Pods are last: they cost no division, and are rarely scarce.
    """
    amounts = {name: amount for name, amount in request.items() if amount > 0 and name != PODS}
    return {**amounts, PODS: 1}


def tighter_lower_k(cells: Cells, demanded: Mapping[str, int]) -> IntArray:
    """Return LB+ of each cell (axis k), the better one of two lower bounds.

    LB is ``nodes * replicas that the minimum of the cell holds``. The other bound uses the sum of a
    single scarce resource. ``demanded`` is a result of ``per_replica``.

    If every other resource holds at least B replicas on every node, a node with amount x of the
    scarce one holds ``min(x // amount, B)``: a staircase in x. A convex line below it, at the mean
    of x, is at most the mean of the staircase (Jensen). That value is rounded up here.
    """
    rows = _rows(cells.resources, demanded)
    if rows is None:
        return np.zeros(len(cells), dtype=np.int64)
    amounts = list(demanded.values())
    low_qk = [_quotient(cells.min_rk[row], q) for row, q in zip(rows, amounts, strict=True)]
    scarcest_k, second_k = _two_least(low_qk)
    bound_k = np.minimum(scarcest_k, MAX_REPLICAS) * cells.count_k
    for row, amount, low_k in zip(rows, amounts, low_qk, strict=True):
        rises_k = cells.max_rk[row] - low_k * amount >= amount
        rises_k &= low_k < second_k
        (position_j,) = np.nonzero(rises_k)
        if len(position_j):
            gained_j = _gain_by_sum(
                cells, row, amount, position_j, low_k[position_j], second_k[position_j]
            )
            bound_k[position_j] += gained_j
    return bound_k


def upper_k(cells: Cells, demanded: Mapping[str, int]) -> IntArray:
    """Return UB of each cell: ``nodes * replicas in its maximum``, at most what each sum allows."""
    rows = _rows(cells.resources, demanded)
    if rows is None:
        return np.zeros(len(cells), dtype=np.int64)
    bound_k = fit_in_k(cells.resources, cells.max_rk, demanded)
    np.multiply(bound_k, cells.count_k, out=bound_k)
    all_exact = bool(cells.sum_exact_k.all())
    for row, amount in zip(rows, demanded.values(), strict=True):
        by_sum_k = _quotient(cells.sum_rk[row], amount)
        if not all_exact:
            by_sum_k = np.where(cells.sum_exact_k, by_sum_k, MAX_AMOUNT)
        np.minimum(bound_k, by_sum_k, out=bound_k)
    return bound_k


def fit_k(cells: Cells, demanded: Mapping[str, int]) -> IntArray:
    """Return the replicas that every node of a cell surely holds, 0..MAX_REPLICAS."""
    return fit_in_k(cells.resources, cells.min_rk, demanded)


def fit_in_k(
    resources: Sequence[str], amount_rk: IntArray, demanded: Mapping[str, int]
) -> IntArray:
    """Return the replicas that a node with these amounts holds, 0..MAX_REPLICAS."""
    rows = _rows(resources, demanded)
    if rows is None:
        return np.zeros(amount_rk.shape[1], dtype=np.int64)
    quotients = (
        _quotient(amount_rk[row], amount)
        for row, amount in zip(rows, demanded.values(), strict=True)
    )
    fits_k: IntArray = np.minimum(next(quotients), MAX_REPLICAS)
    for quotient_k in quotients:
        np.minimum(fits_k, quotient_k, out=fits_k)
    return fits_k


def _rows(resources: Sequence[str], demanded: Mapping[str, int]) -> list[int] | None:
    """Return the rows of the demanded resources; None when no node has one of them."""
    if not demanded.keys() <= set(resources):
        return None
    return [resources.index(name) for name in demanded]


def _quotient(amount_k: IntArray, divisor: int) -> IntArray:
    """Return whole quotients of amounts that are 0 or more."""
    if divisor == 1:
        return amount_k
    # Unsigned division is 1.5 times as fast: it does not round towards minus infinity.
    quotient_k: IntArray = (amount_k.view(np.uint64) // np.uint64(divisor)).view(np.int64)
    return quotient_k


def _two_least(values_qk: Sequence[IntArray]) -> tuple[IntArray, IntArray]:
    """Return the lowest and the second lowest value of each column; the second is capped."""
    least_k = values_qk[0]
    second_k = np.full(len(least_k), MAX_REPLICAS, dtype=np.int64)
    for value_k in values_qk[1:]:
        np.minimum(second_k, np.maximum(least_k, value_k), out=second_k)
        least_k = np.minimum(least_k, value_k)
    return least_k, second_k


def _gain_by_sum(
    cells: Cells,
    row: int,
    amount: int,
    position_j: np.ndarray,
    low_j: IntArray,
    most_j: IntArray,
) -> IntArray:
    """Return LB+ minus LB in the cells at ``position_j`` (axis j), where one resource is scarce.

    Every node holds at least ``low_j`` replicas of it, and some hold up to ``most_j``, which all
    other resources hold everywhere. The line has two parts: to the last step, and from there to the
    maximum. If the last step is too flat for that, it is one straight line to the maximum.
    """
    count_j = cells.count_k[position_j]
    sum_j = cells.sum_rk[row, position_j]
    max_j = cells.max_rk[row, position_j]
    high_j = np.minimum(_quotient(max_j, amount), most_j)
    # The staircase is low_j up to here, and high_j - 1 up to max_j - last_j.
    first_edge_j = (low_j + 1) * amount - 1
    last_j = max_j - (high_j * amount - 1)
    above_j = sum_j - count_j * first_edge_j
    is_steep_j = last_j <= amount
    gain_j: IntArray = -(-above_j // amount)
    tail_j = count_j * (high_j - 1 - low_j)
    tail_j += -((count_j * (max_j - last_j) - sum_j) // last_j)
    np.maximum(gain_j, tail_j, out=gain_j)
    rise_j = high_j - low_j
    (flat_f,) = np.nonzero(~is_steep_j)
    if len(flat_f):
        run_f = (max_j - first_edge_j)[flat_f]
        gain_j[flat_f] = -(-(above_j * rise_j)[flat_f] // run_f)
    if float(count_j.max()) * float(max_j.max()) * float(rise_j.max()) >= _SAFE:
        fits_int64_j = count_j.astype(np.float64) * max_j < _SAFE
        fits_int64_j &= is_steep_j | (count_j.astype(np.float64) * max_j * rise_j < _SAFE)
        gain_j[~fits_int64_j] = 0
    np.maximum(gain_j, 0, out=gain_j)
    return gain_j
