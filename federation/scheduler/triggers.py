"""Why a binding is decided again, and which of its clusters it has to leave for that.

Must not decide: a cycle does, and may well find that everything stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from federation.model.cluster import UNREACHABLE_KEY, Cluster, Taint, TaintEffect
from federation.model.placement import Binding, OnClusterLoss, SchedulingType, TieBreak
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import NO_REASON, ClusterName, Reason, Word
from federation.model.tolerations import Tolerations
from federation.scheduler.fleet import Fleet
from federation.scheduler.plugins.filters import taint_text

# What was asked for, by the code of the trigger.
_ASKED: Final[Mapping[ReasonCode, Callable[[Binding], object]]] = {
    ReasonCode.PLACEMENT_CHANGED: lambda binding: binding.placement,
    ReasonCode.REPLICAS_CHANGED: lambda binding: (
        binding.replicas,
        [(component.name, component.replicas) for component in binding.components],
    ),
    ReasonCode.REQUIREMENTS_CHANGED: lambda binding: (
        binding.requirements,
        [component.requirements for component in binding.components],
    ),
    ReasonCode.WORKLOAD_CHANGED: lambda binding: binding.resource,
    ReasonCode.EVICTIONS_CHANGED: lambda binding: binding.eviction_tasks,
    ReasonCode.CLUSTERS_STATED: lambda binding: binding.clusters,
    ReasonCode.PROFILE_CHANGED: lambda binding: binding.scheduler_name,
}

# A change of one of these asks for another placement. Replicas are not among them: a placement that
# holds as many as are wanted is the answer already. The order among equals moves nothing.
_MOVING: Final[tuple[Callable[[Binding], object], ...]] = (
    lambda binding: replace(binding.placement, partial=False, tie_break=TieBreak.HASH),
    lambda binding: binding.requirements,
    lambda binding: binding.components,
)


def evicting_taints(binding: Binding, fleet: Fleet, now: float) -> dict[str, str]:
    """By name of a cluster that holds it, the NoExecute taint that the binding does not tolerate.

    A toleration with seconds tolerates until they have passed since the taint was added.
    """
    found: dict[str, str] = {}
    if not binding.clusters:
        return found
    covering = Tolerations(binding.placement.tolerations)
    for target in binding.clusters:
        position = fleet.index.get(target.name)
        if position is None:
            continue
        evicting = no_execute_taints(binding, fleet.clusters[position])
        taint = covering.first_untolerated(evicting, now)
        if taint is not None:
            found[target.name] = taint_text(taint)
    return found


def no_execute_taints(binding: Binding, cluster: Cluster) -> list[Taint]:
    """The taints that end what runs there; loss does not, where the binding waits for clusters."""
    waits = binding.on_cluster_loss is OnClusterLoss.WAIT
    return [
        taint
        for taint in cluster.taints
        if taint.effect is TaintEffect.NO_EXECUTE and not (waits and taint.key == UNREACHABLE_KEY)
    ]


def leaving(binding: Binding, taints: Mapping[str, str]) -> Binding:
    """The binding as if it did not run on these clusters, so that its replicas go elsewhere."""
    if not taints:
        return binding
    staying = tuple(target for target in binding.clusters if target.name not in taints)
    return replace(binding, clusters=staying, is_unsettled=True)


def is_settled(before: Binding | None, binding: Binding) -> bool:
    """Whether the binding asks for nothing that its clusters do not give it already.

    ``before`` is the binding as last stored, None when it is new: then its clusters are taken for
    the answer to what it asks for now. Whether each of them may stay is for filters to say, and
    whether they hold all replicas for the cycle.
    """
    if not binding.clusters or binding.fresh or binding.is_unsettled:
        return False
    return before is None or all(part(before) == part(binding) for part in _MOVING)


def is_answered(binding: Binding) -> bool:
    """Whether a binding of which only its own fields are known is settled: a scheduler placed it,
    and nothing that is written on it was changed since.
    """
    return binding.last_scheduled_time is not None and is_settled(None, binding)


def triggers_of(
    before: Binding | None,
    binding: Binding,
    fleet: Fleet,
    taints: Mapping[str, str],
    let_go: Reason = NO_REASON,
    *,
    by_queue: bool = False,
) -> tuple[Reason, ...]:
    """Everything that speaks for deciding; never empty.

    ``before`` is the binding as last stored, None when it is new. ``let_go`` says how what was
    reserved for it has ended, NO_REASON where it is held still. ``by_queue`` says that the queue
    tries a binding that waited.
    """
    if before is None:
        return (Reason(ReasonCode.BINDING_NEW),)
    found = tuple(_triggers(before, binding, fleet, taints, let_go))
    if by_queue:
        return (Reason(ReasonCode.QUEUE_TRIED), *found)
    return found or (Reason(ReasonCode.NOTHING_CHANGED),)


def _is_divided(binding: Binding) -> bool:
    return binding.placement.replica_scheduling.type is SchedulingType.DIVIDED


def _triggers(
    before: Binding, binding: Binding, fleet: Fleet, taints: Mapping[str, str], let_go: Reason
) -> Iterator[Reason]:
    if binding.fresh:
        yield Reason(ReasonCode.RESCHEDULE_TRIGGERED)
    for code, part in _ASKED.items():
        if part(before) != part(binding):
            yield Reason(code)
    for target in binding.clusters:
        cluster = ClusterName(target.name)
        if target.name not in fleet.index:
            yield Reason.of(ReasonCode.OWN_CLUSTER_GONE, cluster)
        elif target.name in taints:
            taint = Word(taints[target.name])
            yield Reason.of(ReasonCode.OWN_CLUSTER_TAINTED, cluster, taint)
    if let_go:
        yield let_go
    placed = sum(target.replicas for target in before.clusters)
    if before.clusters and _is_divided(before) and placed < before.replicas == binding.replicas:
        yield Reason(ReasonCode.NOT_ALL_PLACED)
    if before.last_scheduled_time is None:
        yield Reason(ReasonCode.NEVER_PLACED)
