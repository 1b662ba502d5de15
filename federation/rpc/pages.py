"""Pages of lists: their size, and the opaque token that leads to the next one.

Must not know what is listed.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar
from uuid import UUID

from google.protobuf.message import Message

from federation.codec.strict import is_unicode
from federation.model.errors import InvalidRequest
from federation.services.decision_ports import DecisionPlace
from federation.services.watching.watches import is_version

DEFAULT_PAGE_SIZE = 500
MAX_PAGE_SIZE = 1000
# Clients take answers of up to 4 MiB; the rest of the answer is small.
MAX_PAGE_BYTES = 3 * 1024 * 1024
# Microseconds since 1970, or an id.
_NUMBER: Final = re.compile(r"[0-9]{1,18}", re.ASCII)

M = TypeVar("M", bound=Message)


def page_size_of(requested: int) -> int:
    """Raises InvalidRequest."""
    if not 0 <= requested <= MAX_PAGE_SIZE:
        rule = f"must be from 0 to {MAX_PAGE_SIZE} (0: {DEFAULT_PAGE_SIZE}), not {requested}"
        raise InvalidRequest.of("pageSize", rule)
    return requested or DEFAULT_PAGE_SIZE


def page_token(after: Sequence[str]) -> str:
    """A token that says after which key the next page starts."""
    return base64.urlsafe_b64encode(json.dumps(list(after)).encode()).decode()


def key_of(token: str, parts: int) -> tuple[str, ...] | None:
    """The ``parts`` texts in a token, the list's version first; None without a token.

    Raises InvalidRequest.
    """
    return _texts_of(token, parts, _is_versioned)


def place_of(token: str) -> DecisionPlace | None:
    """Where a list of decisions goes on; None without a token. Raises InvalidRequest."""
    texts = _texts_of(token, 2, _is_place)
    return (int(texts[0]), texts[1]) if texts else None


def id_of(token: str) -> str:
    """The id after which a list goes on; empty without a token. Raises InvalidRequest."""
    texts = _texts_of(token, 1, lambda _: True)
    return texts[0] if texts else ""


def time_place_of(token: str) -> tuple[int, int] | None:
    """The time in microseconds and the id after which a list goes on; None without a token.

    Raises InvalidRequest.
    """
    texts = _texts_of(token, 2, lambda key: all(map(_NUMBER.fullmatch, key)))
    return (int(texts[0]), int(texts[1])) if texts else None


def number_of(token: str) -> int | None:
    """The number in a token; None without one. Raises InvalidRequest."""
    texts = _texts_of(token, 1, _is_number)
    return int(texts[0]) if texts else None


def _texts_of(
    token: str, parts: int, is_sound: Callable[[Sequence[str]], bool]
) -> tuple[str, ...] | None:
    if not token:
        return None
    try:
        key = json.loads(base64.b64decode(token.encode(), altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, RecursionError):
        key = None
    is_key = isinstance(key, list) and len(key) == parts and all(map(_is_text, key))
    if not is_key or not is_sound(key):
        raise InvalidRequest.of("pageToken", "is not one that a list answered")
    return tuple(key)


def _is_versioned(key: Sequence[str]) -> bool:
    """Tell whether its first part is a resource version."""
    return is_version(key[0])


def _is_place(key: Sequence[str]) -> bool:
    """Whether it is a time in microseconds and an id."""
    try:
        UUID(key[1])
    except ValueError:
        return False
    return _NUMBER.fullmatch(key[0]) is not None


def _is_number(key: Sequence[str]) -> bool:
    return _NUMBER.fullmatch(key[0]) is not None


def _is_text(part: object) -> bool:
    """Whether a part can be compared with names in the database."""
    return isinstance(part, str) and "\0" not in part and is_unicode(part)


def fitting(messages: Iterable[M]) -> list[M]:
    """The first messages, at least one, as many as fit into one answer."""
    taken: list[M] = []
    size = 0
    for message in messages:
        size += message.ByteSize()
        if taken and size > MAX_PAGE_BYTES:
            break
        taken.append(message)
    return taken
