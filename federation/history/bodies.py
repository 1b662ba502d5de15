"""Bodies: documents that the database and trace files keep whole, with a version and named fields.

A reader refuses keys and words of enumerations that it does not know, and takes the default of a
key that is missing. A new field is written only while it has another value than its default, and
needs no new version then. Another meaning of an old key does. Must not know what is in a body.
"""

from __future__ import annotations

import re
from threading import local
from typing import Any, ClassVar, Final, TypeAlias, TypeVar

import msgspec
import zstandard

from federation.model.errors import LimitExceeded, Unavailable

# The size of a decompressed body, which may come from strangers.
MAX_BYTES: Final = 64 << 20
# Zstandard takes a fifth of zlib's time; level 3 saves one per cent more for twice the time.
_LEVEL: Final = 1
_LENGTH_BYTES: Final = 4

# The error of bodies that are cut or damaged.
DamagedBody = zstandard.ZstdError


class _Contexts(local):
    """Contexts of one thread, because making them takes longer than compressing a trace."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=_LEVEL)
        self.decompressor = zstandard.ZstdDecompressor()


_CONTEXTS: Final = _Contexts()
_UNKNOWN_FIELD: Final = re.compile(
    r"Object contains unknown field `(.*?)`(?: - at `(?:\$|key)\.?(.*)`)?"
)
_UNKNOWN_WORD: Final = re.compile(r"Invalid enum value '(.*?)'(?: - at `(?:\$|key)\.?(.*)`)?")


class Body(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """``v`` is its version, which is written always; ``newest`` is that of this release."""

    newest: ClassVar[int] = 1
    v: int


B = TypeVar("B", bound=Body)
Decoder: TypeAlias = msgspec.msgpack.Decoder[B] | msgspec.json.Decoder[B]


class _Version(msgspec.Struct, frozen=True):
    v: int


_MSGPACK: Final = msgspec.msgpack.Decoder(_Version)
_JSON: Final = msgspec.json.Decoder(_Version)


class NewerBody(Unavailable):
    """A newer release wrote this."""

    reason = "SCHEMA_AHEAD"

    def __init__(self, message: str, version: int) -> None:
        """Set the text, and the version of the body."""
        self.version = version
        super().__init__(f"{message} Run the newer release.")


class UnknownKey(NewerBody):
    """A newer release wrote this, with a key or a value that this release does not have."""


def refusal(error: msgspec.ValidationError, kind: str, version: int = 1) -> Exception:
    """Return UnknownKey where an unknown key or word was met, else the error itself."""
    if (match := _UNKNOWN_FIELD.fullmatch(str(error))) is not None:
        key, path = match.groups()
        name = f"{path}.{key}" if path else key
        unknown = f"key {name!r}"
    elif (match := _UNKNOWN_WORD.fullmatch(str(error))) is not None:
        word, path = match.groups()
        unknown = f"value {word!r} of {path!r}"
    else:
        return error
    return UnknownKey(
        f"The database holds {kind} with the {unknown}, which this release does not know: a newer "
        "one wrote it.",
        version,
    )


def read_body(decoder: Decoder[B], packed: bytes | str, kind: str) -> B:
    """Decode a body; ``kind`` names such bodies in the plural. Raises NewerBody."""
    try:
        body = decoder.decode(packed)  # type: ignore[arg-type]  # a text is JSON
    except msgspec.ValidationError as error:
        # A newer version may have other types in fields of these names.
        is_json = isinstance(decoder, msgspec.json.Decoder)
        form: Any = _JSON if is_json else _MSGPACK
        version = form.decode(packed).v
        check_version(version, decoder.type.newest, kind)
        raise refusal(error, kind, version) from error
    check_version(body.v, body.newest, kind)
    return body


def deflated(body: bytes) -> bytes:
    """Compress a body, and put its length before it, so that others may follow."""
    frame = _CONTEXTS.compressor.compress(body)
    return len(frame).to_bytes(_LENGTH_BYTES) + frame


def inflated(packed: bytes) -> tuple[bytes, bytes]:
    """Decompress a body; also return the rest. Raises LimitExceeded and DamagedBody."""
    end = _LENGTH_BYTES + int.from_bytes(packed[:_LENGTH_BYTES])
    frame = packed[_LENGTH_BYTES:end]
    size = zstandard.frame_content_size(frame)
    if size < 0:
        raise DamagedBody("a body does not say how large it is")
    if size > MAX_BYTES:
        raise LimitExceeded(f"a body has more than {MAX_BYTES} bytes once it is decompressed")
    return _CONTEXTS.decompressor.decompress(frame), packed[end:]


def check_version(version: int, newest: int, kind: str) -> None:
    """Raise NewerBody where a newer release wrote the body."""
    if version > newest:
        raise NewerBody(
            f"The database holds {kind} of version {version}, which a newer release wrote: this "
            f"one reads version {newest} and older.",
            version,
        )
