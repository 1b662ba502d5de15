"""Conditions on a list of values, which travel as one array: a statement is prepared once.

Must not know what the values are.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import ColumnElement, any_, bindparam
from sqlalchemy.dialects.postgresql import ARRAY


def is_one_of(column: ColumnElement[Any], values: Collection[Any]) -> ColumnElement[bool]:
    """Return the condition that a column holds one of these values."""
    return column == any_(bindparam(None, list(values), type_=ARRAY(column.type)))
