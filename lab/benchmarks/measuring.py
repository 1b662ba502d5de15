"""What measurements share: how long they take, what programs cost, figures beside their goals.

``--quick`` goes through all of a measurement so briefly that its figures only hint; ``--full`` is
for certainty. Must not judge anything by the clock.
"""

from __future__ import annotations

import os
import re
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

IS_QUICK, IS_FULL = "--quick" in sys.argv, "--full" in sys.argv
# For a program of the same measurement.
OPTIONS = [each for each in sys.argv[1:] if each.startswith("--")]
CORES = os.cpu_count() or 1
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
# With them a control plane says when its event loop was late.
TELLING_STALLS = ("--log-level=debug",)
LATE = re.compile(r"the event loop was late ms=(\S+) cpu_ms=(\S+)")

T = TypeVar("T")


def chosen(usual: T, *, quick: T, full: T | None = None) -> T:
    """Which of them the caller of this program wants."""
    if IS_QUICK:
        return quick
    return full if IS_FULL and full is not None else usual


def arguments() -> list[str]:
    """What this program was given beside options."""
    return [each for each in sys.argv[1:] if not each.startswith("--")]


def cpu_seconds(*pids: int) -> float:
    """Of processes that run, without their children."""
    fields = [_stat(pid) for pid in pids]
    return sum(int(each[11]) + int(each[12]) for each in fields) / TICKS_PER_SECOND


def family_seconds(pid: int) -> float:
    """Of a process and its children, ended ones included."""
    fields = {int(each.name): _stat(int(each.name)) for each in Path("/proc").glob("[0-9]*")}
    children = [sum(map(int, each[11:13])) for each in fields.values() if each[1:2] == [str(pid)]]
    return (sum(map(int, fields[pid][11:15])) + sum(children)) / TICKS_PER_SECOND


def _stat(pid: int) -> Sequence[str]:
    """What follows the name of the program; nothing of one that has ended."""
    try:
        content = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ()
    return content.rpartition(")")[2].split()


def median_micros(work: Callable[[], object], rounds: int = 15, repeat: int = 1) -> float:
    """Of the CPU time of once doing it, when it has been done before."""
    work()
    taken = []
    for _ in range(chosen(rounds, quick=min(rounds, 3))):
        start = time.process_time_ns()
        for _ in range(repeat):
            work()
        taken.append((time.process_time_ns() - start) / repeat / 1000)
    return statistics.median(taken)


def median_millis(work: Callable[[], object], rounds: int = 15) -> float:
    return median_micros(work, rounds) / 1000


def percentile(values: Sequence[float], percent: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def show(what: str, figure: str, *, goal: str = "", kept: bool = True) -> None:
    """A figure, and whether it keeps its goal where it has one."""
    verdict = f"   goal {goal}: {'kept' if kept else 'MISSED'}" if goal else ""
    print(f"  {what:34} {figure:>12}{verdict}", flush=True)


def show_stalls(lines: Sequence[str], goal_millis: float) -> None:
    """How long the event loop stood still at worst, by a control plane's log."""
    late = [(float(found[1]), float(found[2])) for each in lines if (found := LATE.search(each))]
    millis, cpu_millis = max(late, default=(0.0, 0.0))
    own = max((cpu for _, cpu in late), default=0.0)
    over = sum(ms > goal_millis for ms, _ in late)
    show(
        "the event loop's longest stall",
        f"{millis:.0f} ms",
        goal=f"<= {goal_millis:g} ms",
        kept=millis <= goal_millis,
    )
    print(
        f"    of it {cpu_millis:.0f} ms at work, else without its turn; "
        f"{over} above the goal; most work in one {own:.0f} ms"
    )
