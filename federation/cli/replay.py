"""The verb ``replay``: a decision, or all of a trace file, made again and compared.

Must not make a decision again itself: the control plane does, or ``federation.history``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import click

from federation.cli import output as show
from federation.cli.connection import connection
from federation.cli.offline.verbs import trace_options
from federation.cli.output import Output, unnamed_output_option
from federation.codec.decision_words import outcome_name
from federation.codec.written import document_from_message
from federation.model.readable import plural
from federation.v1 import scheduling_pb2

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
    others = beside.on_other_reports
    compared = beside.clusters - others
    verdict = "say the same" if beside.equal else "say something else"
    yield "Reports", verdict if compared else "nothing to compare"
    kept = f"of {plural(beside.clusters, 'cluster')}"
    yield "Compared", f"{compared} {kept}, {plural(beside.decisions_since, 'decision')} since"
    if others:
        yield "Not compared", f"{others} {kept}, decided on a newer report"
    if not beside.equal:
        shares = ", ".join(f"{each.name}={each.replicas}" for each in beside.targets)
        yield "Would be", f"{outcome_name(beside.outcome)} {shares}".rstrip()


def _reported_row(each: scheduling_pb2.ReportedEstimate) -> Sequence[object]:
    said = str(each.least) if each.least == each.most else f"{each.least} to {each.most}"
    then, kept = each.decided_on_report, each.kept_report
    if each.not_kept:
        return each.cluster, each.decided_on, "", then, "", "no report is kept"
    if then == kept:
        why = "reports say something else"
    else:
        why = f"decided on {'a newer' if then > kept else 'another'} report"
    return each.cluster, each.decided_on, said, then, kept, why


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
    shares = ", ".join(f"{each.name}={each.replicas}" for each in answer.clusters)
    yield "Would be", f"{outcome_name(answer.outcome)} {shares}".rstrip()
