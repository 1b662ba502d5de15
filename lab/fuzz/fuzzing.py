"""Inputs for one target that are nearly right, and what went wrong with one of them.

An input is wrong when the target raises what it must not, takes too much CPU or never ends, or when
the processes that read it have come to need too much memory. CPU is what is counted, as others may
keep the machine busy; time, much of it, finds what waits and does nothing.
"""

from __future__ import annotations

import random
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from lab.patience import PATIENCE_SECONDS

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


CPU_SECONDS = 10.0
# Longer than calls of targets are waited for, which say more.
REAL_SECONDS = PATIENCE_SECONDS + 60.0
MOST_MEBIBYTES = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class FuzzTarget:
    """``take`` may raise what is in ``refusals`` and nothing else. ``make`` makes inputs itself.

    ``peak_mebibytes`` tells what those that read have needed at most; this process, if not told.
    """

    name: str
    take: Callable[[bytes], object]
    seeds: Sequence[bytes] = ()
    refusals: tuple[type[BaseException], ...] = ()
    make: Callable[[random.Random], bytes] | None = None
    peak_mebibytes: Callable[[], float] = field(default_factory=lambda: own_peak_mebibytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class FuzzResult:
    """``wrong`` is empty when all went well; otherwise ``culprit`` is the input that shows it."""

    inputs: int
    refused: int
    wrong: str = ""
    culprit: bytes = b""


class TookTooLong(BaseException):
    """Raised wherever the target is then; nothing there may catch it."""


def fuzz(
    target: FuzzTarget, seed: int, *, inputs: int = sys.maxsize, seconds: float = 1e9
) -> FuzzResult:
    """Stops at the first input that shows a fault. The seeds themselves come first."""
    chance = random.Random(seed)
    until = time.monotonic() + seconds
    known = iter(target.seeds)
    refused = count = 0
    before = target.peak_mebibytes()
    while count < inputs and time.monotonic() < until:
        content = next(known, None)
        if content is None:
            content = target.make(chance) if target.make else mutated(target.seeds, chance)
        count += 1
        wrong, was_refused = tried(target, content, before)
        refused += was_refused
        if wrong:
            return FuzzResult(inputs=count, refused=refused, wrong=wrong, culprit=content)
    return FuzzResult(inputs=count, refused=refused)


def tried(target: FuzzTarget, content: bytes, before: float) -> tuple[str, bool]:
    """What is wrong, if anything, and whether the input was refused; ``before``: the peak of memory
    before this input and all others.
    """
    was_refused = False
    try:
        with (
            _limited(signal.ITIMER_PROF, signal.SIGPROF, CPU_SECONDS, "of CPU"),
            _limited(signal.ITIMER_REAL, signal.SIGALRM, REAL_SECONDS, "and does not end"),
        ):
            target.take(content)
    except target.refusals:
        was_refused = True
    except TookTooLong as error:
        return f"it takes more than {error}", False
    except Exception as error:  # noqa: BLE001 - this is what is looked for
        return f"it raises {type(error).__name__}: {error}", False
    grown = target.peak_mebibytes() - before
    if grown > MOST_MEBIBYTES:
        return f"it needs {grown:.0f} MiB", was_refused
    return "", was_refused


def own_peak_mebibytes() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


@contextmanager
def _limited(timer: int, number: int, seconds: float, of_what: str) -> Iterator[None]:
    def stop(_number: int, _frame: object) -> None:
        raise TookTooLong(f"{seconds:g} s {of_what}")

    before = signal.signal(number, stop)
    signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        signal.setitimer(timer, 0)
        signal.signal(number, before)
