"""Windows of a trace file: decisions of a span of time, played again with a change.

Must not say anything to people.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from heapq import merge
from operator import attrgetter
from typing import Final, NamedTuple

from federation.history.changes import WhatIfChange
from federation.history.counterfactual import Counterfactual
from federation.history.packed_inputs import InputReader
from federation.history.replays import MALFORMED
from federation.history.trace_files import (
    CarriedTrace,
    TraceChunk,
    TracedDecision,
    TracedDeletion,
    TraceFile,
    TraceFrame,
)
from federation.history.what_ifs import WhatIf
from federation.model.errors import InvalidRequest
from federation.scheduler.plugins.profile import Profiles

MOST_WINDOWS: Final = 10_000


class Window(NamedTuple):
    """Decisions from one time on and before another one, in microseconds since 1970, and the chunks
    that have them. Windows do not know each other: each begins with what was there.
    """

    since: int
    until: int
    frames: tuple[TraceFrame, ...]


def windows_of(trace: TraceFile, seconds: int) -> list[Window]:
    """Windows of so many seconds; of all in one where that is 0. Those without decisions are left
    out. Raises InvalidRequest where there are too many.
    """
    if not trace.frames:
        return []
    first = min(frame.first_at for frame in trace.frames)
    last = max(frame.last_at for frame in trace.frames)
    step = seconds * 1_000_000 or last - first + 1
    if (last - first) // step >= MOST_WINDOWS:
        rule = f"has more than {MOST_WINDOWS} windows of {seconds} s: take longer ones"
        raise InvalidRequest.of(str(trace.path), rule)
    found = []
    for since in range(first, last + 1, step):
        frames = tuple(
            frame
            for frame in trace.frames
            if frame.first_at < since + step and frame.last_at >= since
        )
        if frames:
            found.append(Window(since, since + step, frames))
    return found


class CarriedWindow(NamedTuple):
    """A window with its part of the trace, for machines that do not have the file."""

    window: Window
    trace: CarriedTrace


def carried(trace: TraceFile, window: Window) -> CarriedWindow:
    """Raises OSError."""
    return CarriedWindow(window, trace.carried(window.frames))


def played_carried(change: WhatIfChange, profiles: Profiles, piece: CarriedWindow) -> WhatIf:
    """As ``played``."""
    return played(piece.trace, change, profiles, piece.window)


def played(
    trace: TraceFile | CarriedTrace, change: WhatIfChange, profiles: Profiles, window: Window
) -> WhatIf:
    """What comes of a window; plugins that do not come with fedsched are found in ``profiles``.

    Raises InvalidRequest where the file is damaged, PreconditionFailed, PluginFailed, and OSError.
    """
    counterfactual = Counterfactual(change, InputReader(profiles))
    for frame in window.frames:
        chunk = trace.chunk(frame)
        for event in events_of(chunk):
            if not window.since <= event.at < window.until:
                continue
            take(counterfactual, event, chunk.bodies, str(trace.path))
    return counterfactual.result()


def take(
    counterfactual: Counterfactual,
    event: TracedDecision | TracedDeletion,
    bodies: Mapping[bytes, bytes],
    source: str,
) -> None:
    """The next event of a trace from there. Raises as ``played`` does."""
    if isinstance(event, TracedDeletion):
        counterfactual.delete(event)
        return
    try:
        counterfactual.take(event, bodies)
    except MALFORMED as error:
        rule = f"is damaged: decision {event.id}: {error}"
        raise InvalidRequest.of(source, rule) from error


def events_of(chunk: TraceChunk) -> Iterator[TracedDecision | TracedDeletion]:
    """In the order of their times."""
    both: tuple[Sequence[TracedDecision | TracedDeletion], ...]
    both = chunk.decisions, chunk.deletions
    return merge(*both, key=attrgetter("at"))
