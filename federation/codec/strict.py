"""Documents to messages and back, strictly: unknown fields and wrong types are refused by path.

Driven by the messages' descriptors. Must not know what values mean: the modules named after the
messages check amounts, names and ranges.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, TypeVar

from google.protobuf import descriptor_pool
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

import federation.v1.resource_pb2  # noqa: F401 - registers messages that are looked up by name
from federation.codec.descriptors import fields_of, inner_message, map_values
from federation.codec.field_tables import no_such_field
from federation.codec.karmada_fields import LACKING, READ_OVER, ROOTS
from federation.codec.timestamps import TIMESTAMP_RULE, timestamp_from_text
from federation.codec.violations import Violations, joined

M = TypeVar("M", bound=Message)

_PACKAGE: Final = "federation.v1."
_INTEGER_RANGES: Final = {
    FieldDescriptor.TYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_INT64: (-(2**63), 2**63 - 1),
}
# Quantities are text in the messages, but people write `cpu: 1` and `memory: 0.5e9` too.
_QUANTITIES: Final = frozenset(
    f"{_PACKAGE}{name}"
    for name in (
        "ReplicaRequirements.resource_request",
        "ResourceModelRange.min",
        "ResourceModelRange.max",
        "ResourceSummary.allocatable",
        "ResourceSummary.allocating",
        "ResourceSummary.allocated",
    )
)

# One field's value into a message: (message, value, path, violations).
_Reader = Callable[[Any, Any, str, Violations], None]
# What is in a field, its message's path, violations.
_NulFinder = Callable[[Any, str, Violations], None]


def message_from_document(document: object, message_class: type[M], path: str = "") -> M:
    """The message a document stands for.

    Raises InvalidRequest with every unknown field, wrong type, and wrong apiVersion or kind.
    """
    message = message_class()
    found = Violations()
    _fill(message, document, path, found)
    if not found and message.DESCRIPTOR.name in ROOTS:
        check_type_meta(message, path, found)
    found.check()
    return message


def check_type_meta(message: Any, path: str, found: Violations) -> None:
    """Finds an apiVersion or kind that is written and is not the message's own."""
    version, kinds = ROOTS[message.DESCRIPTOR.name]
    if message.api_version and message.api_version != version:
        found.add(joined(path, "apiVersion"), f"must be {version}, not {message.api_version!r}")
    if message.kind and message.kind not in kinds:
        found.add(joined(path, "kind"), f"must be {' or '.join(kinds)}, not {message.kind!r}")


def refuse_nul(message: Message, path: str, found: Violations) -> None:
    """Finds texts of a message that hold a NUL character, which no database column can."""
    # Most messages have no such byte at all; in the others it mostly is the length of nothing.
    if b"\0" not in message.SerializeToString():
        return
    for field, value in message.ListFields():
        find = _nul_finder(field)
        if find is not None:
            find(value, path, found)


@cache
def _nul_finder(field: FieldDescriptor) -> _NulFinder | None:
    """Looks through the values of a field; None where there is no text in them."""
    name = field.json_name
    if (values := map_values(field)) is not None:
        is_text = values.type == FieldDescriptor.TYPE_STRING

        def find_in_map(value: Any, path: str, found: Violations) -> None:
            for key in value:
                here = f"{joined(path, name)}[{key}]"
                _refuse_nul_text(key, here, found)
                if is_text:
                    _refuse_nul_text(value[key], here, found)

        return find_in_map
    if field.type not in {FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_MESSAGE}:
        return None
    refuse = refuse_nul if field.type == FieldDescriptor.TYPE_MESSAGE else _refuse_nul_text
    if not field.is_repeated:
        return lambda value, path, found: refuse(value, joined(path, name), found)

    def find_in_list(value: Any, path: str, found: Violations) -> None:
        here = joined(path, name)
        for position, each in enumerate(value):
            refuse(each, f"{here}[{position}]", found)

    return find_in_list


def _refuse_nul_text(text: str, path: str, found: Violations) -> None:
    if "\0" in text:
        found.add(path, "must not hold a NUL character")


def _fill(message: Any, document: object, path: str, found: Violations) -> None:
    if not isinstance(document, Mapping):
        found.add(path, f"must be an object, not {_shown(document)}")
        return
    readers = _readers(message.DESCRIPTOR)
    for key, value in document.items():
        reader = readers.get(key)
        if reader is None:
            _read_over(message.DESCRIPTOR.name, key, value, path, found)
        elif value is not None:
            reader(message, value, joined(path, key), found)


def _read_over(type_name: str, key: str, value: object, path: str, found: Violations) -> None:
    """Checks the names, and only the names, in a field that Karmada has and fedsched drops."""
    here = joined(path, key)
    fields = _field_types(type_name)
    if key not in fields:
        found.add(here, no_such_field(type_name, key, fields))
        return
    if not fields[key]:
        return
    for position, each in enumerate(value if isinstance(value, list) else [value]):
        if isinstance(each, Mapping):
            inner = f"{here}[{position}]" if isinstance(value, list) else here
            for name, content in each.items():
                _read_over(fields[key], name, content, inner, found)


@cache
def _field_types(type_name: str) -> dict[str, str]:
    """Every field a type has, kept or not, with the name of its type (empty: anything)."""
    fields = dict(READ_OVER.get(type_name, {}))
    try:
        descriptor = descriptor_pool.Default().FindMessageTypeByName(_PACKAGE + type_name)
    except KeyError:
        return fields
    for field in fields_of(descriptor):
        inner = inner_message(field)
        fields[field.json_name] = inner.name if inner else ""
    return fields


