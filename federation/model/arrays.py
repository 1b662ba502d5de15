"""The array types of both programs, and small helpers for any array.

Arrays are named by their axes: ``_c`` clusters of the fleet, ``_k`` candidates in the order chosen,
``_g`` groups of clusters.
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

# Decimals of quotas, which people read; the seats are recorded exactly.
_DECIMALS = 3


@lru_cache(maxsize=32)
def filled(count: int, value: int) -> IntArray:
    """Return a read-only array of one number; equal calls share one array."""
    return read_only(np.full(count, value, dtype=np.int64))


@lru_cache(maxsize=8)
def nowhere(count: int) -> BoolArray:
    """Return a read-only mask that is false everywhere; equal calls share one array."""
    return read_only(np.zeros(count, np.bool_))


def read_only(array: Array) -> Array:
    """Make an array read-only and return it."""
    array.flags.writeable = False
    return array


def plain_column(array: np.ndarray) -> list[Any]:
    """Return an array as a list; floats are rounded for reading."""
    rounded = array.round(_DECIMALS) if array.dtype.kind == "f" else array
    plain: list[Any] = rounded.tolist()
    return plain
