"""Bytes that are nearly right: what a decoder knows, changed in a few places.

Reproducible: everything comes from the ``random.Random`` that is given.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

# Numbers where types end, words of the formats, names that are hard to show, things that nest.
PIECES = (
    *(b"0", b"-1", b"1e999", b"9223372036854775808", b"18446744073709551616", b"0.1", b"NaN"),
    *(b"-Infinity", b"1" * 400, b"1E", b"1Ki", b"1e-400", b"9" * 20 + b"Ei", b"+5", b"m", b"0x10"),
    *(b"null", b"true", b"{}", b"[]", b'""', b"{", b"}", b"[", b'"', b"\\", b",", b":"),
    *(b"\n---\n", b"&a [*a]", b"*a", b"<<: ", b"!!python/object:os.system ", b"? ", b"- ", b"|\n"),
    *(b"%YAML 9.9", b"\x00", b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\x1b[2J"),
    *(b"\xe2\x80\xae", b"../../etc/passwd", b"'; DROP TABLE decision; --", b"<script>", b"%s%n"),
    *(b"{{7*7}}", b"${jndi:x}", b"\x80" * 9 + b"\x01", b"\xff\xff\xff\xff\x0f", b"\xc1"),
    *(b"\xdd\xff\xff\xff\xff", b"[" * 600, b'{"a":' * 600, b"\x0a" * 300, b"\x91" * 1500),
    b"A" * 4096,
)
MOST_BYTES = 1 << 20


def mutated(seeds: Sequence[bytes], chance: random.Random) -> bytes:
    """One of the seeds, changed up to eight times."""
    content = bytearray(chance.choice(seeds))
    for _ in range(chance.randint(0, 8)):
        chance.choice(_CHANGES)(content, seeds, chance)
    return bytes(content[:MOST_BYTES])


def _span(content: bytearray, chance: random.Random) -> slice:
    start = chance.randint(0, len(content))
    return slice(start, min(len(content), start + chance.choice([1, 1, 2, 4, 16, 200])))


def _flip(content: bytearray, _: Sequence[bytes], chance: random.Random) -> None:
    if content:
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)


def _replace(content: bytearray, _: Sequence[bytes], chance: random.Random) -> None:
    content[_span(content, chance)] = chance.choice(PIECES)


def _insert(content: bytearray, _: Sequence[bytes], chance: random.Random) -> None:
    place = chance.randint(0, len(content))
    content[place:place] = chance.choice(PIECES)


def _delete(content: bytearray, _: Sequence[bytes], chance: random.Random) -> None:
    del content[_span(content, chance)]


def _repeat(content: bytearray, _: Sequence[bytes], chance: random.Random) -> None:
    span = _span(content, chance)
    content[span] = content[span] * chance.choice([2, 3, 50])


def _cut(content: bytearray, _: Sequence[bytes], chance: random.Random) -> None:
    del content[chance.randint(0, len(content)) :]


def _splice(content: bytearray, seeds: Sequence[bytes], chance: random.Random) -> None:
    other = chance.choice(seeds)
    content[chance.randint(0, len(content)) :] = other[chance.randint(0, len(other)) :]


def _noise(content: bytearray, _: Sequence[bytes], chance: random.Random) -> None:
    content[_span(content, chance)] = chance.randbytes(chance.choice([1, 4, 32]))


_CHANGES: Sequence[Callable[[bytearray, Sequence[bytes], random.Random], None]] = (
    *(_flip, _replace, _insert, _delete, _repeat, _cut, _splice, _noise),
)
