"""Filter plugins: clusters that cannot take the binding, and why.

Must not rank. A filter returns pairs (refused clusters, reason) over the whole fleet (axis c);
without a pair every cluster passes. A plugin of another package returns its reason as text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from federation.model.arrays import BoolArray
from federation.model.cluster import Taint
from federation.model.errors import InvalidRequest
from federation.model.placement import SpreadField
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import Amount, Reason, Word
from federation.model.tolerations import Tolerations
from federation.model.workload import Toleration
from federation.scheduler.state import CycleState

Refusals = Sequence[tuple[BoolArray, Reason | str]]
FilterPlugin = Callable[[CycleState], Refusals]


def cluster_ready(state: CycleState) -> Refusals:
    """Refuse clusters that are not Ready, cordoned or stale, unless they hold the binding."""
    column = state.fleet.unready
    return [
        ((column.code_c == code) & ~state.placed_c, reason)
        for code, reason in enumerate(column.values)
        if reason
    ]


def taint_toleration(state: CycleState) -> Refusals:
    """Refuse clusters with a NoSchedule or NoExecute taint that is not tolerated, unless they hold
    the binding.
    """
    column = state.fleet.taints
    covering = Tolerations(state.binding.placement.tolerations)
    refusals = []
    for code, taints in enumerate(column.values):
        taint = covering.first_untolerated(taints, state.now)
        if taint is not None:
            refused_c = (column.code_c == code) & ~state.placed_c
            reason = Reason.of(ReasonCode.UNTOLERATED_TAINT, Word(taint_text(taint)))
            refusals.append((refused_c, reason))
    return refusals


def toleration_deadlines(
    columns: Iterable[Sequence[Taint]], tolerations: Sequence[Toleration]
) -> tuple[float, ...]:
    """Return when tolerations with seconds expire, in order (Unix seconds).

    Between two deadlines the same taints are tolerated.
    """
    if all(toleration.toleration_seconds is None for toleration in tolerations):
        return ()
    covering = Tolerations(tolerations)
    return tuple(
        sorted(
            {
                taint.time_added + seconds
                for taints in columns
                for taint in taints
                if taint.time_added is not None
                and (seconds := covering.seconds(taint)) is not None
                and seconds < inf
            }
        )
    )


def taint_text(taint: Taint) -> str:
    """Return a taint as kubectl writes it: key=value:Effect."""
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


def cluster_affinity(state: CycleState) -> Refusals:
    """Refuse clusters outside the affinity, or outside the group with all its overflow tiers."""
    return ((state.tier_c < 0, Reason(ReasonCode.OUTSIDE_AFFINITY)),)


def api_enablement(state: CycleState) -> Refusals:
    """Refuse clusters without the workload's API, unless they hold the binding.

    Clusters whose APIs were not reported pass.
    """
    resource = state.binding.resource
    if not resource.kind:
        return ()
    api = (resource.api_version, resource.kind)
    lacks_c = state.fleet.apis.where(lambda apis: apis is not None and api not in apis)
    reason = Reason.of(ReasonCode.API_MISSING, Word(resource.api_version), Word(resource.kind))
    return ((lacks_c & ~state.placed_c, reason),)


_PROPERTY_MISSING: Mapping[SpreadField, Callable[[CycleState], BoolArray]] = {
    SpreadField.PROVIDER: lambda state: state.fleet.provider.where(lambda value: not value),
    SpreadField.REGION: lambda state: state.fleet.region.where(lambda value: not value),
    SpreadField.ZONE: lambda state: state.fleet.zones.where(lambda value: not value),
    SpreadField.CLUSTER: lambda state: np.zeros(len(state.fleet), np.bool_),
}


def spread_constraint(state: CycleState) -> Refusals:
    """Refuse clusters without a property by which a spread constraint groups."""
    return [
        (
            _PROPERTY_MISSING[constraint.by](state),
            Reason.of(ReasonCode.PROPERTY_MISSING, Word(constraint.by.value)),
        )
        for constraint in state.binding.placement.spread_constraints
        if constraint.by is not SpreadField.CLUSTER
    ]


def cluster_eviction(state: CycleState) -> Refusals:
    """Refuse clusters from which the binding is being evicted."""
    tasks = state.binding.eviction_tasks
    if not tasks:
        return ()
    refused_c = state.fleet.named(task.from_cluster for task in tasks)
    return ((refused_c, Reason(ReasonCode.BEING_EVICTED)),)


def workload_affinity(state: CycleState) -> Refusals:
    """Refuse clusters without one of the group's scheduled peers, unless they hold the binding.

    A peer whose clusters have all left the fleet does not count.
    """
    refused_c = np.zeros(len(state.fleet), np.bool_)
    for names in state.surroundings.affinity_peers:
        holding_c = state.fleet.named(names)
        if holding_c.any():
            refused_c |= ~holding_c
    return ((refused_c & ~state.placed_c, Reason(ReasonCode.PEERS_ELSEWHERE)),)


def workload_anti_affinity(state: CycleState) -> Refusals:
    """Refuse clusters with a scheduled peer of the group, unless they hold the binding."""
    refused_c = np.zeros(len(state.fleet), np.bool_)
    for names in state.surroundings.anti_affinity_peers:
        refused_c |= state.fleet.named(names)
    return ((refused_c & ~state.placed_c, Reason(ReasonCode.HOLDS_ANTI_AFFINE)),)


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityArgs:
    """``min_replicas``: the replicas that must fit into a cluster."""

    min_replicas: int = 1

    def __post_init__(self) -> None:
        if self.min_replicas < 1:
            raise InvalidRequest.of("minReplicas", f"must be at least 1, not {self.min_replicas}")


_ONE_REPLICA = CapacityArgs()


def capacity(state: CycleState, args: CapacityArgs = _ONE_REPLICA) -> Refusals:
    """Refuse clusters where too few replicas fit, unless they already hold replicas."""
    short_c = (state.capacity_c < args.min_replicas) & (state.prior_c == 0)
    return ((short_c, Reason.of(ReasonCode.NO_ROOM_FOR, Amount(args.min_replicas))),)


# Filters whose refusals depend on the fleet, the placement and the workload's API alone, for a
# binding without clusters, evictions and peers. Their result is cached with the placement.
CACHED_FILTERS = (
    "ClusterReady",
    "ClusterEviction",
    "ClusterAffinity",
    "TaintToleration",
    "APIEnablement",
    "SpreadConstraint",
    "WorkloadAffinity",
    "WorkloadAntiAffinity",
)

FILTERS: Mapping[str, FilterPlugin] = {
    "ClusterReady": cluster_ready,
    "ClusterEviction": cluster_eviction,
    "ClusterAffinity": cluster_affinity,
    "TaintToleration": taint_toleration,
    "APIEnablement": api_enablement,
    "SpreadConstraint": spread_constraint,
    "WorkloadAffinity": workload_affinity,
    "WorkloadAntiAffinity": workload_anti_affinity,
    "Capacity": capacity,
}
