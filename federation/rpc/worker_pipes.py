"""The loop of all programs that answer frames of a control plane on standard input.

Must not know what is in a frame.
"""

from __future__ import annotations

import os
import select
import sys
import threading
from collections.abc import Callable
from typing import NamedTuple

from federation.services.workers import HEADER, LENGTH, READY, TAKEN, AnswerKind


class FrameAnswer(NamedTuple):
    """The answer to a frame; after the last one the process may be ended."""

    kind: AnswerKind
    body: bytes
    is_last: bool = False


def answer_frames(
    answer: Callable[[bytes], FrameAnswer | None], *, says_when_taken: bool = False
) -> None:
    """Answer frames until standard input ends; a frame with None for an answer has none."""
    out = sys.stdout.buffer
    out.write(READY)
    out.flush()
    while True:
        frame = read_frame()
        if says_when_taken:
            out.write(TAKEN)
            out.flush()
        answered = answer(frame)
        if answered is not None:
            out.write(HEADER.pack(answered.kind, answered.is_last, len(answered.body)))
            out.write(answered.body)
            out.flush()


def read_frame() -> bytes:
    """Read the next frame; the program ends with the last."""
    into = sys.stdin.buffer
    header = into.read(LENGTH.size)
    if len(header) < LENGTH.size:
        sys.exit(0)
    (size,) = LENGTH.unpack(header)
    return into.read(size)


def end_with_parent() -> None:
    """From now on end at once, whatever is being worked on, when nobody can ask any more."""
    threading.Thread(target=_end_when_hung_up, daemon=True).start()


def _end_when_hung_up() -> None:
    poll = select.poll()
    poll.register(0, 0)  # Hanging up is always told.
    poll.poll()
    os._exit(0)
