"""Positions of clusters in arrays after some clusters left the fleet and others joined.

Pure. Must not know what the arrays hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from federation.model.arrays import IntArray

Value = TypeVar("Value")
_Number = TypeVar("_Number", bound=np.generic)

# The new position of a cluster that left.
GONE: Final = -1


@dataclass(frozen=True, kw_only=True, eq=False)
class Moves:
    """The positions that left (in the earlier order) and joined (in the new order), both
    ascending.
    """

    removed: Sequence[int] = ()
    added: Sequence[int] = ()

    def items(self, earlier: Iterable[Value], newcomers: Iterable[Value]) -> tuple[Value, ...]:
        """Return the items in the new order; ``newcomers`` are in the order of their positions."""
        items = list(earlier)
        for position in reversed(self.removed):
            del items[position]
        for position, newcomer in zip(self.added, newcomers, strict=True):
            items.insert(position, newcomer)
        return tuple(items)

    def array(
        self, earlier: npt.NDArray[_Number], newcomers: Any, axis: int = 0
    ) -> npt.NDArray[_Number]:
        """Return a copy of an array in the new order, with one value, or one each, for
        newcomers.
        """
        staying = np.delete(earlier, self.removed, axis) if self.removed else earlier
        if not self.added:
            return staying if self.removed else earlier.copy()
        # np.insert counts positions before any insertion.
        places = np.array(self.added) - np.arange(len(self.added))
        array: npt.NDArray[_Number] = np.insert(staying, places, newcomers, axis)
        return array

    def positions(self, size: int) -> IntArray:
        """Return the new position of each earlier one, GONE for clusters that left."""
        moved_c = np.full(size, GONE, dtype=np.int64)
        kept_c = np.delete(np.arange(size), self.removed)
        moved_c[kept_c] = np.delete(np.arange(len(kept_c) + len(self.added)), self.added)
        return moved_c


UNMOVED: Final = Moves()
