"""Filter plugins: which clusters cannot take the binding, and why.

Must not rank. Each answers (refused clusters, reason) pairs over the whole fleet at once; no pair
means that every cluster passes. A plug-in that does not come with the scheduler answers its reason
as text.
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
    """What is not Ready, cordoned or stale gets nothing new; who holds the binding keeps it."""
    column = state.fleet.unready
    return [
        ((column.code_c == code) & ~state.placed_c, reason)
        for code, reason in enumerate(column.values)
        if reason
    ]


def taint_toleration(state: CycleState) -> Refusals:
    """NoSchedule and NoExecute taints without a toleration; not where the binding already is."""
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
    """When a taint is not tolerated any longer, for each that is tolerated for a time, in order.

    Between two of them the same taints are tolerated at all times.
    """
    if all(each.toleration_seconds is None for each in tolerations):
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
    """As kubectl writes a taint: key=value:Effect."""
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


def cluster_affinity(state: CycleState) -> Refusals:
    """Outside the affinity, or the affinity group with all its overflow tiers."""
    return ((state.tier_c < 0, Reason(ReasonCode.OUTSIDE_AFFINITY)),)


def api_enablement(state: CycleState) -> Refusals:
    """Without the workload's API; clusters that nobody described and own placements pass."""
    resource = state.binding.resource
    if not resource.kind:
        return ()
    wanted = (resource.api_version, resource.kind)
    lacks_c = state.fleet.apis.where(lambda apis: apis is not None and wanted not in apis)
    reason = Reason.of(ReasonCode.API_MISSING, Word(resource.api_version), Word(resource.kind))
    return ((lacks_c & ~state.placed_c, reason),)


_PROPERTY_MISSING: Mapping[SpreadField, Callable[[CycleState], BoolArray]] = {
    SpreadField.PROVIDER: lambda state: state.fleet.provider.where(lambda value: not value),
    SpreadField.REGION: lambda state: state.fleet.region.where(lambda value: not value),
    SpreadField.ZONE: lambda state: state.fleet.zones.where(lambda value: not value),
    SpreadField.CLUSTER: lambda state: np.zeros(len(state.fleet), np.bool_),
}


def spread_constraint(state: CycleState) -> Refusals:
    """Clusters that lack a property which a spread constraint groups by."""
    return [
        (
            _PROPERTY_MISSING[constraint.by](state),
            Reason.of(ReasonCode.PROPERTY_MISSING, Word(constraint.by.value)),
        )
        for constraint in state.binding.placement.spread_constraints
        if constraint.by is not SpreadField.CLUSTER
    ]


def cluster_eviction(state: CycleState) -> Refusals:
    """Clusters the binding is being moved away from."""
    tasks = state.binding.eviction_tasks
    if not tasks:
        return ()
    refused_c = state.fleet.named(task.from_cluster for task in tasks)
    return ((refused_c, Reason(ReasonCode.BEING_EVICTED)),)


def workload_affinity(state: CycleState) -> Refusals:
    """Refuse clusters without one of the scheduled peers of the group, unless the binding is there
    already. A peer whose clusters are all gone is nowhere.
    """
    refused_c = np.zeros(len(state.fleet), np.bool_)
    for names in state.surroundings.affinity_peers:
        holding_c = state.fleet.named(names)
        if holding_c.any():
            refused_c |= ~holding_c
    return ((refused_c & ~state.placed_c, Reason(ReasonCode.PEERS_ELSEWHERE)),)


def workload_anti_affinity(state: CycleState) -> Refusals:
    """No scheduled peer of the group may be there; not where the binding already is."""
    refused_c = np.zeros(len(state.fleet), np.bool_)
    for names in state.surroundings.anti_affinity_peers:
        refused_c |= state.fleet.named(names)
    return ((refused_c & ~state.placed_c, Reason(ReasonCode.HOLDS_ANTI_AFFINE)),)


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityArgs:
    """``min_replicas``: how many must fit into a cluster for it to be worth considering."""

    min_replicas: int = 1

    def __post_init__(self) -> None:
        if self.min_replicas < 1:
            raise InvalidRequest.of("minReplicas", f"must be at least 1, not {self.min_replicas}")


_ONE_REPLICA = CapacityArgs()


def capacity(state: CycleState, args: CapacityArgs = _ONE_REPLICA) -> Refusals:
    """Clusters where too few replicas fit; never one that already holds replicas."""
    short_c = (state.capacity_c < args.min_replicas) & (state.prior_c == 0)
    return ((short_c, Reason.of(ReasonCode.NO_ROOM_FOR, Amount(args.min_replicas))),)


# What these refuse follows from the fleet, the placement and the workload's API alone, for a
# binding that runs nowhere, is evicted from nowhere and has no peers.
STANDING = (
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
