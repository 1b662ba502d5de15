"""Rules of single values, as buf.validate declares them: a test and a sentence for each.

Must not know messages nor paths.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from typing import Any, Final, NamedTuple

from google.protobuf.descriptor import FieldDescriptor

from federation.model.printable import is_printable
from federation.v1 import validate_pb2

MAX_SHOWN: Final = 63
# A form whose expression states no size allows at most so many characters by its pattern.
MAX_FORM: Final = 64
# Forms of texts that are looked at character by character, as no expression says it in full.
PRINTABLE: Final = frozenset({"printable", "word"})
_MATCHES: Final = re.compile(r"matches\('([^']*)'\)")
_SIZE: Final = re.compile(r"this\.size\(\) <= (\d+)")
_NUMBERS: Final = frozenset({"int32", "int64", "uint32", "uint64", "double", "float"})


class ValueRule(NamedTuple):
    """A test of one value, and the sentence about a value that fails it."""

    passes: Callable[[Any], bool]
    sentence: Callable[[Any], str]


def value_rules(
    declared: validate_pb2.FieldRules, field: FieldDescriptor | None
) -> Iterable[ValueRule]:
    """Yield the rules of a single value. Raises ValueError for one that is not known."""
    kind = declared.WhichOneof("type")
    body: Any = getattr(declared, kind) if kind else None
    if kind in _NUMBERS:
        yield from _number_rules(body)
    elif kind == "string":
        for rule, limit in body.ListFields():
            yield _string_rule(rule, limit)
    elif kind == "enum" and field is not None and field.enum_type is not None:
        numbers = set(field.enum_type.values_by_number) if body.defined_only else None
        yield _enum_rule(numbers, frozenset(body.not_in), field)
    elif kind == "bytes":
        for rule, limit in body.ListFields():
            yield _bytes_rule(rule, limit)
    elif kind is not None:
        raise ValueError(f"rules of {kind} are not known here")


def _number_rules(body: Any) -> Iterable[ValueRule]:
    limits = {rule.name: limit for rule, limit in body.ListFields()}
    if unknown := limits.keys() - {"gte", "lte", "gt", "finite"}:
        raise ValueError(f"{body.DESCRIPTOR.name}: {', '.join(unknown)} is not known here")
    if "finite" in limits:
        yield ValueRule(math.isfinite, lambda value: f"must be a number, not {value}")
    lower, upper, above = limits.get("gte"), limits.get("lte"), limits.get("gt")
    if lower is not None and upper is not None:
        yield ValueRule(
            lambda value: lower <= value <= upper,
            lambda value: f"must be from {lower} to {upper}, not {value}",
        )
    elif lower is not None:
        yield ValueRule(
            lambda value: value >= lower, lambda value: f"must be at least {lower}, not {value}"
        )
    elif upper is not None:
        yield ValueRule(
            lambda value: value <= upper, lambda value: f"must be at most {upper}, not {value}"
        )
    if above is not None:
        yield ValueRule(
            lambda value: value > above, lambda value: f"must be more than {above}, not {value}"
        )


def _string_rule(rule: FieldDescriptor, limit: Any) -> ValueRule:
    if rule.is_extension:
        return _form(rule)
    match rule.name:
        case "min_len" if limit == 1:
            return ValueRule(bool, lambda _: "is required")
        case "max_len":
            return ValueRule(
                lambda text: len(text) <= limit,
                lambda text: f"must be at most {limit} characters, not {len(text)}",
            )
        case "max_bytes":
            return ValueRule(
                lambda text: len(text.encode()) <= limit,
                lambda text: f"must be at most {limit} bytes, not {len(text.encode())}",
            )
        case "in":
            words = frozenset(limit)
            choices = _either([word for word in limit if word])
            return ValueRule(
                words.__contains__, lambda text: f"must be {choices}, not {shown(text)!r}"
            )
    raise ValueError(f"{rule.full_name} is not known here")


@cache
def _form(rule: FieldDescriptor) -> ValueRule:
    """A form of names or texts: its pattern and its sentence are those of the proto."""
    (declared,) = rule.GetOptions().Extensions[validate_pb2.predefined].cel
    size = _SIZE.search(declared.expression)
    max_size = int(size[1]) if size else MAX_FORM
    if rule.name in PRINTABLE:
        max_size = int(size[1]) if size else 2**31
        return ValueRule(
            lambda text: len(text) <= max_size and is_printable(text),
            lambda text: (
                f"{declared.message}, not {len(text)}" if len(text) > max_size else declared.message
            ),
        )
    patterns = _MATCHES.findall(declared.expression)
    if not patterns:
        raise ValueError(f"{rule.full_name} has no pattern")
    matches = tuple(
        re.compile(pattern.removeprefix("^").removesuffix("$"), re.ASCII).fullmatch
        for pattern in patterns
    )

    @lru_cache(maxsize=4096)
    def has_form(text: str) -> bool:
        return all(match(text) for match in matches)

    return ValueRule(
        lambda text: len(text) <= max_size and has_form(text),
        lambda text: f"{declared.message}, not {shown(text)!r}",
    )


def _bytes_rule(rule: FieldDescriptor, limit: int) -> ValueRule:
    if rule.name == "len":
        return ValueRule(
            lambda value: len(value) == limit,
            lambda value: f"must be {limit} bytes, not {len(value)}",
        )
    if rule.name == "max_len":
        return ValueRule(
            lambda value: len(value) <= limit,
            lambda value: f"must be at most {limit} bytes, not {len(value)}",
        )
    raise ValueError(f"{rule.full_name} is not known here")


def _enum_rule(
    numbers: set[int] | None, refused: frozenset[int], field: FieldDescriptor
) -> ValueRule:
    values = field.enum_type.values if field.enum_type is not None else ()
    choices = _either([value.name for value in values if value.number not in refused])
    return ValueRule(
        lambda number: (numbers is None or number in numbers) and number not in refused,
        lambda number: f"must be {choices}, not {number}",
    )


def _either(words: list[str]) -> str:
    *first_words, last = words
    return f"{', '.join(first_words)} or {last}" if first_words else last


def shown(text: str) -> str:
    """Return a text for a path or a sentence, shortened."""
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."
