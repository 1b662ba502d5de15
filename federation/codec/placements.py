"""Placements, from messages and back: where a workload may go and how replicas are divided.

Holds Karmada's admission rules and defaults. Must not evaluate a placement: the scheduler does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from federation.codec import ranges, selectors
from federation.codec.remembered import Remembered
from federation.codec.rules import check_rules
from federation.codec.violations import Violations
from federation.model.placement import (
    AffinityGroup,
    ClusterAffinity,
    ClusterLimit,
    DivisionPreference,
    Placement,
    ReplicaScheduling,
    SchedulingType,
    SpreadConstraint,
    SpreadField,
    StaticWeight,
    TieBreak,
)
from federation.v1 import resource_pb2

DYNAMIC_WEIGHT: Final = "AvailableReplicas"

# Karmada inlines the fields of an affinity wherever it has a name of its own.
_AffinityMessage: TypeAlias = (
    resource_pb2.ClusterAffinity
    | resource_pb2.ClusterAffinityTerm
    | resource_pb2.OverflowClusterAffinity
)


def read_placement(message: resource_pb2.Placement, path: str, found: Violations) -> Placement:
    """The placement; one and the same value for equal messages."""
    return _REMEMBERED.read(message, path, found)


def _read(message: resource_pb2.Placement, path: str, found: Violations) -> Placement:
    check_rules(message, path, found)
    has_affinity = message.HasField("cluster_affinity")
    return Placement(
        affinity=_affinity(message.cluster_affinity, f"{path}.clusterAffinity", found)
        if has_affinity
        else None,
        affinity_groups=_affinity_groups(message, f"{path}.clusterAffinities", found),
        tolerations=selectors.tolerations(message.cluster_tolerations),
        spread_constraints=_spread_constraints(
            message.spread_constraints, f"{path}.spreadConstraints", found
        ),
        replica_scheduling=_replica_scheduling(message, f"{path}.replicaScheduling", found),
        workload_affinity_key=message.workload_affinity.affinity.group_by_label_key,
        workload_anti_affinity_key=message.workload_affinity.anti_affinity.group_by_label_key,
        partial=message.partial,
        tie_break=ranges.choice(message.tie_break, TieBreak, default=TieBreak.HASH),
    )


_REMEMBERED: Final = Remembered(_read)


def placement_to_message(placement: Placement) -> resource_pb2.Placement:
    message = resource_pb2.Placement(
        cluster_tolerations=selectors.toleration_messages(placement.tolerations),
        replica_scheduling=_replica_scheduling_message(placement.replica_scheduling),
        partial=placement.partial,
        tie_break=placement.tie_break.value,
    )
    if placement.affinity is not None:
        message.cluster_affinity.SetInParent()
        _write_affinity(placement.affinity, message.cluster_affinity)
    for group in placement.affinity_groups:
        term = message.cluster_affinities.add(affinity_name=group.name)
        _write_affinity(group.affinity, term)
        for tier in group.overflow:
            _write_affinity(tier, term.overflow_affinities.add())
    for constraint in placement.spread_constraints:
        message.spread_constraints.add(
            spread_by_field=constraint.by.value,
            min_groups=constraint.min_groups,
            max_groups=constraint.max_groups or 0,
        )
    if placement.workload_affinity_key:
        key = placement.workload_affinity_key
        message.workload_affinity.affinity.group_by_label_key = key
    if placement.workload_anti_affinity_key:
        key = placement.workload_anti_affinity_key
        message.workload_affinity.anti_affinity.group_by_label_key = key
    return message


def _affinity(message: _AffinityMessage, path: str, found: Violations) -> ClusterAffinity:
    return ClusterAffinity(
        cluster_names=tuple(message.cluster_names),
        exclude=tuple(message.exclude),
        match_labels=dict(message.label_selector.match_labels),
        match_expressions=selectors.label_requirements(
            message.label_selector.match_expressions,
            f"{path}.labelSelector.matchExpressions",
            found,
        ),
        match_fields=selectors.cluster_field_requirements(
            message.field_selector.match_expressions,
            f"{path}.fieldSelector.matchExpressions",
            found,
        ),
    )


def _affinity_groups(
    message: resource_pb2.Placement, path: str, found: Violations
) -> tuple[AffinityGroup, ...]:
    terms = message.cluster_affinities
    groups = []
    for position, term in enumerate(terms):
        here = f"{path}[{position}]"
        overflow = f"{here}.overflowAffinities"
        tiers = tuple(
            _affinity(tier, f"{overflow}[{place}]", found)
            for place, tier in enumerate(term.overflow_affinities)
        )
        affinity = _affinity(term, here, found)
        groups.append(AffinityGroup(name=term.affinity_name, affinity=affinity, overflow=tiers))
    ranges.distinct((t.affinity_name for t in terms), path, found, field=".affinityName")
    return tuple(groups)


def _spread_constraints(
    messages: Sequence[resource_pb2.SpreadConstraint], path: str, found: Violations
) -> tuple[SpreadConstraint, ...]:
    constraints = tuple(
        _spread_constraint(message, f"{path}[{position}]", found)
        for position, message in enumerate(messages)
    )
    if not any(message.spread_by_label for message in messages):
        fields = (constraint.by for constraint in constraints)
        ranges.distinct(fields, path, found, field=".spreadByField")
    return constraints


def _spread_constraint(
    message: resource_pb2.SpreadConstraint, path: str, found: Violations
) -> SpreadConstraint:
    """Karmada's defaults: by cluster, and at least one group."""
    if message.spread_by_label:
        rule = "is not supported: spread by cluster, region, zone or provider with spreadByField"
        found.add(f"{path}.spreadByLabel", rule)
    return SpreadConstraint(
        by=ranges.choice(message.spread_by_field, SpreadField, default=SpreadField.CLUSTER),
        min_groups=message.min_groups or 1,
        max_groups=message.max_groups or None,
    )


