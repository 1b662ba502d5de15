"""How decisions are shown: outcome, shares, nodes, the whole trace, and how much is placed.

Must not interpret the trace beyond its layout.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from typing import Final

import click

from federation.cli import output as show
from federation.cli.layouts import GAP, TIGHT_COLUMNS, Layout, width_of
from federation.codec.decision_words import bound_word, outcome_name, source_word, why
from federation.codec.funnel import FunnelStep, by_importance, funnel_steps
from federation.model.placement import SchedulingType, binding_key
from federation.model.printable import printable
from federation.model.readable import counted
from federation.model.workload import TargetCluster
from federation.runtime.terminal import say, styled
from federation.v1 import resource_pb2, scheduling_pb2

MIN_BAR: Final = 8
MAX_BAR: Final = 32
MAX_SHARES: Final = 12
EIGHTHS: Final = ("", *"▏▎▍▌▋▊▉")
BARS: Final = re.compile("[█▉▊▋▌▍▎▏]+")
# What a narrow terminal leaves out of a trace, the first one first.
HIDDEN_FIRST = (
    *("SEQUENCE", "BOUND", "SCORES", "ESTIMATE", "WEIGHT", "QUOTA", "BEFORE", "SCORE", "AGE"),
    *("SOURCE", "AVAILABLE"),
)


def print_decision(decision: scheduling_pb2.Decision, *, queued: bool = False) -> None:
    """Outcome and shares."""
    facts = [
        ("Binding", binding_key(decision.namespace, decision.name)),
        ("Outcome", outcome_word(decision)),
        ("Decision", decision.id or "not stored"),
    ]
    if decision.reason:
        facts.append(("Reason", decision.reason))
    if decision.remainder:
        facts.append(("Not placed", str(decision.remainder)))
    facts += [("Warning", warning) for warning in decision.warnings]
    if queued:
        facts.append(("Queued", "waits until there is room"))
    show.print_facts(facts)
    if decision.clusters:
        show.print_heading("Shares")
        promises = {promise.cluster: promise for promise in decision.promises}
        columns = ["CLUSTER", "REPLICAS", *(["CERTIFICATE", "REPORT", "NOTE"] if promises else [])]
        show.print_table(
            columns,
            [
                (
                    share.name,
                    share.replicas or "-",
                    *(_worth(promises.get(share.name)) if promises else ()),
                )
                for share in decision.clusters
            ],
            least=["REPORT", "CERTIFICATE"],
            prose=["NOTE"],
        )


def _worth(promise: scheduling_pb2.ClusterPromise | None) -> tuple[object, ...]:
    """The certificate of a share, the report it was packed into, and a note."""
    if promise is None:
        return ("-", "-", "")
    report = f"{promise.report_epoch}/{promise.report_sequence}"
    return (promise.certificate, report if promise.report_sequence else "-", promise.note)


def print_preview(answer: scheduling_pb2.ScheduleResponse) -> None:
    """How the preview is committed, and until when."""
    if answer.preview_token:
        until = answer.preview_expire_time.ToJsonString()
        show.print_facts([("Commit until", until)])
        # To be copied: no line may be broken in it.
        say(f"fedctl schedule --commit {answer.preview_token}")


def print_nodes(decision: scheduling_pb2.Decision) -> None:
    """On which nodes the agents put the shares."""
    if not decision.node_placements:
        return
    show.print_heading("Nodes")
    parts = any(node.component for at in decision.node_placements for node in at.nodes)
    rows: list[tuple[object, ...]] = []
    for placement in decision.node_placements:
        cluster, strategy = placement.cluster, placement.strategy
        for node in placement.nodes:
            part = (node.component or "-",) if parts else ()
            rows.append((cluster, *part, node.node, node.replicas, score_text(node), strategy))
        if placement.unplaced or placement.message:
            part = ("-",) if parts else ()
            rows.append((cluster, *part, "-", placement.unplaced, "-", placement.message))
    columns = ["CLUSTER", *(["COMPONENT"] if parts else []), "NODE", "REPLICAS", "SCORE"]
    show.print_table([*columns, "STRATEGY"], rows, least=["SCORE"], prose=["STRATEGY"])


def score_text(node: scheduling_pb2.PlacedReplicas) -> str:
    """A node's score on its strategy's own scale: ``131 of 200``."""
    if not node.total_scale:
        return f"{node.score} of 100"
    return f"{node.total:.6g} of {node.total_scale:.6g}"


def print_trace(trace: scheduling_pb2.Trace, *, wide: bool = False) -> None:
    """Facts about the decision, then a row per cluster."""
    show.print_heading("How it was decided")
    show.print_facts((fact.name, fact.value) for fact in trace.facts)
    if len(trace.attempts) > 1:
        # Of a single one the outcome and the reason are shown already.
        for attempt in trace.attempts:
            show.print_facts([("Tried", attempt)])
    show.print_heading("Clusters")
    columns = ["CLUSTER", "AVAILABLE", "SOURCE", "AGE", "SCORE", "BEFORE", "WEIGHT", "QUOTA"]
    columns += ["REPLICAS", "WHY", *(["BOUND", "SEQUENCE", "SCORES", "ESTIMATE"] if wide else [])]
    show.print_table(
        columns,
        [_row(cluster, wide=wide) for cluster in trace.clusters],
        least=HIDDEN_FIRST,
        prose=["WHY", "SCORES", "ESTIMATE"],
    )


def _row(cluster: scheduling_pb2.ClusterTrace, *, wide: bool) -> list[object]:
    row: list[object] = [
        cluster.name,
        "unknown" if cluster.availability_unknown else cluster.available_replicas,
        source_word(cluster.source),
        show.age(cluster.report_age_seconds) if cluster.report_sequence else "-",
        cluster.score,
        cluster.previous_replicas,
        cluster.weight,
        f"{cluster.quota:.2f}" if cluster.quota else "",
        cluster.replicas,
        why(cluster),
    ]
    if wide:
        scores = ", ".join(f"{name} {score}" for name, score in sorted(cluster.scores.items()))
        row += [bound_word(cluster.bound), cluster.report_sequence, scores, cluster.estimate_note]
    return row


def shares_text(targets: Iterable[resource_pb2.TargetCluster]) -> str:
    """``member1=3, member2=2``."""
    return ", ".join(map(share_text, targets)) or "-"


def share_text(target: resource_pb2.TargetCluster | TargetCluster) -> str:
    """``member1=3``, or the name alone where the workload runs without a number of replicas."""
    return f"{target.name}={target.replicas}" if target.replicas else target.name


def outcome_word(decision: scheduling_pb2.Decision) -> str:
    return outcome_name(decision.outcome)


def can_draw() -> bool:
    """Whether bars can be written to standard output."""
    return show.is_terminal() and (sys.stdout.encoding or "").lower().startswith("utf")


def draw_decision(decision: scheduling_pb2.Decision) -> None:
    """The funnel of the decision's clusters and their shares as bars; nothing without a trace."""
    if not decision.trace.clusters:
        return
    clusters = by_importance(decision.trace.clusters)
    steps = funnel_steps(decision, clusters)
    show.print_heading("From all clusters to the promise")
    whole = max(1, steps[0].left)
    _draw(
        ((str(step.left), _bar(step.left, whole), step.title, _step_note(step)) for step in steps),
        "cyan",
    )
    shares = [cluster for cluster in clusters if cluster.replicas]
    if not shares:
        return
    show.print_heading("Replicas, of those that are available")
    drawn = shares[:MAX_SHARES]
    whole = max(max(cluster.replicas, cluster.available_replicas) for cluster in drawn)
    _draw(
        ((cluster.name, _bar(cluster.replicas, whole), _available(cluster)) for cluster in drawn),
        "green",
    )
    if len(shares) > MAX_SHARES:
        say(f"and {counted(len(shares) - MAX_SHARES, 'cluster')} more")


