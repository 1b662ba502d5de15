"""What the bindings of one simulation have taken, and what is left for the next.

Pure. Must not decide anything: it deducts, at the level that answers for each cluster.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from federation.capacity.deductions import Taken, UnitRequest, less_in_models, with_waiting
from federation.capacity.fleet_reports import FleetCapacity
from federation.capacity.summary_estimates import estimate_replicas
from federation.model.cluster import ClusterState
from federation.model.estimate import EstimateOptions, Estimates, Source, ignoring_claims
from federation.model.resources import PODS
from federation.model.workload import ReplicaRequirements


class RemainingCapacity:
    """A fleet's capacity less what was taken from it. Positions are the fleet's (axis c)."""

    def __init__(
        self,
        capacity: FleetCapacity,
        options: EstimateOptions,
        taken: Mapping[int, Sequence[Taken]] | None = None,
    ) -> None:
        self._capacity = capacity
        # A simulation has nothing better where a cluster comes without pools.
        self._options = replace(options, ignore_claims=True)
        known = {c: list(each) for c, each in (taken or {}).items()}
        self._taken: defaultdict[int, list[Taken]] = defaultdict(list, known)
        # What the capacity does not show yet: many may be taken before anybody asks.
        self._unshown: defaultdict[int, list[Taken]] = defaultdict(list)

    def copy(self) -> RemainingCapacity:
        """The same, of which more may be taken by itself."""
        self._show()
        return RemainingCapacity(self._capacity, self._options, self._taken)

    def _show(self) -> None:
        """Deduct all that was taken since the last time."""
        if self._unshown:
            states = self._capacity.states
            self._capacity = self._capacity.with_clusters(
                {c: with_waiting(states[c], taken) for c, taken in self._unshown.items()}
            )
            self._unshown.clear()

    def available(self, shape: UnitRequest) -> Estimates:
        """How many units still fit into every cluster.

        Sets of components are estimated from the summary, whose totals can hold a set.
        """
        self._show()
        if shape.pods != 1:
            request = {**shape.request, PODS: shape.pods}
            options = replace(self._options, highest=Source.SUMMARY)
            return estimate_replicas(self._capacity, ReplicaRequirements(request=request), options)
        estimates = estimate_replicas(self._capacity, shape.requirements, self._options)
        rule = self._options.model_rule
        left = less_in_models(self._capacity, estimates, shape.requirements, rule, self._taken)
        return ignoring_claims(left) if shape.requirements.chooses_nodes else left

    def take(self, units_c: Mapping[int, int], shape: UnitRequest) -> None:
        """Deducts units from clusters, for every later question."""
        for position, units in units_c.items():
            if units > 0:
                taken = Taken.of(shape.requirements, units, shape.pods)
                self._taken[position].append(taken)
                self._unshown[position].append(taken)

    def give_back(self, given_c: Mapping[int, Iterable[tuple[int, UnitRequest]]]) -> None:
        """So many units that were taken of clusters are free again: the newest first."""
        self._show()
        changes: dict[int, ClusterState] = {}
        for position, given in given_c.items():
            left = Counter[tuple[object, int]]()
            for units, shape in given:
                back = Taken.of(shape.requirements, units, shape.pods)
                left[back.request, back.pods] += units
            kept, free = list[Taken](), list[Taken]()
            for each in reversed(self._taken[position]):
                kind = each.request, each.pods
                less = min(left[kind], each.units)
                if less:
                    left[kind] -= less
                    free.append(each._replace(units=-less))
                if each.units > less:
                    kept.append(each._replace(units=each.units - less) if less else each)
            self._taken[position] = kept[::-1]
            changes[position] = with_waiting(self._capacity.states[position], free)
        self._capacity = self._capacity.with_clusters(changes)
