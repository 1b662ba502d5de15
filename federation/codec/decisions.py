"""Decisions and their traces to messages.

Must not explain anything beyond what the trace recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final, Protocol

from federation.codec.bindings import put_targets
from federation.codec.estimates import bound_messages, source_messages
from federation.codec.timestamps import timestamp_from_seconds
from federation.codec.violations import Violations
from federation.model.estimate import Source
from federation.model.reservations import PromiseCertificate
from federation.model.workload import TargetCluster
from federation.scheduler.decision import Decision, Outcome
from federation.scheduler.division.values import Limit
from federation.scheduler.trace import DivisionTrace, Trace
from federation.v1 import scheduling_pb2

# Those of decisions for ten thousand clusters take two megabytes.
PROMISES_KNOWN = 16

OUTCOME_NUMBERS: Final = {
    Outcome.SCHEDULED: scheduling_pb2.OUTCOME_SCHEDULED,
    Outcome.PARTIAL: scheduling_pb2.OUTCOME_PARTIAL,
    Outcome.UNSCHEDULABLE: scheduling_pb2.OUTCOME_UNSCHEDULABLE,
    Outcome.NO_FIT: scheduling_pb2.OUTCOME_NO_FIT,
}


# As people write them.
_LIMITS: Final = {limit: limit.name.lower() if limit else "" for limit in Limit}


class NodeShareView(Protocol):
    """Replicas of a component on one node."""

    @property
    def node(self) -> str: ...
    @property
    def component(self) -> str: ...
    @property
    def replicas(self) -> int: ...
    @property
    def score(self) -> float: ...
    @property
    def scale(self) -> float: ...


class NodePlanView(Protocol):
    """An agent's answer for its cluster's share."""

    @property
    def cluster(self) -> str: ...
    @property
    def nodes(self) -> Sequence[NodeShareView]: ...
    @property
    def unplaced(self) -> int: ...
    @property
    def message(self) -> str: ...
    @property
    def strategy(self) -> str: ...


class EvidenceView(Protocol):
    """Sequence and age of each cluster's report, in the order of the trace's clusters."""

    @property
    def sequences(self) -> Sequence[int]: ...
    @property
    def age_seconds(self) -> Sequence[float]: ...


class PromiseView(Protocol):
    """What one cluster's share is worth, and the report it was packed into; can be hashed."""

    @property
    def cluster(self) -> str: ...
    @property
    def certificate(self) -> PromiseCertificate: ...
    @property
    def report_epoch(self) -> int: ...
    @property
    def report_sequence(self) -> int: ...
    @property
    def note(self) -> str: ...


class HeldView(Protocol):
    """Replicas of one component that a binding holds in a cluster."""

    @property
    def cluster(self) -> str: ...
    @property
    def component(self) -> str: ...
    @property
    def replicas(self) -> int: ...
    @property
    def outstanding(self) -> int: ...
    @property
    def bound(self) -> int: ...
    @property
    def unbound(self) -> int: ...
    @property
    def finished(self) -> int: ...
    @property
    def certificate(self) -> PromiseCertificate: ...
    @property
    def decision_id(self) -> str: ...


