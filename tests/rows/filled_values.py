"""Values of any model type with no field at its default, the same in every release."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import MISSING, fields
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np

from federation.model.reasons import Reason, stored_reason

PLAIN = {str: str, int: int, float: float, bool: bool, bytes: bytes}


def filled(
    kind: Any, path: str = "", default: object = MISSING, *, only_required: bool = False
) -> Any:
    """Build a value whose parts depend on the names of the fields that lead to them."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return filled(next(part for part in arguments if part is not NoneType), path)
    if origin is tuple:
        if arguments[-1] is Ellipsis:
            return (filled(arguments[0], path),)
        return tuple(filled(part, f"{path}[{place}]") for place, part in enumerate(arguments))
    if origin is frozenset:
        return frozenset({filled(arguments[0], path)})
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {filled(arguments[0], f"{path}.key"): filled(arguments[1], path)}
    if origin is np.ndarray:
        return np.array([plain_value(int, path, default) % 100], dtype=get_args(arguments[1])[0])
    if kind is Reason:
        return stored_reason(plain_value(str, path, default))
    if issubclass(kind, Enum):
        return next(member for member in reversed(kind) if member is not default)
    if kind in PLAIN:
        return plain_value(kind, path, default)
    hints = get_type_hints(kind)
    defaults = defaults_of(kind)
    values = {
        name: filled(hints[name], f"{path}.{name}", default)
        for name, default in defaults.items()
        if default is MISSING or not only_required
    }
    return kind(**values)


def is_named_tuple(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")


def plain_value(kind: type, path: str, default: object) -> Any:
    number = zlib.crc32(path.encode()) % 100_000 + 2
    if kind is bool:
        return default is not True
    if kind is float:
        return number + 0.5
    if kind is int:
        return number
    text = path.rpartition(".")[2]
    return text.encode() if kind is bytes else text


def defaults_of(kind: Any) -> dict[str, object]:
    """Return the default of each field of a dataclass or named tuple, MISSING without one."""
    if is_named_tuple(kind):
        return {name: kind._field_defaults.get(name, MISSING) for name in kind._fields}
    return {
        field.name: (field.default if field.default_factory is MISSING else field.default_factory())
        for field in fields(kind)
    }
