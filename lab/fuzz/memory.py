"""How much memory a process and those that it started have needed at most, together.

Must not count PostgreSQL. Linux only: elsewhere it is 0.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from lab.attack.measures import family

PEAK: Final = re.compile(r"VmHWM:\s+(\d+) kB")
# Each process tells its own peak, whenever it was: only those that live shorter are missed.
SAMPLE_SECONDS: Final = 0.05


class FamilyPeak:
    """Looks at them until it is closed: who starts and ends between two questions counts, too."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._mebibytes = 0.0
        self._looking = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def mebibytes(self) -> float:
        """Until now: the most that the peaks of those that ran at one time come to."""
        self._look()
        return self._mebibytes

    def close(self) -> None:
        self._closed.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closed.wait(SAMPLE_SECONDS):
            self._look()

    def _look(self) -> None:
        with self._looking:
            there = sum(map(peak_mebibytes, family(self._pid)))
            self._mebibytes = max(self._mebibytes, there)


@contextmanager
def family_peak(pid: int) -> Iterator[FamilyPeak]:
    peak = FamilyPeak(pid)
    try:
        yield peak
    finally:
        peak.close()


def peak_mebibytes(pid: int) -> float:
    """Of one process; 0 when it is gone."""
    try:
        found = PEAK.search(Path(f"/proc/{pid}/status").read_text(encoding="utf-8"))
    except OSError:
        return 0.0
    return int(found[1]) / 1024 if found else 0.0
