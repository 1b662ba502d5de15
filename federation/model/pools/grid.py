"""Base cells: nodes whose free amounts fall between the same bounds, resource by resource.

Pure. Must not know what cells cost to merge.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from federation.model.arrays import IntArray
from federation.model.resources import (
    CPU,
    EPHEMERAL_STORAGE,
    HUGEPAGES_PREFIX,
    MEMORY,
    PODS,
    STORAGE,
)

# More base cells take too long to merge: all pairs are compared.
MAX_BASE_CELLS: Final = 1200

_MIB: Final = 1 << 20
_GIB: Final = 1 << 30

# People request round sizes: a node with 8.1 free cores must not share a cell with one of 7.9.
_CPU_MILLIS: Final = (
    *(50, 100, 150, 200, 250, 300, 400, 500, 750, 1000, 1500, 2000, 2500),
    *(1000 * cores for cores in (3, 4, 5, 6, 7, 8, 10, 12, 14, 15, 16, 20, 24, 28, 30, 32, 40, 48)),
    *(1000 * cores for cores in (60, 64, 90, 96, 120, 128)),
)
_MEMORY_BYTES: Final = (
    *(mebibytes * _MIB for mebibytes in (32, 64, 128, 192, 256, 384, 512, 768, 1024, 1536)),
    *(gibibytes * _GIB for gibibytes in (2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 28, 32, 48, 64, 96)),
    *(gibibytes * _GIB for gibibytes in (128, 192, 256, 384, 512, 1024)),
)
_POD_SLOTS: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96)
_STORAGE_BYTES: Final = tuple(
    gibibytes * _GIB for gibibytes in (1, 2, 5, 10, 20, 30, 50, 60, 80, 100, 200, 400, 800, 1600)
)
_DEVICES: Final = (*range(1, 17), 24, 32, 48, 64, 96, 128)

_Bounds: TypeAlias = Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The rule that turns free amounts into keys.

    ``bounds_of`` returns the ascending lower ends of a resource's intervals above 0; None: every
    amount is a key.
    """

    name: str
    bounds_of: Callable[[str], _Bounds] | None

    def keys(self, resources: Sequence[str], free_rn: IntArray) -> IntArray:
        """Return the key of every node's amounts: resources on axis r, nodes on axis n."""
        if self.bounds_of is None:
            return free_rn
        return np.stack(
            [
                np.searchsorted(np.asarray(self.bounds_of(name), np.int64), free_n, side="right")
                for name, free_n in zip(resources, free_rn, strict=True)
            ]
        )


def _round_bounds(name: str) -> _Bounds:
    if name in (EPHEMERAL_STORAGE, STORAGE):
        return _STORAGE_BYTES
    if name == MEMORY or name.startswith(HUGEPAGES_PREFIX):
        return _MEMORY_BYTES
    if name == CPU:
        return _CPU_MILLIS
    return _POD_SLOTS if name == PODS else _DEVICES


def _halved_bounds(name: str) -> _Bounds:
    """Return round bounds and the middles between them, for sizes that are not round.

    Finer bounds were measured to gain almost nothing.
    """
    bounds = _round_bounds(name)
    return sorted({*bounds, *((low + high) // 2 for low, high in pairwise((0, *bounds)))})


def _stepped_bounds(step: float) -> Callable[[str], _Bounds]:
    """Return bounds for cpu and memory, each ``step`` times its predecessor."""

    def bounds_of(name: str) -> _Bounds:
        bounds = _round_bounds(name)
        steps = math.ceil(math.log(bounds[-1] / bounds[0], step))
        return sorted({int(bounds[0] * step**power) for power in range(steps + 1)})

    return bounds_of


def _grid(name: str, bounds_of: Callable[[str], _Bounds], interval: int) -> Grid:
    """Return a grid with these bounds for cpu and memory, and every ``interval``-th round bound of
    others.
    """

    def chosen(resource: str) -> _Bounds:
        if resource in (CPU, MEMORY):
            return bounds_of(resource)
        return _round_bounds(resource)[interval // 2 :: interval]

    return Grid(name=f"{name}, 1 of {interval}", bounds_of=chosen)


# From the finest; the last makes one base cell of each pool. Slots and storage become coarse first,
# because they are rarely scarce, while cpu and memory nearly always are.
GRIDS: Final = (
    Grid(name="every amount", bounds_of=None),
    *(_grid("half steps", _halved_bounds, interval) for interval in (1, 2, 4, 8)),
    *(_grid("round sizes", _round_bounds, interval) for interval in (2, 4, 8)),
    *(_grid(f"steps of {step:.2f}", _stepped_bounds(step), 8) for step in (2**0.5, 2.0, 4.0)),
    _grid("steps of 16", _stepped_bounds(16.0), 16),
    Grid(name="pools alone", bounds_of=lambda _name: ()),
)


def group_keys(key_cn: IntArray) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Group columns with equal keys; return (a column of each group, the group of each column).

    Keys are 0 or more. Groups are numbered in the lexicographic order of their keys.
    """
    folded_n = np.zeros(key_cn.shape[1], dtype=np.int64)
    size = 1
    for key_n in key_cn:
        codes, radix = key_n, int(key_n.max(initial=0)) + 1
        if size * radix >= 2**62:
            codes, radix = _ranks(codes)
        if size * radix >= 2**62:
            folded_n, size = _ranks(folded_n)
        folded_n = folded_n * radix + codes
        size *= radix
    _, first_g, group_n = np.unique(folded_n, return_index=True, return_inverse=True)
    return first_g, group_n


def _ranks(codes: IntArray) -> tuple[IntArray, int]:
    distinct, rank_n = np.unique(codes, return_inverse=True)
    return rank_n.astype(np.int64), len(distinct)
