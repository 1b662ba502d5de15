"""Plans, to messages, and what is asked of them, from messages.

Must not know what a plan does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from federation.codec import ranges
from federation.codec.bindings import put_targets
from federation.codec.timestamps import timestamp_from_seconds
from federation.codec.violations import Violations
from federation.plans.plan import Plan, PlanKind, PlanStep
from federation.v1 import rebalance_pb2

_KINDS = {
    PlanKind.DRAIN: rebalance_pb2.PLAN_KIND_DRAIN,
    PlanKind.FAILBACK: rebalance_pb2.PLAN_KIND_FAILBACK,
}


def plan_to_message(plan: Plan, steps: Iterable[PlanStep] = ()) -> rebalance_pb2.Plan:
    """The plan with these of its steps."""
    message = rebalance_pb2.Plan(
        id=plan.id,
        kind=_KINDS[plan.kind],
        state=rebalance_pb2.PlanState.Value(f"PLAN_STATE_{plan.state.name}"),
        clusters=plan.clusters,
        moves_at_once=plan.moves_at_once,
        gain=rebalance_pb2.PlanGain(
            wanted=plan.gain.wanted,
            moved=plan.gain.moved,
            bound=plan.gain.bound,
            gap_percent=round(plan.gain.gap_percent, 3),
        ),
        step_count=plan.step_count,
        steps=map(_step_message, steps),
        unfixed=[
            rebalance_pb2.UnfixedBinding(
                namespace=each.namespace,
                name=each.name,
                replicas=each.replicas,
                reason=each.reason,
            )
            for each in plan.unfixed
        ],
        unfixed_count=plan.unfixed_count,
        created_at=timestamp_from_seconds(plan.created_at),
        created_by=plan.created_by,
        approved_by=plan.approved_by,
        ended_by=plan.ended_by,
        reason=plan.reason,
    )
    if plan.approved_at is not None:
        message.approved_at.CopyFrom(timestamp_from_seconds(plan.approved_at))
    if plan.ended_at is not None:
        message.ended_at.CopyFrom(timestamp_from_seconds(plan.ended_at))
    return message


def plan_kind(number: int, path: str, found: Violations) -> PlanKind:
    """A kind that plans may have."""
    for kind, its_number in _KINDS.items():
        if its_number == number:
            return kind
    found.add(path, f"must be one of {', '.join(map(_name, _KINDS.values()))}")
    return PlanKind.DRAIN


def plan_clusters(
    given: Sequence[str], kind: PlanKind, path: str, found: Violations
) -> tuple[str, ...]:
    """Names of clusters, each once, in ascending order; of a drain at least one."""
    if not given and kind is PlanKind.DRAIN:
        found.add(path, "must name at least one cluster")
    for position, name in enumerate(given):
        ranges.cluster_name(name, f"{path}[{position}]", found)
    ranges.distinct(given, path, found)
    return tuple(sorted(set(given)))


def _name(number: rebalance_pb2.PlanKind.ValueType) -> str:
    return rebalance_pb2.PlanKind.Name(number)


def _step_message(step: PlanStep) -> rebalance_pb2.PlanStep:
    message = rebalance_pb2.PlanStep(
        number=step.number,
        namespace=step.namespace,
        name=step.name,
        reason=step.reason,
        state=rebalance_pb2.StepState.Value(f"STEP_STATE_{step.state.name}"),
        message=step.message,
    )
    put_targets(step.before, message.before.add)
    put_targets(step.after, message.after.add)
    if step.began_at is not None:
        message.began_at.CopyFrom(timestamp_from_seconds(step.began_at))
    if step.ended_at is not None:
        message.ended_at.CopyFrom(timestamp_from_seconds(step.ended_at))
    return message
