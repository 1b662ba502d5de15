"""Verbs about what was decided before: get decisions, history, replay and trace.

Must not make a decision again itself: the control plane does, or ``federation.history``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from google.protobuf.timestamp_pb2 import Timestamp

from federation.cli import output as show
from federation.cli.arguments import binding_argument, named_binding, time_of
from federation.cli.connection import connection
from federation.cli.decisions import outcome_word, shares_text
from federation.cli.kinds import GetKind, Request, show_list
from federation.cli.lists import ListColumn, ListedKind, Listing, listing_options
from federation.cli.offline.verbs import (
    trace_options,
)
from federation.cli.output import Output, unnamed_output_option
from federation.codec.decision_words import outcome_name
from federation.codec.timestamps import timestamp_from_seconds
from federation.codec.written import document_from_message
from federation.model.errors import FederationError, NotFound
from federation.model.placement import binding_key
from federation.model.readable import plural
from federation.runtime.terminal import say, with_progress
from federation.v1 import scheduling_pb2

if TYPE_CHECKING:
    from federation.client import Client


PLACING: Final = frozenset({scheduling_pb2.OUTCOME_SCHEDULED, scheduling_pb2.OUTCOME_PARTIAL})
# How decisions that are kept may end.
OUTCOMES: Final = [
    outcome_name(number)
    for number in scheduling_pb2.Outcome.values()
    if number not in (scheduling_pb2.OUTCOME_UNSPECIFIED, scheduling_pb2.OUTCOME_INVALID)
]
NEW: Final = "the binding is new"
MAX_SHOWN: Final = 100_000

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A decision, and by cluster the replicas before and after it; before is None: not known."""

    decision: scheduling_pb2.Decision
    changes: Mapping[str, tuple[int | None, int]]

    def document(self) -> dict[str, Any]:
        changes = [
            {"cluster": name, **({} if earlier is None else {"before": earlier}), "after": after}
            for name, (earlier, after) in self.changes.items()
        ]
        return {**document_from_message(self.decision), "changes": changes}


def why_text(decision: scheduling_pb2.Decision) -> str:
    """Why it was made, and why it did not place everything."""
    return "; ".join(filter(None, (*decision.triggers, decision.reason))) or "-"


def change_text(changes: Mapping[str, tuple[int | None, int]]) -> str:
    # Each is one word, which a narrow terminal does not break.
    texts = (
        f"{name}={after}" if earlier is None else f"{name}={earlier}->{after}"
        for name, (earlier, after) in changes.items()
    )
    return ", ".join(texts) or "none"


STEPS: Final[ListedKind[Step]] = ListedKind(
    word="decision",
    named=lambda step: step.decision.id,
    document=Step.document,
    columns=(
        ListColumn(
            "TIME",
            lambda step, _: Timestamp(seconds=step.decision.create_time.seconds).ToJsonString(),
        ),
        ListColumn("OUTCOME", lambda step, _: outcome_word(step.decision)),
        ListColumn("CHANGE", lambda step, _: change_text(step.changes)),
        ListColumn("WHY", lambda step, _: why_text(step.decision)),
        ListColumn("DECISION", lambda step, _: step.decision.id),
    ),
    least=("DECISION",),
    last=("OUTCOME",),
    prose=("CHANGE", "WHY"),
    empty="No decisions about it are kept.",
    is_record=True,
)
DECISIONS: Final[ListedKind[scheduling_pb2.Decision]] = ListedKind(
    word="decision",
    named=lambda decision: decision.id,
    columns=(
        ListColumn("DECISION", lambda decision, _: decision.id),
        ListColumn(
            "AGE",
            lambda decision, now: show.age(now - decision.create_time.ToNanoseconds() / 1e9),
            order=lambda decision: -decision.create_time.ToNanoseconds(),
        ),
        ListColumn("BINDING", lambda decision, _: binding_key(decision.namespace, decision.name)),
        ListColumn("OUTCOME", lambda decision, _: outcome_word(decision)),
        ListColumn("SHARES", lambda decision, _: shares_text(decision.clusters)),
        ListColumn("WHY", lambda decision, _: why_text(decision)),
    ),
    least=("WHY", "SHARES", "AGE"),
    last=("DECISION",),
    prose=("SHARES", "WHY"),
    empty="No such decisions.",
    is_record=True,
)
HISTORY_EPILOG = """Examples:

\b
fedctl history shop/checkout-deployment
fedctl history shop/checkout-deployment --since 7d --limit 1000 -o json
"""


