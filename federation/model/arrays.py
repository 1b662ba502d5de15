"""The array types that both programs reckon with, and what is done with arrays of any kind.

Arrays are named by their axes: ``_c`` clusters of the fleet, ``_k``
candidates in the order chosen, ``_g`` groups of clusters.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]
LevelArray = npt.NDArray[np.int8]
UintArray = npt.NDArray[np.uint64]
FloatArray = npt.NDArray[np.float64]

Array = TypeVar("Array", bound=npt.NDArray[Any])

# Quotas are shown to people; the seats they led to are recorded exactly.
_DECIMALS = 3


@lru_cache(maxsize=32)
def filled(count: int, value: int) -> IntArray:
    """So many times the same number: one array for all who ask, which refuses to be written to."""
    return read_only(np.full(count, value, dtype=np.int64))


@lru_cache(maxsize=8)
def nowhere(count: int) -> BoolArray:
    """The mask of none of so many: one array for all, which refuses to be written to."""
    return read_only(np.zeros(count, np.bool_))


def read_only(array: Array) -> Array:
    """The same array, which from now on refuses to be written to."""
    array.flags.writeable = False
    return array


def plain_column(array: np.ndarray) -> list[Any]:
    """An array as a list; floats are rounded for reading."""
    rounded = array.round(_DECIMALS) if array.dtype.kind == "f" else array
    plain: list[Any] = rounded.tolist()
    return plain
