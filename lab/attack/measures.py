"""What a process costs over time: memory and CPU of it and its children, sampled by a thread.

Must not count PostgreSQL: what it keeps in memory is its own settings' business. Linux only.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SAMPLE_SECONDS = 0.05
# A share of one core that a control plane at rest takes beside what it takes in peace.
IDLE_CORES = 0.1
IDLE_SAMPLES = 5
MEBIBYTE = 1 << 20
TICK_SECONDS = 1 / os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Of all processes together; ``at`` is monotonic, ``cpu_seconds`` counts from their start."""

    at: float
    rss_mib: float
    cpu_seconds: float


class Meter:
    """Samples a process and its children until it is closed."""

    def __init__(self, pid: int) -> None:
        self.samples: list[Sample] = []
        self._pid = pid
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        self._thread.join()

    def now(self) -> Sample:
        pids = family(self._pid)
        return Sample(
            at=time.monotonic(),
            rss_mib=sum(map(_rss_bytes, pids)) / MEBIBYTE,
            cpu_seconds=sum(map(_cpu_seconds, pids)),
        )

    def peak_mib(self, since: float) -> float:
        return max(each.rss_mib for each in self.samples if each.at >= since)

    def cores(self, start: float, end: float) -> float:
        """How many it took in that time, on average."""
        there = [each for each in self.samples if start <= each.at < end]
        seconds = there[-1].at - there[0].at if len(there) > 1 else 0.0
        return (there[-1].cpu_seconds - there[0].cpu_seconds) / seconds if seconds else 0.0

    def busy_seconds(self, since: float, in_peace: float) -> float | None:
        """How long after ``since`` it took to come to rest, None if it has not. Bystanders are
        served meanwhile, which takes so many cores ``in_peace``.
        """
        later = [each for each in self.samples if each.at >= since]
        for start, first in enumerate(later[:-IDLE_SAMPLES]):
            last = later[start + IDLE_SAMPLES]
            most = (in_peace + IDLE_CORES) * (last.at - first.at)
            if last.cpu_seconds - first.cpu_seconds <= most:
                return first.at - since
        return None

    def _run(self) -> None:
        while not self._closed.wait(SAMPLE_SECONDS):
            self.samples.append(self.now())


@contextmanager
def metered(pid: int) -> Iterator[Meter]:
    meter = Meter(pid)
    try:
        yield meter
    finally:
        meter.close()


def family(pid: int) -> Sequence[int]:
    """A process and what it has started, but for PostgreSQL."""
    found = [pid]
    for known in found:
        found += [child for child in _children(known) if _name(child) != "postgres"]
    return found


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        found += map(int, _read(path).split())
    return found


def _name(pid: int) -> str:
    return _read(Path(f"/proc/{pid}/comm")).strip()


def _rss_bytes(pid: int) -> int:
    fields = _read(Path(f"/proc/{pid}/statm")).split()
    return int(fields[1]) * PAGE_BYTES if fields else 0


def _cpu_seconds(pid: int) -> float:
    # The name, in parentheses, may hold blanks.
    fields = _read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_SECONDS if fields else 0.0


def _read(path: Path) -> str:
    """Empty when the process is gone."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
