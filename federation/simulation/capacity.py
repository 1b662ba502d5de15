"""The capacity of a fleet that only exists in memory, less what its bindings have taken.

Must not decide anything: ``federation.scheduler.decide`` asks it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Self

import numpy as np

from federation.capacity.cluster_room import Room
from federation.capacity.deductions import Deductions, UnitRequest
from federation.capacity.fleet_reports import FleetCapacity
from federation.capacity.reserve import Refused
from federation.model.cluster import ClusterState
from federation.model.component_sets import shape_of
from federation.model.estimate import Bound, EstimateOptions, Estimates, Source
from federation.model.placement import Binding, Certificate
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import Amount, Reason
from federation.model.workload import TargetCluster
from federation.scheduler.decide import Decided, Draft, OfferedCapacity, Scarcity
from federation.scheduler.demand import Demand
from federation.scheduler.promisable import instead_where
from federation.simulation.rooms import KeptShares, SimulatedRooms
from federation.simulation.totals import SimulatedTotals

_STATED: Final = Reason(ReasonCode.STATED_BY_CALLER)
# Amounts of units by cluster position, as ``SimulatedTotals`` takes them back.
UnitsBack = Mapping[int, Sequence[tuple[int, UnitRequest]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationOptions:
    """``available_replicas`` replaces the estimate of the clusters it names.

    ``reserve`` holds Duplicated and static weights to capacity, which their division ignores.
    """

    estimate: EstimateOptions = field(default_factory=EstimateOptions)
    reserve: bool = False
    available_replicas: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True, eq=False)
class SimulatedCapacity:
    """A ``CapacityModel`` of clusters in ascending order of their names.

    Clusters with pools are packed in ``rooms``. The others have what their ``totals`` leave, or
    what a caller has ``stated``, by position. ``beside`` turns estimates into an offer: it knows
    which bindings come first. With ``reserves_all`` every share is held to capacity.
    """

    index: Mapping[str, int]
    rooms: SimulatedRooms
    totals: SimulatedTotals
    stated: dict[int, int]
    reserves_all: bool
    beside: Callable[[Draft, Estimates], OfferedCapacity]

    @classmethod
    def of(
        cls,
        states: Sequence[ClusterState],
        options: SimulationOptions,
        beside: Callable[[Draft, Estimates], OfferedCapacity],
    ) -> Self:
        """Return the capacity beside all that is promised in these clusters."""
        index = {state.cluster.name: position for position, state in enumerate(states)}
        promised = {c: state.promised for c, state in enumerate(states) if state.promised}
        unpromised = Deductions.of(FleetCapacity.of(states), promised).left
        available = options.available_replicas
        return cls(
            index=index,
            rooms=SimulatedRooms(states, available),
            totals=SimulatedTotals(unpromised, options.estimate),
            stated={index[name]: replicas for name, replicas in available.items()},
            reserves_all=options.reserve,
            beside=beside,
        )

    def copy(self) -> Self:
        """Return the same capacity, of which more may be taken by itself."""
        return replace(
            self, rooms=copy(self.rooms), totals=self.totals.copy(), stated=dict(self.stated)
        )

    def room(self, position: int) -> Room | None:
        """Return the packed room of a cluster, None where it reports no pools."""
        return self.rooms.room(position)

    def estimates(
        self, binding: Binding, certificate: Certificate | None, *, leaves_large: bool = True
    ) -> Estimates:
        """Return how many more units fit in each cluster; ``leaves_large`` as for ``packable``."""
        estimates = self.totals.available(unit_request(binding))
        packed_c = self.rooms.there_c
        if packed_c.any():
            packed = self.rooms.available(binding, certificate, leaves_large=leaves_large)
            estimates = instead_where(packed_c, packed, estimates)
        if not self.stated:
            return estimates
        stated = np.array(sorted(self.stated), dtype=np.int64)
        replicas_c = estimates.replicas_c.copy()
        source_c, bound_c = estimates.source_c.copy(), estimates.bound_c.copy()
        replicas_c[stated] = [self.stated[position] for position in stated.tolist()]
        source_c[stated], bound_c[stated] = Source.EXACT, Bound.NONE
        reasons = estimates.reasons | dict.fromkeys(stated.tolist(), _STATED)
        return Estimates(replicas_c=replicas_c, source_c=source_c, bound_c=bound_c, reasons=reasons)

    def available(self, draft: Draft) -> OfferedCapacity:
        """Return the estimates beside the bindings that come first."""
        return self.beside(draft, self.estimates(draft.binding, draft.certificate))

    def refine(
        self, draft: Draft, decided: Decided[None], estimates: Estimates
    ) -> Estimates | None:
        """Look again where there are packed rooms."""
        return self.rooms.looked_again(decided.inputs.binding, draft.certificate, estimates)

    def reserve(self, draft: Draft, decided: Decided[None]) -> Refused | None:
        """Take the capacity for all shares, or for none."""
        binding, clusters = draft.binding, decided.decision.clusters
        if not (clusters and self.takes_capacity(binding)):
            return None
        added_c = self._added(binding, clusters)
        if not _heeds_capacity(binding):
            available_c = decided.decision.trace.inputs.available_c
            short = {
                name: Reason.of(
                    ReasonCode.ROOM_TOO_SMALL, Amount(int(available_c[c])), Amount(added_c[c])
                )
                for name, c in ((target.name, self.index[target.name]) for target in clusters)
                if added_c.get(c, 0) > available_c[c] and not self.rooms.there_c[c]
            }
            if short:
                return Refused(reasons=short)
        reasons = self.rooms.take(binding, clusters, draft.certificate)
        if reasons:
            return Refused(reasons=reasons)
        self._take(added_c, unit_request(binding))
        return None

    def scarcity(self, draft: Draft) -> Scarcity:
        """Return the means to say what is scarce, but for clusters whose capacity is stated."""
        return Scarcity(
            estimate=partial(self.estimates, certificate=draft.certificate, leaves_large=False),
            unexplained=self.stated,
        )

    def put(
        self,
        binding: Binding,
        clusters: Collection[TargetCluster],
        certificate: Certificate | None,
    ) -> None:
        """Take the capacity of replicas that were decided elsewhere, where there is any."""
        if not self.takes_capacity(binding):
            return
        new = [target for target in clusters if target.replicas > 0 and target.name in self.index]
        self.rooms.take(replace(binding, clusters=()), new, certificate)
        units = {self.index[target.name]: target.replicas for target in new}
        if Demand.of(binding).in_sets:
            units = dict.fromkeys(units, 1)
        self._take(units, unit_request(binding))

    def give_back(self, shares: Iterable[KeptShares], units: UnitsBack) -> bool:
        """Leave to bindings the shares that they keep; whether these can be packed.

        ``units`` are given back by position: those that the bindings lose.
        """
        for position in self.stated.keys() & units.keys():
            self.stated[position] += sum(count for count, _ in units[position])
        self.totals.give_back(units)
        return not self.rooms.take_less(shares)

    def takes_capacity(self, binding: Binding) -> bool:
        """Whether the shares of a binding are held to capacity."""
        return self.reserves_all or _heeds_capacity(binding)

    def _added(self, binding: Binding, clusters: Iterable[TargetCluster]) -> dict[int, int]:
        """Units that a decision puts where they are not yet, by position."""
        prior = {target.name: target.replicas for target in binding.clusters}
        in_sets = Demand.of(binding).in_sets
        added: dict[int, int] = {}
        for target in clusters:
            if in_sets:
                units = 0 if target.name in prior else 1
            else:
                units = target.replicas - prior.get(target.name, 0)
            if units > 0:
                added[self.index[target.name]] = units
        return added

    def _take(self, units: Mapping[int, int], shape: UnitRequest) -> None:
        self.totals.take(units, shape)
        for position in self.stated.keys() & units.keys():
            self.stated[position] -= units[position]


def unit_request(binding: Binding) -> UnitRequest:
    """Return one replica, or one set with the amounts of all its components."""
    pods = sum(component.replicas for component in binding.components)
    return UnitRequest(requirements=shape_of(binding), pods=pods if binding.components else 1)


def _heeds_capacity(binding: Binding) -> bool:
    demand = Demand.of(binding)
    return demand.rule.heeds_capacity or demand.in_sets
