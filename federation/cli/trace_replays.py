"""The replay of everything that a trace file has, without any server.

Must not make a decision again itself: ``federation.history`` does.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial, reduce
from pathlib import Path
from typing import Any, Final

from federation.cli import output as show
from federation.cli.output import Output
from federation.cli.progress import counted
from federation.cli.trace_options import cores
from federation.history.replays import ReplayedTrace, ReplayEnd, replayed_frame
from federation.history.shards import worked_out
from federation.history.trace_files import TraceFile
from federation.model.errors import InvalidRequest
from federation.plugins import read_profiles

# How a replay ended, as people are told.
_ENDS: Final = {
    ReplayEnd.EQUAL: "equal",
    ReplayEnd.DIFFERENT: "different",
    ReplayEnd.NOT_KEPT: "not to be made again",
    ReplayEnd.FORGOTTEN: "inputs forgotten",
    ReplayEnd.PLUGIN: "plugin missing or failing",
}


def opened(path: Path) -> TraceFile:
    """Raises InvalidRequest, also where the file cannot be read."""
    try:
        return TraceFile.opened(path)
    except OSError as error:
        rule = f"cannot be read: {error.strerror or error}"
        raise InvalidRequest.of(str(path), rule) from error


def replay_trace(
    path: Path, scheduler_config: Path | None, workers: int | None, output: Output
) -> bool:
    """Whether every decision that can be made again is equal. Raises InvalidRequest."""
    found, profiles = opened(path), read_profiles(scheduler_config)
    work = partial(replayed_frame, found.unindexed, profiles)
    pieces = counted(
        worked_out(work, found.frames, workers or cores()), "frames replayed", len(found.frames)
    )
    replayed = reduce(ReplayedTrace.then, pieces, ReplayedTrace())
    if output.is_document:
        show.print_document(_document(replayed), output)
    else:
        show.print_facts(_facts(path, found, replayed))
        _show_unequal(replayed)
    return not replayed.ends[ReplayEnd.DIFFERENT]


def _facts(path: Path, found: TraceFile, replayed: ReplayedTrace) -> Iterator[tuple[str, object]]:
    yield "Trace", path
    yield "Decisions", found.decisions
    for end, words in _ENDS.items():
        if replayed.ends[end] or end is ReplayEnd.EQUAL:
            yield words.capitalize(), replayed.ends[end]
    yield "SHA-256", replayed.sha256 or "-"


def _show_unequal(replayed: ReplayedTrace) -> None:
    if not replayed.unequal:
        return
    show.print_heading("The first that are not equal")
    show.print_table(
        ["DECISION", "BINDING", "HOW", "WHAT"],
        [
            (
                each.id,
                each.binding,
                _ENDS[each.end],
                f"{each.difference.path}: {each.difference.stored} was stored, "
                f"{each.difference.replayed} replayed"
                if each.difference
                else each.why,
            )
            for each in replayed.unequal
        ],
        least=["BINDING"],
        prose=["WHAT"],
    )


def _document(replayed: ReplayedTrace) -> dict[str, Any]:
    return {
        **{end.value: replayed.ends[end] for end in ReplayEnd},
        "revisions": sorted(replayed.revisions),
        "sha256": replayed.sha256,
        "unequal": [
            {
                "decision": each.id,
                "binding": each.binding,
                "how": each.end.value,
                "why": each.why,
                "firstDifference": each.difference
                and {
                    "path": each.difference.path,
                    "stored": each.difference.stored,
                    "replayed": each.difference.replayed,
                },
            }
            for each in replayed.unequal
        ],
    }
