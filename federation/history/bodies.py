"""Bodies: what the database and trace files keep as a whole, with a version and named fields.

A reader passes over fields that it does not know, and takes the default of one that is missing:
such a change needs no new version. Whatever an older reader must not pass over does, and so does a
new value of an enumeration. Must not know what is in a body.
"""

from __future__ import annotations

from threading import local
from typing import ClassVar, Final, TypeAlias, TypeVar

import msgspec
import zstandard

from federation.model.errors import LimitExceeded, Unavailable

# Decompressed: of what anybody may have made.
MOST_BYTES: Final = 64 << 20
# Zstandard takes a fifth of zlib's time; level 3 saves one per cent more for twice the time.
_LEVEL: Final = 1
_LENGTH_BYTES: Final = 4

# What bodies that are cut or damaged raise once they are decompressed.
DamagedBody = zstandard.ZstdError


class _Contexts(local):
    """A thread's own: making them takes longer than compressing a trace."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=_LEVEL)
        self.decompressor = zstandard.ZstdDecompressor()


_CONTEXTS: Final = _Contexts()


class Body(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``v`` is its version, which is written always; ``newest`` is that of this release."""

    newest: ClassVar[int] = 1
    v: int


B = TypeVar("B", bound=Body)
Decoder: TypeAlias = msgspec.msgpack.Decoder[B] | msgspec.json.Decoder[B]

_MSGPACK: Final = msgspec.msgpack.Decoder(Body)
_JSON: Final = msgspec.json.Decoder(Body)


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
        form: Decoder[Body] = _JSON if is_json else _MSGPACK
        _check(form.decode(packed).v, decoder.type.newest, kind)  # type: ignore[arg-type]  # as above
        raise
    _check(body.v, body.newest, kind)
    return body


def deflated(body: bytes) -> bytes:
    """The body compressed, with its length before it: others may follow."""
    frame = _CONTEXTS.compressor.compress(body)
    return len(frame).to_bytes(_LENGTH_BYTES) + frame


def inflated(packed: bytes) -> tuple[bytes, bytes]:
    """What ``deflated`` made this of, and what follows. Raises LimitExceeded and DamagedBody."""
    end = _LENGTH_BYTES + int.from_bytes(packed[:_LENGTH_BYTES])
    frame = packed[_LENGTH_BYTES:end]
    size = zstandard.frame_content_size(frame)
    if size < 0:
        raise DamagedBody("a body does not say how large it is")
    if size > MOST_BYTES:
        raise LimitExceeded(f"a body has more than {MOST_BYTES} bytes once it is decompressed")
    return _CONTEXTS.decompressor.decompress(frame), packed[end:]


def _check(version: int, newest: int, kind: str) -> None:
    if version > newest:
        raise NewerBody(kind, version, newest)
