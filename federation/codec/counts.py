"""Bound of the parts that a request may hold in all, so that reading and deciding end in time.

Must not read values. How many of one kind there may be is a rule of the protos.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from google.protobuf.message import Message

from federation.codec.descriptors import fields_of, inner_message
from federation.codec.violations import Violations

# Of all lists and maps in a binding, or in a request for estimates, together.
MAX_PARTS: Final = 50_000


def refuse_too_many(message: Message, path: str, found: Violations) -> None:
    """Find a message that holds too many items of lists and maps, in all."""
    # A part takes a byte at least: of what is small nothing has to be counted, as mostly.
    if message.ByteSize() > MAX_PARTS and _count(message, 0) > MAX_PARTS:
        found.add(path, f"holds more than {MAX_PARTS} parts: no more are looked at")


def _count(message: Message, parts: int) -> int:
    """Return the number of parts, added to those before; it stops where there are too many."""
    for field, value in message.ListFields():
        inner = inner_message(field)
        if field.is_repeated:
            parts += len(value)
        if inner is None or not _has_parts(inner):
            continue
        for item in value if field.is_repeated else (value,):
            if parts > MAX_PARTS:
                return parts
            parts = _count(item, parts)
    return parts


@cache
def _has_parts(descriptor: Any) -> bool:
    """Tell whether a message may hold lists, maps or other messages."""
    return any(field.is_repeated or inner_message(field) for field in fields_of(descriptor))
