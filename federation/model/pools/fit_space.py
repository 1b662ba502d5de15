"""What cells hold of a catalogue of shapes: the space in which merging them is measured.

Pure. Must not choose what to merge.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

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
    """Each cell's coordinates, axis k, such that all nodes together have 1 and a bit.

    One coordinate a shape: what a node of the cell holds of it, over what the cluster does. And a
    small one a resource, straight and in logarithms. The least of two cells' coordinates are those
    of their common minimum, so losses can be counted without dividing again.
    """
    fit_sk = _fits(cells)
    live_s = fit_sk @ cells.count_k
    fit_sk = fit_sk[live_s > 0] / live_s[live_s > 0, np.newaxis]
    amount_rk = cells.min_rk.astype(np.float64)
    epsilon_r = np.array([_epsilon(name) for name in cells.resources])[:, np.newaxis]
    tie_sk = np.concatenate([amount_rk, np.log1p(amount_rk / epsilon_r)])
    total_s = tie_sk @ cells.count_k
    tie_sk = tie_sk[total_s > 0] / total_s[total_s > 0, np.newaxis]
    return np.concatenate(
        [
            fit_sk / max(len(fit_sk), 1),
            tie_sk * (_TIE_BREAK_SHARE / max(len(tie_sk), 1)),
        ]
    ).astype(np.float32)


def _fits(cells: Cells) -> npt.NDArray[np.float64]:
    """Replicas of each shape of the catalogue that the minimum of each cell holds."""
    shapes = list(catalogue(cells.resources))
    fit_sk = np.empty((len(shapes), len(cells)), dtype=np.float64)
    slots_k = np.minimum(cells.min_rk[cells.resources.index(PODS)], _MOST_FITS)
    # As floats from here on: whole numbers of replicas stay exact, and mixing types is slow.
    quotients: dict[tuple[str, int], npt.NDArray[np.float64]] = {}
    for fit_k, shape in zip(fit_sk, shapes, strict=True):
        fit_k[:] = slots_k
        for name, amount in shape.items():
            quotient = quotients.get((name, amount))
            if quotient is None:
                amount_k = cells.min_rk[cells.resources.index(name)]
                quotient = (amount_k // amount).astype(np.float64)
                quotients[name, amount] = quotient
            np.minimum(fit_k, quotient, out=fit_k)
    return fit_sk


def _epsilon(name: str) -> float:
    """An amount of the resource that is next to nothing."""
    if name == CPU:
        return 50.0
    if name == MEMORY or name.startswith(HUGEPAGES_PREFIX):
        return 64.0 * _MIB
    return float(_GIB) if name in (EPHEMERAL_STORAGE, STORAGE) else 1.0
