"""Fields that a message holds and its schema does not know: told by number, where it came from.

Must not decide who is refused for them: programs of ours may be of another release than this one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeAlias

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from federation.codec.descriptors import map_values
from federation.codec.violations import joined

# The path of the message that holds it, and its number; None where it is not looked for any more.
UnknownField: TypeAlias = tuple[str, int | None]

# Of the messages in one, from the outermost on; the others are pieces, looked at as a whole each.
MOST_LOOKED_AT: Final = 2_000
# Beyond these pieces are as large as they come: protobuf looks at a hundred thousand small messages
# in the time that we take for a few thousand, but lets nobody else work meanwhile.
MOST_PIECES: Final = 10_000


def _no_rest() -> None:
    return


def unknown_of(message: Message, rest: Callable[[], None] = _no_rest) -> UnknownField | None:
    """An unknown field of a small message."""
    body = message.SerializeToString()
    rest()
    message.DiscardUnknownFields()
    rest()
    if message.ByteSize() == len(body):
        return None
    found, _ = _looked_through(type(message).FromString(body))
    return found or ("", None)


def unknown_of_large(message: Message, rest: Callable[[], None] = _no_rest) -> UnknownField | None:
    """The same where the message is large: looked at piece by piece, for a thread, which may
    ``rest`` in between.
    """
    found, pieces = _looked_through(message)
    if found is not None:
        return found
    for path, piece in pieces:
        rest()
        inner = unknown_of(piece, rest)
        if inner is not None:
            return joined(path, inner[0]) if inner[0] else path, inner[1]
    return None


def _looked_through(message: Message) -> tuple[UnknownField | None, Iterable[tuple[str, Message]]]:
    """The outermost unknown field, and the pieces that were not looked at."""
    waiting, room = deque([("", message)]), MOST_LOOKED_AT - 1
    pieces: list[tuple[str, Message]] = []
    while waiting:
        path, one = waiting.popleft()
        unknown = UnknownFieldSet(one)
        if len(unknown):
            return (path, unknown[0].field_number), ()
        inner = _inner_fields(one)
        count = sum(len(value) if field.is_repeated else 1 for field, value in inner)
        if count <= room:
            room -= count
            waiting.extend(_inner_messages(inner, path))
        else:
            is_whole = len(pieces) + count > MOST_PIECES
            pieces += [(path, one)] if is_whole else _inner_messages(inner, path)
    return None, pieces


def _inner_fields(message: Message) -> list[tuple[FieldDescriptor, Any]]:
    return [
        (field, value)
        for field, value in message.ListFields()
        if field.message_type is not None and map_values(field) is None
    ]


def _inner_messages(
    fields: Iterable[tuple[FieldDescriptor, Any]], path: str
) -> Iterator[tuple[str, Message]]:
    for field, value in fields:
        here = joined(path, field.json_name)
        if not field.is_repeated:
            yield here, value
        else:
            yield from ((f"{here}[{place}]", each) for place, each in enumerate(value))
