"""What cells hold of a catalogue of shapes: the space in which merging them is measured.

Pure. Must not choose what to merge.
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

# Round sizes, since people ask for those; closer together where full clusters have their holes.
_CPU_MILLIS: Final = (
    *(25, 35, 50, 70, 85, 100, 125, 150, 200, 250, 300, 400, 500, 750),
    *(1000, 2000, 4000, 8000, 16000),
)
_MOST_FITS: Final = 10**7
# How much amounts themselves count beside fits: enough to tell cells apart that hold the same.
_TIE_BREAK_SHARE: Final = 0.02


def catalogue(resources: Sequence[str]) -> Iterator[Mapping[str, int]]:
    """The shapes that losses are counted in; each takes a pod slot as well.

    Powers of two in cpu were measured to lose twice as much of round sizes. Wide in the ratio of
    memory to cpu: narrow ones lose the memory-heavy shapes.
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
    """Each cell's coordinates (axis s), such that all nodes together have 1 and a bit.

    One coordinate a shape: what a node of the cell holds of it, over what the cluster does. And a
    small one a resource, straight and in logarithms. The least of two cells' coordinates are those
    of their common minimum, so losses can be counted without dividing again.
    """
    amount_rk = cells.min_rk.astype(np.float64)
    epsilon_r = np.array([_epsilon(name) for name in cells.resources])[:, np.newaxis]
    tie_sk = np.concatenate([amount_rk, np.log1p(amount_rk / epsilon_r)])
    parts = [(_fits(cells.resources, amount_rk), 1.0), (tie_sk, _TIE_BREAK_SHARE)]
    return np.hstack([_shares(value_sk, cells.count_k, share) for value_sk, share in parts])


def _shares(value_sk: _Float64Array, count_k: IntArray, share: float) -> FloatArray:
    """The values, cells first, such that those of all nodes make ``share``; without rows of 0."""
    total_s = value_sk @ count_k.astype(np.float64)
    (live,) = np.nonzero(total_s > 0)
    if len(live) < len(total_s):
        value_sk, total_s = value_sk[live], total_s[live]
    value_sk *= (share / max(len(total_s), 1) / total_s)[:, np.newaxis]
    return np.ascontiguousarray(value_sk.T, dtype=np.float32)


def _fits(resources: Sequence[str], amount_rk: _Float64Array) -> _Float64Array:
    """Replicas of each shape of the catalogue that the minimum of each cell holds.

    As floats, which divide fastest: quotients of amounts below 2^53 are exact to the replica.
    """
    shapes = list(catalogue(resources))
    row_of = {name: row for row, name in enumerate(resources)}
    fit_sk = np.empty((len(shapes), amount_rk.shape[1]), dtype=np.float64)
    slots_k = np.minimum(amount_rk[row_of[PODS]], _MOST_FITS)
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
    """An amount of the resource that is next to nothing."""
    if name == CPU:
        return 50.0
    if name == MEMORY or name.startswith(HUGEPAGES_PREFIX):
        return 64.0 * _MIB
    return float(_GIB) if name in (EPHEMERAL_STORAGE, STORAGE) else 1.0
