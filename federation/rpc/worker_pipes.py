"""What all programs do that read frames of a control plane on standard input.

Must not know what is in a frame.
"""

from __future__ import annotations

import os
import select
import sys
from typing import BinaryIO

from federation.services.workers import LENGTH


def read_frame(into: BinaryIO) -> bytes:
    """The next one; the program ends with the last."""
    header = into.read(LENGTH.size)
    if len(header) < LENGTH.size:
        sys.exit(0)
    (size,) = LENGTH.unpack(header)
    return into.read(size)


def end_with_parent() -> None:
    """End at once, whatever is being worked on, when nobody can ask any more."""
    poll = select.poll()
    poll.register(0, 0)  # Hanging up is always told.
    poll.poll()
    os._exit(0)