_RANGE: Final = (
    click.option("--since", metavar="TIME", help="From this time on: 24h ago, or RFC 3339."),
    click.option("--until", metavar="TIME", help="Before this time."),
    click.option(
        "--limit",
        type=click.IntRange(1, MAX_SHOWN),
        default=50,
        show_default=True,
        help="No more than so many.",
    ),
)


async def _fetch_decisions(api: Client, request: Request) -> Sequence[scheduling_pb2.Decision]:
    if request.names:
        return [await api.get_decision(decision_id) for decision_id in request.names]
    options = request.options
    query = decisions_request(options["since"], options["until"])
    query.namespace = request.namespace
    if options["binding"]:
        query.namespace, query.name = named_binding(options["binding"], request.namespace)
    query.cluster = options["cluster"]
    query.outcomes.extend(
        scheduling_pb2.Outcome.Value(f"OUTCOME_{outcome.upper()}")
        for outcome in options["outcomes"]
    )
    return await api.list_decisions(query, limit=options["limit"])


GET_DECISIONS: Final = GetKind(
    plural="decisions",
    listed=DECISIONS,
    words="""Decisions, the newest first, or those with these ids.

    SHARES are those that the decision gives; why it gives them: fedctl explain DECISION.
    """,
    fetch=_fetch_decisions,
    fetches_names=True,
    metavar="DECISION",
    has_namespaces=True,
    options=[
        click.option("--binding", metavar="NAMESPACE/BINDING", help="Only about this binding."),
        click.option("--cluster", default="", help="Only those that give this cluster a share."),
        click.option(
            "--outcome",
            "outcomes",
            multiple=True,
            type=click.Choice(OUTCOMES, case_sensitive=False),
            help="Only those that ended so.",
        ),
        *_RANGE,
    ],
    examples=[
        "fedctl get decisions --since 1h",
        "fedctl get decisions -n shop --outcome unschedulable --outcome no_fit",
        "fedctl get decisions --cluster member1 --since 2026-03-01T00:00:00Z --until 12h",
        "fedctl get decision DECISION -o json",
    ],
)


def range_options(function: F) -> F:
    """The options ``--since``, ``--until`` and ``--limit``."""
    return reduce(lambda wrapped, option: option(wrapped), reversed(_RANGE), function)


@click.command(epilog=HISTORY_EPILOG)
@binding_argument
@range_options
@listing_options(STEPS)
def history(
    binding: tuple[str, str], since: str | None, until: str | None, limit: int, listing: Listing
) -> None:
    """Show a binding's decisions and what each changed.

    The newest is first. CHANGE compares with the decision before that placed replicas; where that
    one is not shown, it is the whole placement.
    """
    request = decisions_request(since, until)
    request.namespace, request.name = binding

    async def fetched(api: Client) -> Sequence[Step]:
        # One more, to compare the last one with.
        decisions = await api.list_decisions(request, limit=limit + 1)
        if not decisions and not listing.watch:
            await _say_if_missing(api, request)
        return steps_of(decisions)[:limit]

    show_list(STEPS, listing, fetched)


async def _say_if_missing(api: Client, request: scheduling_pb2.ListDecisionsRequest) -> None:
    """Say that a binding is missing, and which names are alike; a deleted one has a history."""
    try:
        await api.get_binding(request.namespace, request.name)
    except NotFound as missing:
        say(missing.message, err=True)


def steps_of(decisions: Sequence[scheduling_pb2.Decision]) -> list[Step]:
    """Decisions of one binding with what they changed; both the newest first."""
    return list(_steps_backwards(reversed(decisions)))[::-1]


def _steps_backwards(decisions: Iterable[scheduling_pb2.Decision]) -> Iterator[Step]:
    placed: Mapping[str, int] | None = None
    for decision in decisions:
        if NEW in decision.triggers:
            placed = {}
        changes: dict[str, tuple[int | None, int]] = {}
        if decision.outcome in PLACING:
            after = {share.name: share.replicas for share in decision.clusters}
            for name in sorted(after.keys() | (placed or {}).keys()):
                earlier = None if placed is None else placed.get(name, 0)
                if earlier != after.get(name, 0):
                    changes[name] = earlier, after.get(name, 0)
            placed = after
        yield Step(decision=decision, changes=changes)


def decisions_request(since: str | None, until: str | None) -> scheduling_pb2.ListDecisionsRequest:
    """A request for decisions between two times that people have written."""
    now = time.time()
    return scheduling_pb2.ListDecisionsRequest(
        since=None if since is None else time_of(since, "--since", now),
        until=None if until is None else time_of(until, "--until", now),
    )


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
