"""What processes cost, by /proc: CPU and memory of one, or of it and its children over time.

Must not judge them. Linux only.
"""

from __future__ import annotations

import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SAMPLE_SECONDS = 0.05
# A share of one core that a control plane at rest takes beside what it takes in peace.
IDLE_CORES = 0.1
IDLE_SAMPLES = 5
MEBIBYTE = 1 << 20
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def cpu_seconds(*pids: int) -> float:
    """Of processes, without their children."""
    return sum(sum(map(int, _stat(pid)[11:13])) for pid in pids) / TICKS_PER_SECOND


def family_seconds(pid: int) -> float:
    """Of a process and its children, ended ones included."""
    fields = {int(each.name): _stat(int(each.name)) for each in Path("/proc").glob("[0-9]*")}
    children = [sum(map(int, each[11:13])) for each in fields.values() if each[1:2] == [str(pid)]]
    return (sum(map(int, fields[pid][11:15])) + sum(children)) / TICKS_PER_SECOND


def memory_bytes(pid: int, name: str) -> int:
    """A figure of a process's memory: VmRSS now, VmHWM at most; 0 when it is gone."""
    status = _read(Path(f"/proc/{pid}/status")).splitlines()
    lines = [line for line in status if line.startswith(f"{name}:")]
    return sum(int(line.split()[1]) for line in lines) * 1024


def resident_mebibytes(pid: int) -> float:
    """The memory of one process now."""
    return memory_bytes(pid, "VmRSS") / MEBIBYTE


def family(pid: int) -> Sequence[int]:
    """A process and what it has started, but for PostgreSQL: what that keeps is its own matter."""
    found = [pid]
    for known in found:
        found += [child for child in _children(known) if _name(child) != "postgres"]
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Of all processes together; ``at`` is monotonic, ``cpu_seconds`` counts from their start."""

    at: float
    rss_mib: float
    cpu_seconds: float


class _Sampler(ABC):
    """Looks at a process and its children again and again, until it is closed."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        self._thread.join()

    @abstractmethod
    def look(self) -> None:
        """Take a sample."""

    def _run(self) -> None:
        while not self._closed.wait(SAMPLE_SECONDS):
            self.look()


class Meter(_Sampler):
    """Samples of memory and CPU."""

    def __init__(self, pid: int) -> None:
        self.samples: list[Sample] = []
        super().__init__(pid)

    def look(self) -> None:
        self.samples.append(self.now())

    def now(self) -> Sample:
        pids = family(self._pid)
        return Sample(
            at=time.monotonic(),
            rss_mib=sum(map(_rss_bytes, pids)) / MEBIBYTE,
            cpu_seconds=cpu_seconds(*pids),
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


class FamilyPeak(_Sampler):
    """The most that the peaks of processes that ran at one time came to. Each tells its own peak,
    whenever it was: only those that live shorter than a sample are missed.
    """

    def __init__(self, pid: int) -> None:
        self._most = 0.0
        self._looking = threading.Lock()
        super().__init__(pid)

    def look(self) -> None:
        with self._looking:
            there = sum(memory_bytes(each, "VmHWM") for each in family(self._pid))
            self._most = max(self._most, there / MEBIBYTE)

    def mebibytes(self) -> float:
        """Until now."""
        self.look()
        return self._most


@contextmanager
def metered(pid: int) -> Iterator[Meter]:
    meter = Meter(pid)
    try:
        yield meter
    finally:
        meter.close()


@contextmanager
def family_peak(pid: int) -> Iterator[FamilyPeak]:
    peak = FamilyPeak(pid)
    try:
        yield peak
    finally:
        peak.close()


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        found += map(int, _read(path).split())
    return found


def _name(pid: int) -> str:
    return _read(Path(f"/proc/{pid}/comm")).strip()


def _rss_bytes(pid: int) -> int:
    return int((_read(Path(f"/proc/{pid}/statm")).split() or (0, 0))[1]) * PAGE_BYTES


def _stat(pid: int) -> Sequence[str]:
    """What follows the name of the program, which may hold blanks; nothing of one that is gone."""
    return _read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()


def _read(path: Path) -> str:
    """Empty when the process is gone."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
