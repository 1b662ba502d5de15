"""Values that repeat, told once: rows of many clusters name them by place.

Must not know what the values are.
"""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class Distinct(Generic[T]):
    """The values that were met, in order, and the place of each.

    Of few distinct values, which need not be hashable: most that come again are the same object.
    """

    def __init__(self) -> None:
        self.values: list[T] = []
        self._places: dict[int, int] = {}
        # Without a reference an object's identity may be given to another one.
        self._met: list[T] = []

    def place(self, value: T) -> int:
        known = self._places.get(id(value))
        if known is not None:
            return known
        try:
            place = self.values.index(value)
        except ValueError:
            place = len(self.values)
            self.values.append(value)
        self._places[id(value)] = place
        self._met.append(value)
        return place
