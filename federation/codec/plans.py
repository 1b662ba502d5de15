"""Plans, to messages, and what is asked of them, from messages.

Must not know what a plan does.
"""

from __future__ import annotations

from collections.abc import Iterable

from federation.codec.bindings import put_targets
from federation.codec.timestamps import timestamp_from_seconds
from federation.codec.violations import Violations
from federation.plans.plan import Plan, PlanKind, PlanLimits, PlanStep
from federation.v1 import rebalance_pb2

_KINDS = {kind: rebalance_pb2.PlanKind.Value(f"PLAN_KIND_{kind.name}") for kind in PlanKind}


def plan_to_message(plan: Plan, steps: Iterable[PlanStep] = ()) -> rebalance_pb2.Plan:
    """The plan with these of its steps."""
    message = rebalance_pb2.Plan(
        id=plan.id,
        kind=_KINDS[plan.kind],
        state=rebalance_pb2.PlanState.Value(f"PLAN_STATE_{plan.state.name}"),
        clusters=plan.clusters,
        moves_at_once=plan.limits.moves_at_once,
        moves_per_cluster=plan.limits.moves_per_cluster,
        max_moved_percent=plan.limits.moved_percent,
        selector=plan.limits.selector,
        gain=rebalance_pb2.PlanGain(
            wanted=plan.gain.wanted,
            moved=plan.gain.moved,
            bound=plan.gain.bound,
            gap_percent=round(plan.gain.gap_percent, 3),
            unit=plan.gain.unit,
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
    if plan.kind is PlanKind.CONSOLIDATE:
        message.headroom_percent = plan.limits.headroom_percent
    if plan.kind is PlanKind.BALANCE:
        message.tolerance_percent = plan.limits.tolerance_percent
    if plan.approved_at is not None:
        message.approved_at.CopyFrom(timestamp_from_seconds(plan.approved_at))
    if plan.ended_at is not None:
        message.ended_at.CopyFrom(timestamp_from_seconds(plan.ended_at))
    return message


def plan_kind(number: int) -> PlanKind:
    """Return a kind that the rules of the proto let pass."""
    return next(
        (kind for kind, kind_number in _KINDS.items() if kind_number == number), PlanKind.DRAIN
    )


def plan_limits(
    message: rebalance_pb2.CreatePlanRequest, kind: PlanKind, found: Violations
) -> PlanLimits:
    """Limits of a plan; 0, and an absent number, stand for the limit of all plans."""
    usual = PlanLimits()
    headroom, tolerance = usual.headroom_percent, usual.tolerance_percent
    if message.HasField("headroom_percent"):
        headroom = message.headroom_percent
        if kind is not PlanKind.CONSOLIDATE:
            found.add("headroomPercent", f"is for {_name(_KINDS[PlanKind.CONSOLIDATE])} alone")
    if message.HasField("tolerance_percent"):
        tolerance = message.tolerance_percent
        if kind is not PlanKind.BALANCE:
            found.add("tolerancePercent", f"is for {_name(_KINDS[PlanKind.BALANCE])} alone")
    return PlanLimits(
        moves_at_once=message.moves_at_once or usual.moves_at_once,
        moves_per_cluster=message.moves_per_cluster,
        most_moves=message.max_moves or usual.most_moves,
        moved_percent=message.max_moved_percent or usual.moved_percent,
        selector=dict(message.selector),
        headroom_percent=headroom,
        tolerance_percent=tolerance,
    )


def plan_clusters(
    message: rebalance_pb2.CreatePlanRequest, kind: PlanKind, violations: Violations
) -> tuple[str, ...]:
    """Names of clusters in ascending order; a drain names one at least, or selects some."""
    if message.clusters and message.cluster_selector:
        violations.add("clusters", "must not be there beside clusterSelector")
    if not (message.clusters or message.cluster_selector) and kind is PlanKind.DRAIN:
        violations.add("clusters", "must name at least one cluster")
    return tuple(sorted(set(message.clusters)))


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
