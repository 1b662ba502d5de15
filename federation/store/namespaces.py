"""Conditions on a column that holds namespaces.

Must not know whose namespaces they are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from sqlalchemy import Column, ColumnElement, Text, any_, bindparam, or_
from sqlalchemy.dialects.postgresql import ARRAY


def in_namespaces(
    column: Column[str], namespace: str, among: Collection[str]
) -> Iterator[ColumnElement[bool]]:
    """It is this one, unless empty; and one of these names or patterns, as in ``Scope``, if any."""
    if namespace:
        yield column == namespace
    if among:
        names = [pattern for pattern in among if "*" not in pattern]
        patterns = [_like(pattern) for pattern in among if "*" in pattern]
        # An index finds names.
        is_named = column == any_(bindparam(None, names, type_=ARRAY(Text)))
        is_like = column.op("LIKE", is_comparison=True)(
            any_(bindparam(None, patterns, type_=ARRAY(Text)))
        )
        yield or_(is_named, is_like) if patterns else is_named


def _like(pattern: str) -> str:
    for special in ("\\", "%", "_"):
        pattern = pattern.replace(special, f"\\{special}")
    return pattern.replace("*", "%")