def _replica_scheduling(
    placement: resource_pb2.Placement, path: str, found: Violations
) -> ReplicaScheduling:
    """Karmada's defaults: Duplicated without a strategy, Divided in one that does not say."""
    if not placement.HasField("replica_scheduling"):
        return ReplicaScheduling()
    message = placement.replica_scheduling
    weights = message.weight_preference
    here = f"{path}.weightPreference"
    static = tuple(
        StaticWeight(
            target=_affinity(
                each.target_cluster, f"{here}.staticWeightList[{position}].targetCluster", found
            ),
            weight=each.weight,
        )
        for position, each in enumerate(weights.static_weight_list)
    )
    return ReplicaScheduling(
        type=ranges.choice(
            message.replica_scheduling_type, SchedulingType, default=SchedulingType.DIVIDED
        ),
        preference=ranges.choice(
            message.replica_division_preference,
            DivisionPreference,
            default=DivisionPreference.WEIGHTED,
        ),
        static_weights=static or None,
        dynamic=bool(weights.dynamic_weight),
        limits=_limits(message.cluster_limits, f"{path}.clusterLimits", found),
        capacity_bounded=message.capacity_bounded,
    )


def _limits(
    messages: Sequence[resource_pb2.ClusterLimit], path: str, found: Violations
) -> tuple[ClusterLimit, ...]:
    return tuple(
        ClusterLimit(
            target=_affinity(message.target_cluster, f"{path}[{position}].targetCluster", found),
            min=message.min,
            max=message.max if message.HasField("max") else None,
        )
        for position, message in enumerate(messages)
    )


def _write_affinity(affinity: ClusterAffinity, message: _AffinityMessage) -> None:
    message.cluster_names.extend(affinity.cluster_names)
    message.exclude.extend(affinity.exclude)
    labels = selectors.label_selector_message(affinity.match_labels, affinity.match_expressions)
    if labels is not None:
        message.label_selector.CopyFrom(labels)
    message.field_selector.match_expressions.extend(
        selectors.requirement_messages(affinity.match_fields)
    )
    if not affinity.match_fields:
        message.ClearField("field_selector")


def _affinity_message(affinity: ClusterAffinity) -> resource_pb2.ClusterAffinity:
    message = resource_pb2.ClusterAffinity()
    _write_affinity(affinity, message)
    return message


def _replica_scheduling_message(
    scheduling: ReplicaScheduling,
) -> resource_pb2.ReplicaSchedulingStrategy:
    message = resource_pb2.ReplicaSchedulingStrategy(
        replica_scheduling_type=scheduling.type.value,
        capacity_bounded=scheduling.capacity_bounded,
    )
    if scheduling.type is SchedulingType.DIVIDED:
        message.replica_division_preference = scheduling.preference.value
    for weight in scheduling.static_weights or ():
        message.weight_preference.static_weight_list.add(
            target_cluster=_affinity_message(weight.target), weight=weight.weight
        )
    if scheduling.dynamic:
        message.weight_preference.dynamic_weight = DYNAMIC_WEIGHT
    for limit in scheduling.limits:
        message.cluster_limits.add(
            target_cluster=_affinity_message(limit.target), min=limit.min, max=limit.max
        )
    return message
