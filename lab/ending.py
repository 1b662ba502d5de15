"""Long programs of tests that are told to end: what they started ends too.

Must not end anything itself.
"""

from __future__ import annotations

import signal
import sys
from types import FrameType


def clean_up_when_ended() -> None:
    """Also on SIGTERM and SIGHUP, of which a process ends without a word else."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)


def _end(number: int, frame: FrameType | None) -> None:
    del frame
    sys.exit(128 + number)
