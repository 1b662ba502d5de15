"""Plans, to messages, and what is asked of them, from messages.

Must not know what a plan does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from federation.codec import ranges, texts
from federation.codec.bindings import put_targets
from federation.codec.timestamps import timestamp_from_seconds
from federation.codec.violations import Violations
from federation.plans.plan import Plan, PlanKind, PlanLimits, PlanStep
from federation.v1 import rebalance_pb2

_KINDS = {kind: rebalance_pb2.PlanKind.Value(f"PLAN_KIND_{kind.name}") for kind in PlanKind}
MOST_MOVES_AT_ONCE = 1000
MOST_MOVES = 5000
MOST_LABELS = 100


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


def plan_kind(number: int, path: str, found: Violations) -> PlanKind:
    """A kind that plans may have."""
    for kind, its_number in _KINDS.items():
        if its_number == number:
            return kind
    found.add(path, f"must be one of {', '.join(map(_name, _KINDS.values()))}")
    return PlanKind.DRAIN


def plan_limits(
    message: rebalance_pb2.CreatePlanRequest, kind: PlanKind, found: Violations
) -> PlanLimits:
    """What a plan may do; 0, and what is absent, is what plans may do unless they are told."""
    usual = PlanLimits()
    headroom, tolerance = _percents(message, kind, found)
    ranges.whole(message.moves_at_once, "movesAtOnce", found, least=0, most=MOST_MOVES_AT_ONCE)
    ranges.whole(
        message.moves_per_cluster, "movesPerCluster", found, least=0, most=MOST_MOVES_AT_ONCE
    )
    ranges.whole(message.max_moves, "maxMoves", found, least=0, most=MOST_MOVES)
    ranges.whole(message.max_moved_percent, "maxMovedPercent", found, least=0, most=100)
    return PlanLimits(
        moves_at_once=message.moves_at_once or usual.moves_at_once,
        moves_per_cluster=message.moves_per_cluster,
        most_moves=message.max_moves or usual.most_moves,
        moved_percent=message.max_moved_percent or usual.moved_percent,
        selector=plan_selector(message.selector, "selector", found),
        headroom_percent=headroom,
        tolerance_percent=tolerance,
    )


def _percents(
    message: rebalance_pb2.CreatePlanRequest, kind: PlanKind, found: Violations
) -> tuple[int, int]:
    """Headroom and tolerance, which one kind of plans alone is told of each."""
    usual = PlanLimits()
    headroom, tolerance = usual.headroom_percent, usual.tolerance_percent
    if message.HasField("headroom_percent"):
        headroom = ranges.whole(
            message.headroom_percent, "headroomPercent", found, least=0, most=99
        )
        if kind is not PlanKind.CONSOLIDATE:
            found.add("headroomPercent", f"is for {_name(_KINDS[PlanKind.CONSOLIDATE])} alone")
    if message.HasField("tolerance_percent"):
        tolerance = ranges.whole(
            message.tolerance_percent, "tolerancePercent", found, least=0, most=100
        )
        if kind is not PlanKind.BALANCE:
            found.add("tolerancePercent", f"is for {_name(_KINDS[PlanKind.BALANCE])} alone")
    return headroom, tolerance


def plan_selector(given: Mapping[str, str], path: str, found: Violations) -> Mapping[str, str]:
    """Labels that all have to be there."""
    if len(given) > MOST_LABELS:
        found.add(path, f"has {len(given)} labels: at most {MOST_LABELS} are looked at")
        return {}
    return texts.label_map(given, path, found)


def plan_clusters(
    given: Sequence[str],
    selector: Mapping[str, str],
    kind: PlanKind,
    path: str,
    found: Violations,
) -> tuple[str, ...]:
    """Names of clusters, each once, in ascending order; of a drain at least one, unless a selector
    names them.
    """
    if given and selector:
        found.add(path, "must not be there beside clusterSelector")
    if not (given or selector) and kind is PlanKind.DRAIN:
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
