"""Documents of scoring configurations, read strictly: every field checked, all faults at once.

Must not know what a field means.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias, TypeVar

import yaml

from federation.model.errors import InvalidRequest, Violation


class Stage(Enum):
    """When kube-scheduler would refuse the document; each ends the reading."""

    DECODE = "decode"
    VALIDATE = "validate"
    PLUGIN = "plugin"


class FaultType(Enum):
    """The kinds of fault, by Kubernetes' names for them."""

    TYPE_INVALID = "FieldValueTypeInvalid"
    INVALID = "FieldValueInvalid"
    NOT_SUPPORTED = "FieldValueNotSupported"
    REQUIRED = "FieldValueRequired"
    DUPLICATE = "FieldValueDuplicate"
    FORBIDDEN = "FieldValueForbidden"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault(Violation):
    """A broken rule with its kind; ``field`` is the path from the top of the document."""

    type: FaultType


class InvalidConfiguration(InvalidRequest):
    """The scoring configuration breaks a rule."""

    reason = "INVALID_SCORING_CONFIGURATION"

    def __init__(self, stage: Stage, faults: Iterable[Fault]) -> None:
        self.stage = stage
        self.faults: Sequence[Fault] = tuple(faults)
        super().__init__(self.faults)


def child(path: str, name: str) -> str:
    """The path of a field one level further in."""
    return f"{path}.{name}" if path else name


# An alias repeats what it names, so a short text could unfold without end.
_MAX_VALUES = 100_000
_MAX_DEPTH = 100
_TOO_LARGE = "is too large or too deep once its aliases are followed"

_TIMESTAMP = "tag:yaml.org,2002:timestamp"
_MERGE = "tag:yaml.org,2002:merge"


class _Loader(yaml.SafeLoader):
    """YAML 1.1 as Go's decoders read it: a date is a string."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def load_document(text: str) -> Mapping[str, Any]:
    """The mapping ``text`` holds; of a key that occurs twice, the later value.

    Raises InvalidConfiguration (stage decode) when it holds anything else.
    """
    return _load(text, unique_keys=False)


def load_strict_document(text: str) -> Mapping[str, Any]:
    """The mapping ``text`` holds; a key that occurs twice is a fault too."""
    return _load(text, unique_keys=True)


def _load(text: str, *, unique_keys: bool) -> Mapping[str, Any]:
    if text.lstrip().startswith("{"):
        text = text.replace("\t", " ")  # JSON may indent with tabs, YAML may not.
    try:
        document, repeated = _parsed(text)
    except (yaml.YAMLError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise _unreadable(f"is not YAML or JSON: {reason}") from error
    except RecursionError as error:
        raise _unreadable(_TOO_LARGE) from error
    if repeated and unique_keys:
        raise InvalidConfiguration(Stage.DECODE, repeated)
    if not isinstance(document, Mapping):
        raise _unreadable("must hold one object")
    return document


def _parsed(text: str) -> tuple[object, list[Fault]]:
    """The document and the keys that occur twice in it."""
    loader = _Loader(text)
    try:
        root = loader.get_single_node()
        if root is None:
            return None, []
        repeated = list(_Walk().repeated_keys(root, "", 0))
        return loader.construct_document(root), repeated
    finally:
        loader.dispose()


class _Walk:
    """Visits every value of a document once for each place it stands in."""

    def __init__(self) -> None:
        self._values = 0

    def repeated_keys(self, node: yaml.Node, path: str, depth: int) -> Iterator[Fault]:
        self._values += 1
        if self._values > _MAX_VALUES or depth > _MAX_DEPTH:
            raise _unreadable(_TOO_LARGE)
        if isinstance(node, yaml.SequenceNode):
            for position, item in enumerate(node.value):
                yield from self.repeated_keys(item, f"{path}[{position}]", depth + 1)
        elif isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for key, value in node.value:
                line = key.start_mark.line + 1
                if not isinstance(key, yaml.ScalarNode):
                    raise _unreadable(f"must have plain text for keys (line {line})")
                field = child(path, key.value)
                if key.tag != _MERGE and key.value in seen:
                    rule = f"occurs twice in the same object (line {line})"
                    yield Fault(field=field, rule=rule, type=FaultType.DUPLICATE)
                seen.add(key.value)
                yield from self.repeated_keys(value, field, depth + 1)


def _unreadable(rule: str) -> InvalidConfiguration:
    return InvalidConfiguration(
        Stage.DECODE, [Fault(field="", rule=rule, type=FaultType.TYPE_INVALID)]
    )


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


def _integer(value: Any, path: str, faults: Faults, maximum: int) -> int:
    if value is None:
        return 0
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        value = int(value)  # JSON knows no difference between 1 and 1.0
    if isinstance(value, bool) or not isinstance(value, int):
        return _mistyped(path, "an integer", faults, 0)
    if not -maximum - 1 <= value <= maximum:
        return _mistyped(path, f"an integer from {-maximum - 1} to {maximum}", faults, 0)
    return value


def _mistyped(path: str, expected: str, faults: Faults, zero: _Zero) -> _Zero:
    _add(faults, path, f"must be {expected}")
    return zero


def _add(faults: Faults, path: str, rule: str) -> None:
    faults.append(Fault(field=path, rule=rule, type=FaultType.TYPE_INVALID))