class NamedView(Protocol):
    """What a decision is called, its binding and its time (Unix seconds)."""

    @property
    def id(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def binding_generation(self) -> int: ...
    @property
    def created_at(self) -> float: ...


class RecordView(NamedView, Protocol):
    """A decision with all that it says."""

    @property
    def decision(self) -> Decision: ...
    @property
    def evidence(self) -> EvidenceView: ...
    @property
    def promises(self) -> Sequence[PromiseView]: ...
    @property
    def node_plans(self) -> Sequence[NodePlanView]: ...


class ListedView(NamedView, Protocol):
    """A decision without its trace, but for why it was made."""

    @property
    def outcome(self) -> Outcome: ...
    @property
    def clusters(self) -> tuple[TargetCluster, ...]: ...
    @property
    def remainder(self) -> int: ...
    @property
    def reason(self) -> str: ...
    @property
    def algorithm_revision(self) -> int: ...
    @property
    def triggers(self) -> tuple[str, ...]: ...


def decision_to_message(record: RecordView, *, trace: bool = False) -> scheduling_pb2.Decision:
    """The decision as callers see it, with its trace when asked for."""
    message = scheduling_pb2.Decision()
    put_decision(record, message)
    if trace:
        _put_trace_with_evidence(record.decision.trace, record.evidence, message.trace)
    return message


def put_decision(record: RecordView, message: scheduling_pb2.Decision) -> None:
    """Write the decision without its trace into an empty message: messages are slow to copy."""
    decision = record.decision
    message.id = record.id
    message.namespace = record.namespace
    message.name = record.name
    message.binding_generation = record.binding_generation
    message.outcome = OUTCOME_NUMBERS[decision.outcome]
    put_targets(decision.clusters, message.clusters.add)
    message.remainder = decision.remainder
    message.reason = str(decision.reason)
    message.create_time.CopyFrom(timestamp_from_seconds(record.created_at))
    message.warnings.extend(decision.trace.warnings)
    message.triggers.extend(map(str, decision.trace.triggers))
    message.algorithm_revision = str(decision.trace.algorithm_revision)
    for plan in record.node_plans:
        _put_node_placement(plan, message.node_placements.add())
    message.MergeFromString(_written(tuple(record.promises)))


def listed_decision_message(listed: ListedView) -> scheduling_pb2.Decision:
    """A decision as lists have it."""
    message = scheduling_pb2.Decision(
        id=listed.id,
        namespace=listed.namespace,
        name=listed.name,
        binding_generation=listed.binding_generation,
        outcome=OUTCOME_NUMBERS[listed.outcome],
        remainder=listed.remainder,
        reason=listed.reason,
        create_time=timestamp_from_seconds(listed.created_at),
        algorithm_revision=str(listed.algorithm_revision),
        triggers=listed.triggers,
    )
    put_targets(listed.clusters, message.clusters.add)
    return message


def outcomes_from_numbers(
    numbers: Sequence[int], path: str, found: Violations
) -> frozenset[Outcome]:
    """Outcomes that a stored decision may have."""
    by_number = {int(number): outcome for outcome, number in OUTCOME_NUMBERS.items()}
    for position, number in enumerate(numbers):
        if number not in by_number:
            known = ", ".join(by_number.values())
            found.add(f"{path}[{position}]", f"must be one of {known}")
    return frozenset(by_number[number] for number in numbers if number in by_number)


@lru_cache(maxsize=PROMISES_KNOWN)
def _written(promises: tuple[PromiseView, ...]) -> bytes:
    """As a part of a decision: one after the other promises the same, and to read what is written
    takes a tenth of writing it.
    """
    message = scheduling_pb2.Decision()
    for each in promises:
        message.promises.add(
            cluster=each.cluster,
            certificate=each.certificate,
            report_epoch=each.report_epoch,
            report_sequence=each.report_sequence,
            note=each.note,
        )
    return message.SerializeToString()


def reservation_messages(held: Iterable[HeldView]) -> list[scheduling_pb2.Reservation]:
    """What a binding holds, by ascending cluster, then component."""
    return [
        scheduling_pb2.Reservation(
            cluster=each.cluster,
            component=each.component,
            replicas=each.replicas,
            outstanding=each.outstanding,
            bound=each.bound,
            unbound=each.unbound,
            finished=each.finished,
            certificate=each.certificate,
            decision_id=each.decision_id,
        )
        for each in sorted(held, key=lambda each: (each.cluster, each.component))
    ]


def trace_to_message(trace: Trace) -> scheduling_pb2.Trace:
    """The columns of a trace as one message a cluster, and its facts as words."""
    message = scheduling_pb2.Trace()
    _put_trace(trace, message)
    return message


def _put_trace(trace: Trace, message: scheduling_pb2.Trace) -> None:
    _put_cluster_traces(trace, message)
    for name, value in _facts(trace):
        message.facts.add(name=name, value=value)
    message.attempts.extend(
        " ".join(filter(None, (each.name, each.outcome, f"({each.reason})" if each.reason else "")))
        for each in trace.trials
    )


def _put_trace_with_evidence(
    trace: Trace, evidence: EvidenceView, message: scheduling_pb2.Trace
) -> None:
    _put_trace(trace, message)
    # A decision that is not stored, or was made offline, names no reports.
    for cluster, sequence, age in zip(
        message.clusters, evidence.sequences, evidence.age_seconds, strict=False
    ):
        cluster.report_sequence, cluster.report_age_seconds = sequence, age


def _put_node_placement(plan: NodePlanView, message: scheduling_pb2.NodePlacement) -> None:
    message.cluster = plan.cluster
    for each in plan.nodes:
        message.nodes.add(
            node=each.node,
            component=each.component,
            replicas=each.replicas,
            score=round(100 * max(0.0, each.score) / each.scale) if each.scale else 0,
            total=each.score,
            total_scale=each.scale,
        )
    message.unplaced = plan.unplaced
    message.message = plan.message
    message.strategy = plan.strategy


def _put_cluster_traces(trace: Trace, message: scheduling_pb2.Trace) -> None:
    filtering, scoring = trace.filtering, trace.scoring
    inputs, division = trace.inputs, trace.division
    scores = {name: column.tolist() for name, column in scoring.scores.items()}
    columns = zip(
        trace.clusters,
        filtering.refusal_c.tolist(),
        scoring.total_c.tolist(),
        inputs.available_c.tolist(),
        (inputs.source_c == Source.NONE).tolist(),
        source_messages(inputs.source_c),
        bound_messages(inputs.bound_c),
        trace.selected_c.tolist(),
        inputs.previous_c.tolist(),
        division.weight_c.tolist(),
        division.quota_c.tolist(),
        division.share_c.tolist(),
        (division.remainder_c > 0).tolist(),
        division.tied_c.tolist(),
        division.limit_c.tolist(),
        filtering.tier_c.tolist(),
        strict=True,
    )
    for position, column in enumerate(columns):
        name, refusal, score, available, unknown, source, bound = column[:7]
        selected, previous, weight, quota, share, remainder_seat, tied, limit, tier = column[7:]
        refused = filtering.refusals[refusal] if refusal >= 0 else None
        cluster = message.clusters.add(
            name=name,
            filter=refused.filter if refused else "",
            reason=str(refused.reason) if refused else "",
            score=score,
            available_replicas=available,
            availability_unknown=unknown,
            source=source,
            bound=bound,
            estimate_note=str(inputs.estimate_reasons.get(position, "")),
            selected=selected,
            previous_replicas=max(previous, 0),
            weight=weight,
            quota=quota,
            replicas=share,
            remainder_seat=remainder_seat,
            tied=tied,
            limited_by=_LIMITS[limit],
            tier=tier,
        )
        # Given to the message as a mapping, they would take as long as all else.
        for plugin, column_c in scores.items():
            cluster.scores[plugin] = column_c[position]


def _facts(trace: Trace) -> Iterator[tuple[str, str]]:
    for trigger in trace.triggers:
        yield "trigger", str(trigger)
    yield "profile", trace.profile
    for plugin, weight in trace.scoring.weights.items():
        yield f"scoreWeight[{plugin}]", str(weight)
    if trace.affinity_group:
        yield "affinityGroup", trace.affinity_group
    if trace.min_available:
        yield "minAvailable", str(trace.min_available)
    for loss in trace.preempted:
        yield "preempted", str(loss)
    yield "selection", trace.selection.rule
    if not trace.selection.proven:
        yield "selectionProven", "false"
    for region, score in sorted(trace.selection.group_scores.items()):
        yield f"groupScore[{region}]", str(score)
    yield from _division_facts(trace.division)


def _division_facts(division: DivisionTrace) -> Iterator[tuple[str, str]]:
    yield "strategy", division.strategy
    yield "tieOrder", division.tie_order
    for position, tier in enumerate(division.tiers):
        suffix = f"[{position}]" if len(division.tiers) > 1 else ""
        yield f"mode{suffix}", tier.mode
        yield f"wanted{suffix}", str(tier.wanted)
        yield f"target{suffix}", str(tier.target)
        yield f"available{suffix}", str(tier.available)
        yield f"candidates{suffix}", str(tier.candidates)
