"""The triggers of a decision, and the clusters that a binding has to leave.

Must not decide: a cycle does, and may find that everything stays.
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

# The fields of a binding whose change is a trigger, by the code of the trigger.
_FIELDS: Final[Mapping[ReasonCode, Callable[[Binding], object]]] = {
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

# A change of one of these fields asks for another placement. A change of replicas does not, if the
# clusters hold the new number. A change of the tie break moves nothing.
_MOVING: Final[tuple[Callable[[Binding], object], ...]] = (
    lambda binding: replace(binding.placement, partial=False, tie_break=TieBreak.HASH),
    lambda binding: binding.requirements,
    lambda binding: binding.components,
)


def evicting_taints(binding: Binding, fleet: Fleet, now: float) -> dict[str, str]:
    """Return the NoExecute taint that the binding does not tolerate, by name of a cluster it is in.

    A toleration with seconds tolerates a taint until they have passed since the taint was added.
    """
    taints: dict[str, str] = {}
    if not binding.clusters:
        return taints
    covering = Tolerations(binding.placement.tolerations)
    for target in binding.clusters:
        position = fleet.index.get(target.name)
        if position is None:
            continue
        evicting = no_execute_taints(binding, fleet.clusters[position])
        taint = covering.first_untolerated(evicting, now)
        if taint is not None:
            taints[target.name] = taint_text(taint)
    return taints


def no_execute_taints(binding: Binding, cluster: Cluster) -> list[Taint]:
    """Return the taints that evict the binding from a cluster.

    The taint of a lost cluster does not, if the binding waits for lost clusters.
    """
    waits = binding.on_cluster_loss is OnClusterLoss.WAIT
    return [
        taint
        for taint in cluster.taints
        if taint.effect is TaintEffect.NO_EXECUTE and not (waits and taint.key == UNREACHABLE_KEY)
    ]


def leaving(binding: Binding, taints: Mapping[str, str]) -> Binding:
    """Return the binding as if it did not run in these clusters, so that its replicas go
    elsewhere.
    """
    if not taints:
        return binding
    staying = tuple(target for target in binding.clusters if target.name not in taints)
    return replace(binding, clusters=staying, is_unsettled=True)


def is_settled(stored: Binding | None, binding: Binding) -> bool:
    """Return whether the binding asks for nothing that its clusters do not give it already.

    ``stored`` is the binding as last stored, None when it is new: then its clusters count as the
    answer to its spec. Filters decide whether its clusters may stay, the cycle whether they hold
    all replicas.
    """
    if not binding.clusters or binding.fresh or binding.is_unsettled:
        return False
    return stored is None or all(part(stored) == part(binding) for part in _MOVING)


def is_answered(binding: Binding) -> bool:
    """Return whether a binding is settled, judged by its own fields alone.

    It is if a scheduler placed it and no field changed since.
    """
    return binding.last_scheduled_time is not None and is_settled(None, binding)


def triggers_of(
    stored: Binding | None,
    binding: Binding,
    fleet: Fleet,
    taints: Mapping[str, str],
    let_go: Reason = NO_REASON,
    *,
    by_queue: bool = False,
) -> tuple[Reason, ...]:
    """Return all triggers of a decision; never empty.

    ``stored`` is the binding as last stored, None when it is new. ``let_go`` says why its
    reservation ended, NO_REASON while it is valid. ``by_queue``: the queue tries a binding that
    waited.
    """
    if stored is None:
        return (Reason(ReasonCode.BINDING_NEW),)
    triggers = tuple(_triggers(stored, binding, fleet, taints, let_go))
    if by_queue:
        return (Reason(ReasonCode.QUEUE_TRIED), *triggers)
    return triggers or (Reason(ReasonCode.NOTHING_CHANGED),)


def _is_divided(binding: Binding) -> bool:
    return binding.placement.replica_scheduling.type is SchedulingType.DIVIDED


def _triggers(
    stored: Binding, binding: Binding, fleet: Fleet, taints: Mapping[str, str], let_go: Reason
) -> Iterator[Reason]:
    if binding.fresh:
        yield Reason(ReasonCode.RESCHEDULE_TRIGGERED)
    for code, part in _FIELDS.items():
        if part(stored) != part(binding):
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
    placed = sum(target.replicas for target in stored.clusters)
    if stored.clusters and _is_divided(stored) and placed < stored.replicas == binding.replicas:
        yield Reason(ReasonCode.NOT_ALL_PLACED)
    if stored.last_scheduled_time is None:
        yield Reason(ReasonCode.NEVER_PLACED)
