"""The verbs ``replay``, a decision or a trace file made again, and ``trace``, which exports one.

Must not make a decision again itself: the control plane does, or ``federation.history``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from federation.cli import output as show
from federation.cli.arguments import time_of
from federation.cli.connection import connection
from federation.cli.offline.verbs import (
    trace_options,
)
from federation.cli.output import Output, unnamed_output_option
from federation.codec.decision_words import outcome_name
from federation.codec.timestamps import timestamp_from_seconds
from federation.codec.written import document_from_message
from federation.model.errors import FederationError
from federation.model.readable import plural
from federation.runtime.terminal import say, with_progress
from federation.v1 import scheduling_pb2

if TYPE_CHECKING:
    pass


REPLAY_EPILOG = """Examples:

\b
fedctl replay DECISION
fedctl replay DECISION -o json
fedctl replay DECISION --from-reports
fedctl replay --trace last-week.trace
"""
NOT_EQUAL: Final = 3
_REPORTED: Final = ("CLUSTER", "DECIDED ON", "REPORTS SAY", "REPORT THEN", "REPORT KEPT", "WHY")


@click.command(epilog=REPLAY_EPILOG)
@click.argument("decision_id", metavar="[DECISION]", required=False)
@click.option(
    "--trace",
    "trace_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="All decisions of a trace file, without any server.",
)
@click.option(
    "--from-reports",
    is_flag=True,
    help="Hold what was known of capacity against the reports of that time, too.",
)
@trace_options("for plugins that do not come with fedsched")
@unnamed_output_option
def replay(
    decision_id: str | None,
    trace_file: Path | None,
    from_reports: bool,
    scheduler_config: Path | None,
    workers: int | None,
    output: Output,
) -> None:
    """Make a decision again, and compare.

    Exits with 3 where the replay is not equal, or where a report that is kept, and that it was made
    on, says something else.
    """
    if (decision_id is None) is (trace_file is None):
        raise click.UsageError("give a decision's id, or --trace FILE")
    if trace_file is not None:
        if from_reports:
            raise click.UsageError("--from-reports is for a decision: trace files hold no reports")
        # What plays a trace decides: who asks a server would wait for all of it.
        from federation.cli.offline.traces import replay_trace  # noqa: PLC0415 - see above

        is_equal = replay_trace(trace_file, scheduler_config, workers, output)
    else:
        if scheduler_config is not None or workers is not None:
            raise click.UsageError("--scheduler-config and --workers are for --trace")
        is_equal = _replay_one(decision_id or "", output, from_reports=from_reports)
    if not is_equal:
        click.get_current_context().exit(NOT_EQUAL)


def _replay_one(decision_id: str, output: Output, *, from_reports: bool) -> bool:
    answer = connection().call(
        lambda api: api.replay_decision(decision_id, from_reports=from_reports)
    )
    beside = answer.beside_reports
    if output.is_document:
        show.print_document(document_from_message(answer), output)
    else:
        reported = _reported_facts(beside) if from_reports else ()
        show.print_facts((*_replay_facts(decision_id, answer), *reported))
        if beside.differences:
            show.print_table(
                _REPORTED,
                map(_reported_row, beside.differences),
                least=_REPORTED[3:5],
                prose=["WHY"],
            )
    return answer.equal and (beside.equal or not from_reports)


def _reported_facts(beside: scheduling_pb2.BesideReports) -> Iterator[tuple[str, object]]:
    on_newer = beside.on_other_reports
    compared = beside.clusters - on_newer
    verdict = "say the same" if beside.equal else "say something else"
    yield "Reports", verdict if compared else "nothing to compare"
    newest = f"of {plural(beside.clusters, 'cluster')}"
    yield "Compared", f"{compared} {newest}, {plural(beside.decisions_since, 'decision')} since"
    if on_newer:
        yield "Not compared", f"{on_newer} {newest}, decided on a newer report"
    if not beside.equal:
        shares = ", ".join(f"{share.name}={share.replicas}" for share in beside.targets)
        yield "Would be", f"{outcome_name(beside.outcome)} {shares}".rstrip()


def _reported_row(share: scheduling_pb2.ReportedEstimate) -> Sequence[object]:
    said = str(share.least) if share.least == share.most else f"{share.least} to {share.most}"
    then, newest = share.decided_on_report, share.kept_report
    if share.not_kept:
        return share.cluster, share.decided_on, "", then, "", "no report is kept"
    if then == newest:
        why = "reports say something else"
    else:
        why = f"decided on {'a newer' if then > newest else 'another'} report"
    return share.cluster, share.decided_on, said, then, newest, why


def _replay_facts(
    decision_id: str, answer: scheduling_pb2.ReplayDecisionResponse
) -> Iterator[tuple[str, object]]:
    yield "Decision", decision_id
    yield "Replay", "equal" if answer.equal else "different"
    if answer.stored_revision != answer.replayed_revision:
        decided, replayed = answer.stored_revision, answer.replayed_revision
        yield "Revision", f"revision {decided} decided, revision {replayed} replayed"
    if answer.equal:
        yield "SHA-256", answer.stored_sha256
        return
    first = answer.first_difference
    yield "First difference", first.path
    yield "Stored", f"{first.stored} (SHA-256 {answer.stored_sha256})"
    yield "Replayed", f"{first.replayed} (SHA-256 {answer.replayed_sha256})"
    shares = ", ".join(f"{share.name}={share.replicas}" for share in answer.clusters)
    yield "Would be", f"{outcome_name(answer.outcome)} {shares}".rstrip()


@click.group(epilog="Example: fedctl trace export last-week.trace --since 7d")
def trace() -> None:
    """Export recorded decisions to a file."""


@trace.command(epilog="Example: fedctl trace export last-week.trace --since 7d")
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--since", metavar="TIME", help="From this time on: 24h ago, or RFC 3339.")
@click.option("--until", metavar="TIME", help="Before this time; now when not given.")
def export(path: Path, since: str | None, until: str | None) -> None:
    """Write recorded decisions to a file, with everything that makes them again.

    It has the specs of clusters and bindings, and no secrets. What is there already is replaced
    once all of it was read.
    """
    if not path.name:
        raise click.UsageError("FILE names no file")
    now = time.time()
    begins = time_of(since, "--since", now) if since else None
    ends = time_of(until, "--until", now) if until else timestamp_from_seconds(now)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    decisions = 0
    try:
        with beside.open("xb") as file:
            pieces = connection().iterate(lambda api: api.export_trace(begins, ends))
            for piece in with_progress(pieces, "pieces written"):
                file.write(piece.content)
                decisions += piece.decisions
            size = file.tell()
        beside.replace(path)
    except OSError as error:
        raise FederationError(f"cannot write {path}: {error.strerror}") from error
    finally:
        beside.unlink(missing_ok=True)
    written = "1 decision" if decisions == 1 else f"{decisions} decisions"
    say(f"{written}, {size} bytes: {path}")
