"""The verb ``replay``: a decision, or all of a trace file, made again and compared.

Must not make a decision again itself: the control plane does, or ``federation.history``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from federation.cli import output as show
from federation.cli.connection import connection
from federation.cli.output import Output, unnamed_output_option
from federation.cli.trace import replay_trace, trace_options
from federation.codec.decision_words import outcome_name
from federation.codec.written import document_from_message
from federation.v1 import scheduling_pb2

REPLAY_EPILOG = """Examples:

\b
fedctl replay DECISION
fedctl replay DECISION -o json
fedctl replay --trace last-week.trace
"""
NOT_EQUAL: Final = 3


@click.command(epilog=REPLAY_EPILOG)
@click.argument("decision_id", metavar="[DECISION]", required=False)
@click.option(
    "--trace",
    "trace_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="All decisions of a trace file, without any server.",
)
@trace_options("for plugins that do not come with fedsched")
@unnamed_output_option
def replay(
    decision_id: str | None,
    trace_file: Path | None,
    scheduler_config: Path | None,
    workers: int | None,
    output: Output,
) -> None:
    """Make a decision again from what it was made on, and compare.

    Exits with 3 where the replay is not equal.
    """
    if (decision_id is None) is (trace_file is None):
        raise click.UsageError("give a decision's id, or --trace FILE")
    if trace_file is not None:
        is_equal = replay_trace(trace_file, scheduler_config, workers, output)
    else:
        if scheduler_config is not None or workers is not None:
            raise click.UsageError("--scheduler-config and --workers are for --trace")
        is_equal = _replay_one(decision_id or "", output)
    if not is_equal:
        click.get_current_context().exit(NOT_EQUAL)


def _replay_one(decision_id: str, output: Output) -> bool:
    answer = connection().call(lambda api: api.replay_decision(decision_id))
    if output.is_document:
        show.print_document(document_from_message(answer), output)
    else:
        show.print_facts(_replay_facts(decision_id, answer))
    return answer.equal


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