@cache
def _readers(descriptor: Descriptor) -> dict[str, _Reader]:
    return {field.json_name: _reader(field) for field in fields_of(descriptor)}


def _reader(field: FieldDescriptor) -> _Reader:
    values = map_values(field)
    if values is not None:
        return _map_reader(field, values)
    if inner_message(field) is not None:
        return _list_of_messages(field) if field.is_repeated else _message_reader(field)
    return _list_of_scalars(field) if field.is_repeated else _scalar_reader(field)


def _scalar_reader(field: FieldDescriptor) -> _Reader:
    convert, name = _converter(field), field.name

    def read(message: Any, value: Any, path: str, found: Violations) -> None:
        converted = convert(value, path, found)
        if isinstance(converted, Timestamp):
            getattr(message, name).CopyFrom(converted)
        elif converted is not None:
            setattr(message, name, converted)

    return read


def _list_of_scalars(field: FieldDescriptor) -> _Reader:
    convert, name = _converter(field), field.name

    def read(message: Any, value: Any, path: str, found: Violations) -> None:
        if not isinstance(value, list):
            found.add(path, f"must be a list, not {_shown(value)}")
            return
        into = getattr(message, name)
        for position, each in enumerate(value):
            converted = convert(each, f"{path}[{position}]", found)
            if converted is not None:
                into.append(converted)

    return read


def _message_reader(field: FieldDescriptor) -> _Reader:
    name, lacking = field.name, LACKING.get(field.full_name, frozenset())

    def read(message: Any, value: Any, path: str, found: Violations) -> None:
        if lacking and isinstance(value, Mapping):
            for key in lacking & value.keys():
                found.add(joined(path, key), "there is no such field here")
            value = {key: each for key, each in value.items() if key not in lacking}
        into = getattr(message, name)
        into.SetInParent()
        _fill(into, value, path, found)

    return read


def _list_of_messages(field: FieldDescriptor) -> _Reader:
    name = field.name

    def read(message: Any, value: Any, path: str, found: Violations) -> None:
        if not isinstance(value, list):
            found.add(path, f"must be a list, not {_shown(value)}")
            return
        into = getattr(message, name)
        for position, each in enumerate(value):
            _fill(into.add(), each, f"{path}[{position}]", found)

    return read


def _map_reader(field: FieldDescriptor, values: FieldDescriptor) -> _Reader:
    name = field.name
    convert = _quantity if field.full_name in _QUANTITIES else _converter(values)

    def read(message: Any, value: Any, path: str, found: Violations) -> None:
        if not isinstance(value, Mapping):
            found.add(path, f"must be an object, not {_shown(value)}")
            return
        into = getattr(message, name)
        for key, each in value.items():
            converted = convert(each, f"{path}[{key}]", found)
            if converted is not None and _text(key, f"{path}[{key}]", found) is not None:
                into[key] = converted

    return read


_Converter = Callable[[Any, str, Violations], Any]


def _converter(field: FieldDescriptor) -> _Converter:
    if field.full_name in _QUANTITIES:
        return _quantity
    if field.message_type is not None:
        return _timestamp
    if field.type in _INTEGER_RANGES:
        return _integer_converter(*_INTEGER_RANGES[field.type])
    return {
        FieldDescriptor.TYPE_STRING: _text,
        FieldDescriptor.TYPE_BOOL: _boolean,
        FieldDescriptor.TYPE_DOUBLE: _number,
    }[field.type]


def _integer_converter(least: int, most: int) -> _Converter:
    def convert(value: Any, path: str, found: Violations) -> int | None:
        if isinstance(value, bool) or not isinstance(value, int):
            found.add(path, f"must be a whole number, not {_shown(value)}")
        elif not least <= value <= most:
            found.add(path, f"must be a whole number from {least} to {most}")
        else:
            return value
        return None

    return convert


def _text(value: Any, path: str, found: Violations) -> str | None:
    if not isinstance(value, str):
        found.add(path, f"must be text, not {_shown(value)}")
    elif "\0" in value:
        found.add(path, "must not hold a NUL character")
    elif not is_unicode(value):
        found.add(path, "must be text that can be written as UTF-8")
    else:
        return value
    return None


def is_unicode(text: str) -> bool:
    """False when it holds half of a surrogate pair, which JSON can spell and UTF-8 cannot."""
    return text.isascii() or not any("\ud800" <= each <= "\udfff" for each in text)


def _quantity(value: Any, path: str, found: Violations) -> str | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return repr(value)
    if isinstance(value, str):
        return _text(value, path, found)
    found.add(path, f"must be a quantity such as 500m or 20Gi, not {_shown(value)}")
    return None


def _boolean(value: Any, path: str, found: Violations) -> bool | None:
    if isinstance(value, bool):
        return value
    found.add(path, f"must be true or false, not {_shown(value)}")
    return None


def _number(value: Any, path: str, found: Violations) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    found.add(path, f"must be a number, not {_shown(value)}")
    return None


def _timestamp(value: Any, path: str, found: Violations) -> Timestamp | None:
    timestamp = timestamp_from_text(value) if isinstance(value, str) else None
    if timestamp is None:
        found.add(path, f"{TIMESTAMP_RULE}, not {_shown(value)}")
    return timestamp


def _shown(value: object) -> str:
    """A wrong value in a sentence: short, and for collections only what they are."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list):
        return "a list"
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
