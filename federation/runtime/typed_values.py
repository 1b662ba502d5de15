"""Typed values from JSON, and from what JSON was read into, in any thread.

msgspec learns a type at its first use, and crashes where two threads are the first at once (seen
with 0.22): so that is done under a lock here, once. Must not know any of the types.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any, Final, TypeVar

import msgspec

Value = TypeVar("Value")

_LEARNING: Final = Lock()
_DECODERS: Final[dict[Any, msgspec.json.Decoder[Any]]] = {}


def from_json(content: bytes | msgspec.Raw | str, kind: type[Value]) -> Value:
    """Raises msgspec.DecodeError, of which ValidationError is one, and UnicodeDecodeError."""
    return json_decoder(kind).decode(content)


def converted(
    value: object, kind: type[Value], part_of: Callable[[Any, Any], Any] | None = None
) -> Value:
    """From numbers, texts, lists and dictionaries; ``part_of`` reads what msgspec does not know.

    Raises msgspec.ValidationError.
    """
    json_decoder(kind)
    return msgspec.convert(value, kind, dec_hook=part_of)


def converted_by_attributes(value: object, kind: type[Value]) -> Value:
    """Return a value whose fields are attributes of another one, at every level.

    Of an attribute that is missing the default is taken. Raises msgspec.ValidationError.
    """
    json_decoder(kind)
    return msgspec.convert(value, kind, from_attributes=True)


def json_decoder(kind: type[Value]) -> msgspec.json.Decoder[Value]:
    """Made once."""
    known = _DECODERS.get(kind)
    if known is None:
        with _LEARNING:
            known = _DECODERS.get(kind) or msgspec.json.Decoder(kind)
            _DECODERS[kind] = known
    return known
