"""Bodies: what the database and trace files keep as a whole, with a version and named fields.

A reader passes over fields that it does not know, and takes the default of one that is missing:
such a change needs no new version. Whatever an older reader must not pass over does, and so does a
new value of an enumeration. Must not know what is in a body.
"""

from __future__ import annotations

import zlib
from typing import ClassVar, Final, TypeAlias, TypeVar

import msgspec

from federation.model.errors import LimitExceeded, Unavailable

# Decompressed: of what anybody may have made.
MOST_BYTES: Final = 64 << 20


class Body(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``v`` is its version, which is written always; ``newest`` is that of this release."""

    newest: ClassVar[int] = 1
    v: int


B = TypeVar("B", bound=Body)
Decoder: TypeAlias = msgspec.msgpack.Decoder[B] | msgspec.json.Decoder[B]


class NewerBody(Unavailable):
    """A newer release wrote this."""

    reason = "SCHEMA_AHEAD"

    def __init__(self, kind: str, version: int, newest: int) -> None:
        self.version = version
        super().__init__(
            f"The database holds {kind} of version {version}, which a newer release wrote: this "
            f"one reads version {newest} and older. Run the newer release."
        )


def read_body(decoder: Decoder[B], packed: bytes | str, kind: str) -> B:
    """A body, of which ``kind`` says in the plural what it is. Raises NewerBody."""
    try:
        body = decoder.decode(packed)  # type: ignore[arg-type]  # a text is JSON
    except msgspec.ValidationError:
        # A newer version may have other types in fields of these names.
        is_json = isinstance(decoder, msgspec.json.Decoder)
        form = msgspec.json if is_json else msgspec.msgpack
        _check(form.decode(packed, type=Body).v, decoder.type.newest, kind)
        raise
    _check(body.v, body.newest, kind)
    return body


def inflated(packed: bytes) -> tuple[bytes, bytes]:
    """What was compressed, and what comes after it. Raises LimitExceeded, and ``zlib.error``."""
    stream = zlib.decompressobj()
    body = stream.decompress(packed, MOST_BYTES)
    if stream.unconsumed_tail:
        raise LimitExceeded(f"a body has more than {MOST_BYTES} bytes once it is decompressed")
    if not stream.eof:
        raise zlib.error("the body ends in the middle")
    return body, stream.unused_data


def _check(version: int, newest: int, kind: str) -> None:
    if version > newest:
        raise NewerBody(kind, version, newest)
