"""The order in which cells are filled: by the free amounts of their nodes. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from federation.model.arrays import IntArray
from federation.model.pools.values import Cells
from federation.model.resources import is_extended


def weight_r1(cells: Cells) -> npt.NDArray[np.float64]:
    """Return factors that turn amounts into shares of the cluster's; shares of a node sum to at
    most 1.
    """
    total_r = (cells.min_rk.astype(np.float64) * cells.count_k).sum(axis=1)
    weight_r: npt.NDArray[np.float64] = 1.0 / (np.maximum(total_r, 1.0) * max(len(total_r), 1))
    return weight_r[:, np.newaxis]


def size_k(amount_rk: IntArray, weight_rk: npt.NDArray[np.float64]) -> IntArray:
    """Return free amounts as one number below 2**30 per cell, which grows with the free amounts."""
    size = np.add.reduce(amount_rk * weight_rk, axis=0).astype(np.float32)
    # The bits of non-negative floats, read as integers, have the order of the floats.
    size_k: IntArray = size.view(np.int32).astype(np.int64)
    return size_k


def smallest_first(cells: Cells, demanded: Mapping[str, int]) -> npt.NDArray[np.intp]:
    """Return positions of the cells by free amounts; those with devices not in demand are last.

    Amounts are compared as shares of the cluster's; equal ones keep their order.
    """
    is_spare_k = np.zeros(len(cells), dtype=np.bool_)
    for name, min_k in zip(cells.resources, cells.min_rk, strict=True):
        if is_extended(name) and name not in demanded:
            is_spare_k |= min_k > 0
    return np.lexsort((size_k(cells.min_rk, weight_r1(cells)), is_spare_k))
