"""Values that were read before, by the bytes of their messages: many bindings ask for the same.

Equal messages give one and the same value, so that others can remember by its identity. Nobody may
change what is in it. Must not remember what was read beside anything wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

from google.protobuf.message import Message

from federation.codec.violations import Violations

M = TypeVar("M", bound=Message)
Value = TypeVar("Value")

MAX_VALUES: Final = 4096
# Of the messages' bytes; values are some ten times as large.
MAX_BYTES: Final = 1024 * 1024


class Remembered(Generic[M, Value]):
    """Reads messages of one kind, each only once; everything is forgotten when it is too much."""

    def __init__(self, read: Callable[[M, str, Violations], Value]) -> None:
        self._read = read
        self._values: dict[bytes, Value] = {}
        self._bytes = 0

    def read(self, message: M, path: str, found: Violations) -> Value:
        """The value; what is wrong with it is found under ``path`` each time."""
        # Maps have no order on the wire; sorted by key the same message gives the same bytes.
        key = message.SerializeToString(deterministic=True)
        known = self._values.get(key)
        if known is not None:
            return known
        value = self._read(message, path, found)
        # Texts with NUL characters are found in the whole message, before its parts are read.
        if not found:
            self._remember(key, value)
        return value

    def _remember(self, key: bytes, value: Value) -> None:
        if len(self._values) >= MAX_VALUES or self._bytes + len(key) > MAX_BYTES:
            self._values, self._bytes = {}, 0
        if len(key) <= MAX_BYTES:
            self._values[key] = value
            self._bytes += len(key)
