"""How a decision is shown: the outcome, the shares, the nodes, and the whole trace.

Must not interpret the trace beyond its layout.
"""

from __future__ import annotations

from collections.abc import Iterable

from federation.cli import output as show
from federation.codec.decision_words import bound_word, outcome_name, source_word, why
from federation.model.placement import binding_key
from federation.model.workload import TargetCluster
from federation.runtime.terminal import say
from federation.v1 import resource_pb2, scheduling_pb2

# What a narrow terminal leaves out of a trace, the first one first.
LEAST_OF_TRACE = (
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
    facts += [("Warning", each) for each in decision.warnings]
    if queued:
        facts.append(("Queued", "waits until there is room"))
    show.print_facts(facts)
    if decision.clusters:
        show.print_heading("Shares")
        promises = {each.cluster: each for each in decision.promises}
        columns = ["CLUSTER", "REPLICAS", *(["CERTIFICATE", "REPORT", "NOTE"] if promises else [])]
        show.print_table(
            columns,
            [
                (
                    each.name,
                    each.replicas or "-",
                    *(_worth(promises.get(each.name)) if promises else ()),
                )
                for each in decision.clusters
            ],
            least=["REPORT", "CERTIFICATE"],
            prose=["NOTE"],
        )


def _worth(promise: scheduling_pb2.ClusterPromise | None) -> tuple[object, ...]:
    """What a share is worth, and the report it was packed into."""
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
        [_row(each, wide=wide) for each in trace.clusters],
        least=LEAST_OF_TRACE,
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
