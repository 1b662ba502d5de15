"""Frozen values of arrays, enums and tuples to plain builtins and back, by their type hints.

Must not know any particular value: everything that the scheduler records is stored as JSON with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, Final, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

from federation.model.arrays import plain_column
from federation.model.reasons import Reason

Value = TypeVar("Value")
_PLAIN: Final = frozenset({str, int, float, bool, type(None)})


def to_plain(value: object) -> Any:
    """Return dicts, lists, strings, numbers and booleans; floats of arrays are rounded."""
    kind: Any = type(value)
    # The most frequent case in a decision over thousands of clusters.
    if kind in _PLAIN:
        return value
    if isinstance(value, np.ndarray):
        return plain_column(value)
    if kind is Reason:
        return str(value)
    if isinstance(value, Enum):
        return value.value
    names = _names(kind)
    if names is not None:
        return {name: to_plain(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        # Thousands of cluster names: strings are plain already.
        if value and isinstance(value[0], str):
            return list(value)
        return [to_plain(item) for item in value]
    return value


def from_plain(kind: type[Value], plain: Any) -> Value:
    """Return the value of which ``to_plain`` made this; floats of arrays stay rounded.

    Keys that the class does not have are ignored. Raises ValueError or TypeError for anything else.
    """
    return _build(kind, plain)  # type: ignore[no-any-return]  # the hint decides


@cache
def _names(kind: type) -> tuple[str, ...] | None:
    """Return the field names of a dataclass; None for other types."""
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else None


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


@cache
def _parts(hint: Any) -> tuple[Any, Any, tuple[Any, ...]]:
    """Return a hint without aliases, its origin and its arguments, cached for long lists."""
    hint = _without_alias(hint)
    return hint, get_origin(hint), get_args(hint)


def _without_alias(hint: Any) -> Any:
    """Resolve names made by a ``type`` statement: ``NDArray`` is one in newer numpy releases."""
    while (alias := getattr(get_origin(hint) or hint, "__value__", None)) is not None:
        arguments = get_args(hint)
        hint = alias[arguments] if arguments else alias
    return hint


def _items(plain: Any) -> Iterable[tuple[Any, Any]]:
    if not isinstance(plain, Mapping):
        raise TypeError(f"{type(plain).__name__} where names and values were expected")
    return plain.items()


def _build(hint: Any, plain: Any) -> Any:
    hint, origin, arguments = _parts(hint)
    if origin is np.ndarray:
        return np.array(plain, dtype=get_args(arguments[1])[0])
    if origin is tuple:
        if arguments[0] is str:
            return tuple(plain)
        return tuple(_build(arguments[0], item) for item in plain)
    if origin in (dict, Mapping):
        key_kind, item_hint = arguments
        return {key_kind(key): _build(item_hint, item) for key, item in _items(plain)}
    if isinstance(hint, type) and is_dataclass(hint):
        hints = _hints(hint)
        return hint(
            **{name: _build(hints[name], item) for name, item in _items(plain) if name in hints}
        )
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint(plain)
    return plain
