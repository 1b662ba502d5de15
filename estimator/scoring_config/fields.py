"""A strict decoder: tables of fields, each with a reader, as Kubernetes decodes its files.

Must not judge values beyond their type; ranges and relations are validation's.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar

from estimator.scoring_config.faults import Fault, FaultType, child

Faults: TypeAlias = list[Fault]
Reader: TypeAlias = Callable[[Any, str, Faults], Any]
"""(value, field path, faults to add to) → the decoded value, or the type's zero where faulty."""

_Zero = TypeVar("_Zero")

_NANOS: Mapping[str, int] = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,  # Go reads the Greek letter as well as the micro sign
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_MAX_INT32 = 2**31 - 1
_MAX_INT64 = 2**63 - 1


def struct(fields: Mapping[str, Reader]) -> Reader:
    """An object with these fields and no others; absent and null fields are left out."""

    def read(value: Any, path: str, faults: Faults) -> dict[str, Any]:
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            return _mistyped(path, "an object", faults, {})
        decoded = {}
        for name, item in value.items():
            field = child(path, str(name))
            if name not in fields:
                _add(faults, field, "is not a known field")
            elif item is not None:
                decoded[name] = fields[name](item, field, faults)
        return decoded

    return read


def list_of(item: Reader) -> Reader:
    """A list whose items ``item`` reads."""

    def read(value: Any, path: str, faults: Faults) -> list[Any]:
        if value is None:
            return []
        if not isinstance(value, list):
            return _mistyped(path, "a list", faults, [])
        return [item(part, f"{path}[{index}]", faults) for index, part in enumerate(value)]

    return read


def raw(value: Any, path: str, faults: Faults) -> Any:  # noqa: ARG001 - a Reader like the others
    """Anything at all, kept as it is."""
    return value


def string(value: Any, path: str, faults: Faults) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else _mistyped(path, "a string", faults, "")


def boolean(value: Any, path: str, faults: Faults) -> bool:
    if value is None:
        return False
    return value if isinstance(value, bool) else _mistyped(path, "true or false", faults, False)


def number(value: Any, path: str, faults: Faults) -> float:
    if value is None:
        return 0.0
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return _mistyped(path, "a number", faults, 0.0)
    return value


def int32(value: Any, path: str, faults: Faults) -> int:
    return _integer(value, path, faults, _MAX_INT32)


def int64(value: Any, path: str, faults: Faults) -> int:
    return _integer(value, path, faults, _MAX_INT64)


def duration(value: Any, path: str, faults: Faults) -> int:
    """Nanoseconds, from text such as "1m30s"; a bare number is refused."""
    if value is None:
        return 0
    nanos = go_duration(value) if isinstance(value, str) else None
    return _mistyped(path, 'a duration such as "15s"', faults, 0) if nanos is None else nanos


def go_duration(text: str) -> int | None:
    """The nanoseconds of a duration in Go's notation; None when it is not one."""
    unsigned = text[1:] if text[:1] in ("+", "-") else text
    if unsigned == "0":
        return 0
    parts = _DURATION_PART.findall(unsigned)
    if not parts or "".join(map("".join, parts)) != unsigned:
        return None
    nanos = sum(int(float(amount) * _NANOS[unit]) for amount, unit in parts)
    return -nanos if text.startswith("-") else nanos


def _integer(value: Any, path: str, faults: Faults, most: int) -> int:
    if value is None:
        return 0
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        value = int(value)  # JSON knows no difference between 1 and 1.0
    if isinstance(value, bool) or not isinstance(value, int):
        return _mistyped(path, "an integer", faults, 0)
    if not -most - 1 <= value <= most:
        return _mistyped(path, f"an integer from {-most - 1} to {most}", faults, 0)
    return value


def _mistyped(path: str, expected: str, faults: Faults, zero: _Zero) -> _Zero:
    _add(faults, path, f"must be {expected}")
    return zero


def _add(faults: Faults, path: str, rule: str) -> None:
    faults.append(Fault(field=path, rule=rule, type=FaultType.TYPE_INVALID))
