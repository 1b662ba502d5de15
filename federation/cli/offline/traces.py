"""Answers of ``replay --trace`` and ``what-if``: the decisions of trace files, made again.

Must not make a decision itself: ``federation.history`` does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path
from typing import Any, Final

from federation.cli import inputs
from federation.cli import output as show
from federation.cli.arguments import whole_seconds_of
from federation.cli.offline.verbs import cores
from federation.cli.output import Output
from federation.cli.pictures import bars
from federation.codec.changed_placements import PolicyPlacements
from federation.codec.document_files import documents_of
from federation.codec.workloads import policies_from_documents
from federation.history.dask_shards import worked_out_by_dask
from federation.history.replays import ReplayedTrace, ReplayEnd, replayed_frame
from federation.history.shards import worked_out
from federation.history.trace_files import TraceFile
from federation.model.errors import FederationError, InvalidRequest
from federation.plugins import read_profiles
from federation.runtime.terminal import say, with_progress
from federation.simulation.changes import WhatIfChange
from federation.simulation.figures import (
    FIGURES,
    MINUTE,
    REPLICAS,
    Pair,
    WhatIf,
    by_cluster,
    differing,
)
from federation.simulation.what_if_runs import carried, played, played_carried, windows_of

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
    trace, profiles = opened(path), read_profiles(scheduler_config)
    work = partial(replayed_frame, trace.unindexed, profiles)
    pieces = with_progress(
        worked_out(work, trace.frames, workers or cores()), "frames replayed", len(trace.frames)
    )
    replayed = reduce(ReplayedTrace.then, pieces, ReplayedTrace())
    if output.is_document:
        show.print_document(_replay_document(replayed), output)
    else:
        show.print_facts(_facts(path, trace, replayed))
        _show_unequal(replayed)
    return not replayed.ends[ReplayEnd.DIFFERENT]


def _facts(path: Path, trace: TraceFile, replayed: ReplayedTrace) -> Iterator[tuple[str, object]]:
    yield "Trace", path
    yield "Decisions", trace.decisions
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
                unequal.id,
                unequal.binding,
                _ENDS[unequal.end],
                f"{unequal.difference.path}: {unequal.difference.stored} was stored, "
                f"{unequal.difference.replayed} replayed"
                if unequal.difference
                else unequal.why,
            )
            for unequal in replayed.unequal
        ],
        least=["BINDING"],
        prose=["WHAT"],
    )


def _replay_document(replayed: ReplayedTrace) -> dict[str, Any]:
    return {
        **{end.value: replayed.ends[end] for end in ReplayEnd},
        "revisions": sorted(replayed.revisions),
        "sha256": replayed.sha256,
        "unequal": [
            {
                "decision": unequal.id,
                "binding": unequal.binding,
                "how": unequal.end.value,
                "why": unequal.why,
                "firstDifference": unequal.difference
                and {
                    "path": unequal.difference.path,
                    "stored": unequal.difference.stored,
                    "replayed": unequal.difference.replayed,
                },
            }
            for unequal in replayed.unequal
        ],
    }


# Clusters in tables, and in pictures: those that differ most.
MAX_CLUSTERS, MAX_DRAWN = 10, 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Otherwise:
    """The options of `what-if` that change something."""

    policies: Sequence[str]
    clusters: str | None
    without: Sequence[str]
    cordon: Sequence[str]
    scheduler_config: Path | None


def show_what_if(
    path: Path,
    change_options: Otherwise,
    output: Output,
    *,
    window: str,
    svg: Path | None,
    dask: str | None,
    workers: int | None,
) -> bool:
    """Whether the same came out, or something was to be otherwise. Raises FederationError."""
    trace, profiles = opened(path), read_profiles(change_options.scheduler_config)
    change = WhatIfChange(
        profiles=profiles if change_options.scheduler_config else None,
        placement_of=_placements(change_options.policies) if change_options.policies else None,
        clusters=_clusters(change_options.clusters) if change_options.clusters else {},
        without=frozenset(change_options.without),
        cordoned=frozenset(change_options.cordon),
    )
    windows = windows_of(trace, whole_seconds_of(window, "--window"))
    if dask:
        on_others = partial(played_carried, change, profiles)
        pieces = (carried(trace, window) for window in windows)
        parts = worked_out_by_dask(on_others, pieces, dask)
    else:
        work = partial(played, trace.unindexed, change, profiles)
        parts = worked_out(work, windows, workers or cores())
    came = reduce(WhatIf.then, with_progress(parts, "windows played", len(windows)), WhatIf())
    _check_names("--without", change_options.without, came)
    _check_names("--cordon", change_options.cordon, came)
    if svg is not None:
        _draw(svg, came)
    if output.is_document:
        show.print_document(_document(came), output)
    else:
        _show(path, came, is_wide=output.is_wide)
    return change != WhatIfChange() or not came.different


def _placements(paths: Sequence[str]) -> PolicyPlacements:
    return PolicyPlacements(policies_from_documents(documents_of(paths)))


def _clusters(path: str) -> Mapping[str, Any]:
    documents, rest = inputs.split_clusters(documents_of([path]))
    if rest:
        raise InvalidRequest.of(path, "holds something that is not a Cluster")
    return {state.cluster.name: state for state in inputs.clusters_in_files(documents)}


def _check_names(option: str, names: Sequence[str], came: WhatIf) -> None:
    """Raises InvalidRequest."""
    unknown = sorted({*names} - came.clusters)
    if unknown and came.decisions:
        raise InvalidRequest.of(option, f"names no cluster of the trace: {', '.join(unknown)}")


def _show(path: Path, came: WhatIf, *, is_wide: bool) -> None:
    facts = [("Trace", path), ("Decisions", came.decisions), ("Otherwise", came.different)]
    if came.retried:
        facts.append(("Brought about", came.retried))
    if came.skipped:
        facts.append(("Taken as they were", came.skipped))
    show.print_facts([*facts, ("SHA-256", came.sha256 or "-")])
    show.print_heading("Figures")
    recorded, changed = came.recorded, came.changed
    show.print_table(
        ["FIGURE", "RECORDED", "WHAT IF", "CHANGE"],
        [
            (row.words, was, now, f"{now - was:+g}" if now != was else "-")
            for row in FIGURES
            for was, now in [(row.of(recorded), row.of(changed))]
        ],
    )
    show.print_heading("By namespace: replica-minutes waited, replicas moved")
    show.print_table(
        ["NAMESPACE", "WAITED", "WHAT IF", "MOVED", "WHAT IF "],
        [
            (
                namespace or "-",
                round(recorded.waited[namespace] / MINUTE),
                round(changed.waited[namespace] / MINUTE),
                recorded.moved[namespace],
                changed.moved[namespace],
            )
            for namespace in _namespaces(came)
        ],
        empty="There were no decisions.",
    )
    show.print_heading("By cluster: replicas, over the time")
    pairs = by_cluster(came, REPLICAS)
    different = differing(pairs)
    show.print_table(
        ["CLUSTER", "RECORDED", "WHAT IF", "CHANGE"],
        [
            (row.label, row.recorded, row.changed, f"{row.changed - row.recorded:+.2f}")
            for row in (pairs if is_wide else different[:MAX_CLUSTERS])
        ],
        empty="None holds more or less." if pairs else "There were no decisions.",
    )
    _show_different(came)
    hidden = len(different) - MAX_CLUSTERS
    if hidden > 0 and not is_wide:
        say(f"{hidden} more clusters differ less: -o wide shows all", err=True)


def _show_different(came: WhatIf) -> None:
    if came.first_different:
        show.print_heading("The first that are otherwise")
        show.print_table(
            ["DECISION", "BINDING", "RECORDED", "WHAT IF"],
            [
                (row.id, row.binding, row.recorded, row.changed)
                for row in came.first_different[:MAX_CLUSTERS]
            ],
            least=["DECISION", "RECORDED"],
            prose=["RECORDED", "WHAT IF"],
        )


def _namespaces(came: WhatIf) -> list[str]:
    return sorted({*came.recorded.moved, *came.changed.moved, *came.recorded.placed})


def _document(came: WhatIf) -> dict[str, Any]:
    return {
        "decisions": came.decisions,
        "different": came.different,
        "retried": came.retried,
        "skipped": came.skipped,
        "sha256": came.sha256,
        "figures": {
            row.name: {"recorded": row.of(came.recorded), "whatIf": row.of(came.changed)}
            for row in FIGURES
        },
        "namespaces": [
            {
                "namespace": namespace,
                **{
                    name: {"recorded": was[namespace], "whatIf": now[namespace]}
                    for name, was, now in (
                        ("waitedReplicaSeconds", came.recorded.waited, came.changed.waited),
                        ("moved", came.recorded.moved, came.changed.moved),
                        ("placed", came.recorded.placed, came.changed.placed),
                        ("pending", came.recorded.pending, came.changed.pending),
                    )
                },
            }
            for namespace in _namespaces(came)
        ],
        "clusters": [*_cluster_documents(came)],
        "firstDifferent": [
            {
                "decision": row.id,
                "binding": row.binding,
                "at": row.at,
                "recorded": row.recorded,
                "whatIf": row.changed,
            }
            for row in came.first_different
        ],
    }


def _cluster_documents(came: WhatIf) -> Iterator[dict[str, Any]]:
    """Yield the average amounts that clusters held, in base units."""
    resources = sorted({held for _, held in (*came.recorded.held_seconds,)})
    held = {
        resource: {row.label: row for row in by_cluster(came, resource)} for resource in resources
    }
    for name in sorted({name for pairs in held.values() for name in pairs}):
        yield {
            "cluster": name,
            **{
                resource: {"recorded": pairs[name].recorded, "whatIf": pairs[name].changed}
                for resource, pairs in held.items()
                if name in pairs
            },
        }


def _draw(folder: Path, came: WhatIf) -> None:
    """A picture for each figure that has several values. Raises FederationError."""
    was, now = came.recorded, came.changed
    namespaces = _namespaces(came)
    pictures = {
        "waited": ("Replica-minutes waited, by namespace", was.waited, now.waited, MINUTE),
        "moved": ("Replicas moved, by namespace", was.moved, now.moved, 1),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, (title, recorded, changed, unit) in pictures.items():
            pairs = [
                Pair(
                    namespace or "-",
                    round(recorded[namespace] / unit),
                    round(changed[namespace] / unit),
                )
                for namespace in namespaces
            ]
            (folder / f"{name}.svg").write_text(bars(title, pairs), encoding="utf-8")
        for resource in (REPLICAS, "cpu"):
            title = f"{resource} held on average, by cluster"
            pairs = sorted(by_cluster(came, resource)[:MAX_DRAWN])
            (folder / f"{resource}.svg").write_text(bars(title, pairs), encoding="utf-8")
    except OSError as error:
        raise FederationError(f"cannot write pictures to {folder}: {error.strerror}") from error
