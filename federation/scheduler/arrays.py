"""The array types of the scheduler's rooms.

Must not hold anything else. Arrays are named by their axes: ``_c`` clusters of the fleet, ``_k``
candidates in the order chosen, ``_g`` groups of clusters.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]
LevelArray = npt.NDArray[np.int8]
UintArray = npt.NDArray[np.uint64]
FloatArray = npt.NDArray[np.float64]

Array = TypeVar("Array", bound=npt.NDArray[Any])


def read_only(array: Array) -> Array:
    """The same array, which from now on refuses to be written to."""
    array.flags.writeable = False
    return array
