"""Runs of a what-if: over windows of a trace file, and over decisions of the last hours.

Questions and answers travel between processes. Must not say anything to people, nor talk to the
database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import merge
from operator import attrgetter
from typing import Final, NamedTuple

import msgspec

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
from federation.model.errors import InvalidRequest
from federation.model.placement import Binding, Placement
from federation.scheduler.plugins.profile import Profiles
from federation.simulation.changes import WhatIfChange
from federation.simulation.figures import (
    FIGURES,
    REPLICAS,
    DifferentDecision,
    Pair,
    WhatIf,
    by_cluster,
    differing,
)
from federation.simulation.what_if import WhatIfRun

# Windows of one trace.
MAX_WINDOWS: Final = 10_000
# Clusters of an answer.
MAX_CLUSTERS: Final = 100
_HISTORY: Final = "the history"


class Window(NamedTuple):
    """The decisions between two times in microseconds since 1970, and the frames that have them.

    Windows are independent: each begins with the recorded state.
    """

    since: int
    until: int
    frames: tuple[TraceFrame, ...]


def windows_of(trace: TraceFile, seconds: int) -> list[Window]:
    """Cut a trace into windows of ``seconds``, 0: one window; empty ones are left out.

    Raises InvalidRequest for too many windows.
    """
    if not trace.frames:
        return []
    first = min(frame.first_at for frame in trace.frames)
    last = max(frame.last_at for frame in trace.frames)
    step = seconds * 1_000_000 or last - first + 1
    if (last - first) // step >= MAX_WINDOWS:
        rule = f"has more than {MAX_WINDOWS} windows of {seconds} s: take longer ones"
        raise InvalidRequest.of(str(trace.path), rule)
    windows = []
    for since in range(first, last + 1, step):
        frames = tuple(
            frame
            for frame in trace.frames
            if frame.first_at < since + step and frame.last_at >= since
        )
        if frames:
            windows.append(Window(since, since + step, frames))
    return windows


class CarriedWindow(NamedTuple):
    """A window with its part of the trace, for machines without the file."""

    window: Window
    trace: CarriedTrace


def carried(trace: TraceFile, window: Window) -> CarriedWindow:
    """Return a window with its part of the trace. Raises OSError."""
    return CarriedWindow(window, trace.carried(window.frames))


def played_carried(change: WhatIfChange, profiles: Profiles, piece: CarriedWindow) -> WhatIf:
    """Play a window without the file, as ``played`` does."""
    return played(piece.trace, change, profiles, piece.window)


def played(
    trace: TraceFile | CarriedTrace, change: WhatIfChange, profiles: Profiles, window: Window
) -> WhatIf:
    """Play a window; foreign plugins are taken from ``profiles``.

    Raises InvalidRequest for a damaged file, PreconditionFailed, PluginFailed, and OSError.
    """
    run = WhatIfRun(change, InputReader(profiles))
    for frame in window.frames:
        chunk = trace.chunk(frame)
        for event in events_of(chunk):
            if not window.since <= event.at < window.until:
                continue
            take(run, event, chunk.bodies, str(trace.path))
    return run.result()


def take(
    run: WhatIfRun,
    event: TracedDecision | TracedDeletion,
    bodies: Mapping[bytes, bytes],
    source: str,
) -> None:
    """Take the next event of a trace. Raises as ``played`` does."""
    if isinstance(event, TracedDeletion):
        run.delete(event)
        return
    try:
        run.take(event, bodies)
    except MALFORMED as error:
        rule = f"is damaged: decision {event.id}: {error}"
        raise InvalidRequest.of(source, rule) from error


def events_of(chunk: TraceChunk) -> Iterator[TracedDecision | TracedDeletion]:
    """Return decisions and deletions in the order of their times."""
    both: tuple[Sequence[TracedDecision | TracedDeletion], ...]
    both = chunk.decisions, chunk.deletions
    return merge(*both, key=attrgetter("at"))


class RecentQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """The change, and the decisions, the oldest first; ``policies`` is YAML."""

    without: tuple[str, ...]
    cordoned: tuple[str, ...]
    policies: str
    chunks: tuple[TraceChunk, ...]


class RecentAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The result in figures; ``clusters`` are average replicas, the largest differences first.

    ``unknown`` clusters were named, but no fleet of those decisions had them.
    """

    decisions: int
    different: int
    skipped: int
    seconds: float
    figures: tuple[Pair, ...]
    clusters: tuple[Pair, ...]
    more_clusters: int
    first_different: tuple[DifferentDecision, ...]
    unknown: tuple[str, ...]


def answer_of(
    question: RecentQuestion,
    placement_of: Callable[[Binding], Placement | None] | None,
    profiles: Profiles,
) -> RecentAnswer:
    """Run a what-if. Raises as ``WhatIfRun`` does, and InvalidRequest for damaged bodies."""
    change = WhatIfChange(
        placement_of=placement_of,
        without=frozenset(question.without),
        cordoned=frozenset(question.cordoned),
    )
    run = WhatIfRun(change, InputReader(profiles))
    for chunk in question.chunks:
        for event in events_of(chunk):
            take(run, event, chunk.bodies, _HISTORY)
    return _answer(run.result(), change)


def question_bytes(question: RecentQuestion) -> bytes:
    """Encode a question, which takes long for many decisions."""
    return msgspec.msgpack.encode(question)


def _answer(result: WhatIf, change: WhatIfChange) -> RecentAnswer:
    clusters = differing(by_cluster(result, REPLICAS))
    unknown = (change.without | change.cordoned) - result.clusters if result.decisions else ()
    return RecentAnswer(
        decisions=result.decisions,
        different=result.different,
        skipped=result.skipped,
        seconds=result.seconds,
        figures=tuple(
            Pair(figure.words, figure.of(result.recorded), figure.of(result.changed))
            for figure in FIGURES
        ),
        clusters=tuple(clusters[:MAX_CLUSTERS]),
        more_clusters=max(0, len(clusters) - MAX_CLUSTERS),
        first_different=result.first_different,
        unknown=tuple(sorted(unknown)),
    )
