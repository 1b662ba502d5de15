"""Coordinates of cells: the replicas of a catalogue of shapes that they hold.

The loss of a merge is measured in this space. Pure. Must not choose what to merge.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from federation.model.arrays import IntArray
from federation.model.pools.values import Cells
from federation.model.resources import (
    CPU,
    EPHEMERAL_STORAGE,
    HUGEPAGES_PREFIX,
    MEMORY,
    PODS,
    STORAGE,
)

FloatArray: TypeAlias = npt.NDArray[np.float32]
_Float64Array: TypeAlias = npt.NDArray[np.float64]

_MIB: Final = 1 << 20
_GIB: Final = 1 << 30

# Round sizes, because people request those; closer together where full clusters have free amounts.
_CPU_MILLIS: Final = (
    *(25, 35, 50, 70, 85, 100, 125, 150, 200, 250, 300, 400, 500, 750),
    *(1000, 2000, 4000, 8000, 16000),
)
_MAX_FITS: Final = 10**7
# The weight of amounts beside fits: enough to distinguish cells that hold the same replicas.
_TIE_BREAK_SHARE: Final = 0.02


def catalogue(resources: Sequence[str]) -> Iterator[Mapping[str, int]]:
    """Yield the shapes in which losses are counted; each takes a pod slot as well.

    Powers of two in cpu were measured to lose twice as many replicas of round sizes. The ratios of
    memory to cpu are wide, because narrow ones lose the memory-heavy shapes.
    """
    yield {}
    for cpu_millis in _CPU_MILLIS:
        for quarters in (1, 2, 4, 8, 16, 32, 64, 128):
            yield {CPU: cpu_millis, MEMORY: cpu_millis * quarters * _GIB // 4000}
    for name in resources:
        if name in (EPHEMERAL_STORAGE, STORAGE):
            for gibibytes in (2, 5, 10, 20, 40, 80):
                yield {CPU: 200, MEMORY: 2 * _GIB // 5, name: gibibytes * _GIB}
                yield {CPU: 900, MEMORY: 9 * _GIB // 5, name: gibibytes * _GIB}
        elif name.startswith(HUGEPAGES_PREFIX):
            for mebibytes in (64, 256, 1024, 4096):
                yield {CPU: 1000, MEMORY: _GIB, name: mebibytes * _MIB}
        elif name not in (CPU, MEMORY, PODS):
            for devices in (1, 2, 4, 8):
                yield {CPU: 4000 * devices, MEMORY: 16 * _GIB * devices, name: devices}


def fit_space(cells: Cells) -> FloatArray:
    """Return each cell's coordinates (axis s); over all nodes they sum to about 1.

    There is one coordinate a shape: replicas on a node of the cell, divided by those of the
    cluster. A small one a resource is added, linear and logarithmic. The minimum of two cells'
    coordinates is that of their common minimum, so that losses need no further division.
    """
    amount_rk = cells.min_rk.astype(np.float64)
    epsilon_r = np.array([_epsilon(name) for name in cells.resources])[:, np.newaxis]
    tie_sk = np.concatenate([amount_rk, np.log1p(amount_rk / epsilon_r)])
    parts = [(_fits(cells.resources, amount_rk), 1.0), (tie_sk, _TIE_BREAK_SHARE)]
    return np.hstack([_shares(value_sk, cells.count_k, share) for value_sk, share in parts])


def _shares(value_sk: _Float64Array, count_k: IntArray, share: float) -> FloatArray:
    """Return the values, cells first, scaled to sum to ``share`` over all nodes; rows of 0 are
    dropped.
    """
    total_s = value_sk @ count_k.astype(np.float64)
    (live,) = np.nonzero(total_s > 0)
    if len(live) < len(total_s):
        value_sk, total_s = value_sk[live], total_s[live]
    value_sk *= (share / max(len(total_s), 1) / total_s)[:, np.newaxis]
    return np.ascontiguousarray(value_sk.T, dtype=np.float32)


def _fits(resources: Sequence[str], amount_rk: _Float64Array) -> _Float64Array:
    """Return the replicas of each shape of the catalogue that the minimum of each cell holds.

    Floats divide fastest: quotients of amounts below 2**53 are exact to the replica.
    """
    shapes = list(catalogue(resources))
    row_of = {name: row for row, name in enumerate(resources)}
    fit_sk = np.empty((len(shapes), amount_rk.shape[1]), dtype=np.float64)
    slots_k = np.minimum(amount_rk[row_of[PODS]], _MAX_FITS)
    quotients: dict[tuple[str, int], _Float64Array] = {}
    for fit_k, shape in zip(fit_sk, shapes, strict=True):
        least_k = slots_k
        for name, amount in shape.items():
            quotient_k = quotients.get((name, amount))
            if quotient_k is None:
                quotient_k = np.divide(amount_rk[row_of[name]], amount)
                quotients[name, amount] = np.floor(quotient_k, out=quotient_k)
            least_k = np.minimum(least_k, quotient_k, out=fit_k)
        if not shape:
            fit_k[:] = slots_k
    return fit_sk


def _epsilon(name: str) -> float:
    """Return an amount of the resource that counts as almost nothing."""
    if name == CPU:
        return 50.0
    if name == MEMORY or name.startswith(HUGEPAGES_PREFIX):
        return 64.0 * _MIB
    return float(_GIB) if name in (EPHEMERAL_STORAGE, STORAGE) else 1.0
