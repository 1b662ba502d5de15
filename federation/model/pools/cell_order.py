"""The order in which cells are filled: by how much is free on their nodes. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from federation.model.arrays import IntArray
from federation.model.pools.values import Cells
from federation.model.resources import is_extended


def weight_r1(cells: Cells) -> npt.NDArray[np.float64]:
    """What makes shares of what the cells hold in all; all shares of a node are at most 1."""
    total_r = (cells.min_rk.astype(np.float64) * cells.count_k).sum(axis=1)
    weight_r: npt.NDArray[np.float64] = 1.0 / (np.maximum(total_r, 1.0) * max(len(total_r), 1))
    return weight_r[:, np.newaxis]


def size_k(amount_rk: IntArray, weight_rk: npt.NDArray[np.float64]) -> IntArray:
    """Free amounts as one number below 2**30 that is larger where more is free."""
    size = np.add.reduce(amount_rk * weight_rk, axis=0).astype(np.float32)
    # The bits of floats that are not negative are in the order of the floats.
    size_k: IntArray = size.view(np.int32).astype(np.int64)
    return size_k


def smallest_first(cells: Cells, demanded: Mapping[str, int]) -> npt.NDArray[np.intp]:
    """Positions of the cells, those with devices nobody asked for last, else by free amounts.

    Amounts are compared as shares of the cluster's; equal ones keep their order.
    """
    is_spare_k = np.zeros(len(cells), dtype=np.bool_)
    for name, min_k in zip(cells.resources, cells.min_rk, strict=True):
        if is_extended(name) and name not in demanded:
            is_spare_k |= min_k > 0
    return np.lexsort((size_k(cells.min_rk, weight_r1(cells)), is_spare_k))
