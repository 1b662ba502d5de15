"""The change of a what-if in profiles, placements and clusters, and fleets with it.

Must not decide anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from federation.capacity.fleet_reports import FleetCapacity
from federation.capacity.summary_estimates import estimate_replicas
from federation.model.arrays import IntArray, read_only
from federation.model.cluster import UNREACHABLE_KEY, Cluster, ClusterState
from federation.model.component_sets import shape_of
from federation.model.estimate import EstimateOptions, Estimates, Source
from federation.model.placement import Binding, Placement
from federation.model.reasons import NO_REASON, Reason, says_the_same
from federation.scheduler.fleet import Column, Fleet, unready_reason
from federation.scheduler.plugins.profile import DEFAULT_NAME, DEFAULT_PROFILE, Profile, Profiles
from federation.simulation.figures import Axes

_FLEETS_KNOWN: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfChange:
    """The change of a what-if; without any the same decisions come out.

    ``profiles`` replace the recorded ones of the same names. ``placement_of`` returns the new
    placement of a binding, or None. ``clusters`` have these specs from the beginning, and new
    clusters also this capacity; ``without`` are gone.
    """

    profiles: Profiles | None = None
    placement_of: Callable[[Binding], Placement | None] | None = None
    clusters: Mapping[str, ClusterState] = field(default_factory=dict)
    without: frozenset[str] = frozenset()
    cordoned: frozenset[str] = frozenset()

    def profile_of(self, binding: Binding, recorded: Profile) -> Profile:
        """Return the profile that decides a binding."""
        name = binding.scheduler_name or DEFAULT_NAME
        profile = self.profiles.by_name.get(name) if self.profiles else None
        return recorded if profile is None or profile is DEFAULT_PROFILE else profile

    def placed(self, binding: Binding) -> Binding:
        """Return the binding with its placement by the change."""
        placement = self.placement_of(binding) if self.placement_of else None
        return binding if placement is None else replace(binding, placement=placement)

    @property
    def changes_fleets(self) -> bool:
        return bool(self.clusters or self.without or self.cordoned)

    def cluster(self, recorded: Cluster) -> Cluster:
        """Return a recorded cluster with its spec by the change; a lost one is still lost."""
        changed, changed_spec = recorded, self.clusters.get(recorded.name)
        if changed_spec is not None:
            spec = changed_spec.cluster
            lost = [taint for taint in recorded.taints if taint.key == UNREACHABLE_KEY]
            stated = [taint for taint in spec.taints if taint.key != UNREACHABLE_KEY]
            changed = replace(
                recorded,
                labels=spec.labels,
                provider=spec.provider,
                region=spec.region,
                zones=spec.zones,
                taints=(*stated, *lost),
                cordoned=spec.cordoned,
            )
        return replace(changed, cordoned=True) if recorded.name in self.cordoned else changed


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChangedFleet:
    """A recorded fleet with the change, and the columns of its clusters in the axes.

    ``from_c`` are their positions in the recorded fleet, -1: new; None: all the same. Clusters
    ``to_leave`` have taints that evict.
    """

    recorded: Fleet
    fleet: Fleet
    columns_c: IntArray
    to_leave: frozenset[str]
    from_c: IntArray | None = None


class ChangedFleets:
    """Recorded fleets with a change, the last few of them cached. For one thread.

    ``names`` are those of all recorded clusters.
    """

    def __init__(self, change: WhatIfChange, axes: Axes) -> None:
        self._change = change
        self._axes = axes
        # Each holds its recorded fleet, so that the identity is not given to another one.
        self._known: dict[int, ChangedFleet] = {}
        self.names: frozenset[str] = frozenset()

    def of(self, recorded: Fleet) -> ChangedFleet:
        fleet = self._known.get(id(recorded))
        if fleet is None:
            if len(self._known) >= _FLEETS_KNOWN:
                self._known.pop(next(iter(self._known)))
            fleet = self._known[id(recorded)] = self._changed_fleet(recorded)
        return fleet

    def available(self, changed: ChangedFleet, recorded: Estimates, binding: Binding) -> Estimates:
        """Return recorded estimates in the order of the new fleet, and those of new clusters."""
        if changed.from_c is None:
            return recorded
        from_c = changed.from_c
        is_new_c = from_c < 0
        replicas_c = np.where(is_new_c, 0, recorded.replicas_c[from_c])
        source_c = np.where(is_new_c, Source.NONE, recorded.source_c[from_c])
        bound_c = np.where(is_new_c, 0, recorded.bound_c[from_c])
        places = {position: c for c, position in enumerate(from_c.tolist()) if position >= 0}
        reasons = {places[c]: why for c, why in recorded.reasons.items() if c in places}
        if is_new_c.any():
            states = [self._change.clusters[changed.fleet.names[c]] for c in is_new_c.nonzero()[0]]
            estimates = estimate_replicas(
                FleetCapacity.of(states), shape_of(binding), EstimateOptions()
            )
            replicas_c[is_new_c], source_c[is_new_c] = estimates.replicas_c, estimates.source_c
            bound_c[is_new_c] = estimates.bound_c
        return Estimates(
            replicas_c=replicas_c,
            source_c=source_c.astype(np.int8),
            bound_c=bound_c.astype(np.int8),
            reasons=reasons,
        )

    def _changed_fleet(self, recorded: Fleet) -> ChangedFleet:
        self.names |= recorded.index.keys()
        is_changed = self._change.changes_fleets
        fleet, from_c = self._changed(recorded) if is_changed else (recorded, None)
        return ChangedFleet(
            recorded=recorded,
            fleet=fleet,
            columns_c=read_only(np.array([*map(self._axes.column, fleet.names)], dtype=np.int64)),
            to_leave=frozenset(fleet.evacuated()),
            from_c=from_c,
        )

    def _changed(self, recorded: Fleet) -> tuple[Fleet, IntArray | None]:
        change = self._change
        clusters = {
            cluster.name: change.cluster(cluster)
            for cluster in recorded.clusters
            if cluster.name not in change.without
        }
        new = {
            name: state.cluster
            for name, state in change.clusters.items()
            if name not in recorded.index
        }
        fleet = Fleet.of([*clusters.values(), *new.values()])
        from_c = read_only(np.array([recorded.index.get(name, -1) for name in fleet.names]))
        silent = [NO_REASON if c < 0 else _silence(recorded, c) for c in from_c.tolist()]
        is_order_kept = np.array_equal(from_c, np.arange(len(recorded)))
        return fleet.without(Column.of(silent)), None if is_order_kept else from_c


def _silence(recorded: Fleet, c: int) -> Reason:
    """Return why nothing could grow in a recorded cluster, apart from its own state.

    A cluster that was silent is silent with the change, too; its own state may be changed.
    """
    why = recorded.unready[c]
    return NO_REASON if says_the_same(why, unready_reason(recorded.clusters[c])) else why
