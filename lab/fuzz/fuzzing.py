"""Inputs for one target, as many as wanted, and what went wrong with one of them.

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

from lab.fuzz.mutations import mutated
from lab.patience import PATIENCE_SECONDS

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
