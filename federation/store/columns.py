"""Columns of a table that travels as one body: mostly one value stands in all its rows.

Must not know what the values are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, TypeVar

T = TypeVar("T")

# The distinct values, and for every row the place of its own; none where all are equal.
Factored: TypeAlias = tuple[Sequence[T], Sequence[int]]


def shortened(column: Sequence[T]) -> Sequence[T]:
    """One value where all are equal, else all."""
    return column[:1] if column and column.count(column[0]) == len(column) else column


def lengthened(column: Sequence[T], rows: int) -> Sequence[T]:
    """What was shortened."""
    return column if len(column) == rows else [*column] * rows


def factored(column: Sequence[T]) -> Factored[T]:
    """Of few distinct values, which need not be hashable: most that come again are the same
    object.
    """
    if len(shortened(column)) <= 1:
        return column[:1], ()
    distinct: list[T] = []
    known: dict[int, int] = {}
    for value in column:
        if id(value) not in known:
            if value not in distinct:
                distinct.append(value)
            known[id(value)] = distinct.index(value)
    return distinct, [known[id(value)] for value in column]


def multiplied(distinct: Sequence[T], places: Sequence[int], rows: int) -> Sequence[T]:
    """What was factored."""
    return [distinct[place] for place in places] if places else list(distinct) * rows
