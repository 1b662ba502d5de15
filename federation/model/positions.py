"""Where clusters stand in arrays by position, once some have left a fleet and others have come.

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

# Where what has left stands now.
GONE: Final = -1


@dataclass(frozen=True, kw_only=True, eq=False)
class Moves:
    """Positions that were left, and positions that were taken since, both ascending."""

    left: Sequence[int] = ()
    taken: Sequence[int] = ()

    def items(self, before: Iterable[Value], newcomers: Iterable[Value]) -> tuple[Value, ...]:
        """What stands where now; newcomers in the order of their positions."""
        items = list(before)
        for position in reversed(self.left):
            del items[position]
        for position, newcomer in zip(self.taken, newcomers, strict=True):
            items.insert(position, newcomer)
        return tuple(items)

    def array(
        self, before: npt.NDArray[_Number], newcomers: Any, axis: int = 0
    ) -> npt.NDArray[_Number]:
        """The same for an array: a copy with one value, or one for each, for newcomers."""
        kept = np.delete(before, self.left, axis) if self.left else before
        if not self.taken:
            return kept if self.left else before.copy()
        # Counted before any of them is put in.
        places = np.array(self.taken) - np.arange(len(self.taken))
        array: npt.NDArray[_Number] = np.insert(kept, places, newcomers, axis)
        return array

    def positions(self, size: int) -> IntArray:
        """Where each of so many that stood there stands now, GONE where nowhere."""
        moved_c = np.full(size, GONE, dtype=np.int64)
        kept_c = np.delete(np.arange(size), self.left)
        moved_c[kept_c] = np.delete(np.arange(len(kept_c) + len(self.taken)), self.taken)
        return moved_c


UNMOVED: Final = Moves()
