"""Free totals of a fleet in a simulation, less what its bindings have taken.

Pure. Must not decide anything: it deducts at the level that answers for each cluster.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from federation.capacity.deductions import (
    Taken,
    UnitRequest,
    displaced,
    less_in_models,
    with_waiting,
)
from federation.capacity.fleet_reports import FleetCapacity
from federation.capacity.summary_estimates import estimate_replicas
from federation.model.arrays import IntArray
from federation.model.cluster import ClusterState
from federation.model.estimate import EstimateOptions, Estimates, Source, ignoring_claims
from federation.model.resources import PODS
from federation.model.workload import ReplicaRequirements


class SimulatedTotals:
    """A fleet's capacity less what was taken from it. Positions are the fleet's (axis c)."""

    def __init__(self, capacity: FleetCapacity, options: EstimateOptions) -> None:
        self._capacity = capacity
        # A simulation has nothing better for a cluster without pools.
        self._options = replace(options, ignore_claims=True)
        # Copies share these values, which are replaced and never changed.
        self._taken: dict[int, tuple[Taken, ...]] = {}
        # The same units by request and cluster (axis c): a scarce fleet is asked for often.
        self._units_c: dict[tuple[tuple[str, int], ...], IntArray] = {}
        # Not deducted from the capacity yet: done on the next read.
        self._unshown = defaultdict[int, list[Taken]](list)

    def copy(self) -> SimulatedTotals:
        """Return an independent copy."""
        self._show()
        other = SimulatedTotals(self._capacity, self._options)
        other._taken, other._units_c = dict(self._taken), dict(self._units_c)
        return other

    def _show(self) -> None:
        """Deduct what was taken since the last read."""
        if self._unshown:
            states = self._capacity.states
            self._capacity = self._capacity.with_clusters(
                {c: with_waiting(states[c], taken) for c, taken in self._unshown.items()}
            )
            self._unshown.clear()

    def available(self, shape: UnitRequest) -> Estimates:
        """Return how many units still fit in each cluster.

        Sets of components are estimated from the summary, whose totals may hold a set.
        """
        self._show()
        if shape.pods != 1:
            request = {**shape.request, PODS: shape.pods}
            options = replace(self._options, highest=Source.SUMMARY)
            return estimate_replicas(self._capacity, ReplicaRequirements(request=request), options)
        estimates = estimate_replicas(self._capacity, shape.requirements, self._options)
        rule = self._options.model_rule
        available = less_in_models(
            self._capacity, estimates, shape.requirements, rule, self._taken, self._displaced_c
        )
        return ignoring_claims(available) if shape.requirements.chooses_nodes else available

    def take(self, units_c: Mapping[int, int], shape: UnitRequest) -> None:
        """Take units of clusters, by position."""
        added = {c: units for c, units in units_c.items() if units > 0}
        if not added:
            return
        unit = Taken.of(shape.requirements, 1, shape.pods)
        for position, units in added.items():
            taken = unit._replace(units=units)
            self._taken[position] = (*self._taken.get(position, ()), taken)
            self._unshown[position].append(taken)
        self._count(unit.request, added)

    def give_back(self, units_c: Mapping[int, Iterable[tuple[int, UnitRequest]]]) -> None:
        """Free units that were taken of clusters, the newest first."""
        self._show()
        changes: dict[int, ClusterState] = {}
        for position, returned in units_c.items():
            open_units = Counter[tuple[object, int]]()
            for units, shape in returned:
                back = Taken.of(shape.requirements, units, shape.pods)
                open_units[back.request, back.pods] += units
            remaining, free = list[Taken](), list[Taken]()
            for run in reversed(self._taken.get(position, ())):
                kind = run.request, run.pods
                less = min(open_units[kind], run.units)
                if less:
                    open_units[kind] -= less
                    free.append(run._replace(units=-less))
                    self._count(run.request, {position: -less})
                if run.units > less:
                    remaining.append(run._replace(units=run.units - less) if less else run)
            self._taken[position] = tuple(reversed(remaining))
            changes[position] = with_waiting(self._capacity.states[position], free)
        self._capacity = self._capacity.with_clusters(changes)

    def _count(self, request: tuple[tuple[str, int], ...], units: Mapping[int, int]) -> None:
        """Add units by position to those of their request; given back ones are negative."""
        units_c = self._units_c.get(request)
        if units_c is None:
            units_c = np.zeros(len(self._capacity), dtype=np.int64)
        added_c = np.zeros_like(units_c)
        added_c[[*units]] = [*units.values()]
        self._units_c[request] = units_c + added_c

    def _displaced_c(self, request: Mapping[str, int]) -> IntArray:
        """Return the replicas of a request that all taken units displace (axis c)."""
        lost_c = np.zeros(len(self._capacity), dtype=np.int64)
        for held, units_c in self._units_c.items():
            lost_c += displaced(held, request) * units_c
        return lost_c
