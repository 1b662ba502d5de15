"""Inputs for one target, as many as wanted, and what went wrong with one of them.

An input is wrong when the target raises what it must not, takes too much CPU, or when the process
that reads it has come to need too much memory. CPU is counted instead of time: others may keep the
machine busy.
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

from tests.fuzz.mutations import mutated

CPU_SECONDS = 10.0
MOST_MEBIBYTES = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class FuzzTarget:
    """``take`` may raise what is in ``refusals`` and nothing else. ``make`` makes inputs itself.

    ``peak_mebibytes`` tells what the process that reads has needed at most; this one, if not told.
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


class TooMuchCpu(BaseException):
    """Raised wherever the target is when it has taken too long; nothing there may catch it."""


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
        with _limited_cpu():
            target.take(content)
    except target.refusals:
        was_refused = True
    except TooMuchCpu:
        return f"it takes more than {CPU_SECONDS:g} s of CPU", False
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
def _limited_cpu() -> Iterator[None]:
    def stop(_number: int, _frame: object) -> None:
        raise TooMuchCpu

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