def _bar(part: int, whole: int) -> str:
    """A bar of eighths of a character, as wide as a fifth of the terminal."""
    width = max(MIN_BAR, min(MAX_BAR, show.terminal_columns() // 5))
    full, eighths = divmod(part * width * 8 // whole, 8)
    return f"{'█' * full}{EIGHTHS[eighths]}".ljust(width)


def _draw(rows: Iterable[Sequence[str]], colour: str) -> None:
    """Rows in columns without headings; the bars, which nothing else looks like, in colour.

    The last column is as wide as the terminal leaves, and broken within words where it has to be.
    """
    cells = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(width_of, column)) for column in zip(*cells, strict=True)]
    free = show.terminal_columns() - sum(widths[:-1]) - GAP * len(widths[:-1])
    layout = Layout(
        headings=(),
        shown=range(len(widths)),
        widths=[*widths[:-1], max(TIGHT_COLUMNS, min(widths[-1], free))],
        numeric=[len(widths) > 3, *([False] * (len(widths) - 1))],
        hidden=(),
        wrapped=[*([False] * (len(widths) - 1)), True],
    )
    for row in cells:
        for line in layout.lines(row):
            styled(BARS.sub(lambda run: click.style(run[0], fg=colour), line))


def _step_note(step: FunnelStep) -> str:
    """How a step went, and how many clusters left for which reason."""
    reasons = [f"{count} left: {reason}" for reason, count in step.reasons]
    if step.others:
        reasons.append(f"{step.others} left for other reasons")
    return "; ".join(filter(None, (step.note, *reasons)))


def _available(cluster: scheduling_pb2.ClusterTrace) -> str:
    is_unknown = cluster.availability_unknown
    return f"{cluster.replicas} of {'unknown' if is_unknown else cluster.available_replicas}"


def requested_pods(spec: resource_pb2.ResourceBindingSpec) -> int:
    """Return the pods that a binding asks for, in its present clusters if each gets all of it."""
    pods = sum(part.replicas for part in spec.components) if spec.components else spec.replicas
    scheduling = spec.placement.replica_scheduling
    is_divided = (
        spec.placement.HasField("replica_scheduling")
        and scheduling.replica_scheduling_type != SchedulingType.DUPLICATED
    )
    if spec.components or not is_divided:
        pods *= max(1, len(spec.clusters))
    return pods


def placed_text(spec: resource_pb2.ResourceBindingSpec) -> str:
    """Pods with a cluster of those asked for, ``3/5``; yes or no for what has no pods."""
    pods = requested_pods(spec)
    if not pods:
        return "yes" if spec.clusters else "no"
    return f"{sum(share.replicas for share in spec.clusters)}/{pods}"


def placed_share(spec: resource_pb2.ResourceBindingSpec) -> float:
    """Which part of what is asked for has a cluster, from 0 to 1."""
    placed, _, requested = placed_text(spec).partition("/")
    return int(placed) / int(requested) if requested else float(placed == "yes")
