"""A placement applied to a fleet: the clusters that its affinities match, and what else it limits.

Computed once for all bindings that share the placement. Must not depend on other fields of a
binding, nor on capacity.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final

import numpy as np

from federation.model.arrays import BoolArray, IntArray, filled, read_only
from federation.model.placement import (
    Binding,
    ClusterAffinity,
    ClusterLimit,
    Placement,
    SpreadField,
    StaticWeight,
)
from federation.model.selectors import matches_requirement
from federation.model.workload import ObjectReference, Operator, Requirement
from federation.scheduler.fleet import Column, Fleet
from federation.scheduler.plugins.filters import toleration_deadlines
from federation.scheduler.plugins.profile import Filter
from federation.scheduler.trace import FilterTrace


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


_NO_CEILING: Final = 2**62
_MAX_CACHED_REFUSALS: Final = 16
# Label selectors of a placement that is cached: callers choose how many it has.
MAX_REMEMBERED_SELECTORS: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Limits:
    """The minimum and maximum units of each cluster (axis c); ``are_set``: the placement has
    limits.
    """

    floor_c: IntArray
    ceiling_c: IntArray
    are_set: bool

    @classmethod
    def of(cls, limits: Sequence[ClusterLimit], fleet: Fleet) -> Limits:
        """Return the limits; where several match a cluster, the tightest hold."""
        floor_c, ceiling_c = filled(len(fleet), 0), filled(len(fleet), _NO_CEILING)
        for limit in limits:
            mask_c = matching(limit.target, fleet)
            floor_c = np.where(mask_c, np.maximum(floor_c, limit.min), floor_c)
            if limit.max is not None:
                ceiling_c = np.where(mask_c, np.minimum(ceiling_c, limit.max), ceiling_c)
        return cls(floor_c=read_only(floor_c), ceiling_c=read_only(ceiling_c), are_set=bool(limits))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CachedRefusals:
    """The refusals of filters that read nothing of a binding but its placement and its API.

    The filters in ``rest`` of the profile still have to run.
    """

    refused: FilterTrace
    rest: Sequence[Filter]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Group:
    """One affinity group on the fleet, or the only affinity: its overflow tiers and its refusals.

    ``affinities`` are its affinity, if there is one, and those of its overflow tiers. Its refusals
    change at ``deadlines`` alone (Unix seconds), when a toleration expires.
    """

    name: str
    affinities: Sequence[ClusterAffinity]
    tier_c: IntArray
    deadlines: Sequence[float]
    _cached_refusals: dict[tuple[Sequence[Filter], str, str, int], CachedRefusals] = field(
        default_factory=dict
    )

    def cached_refusals(
        self,
        filters: Sequence[Filter],
        resource: ObjectReference,
        now: float,
        compute: Callable[[], CachedRefusals],
    ) -> CachedRefusals:
        """Return the cached refusals of equal filters, or compute them."""
        passed = bisect_right(self.deadlines, now) if self.deadlines else 0
        key = filters, resource.api_version, resource.kind, passed
        refusals = self._cached_refusals.get(key)
        if refusals is None:
            if len(self._cached_refusals) >= _MAX_CACHED_REFUSALS:
                self._cached_refusals.clear()
            refusals = self._cached_refusals[key] = compute()
        return refusals


class ResolvedPlacement:
    """A placement on a fleet: limits, weights, and its affinity groups, resolved at first use."""

    def __init__(self, placement: Placement, fleet: Fleet) -> None:
        scheduling = placement.replica_scheduling
        self.limits = Limits.of(scheduling.limits, fleet)
        self.weight_c = _static_weights(scheduling.static_weights or (), fleet)
        self._affinities = _affinities_of(placement)
        self.group_names = tuple(name for name, _ in self._affinities)
        self._deadlines = toleration_deadlines(fleet.taints.values, placement.tolerations)
        self._groups: dict[int, Group] = {}
        chosen = [affinity for _, affinities in self._affinities for affinity in affinities]
        chosen += [rule.target for rule in scheduling.static_weights or ()]
        chosen += [limit.target for limit in scheduling.limits]
        selectors = sum(
            len(affinity.match_labels) + len(affinity.match_expressions) for affinity in chosen
        )
        self.is_small = selectors <= MAX_REMEMBERED_SELECTORS
        # Cluster names anywhere in the placement that no cluster has.
        self.unnamed = unnamed(chosen, fleet)

    @classmethod
    def of(cls, placement: Placement, fleet: Fleet) -> ResolvedPlacement:
        """Return the resolved placement, from the fleet's cache if it holds an equal placement."""
        resolved: ResolvedPlacement = fleet.resolved_placements.answer(
            placement, lambda: cls(placement, fleet), attrgetter("is_small")
        )
        return resolved

    def group(self, position: int, fleet: Fleet) -> Group:
        """Return the affinity group at this position; ``fleet`` is the one of this placement."""
        group = self._groups.get(position)
        if group is None:
            name, affinities = self._affinities[position]
            group = self._groups[position] = Group(
                name=name,
                affinities=affinities,
                tier_c=read_only(tiers(affinities, fleet)),
                deadlines=self._deadlines,
            )
        return group


def group_of_clusters(binding: Binding, fleet: Fleet) -> str:
    """Return the first affinity group that allows all clusters of the binding; "": none does."""
    resolved = ResolvedPlacement.of(binding.placement, fleet)
    positions = [
        fleet.index[target.name] for target in binding.clusters if target.name in fleet.index
    ]
    for position, name in enumerate(resolved.group_names):
        if (resolved.group(position, fleet).tier_c[positions] >= 0).all():
            return name
    return ""


def _affinities_of(placement: Placement) -> tuple[tuple[str, tuple[ClusterAffinity, ...]], ...]:
    """Return the name of each affinity group, and its affinity followed by its overflow tiers."""
    if not placement.affinity_groups:
        return (("", () if placement.affinity is None else (placement.affinity,)),)
    return tuple(
        (group.name, (group.affinity, *group.overflow)) for group in placement.affinity_groups
    )


def _static_weights(rules: Sequence[StaticWeight], fleet: Fleet) -> IntArray:
    """Return the highest matching weight of each cluster, 0 where none matches; 1 without rules."""
    if not rules:
        return filled(len(fleet), 1)
    weight_c = np.zeros(len(fleet), np.int64)
    for rule in rules:
        np.maximum(weight_c, rule.weight, out=weight_c, where=matching(rule.target, fleet))
    return read_only(weight_c)
