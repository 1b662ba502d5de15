"""The clusters of a fleet that a ClusterAffinity matches.

Must not look at readiness, taints or capacity: those are filters of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from federation.model.arrays import BoolArray, IntArray
from federation.model.placement import ClusterAffinity, SpreadField
from federation.model.selectors import matches_requirement
from federation.model.workload import Operator, Requirement
from federation.scheduler.fleet import Column, Fleet


def matching(affinity: ClusterAffinity, fleet: Fleet) -> BoolArray:
    """Return the clusters that match; ``exclude`` comes first, an empty affinity matches all."""
    mask_c = np.ones(len(fleet), np.bool_)
    if affinity.exclude:
        mask_c &= ~fleet.named(affinity.exclude)
    for key, value in affinity.match_labels.items():
        mask_c &= _meets(_labelled(key, value), fleet.label(key))
    for requirement in affinity.match_expressions:
        mask_c &= _meets(requirement, fleet.label(requirement.key))
    for requirement in affinity.match_fields:
        mask_c &= FIELDS[requirement.key](requirement, fleet)
    if affinity.cluster_names:
        mask_c &= fleet.named(affinity.cluster_names)
    return mask_c


def tiers(affinities: Sequence[ClusterAffinity], fleet: Fleet) -> IntArray:
    """Return the position of the first affinity that each cluster matches (axis c); -1: none.

    Without any affinity every cluster is in tier 0.
    """
    tier_c = np.full(len(fleet), -1 if affinities else 0, dtype=np.int64)
    for tier, affinity in enumerate(affinities):
        tier_c[(tier_c < 0) & matching(affinity, fleet)] = tier
    return tier_c


def unnamed(affinities: Iterable[ClusterAffinity], fleet: Fleet) -> tuple[str, ...]:
    """Return the cluster names in these affinities that no cluster has, in order."""
    names = {
        name for affinity in affinities for name in (*affinity.cluster_names, *affinity.exclude)
    }
    return tuple(sorted(names - fleet.index.keys()))


def _labelled(key: str, value: str) -> Requirement:
    return Requirement(key=key, operator=Operator.IN, values=(value,))


def _meets(requirement: Requirement, column: Column[str | None]) -> BoolArray:
    def holds(value: str | None) -> bool:
        return matches_requirement(requirement, {} if value is None else {requirement.key: value})

    return column.where(holds)


def _provider(requirement: Requirement, fleet: Fleet) -> BoolArray:
    return fleet.provider.where(lambda value: _field_holds(requirement, value))


def _region(requirement: Requirement, fleet: Fleet) -> BoolArray:
    return fleet.region.where(lambda value: _field_holds(requirement, value))


def _zone(requirement: Requirement, fleet: Fleet) -> BoolArray:
    """In, Gt and Lt hold for any zone of the cluster; NotIn holds for all of them."""
    quantifier = all if requirement.operator is Operator.NOT_IN else any

    def holds(zones: tuple[str, ...]) -> bool:
        if not zones:
            return _field_holds(requirement, "")
        return quantifier(_field_holds(requirement, zone) for zone in zones)

    return fleet.zones.where(holds)


def _field_holds(requirement: Requirement, value: str) -> bool:
    """Return whether a field fulfils a requirement; an empty field counts as missing."""
    return matches_requirement(requirement, {requirement.key: value} if value else {})


FIELDS: Mapping[str, Callable[[Requirement, Fleet], BoolArray]] = {
    SpreadField.PROVIDER: _provider,
    SpreadField.REGION: _region,
    SpreadField.ZONE: _zone,
}
