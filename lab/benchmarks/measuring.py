"""What measurements share: how much of all they do, medians, and stalls of an event loop.

``--quick`` goes through all of a measurement so briefly that its figures only hint; ``--full`` is
for certainty. Must not judge anything by the clock.
"""

from __future__ import annotations

import os
import re
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from lab.verdicts import Verdicts, at_most

IS_QUICK, IS_FULL = "--quick" in sys.argv, "--full" in sys.argv
# For a program of the same measurement.
OPTIONS = [each for each in sys.argv[1:] if each.startswith("--")]
CORES = os.cpu_count() or 1
# With them a control plane says when its event loop was late.
TELLING_STALLS = ("--log-level=debug",)
LATE = re.compile(r"the event loop was late ms=(\S+) cpu_ms=(\S+)")

T = TypeVar("T")


def run_named(functions: Mapping[str, Any]) -> None:
    """Of a module with several measurements, the one that the program's first argument names."""
    functions[f"bench_{arguments()[0]}"]()


def chosen(usual: T, *, quick: T, full: T | None = None) -> T:
    """Which of them the caller of this program wants."""
    if IS_QUICK:
        return quick
    return full if IS_FULL and full is not None else usual


def arguments() -> list[str]:
    """What this program was given beside options."""
    return [each for each in sys.argv[1:] if not each.startswith("--")]


def millis(
    work: Callable[[], object], rounds: int, clock: Callable[[], float] = time.process_time
) -> list[float]:
    """Of doing it once, so many times, when it has been done before; by default of CPU."""
    work()
    taken = []
    for _ in range(chosen(rounds, quick=min(rounds, 3))):
        start = clock()
        work()
        taken.append((clock() - start) * 1000)
    return taken


def median_micros(work: Callable[[], object], rounds: int = 15, repeat: int = 1) -> float:
    """Of the CPU time of once doing it."""

    def again() -> None:
        for _ in range(repeat):
            work()

    return statistics.median(millis(again, rounds)) * 1000 / repeat


def median_millis(work: Callable[[], object], rounds: int = 15) -> float:
    return statistics.median(millis(work, rounds))


def percentile(values: Sequence[float], percent: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def show_stalls(figures: Verdicts, lines: Sequence[str], goal_millis: float) -> None:
    """How long the event loop stood still at worst, by a control plane's log."""
    late = [(float(match[1]), float(match[2])) for line in lines if (match := LATE.search(line))]
    millis, cpu_millis = max(late, default=(0.0, 0.0))
    most_cpu_millis = max((cpu for _, cpu in late), default=0.0)
    over = sum(ms > goal_millis for ms, _ in late)
    figures.row("the event loop's longest stall", millis, "ms", goal=at_most(goal_millis))
    figures.note(
        f"of it {cpu_millis:.0f} ms at work, else without its turn; "
        f"{over} above the goal; most work in one {most_cpu_millis:.0f} ms"
    )
