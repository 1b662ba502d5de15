"""The capacity of a fleet that only exists in memory, less what its bindings have taken.

Must not decide anything: ``federation.scheduler.decide`` asks it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Self, TypeAlias

import numpy as np

from federation.capacity.assignments import worth
from federation.capacity.cluster_room import ReportId, Room
from federation.capacity.deductions import Deductions, UnitRequest
from federation.capacity.fleet_reports import FleetCapacity
from federation.capacity.fleet_rooms import FleetRooms, UnpackedRoom
from federation.capacity.growth import of_binding
from federation.capacity.own_promises import KeptPromise
from federation.capacity.reserve import PackedRooms, Refused, promise, promise_less
from federation.model.arrays import BoolArray
from federation.model.cluster import ClusterState
from federation.model.component_sets import shape_of
from federation.model.estimate import Bound, EstimateOptions, Estimates, Source
from federation.model.placement import Binding, Certificate
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import Amount, Reason
from federation.model.reported_pools import pools_of
from federation.model.reservations import Outstanding, PackingOrder, PromiseCertificate
from federation.model.workload import Component, TargetCluster
from federation.scheduler.decide import Decided, Draft, OfferedCapacity, Scarcity
from federation.scheduler.demand import Demand
from federation.scheduler.promisable import (
    instead_where,
    looked_again,
    own_of,
    promisable,
    requirements_of,
    terms_of,
    told_by_pools,
)
from federation.simulation.totals import SimulatedTotals

_STATED: Final = Reason(ReasonCode.STATED_BY_CALLER)
# Amounts of units by cluster position, as ``SimulatedTotals`` takes them back.
UnitsBack: TypeAlias = Mapping[int, Sequence[tuple[int, UnitRequest]]]
# A binding, the shares that it keeps, and the certificate that it asks for.
KeptShares: TypeAlias = tuple[Binding, Collection[TargetCluster], Certificate | None]


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

    Clusters with pools are packed in ``rooms``: ``packed_c`` marks them. The others have what their
    ``totals`` leave, or what a caller has ``stated``, by position. ``beside`` turns estimates into
    an offer: it knows which bindings come first. With ``reserves_all`` every share is held to
    capacity. Copies share the ``lessened`` clusters until a promise changes their capacity.
    """

    names: tuple[str, ...]
    index: Mapping[str, int]
    rooms: FleetRooms
    packed_c: BoolArray
    totals: SimulatedTotals
    stated: dict[int, int]
    reserves_all: bool
    beside: Callable[[Draft, Estimates], OfferedCapacity]
    lessened: PackedRooms = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        states: Sequence[ClusterState],
        options: SimulationOptions,
        beside: Callable[[Draft, Estimates], OfferedCapacity],
    ) -> Self:
        """Return the capacity beside all that is promised in these clusters."""
        names = tuple(state.cluster.name for state in states)
        index = {name: position for position, name in enumerate(names)}
        promised = {c: state.promised for c, state in enumerate(states) if state.promised}
        unpromised = Deductions.of(FleetCapacity.of(states), promised).left
        available = options.available_replicas
        reported = [None if name in available else _room(states[c]) for name, c in index.items()]
        return cls(
            names=names,
            index=index,
            rooms=FleetRooms.of(reported),
            packed_c=np.array([room is not None for room in reported], dtype=np.bool_),
            totals=SimulatedTotals(unpromised, options.estimate),
            stated={index[name]: replicas for name, replicas in available.items()},
            reserves_all=options.reserve,
            beside=beside,
        )

    def copy(self) -> Self:
        """Return the same capacity, of which more may be taken by itself."""
        return replace(self, totals=self.totals.copy(), stated=dict(self.stated))

    def room(self, position: int) -> Room | None:
        """Return the packed room of a cluster, None where it reports no pools."""
        return self.rooms.rooms[position]

    def estimates(
        self, binding: Binding, certificate: Certificate | None, *, leaves_large: bool = True
    ) -> Estimates:
        """Return how many more units fit in each cluster; ``leaves_large`` as for ``packable``."""
        if not self.packed_c.any():
            estimates = self.totals.available(unit_request(binding))
        else:
            estimates = promisable_beside_own(
                self.rooms, self.index, binding, certificate, leaves_large=leaves_large
            )
            if not self.packed_c.all():
                totals = self.totals.available(unit_request(binding))
                estimates = instead_where(self.packed_c, estimates, totals)
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
        return looked_again(self.rooms, decided.inputs.binding, draft.certificate, estimates)

    def reserve(self, draft: Draft, decided: Decided[None]) -> Refused | None:
        """Take the capacity for all shares, or for none."""
        binding, clusters = draft.binding, decided.decision.clusters
        if not (clusters and self.takes_capacity(binding)):
            return None
        added_c = self._added(binding, clusters)
        if not _heeds_capacity(binding):
            available_c = decided.decision.trace.inputs.available_c
            short = {
                self.names[c]: Reason.of(
                    ReasonCode.ROOM_TOO_SMALL, Amount(int(available_c[c])), Amount(units)
                )
                for c, units in added_c.items()
                if units > available_c[c] and not self.packed_c[c]
            }
            if short:
                return Refused(reasons=short)
        refused = self._promise(binding, clusters, draft.certificate)
        if refused is None:
            self._take(added_c, unit_request(binding))
        return refused

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
        self._promise(replace(binding, clusters=()), new, certificate)
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
        self.totals.give_back({c: back for c, back in units.items() if not self.packed_c[c]})
        asks = {share[0].key: self._asks(*share) for share in shares}
        return self._took(promise_less(self.rooms, self.names, asks, self.lessened)) is None

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
        self.totals.take({c: n for c, n in units.items() if not self.packed_c[c]}, shape)
        for position in self.stated.keys() & units.keys():
            self.stated[position] -= units[position]

    def _promise(
        self, binding: Binding, clusters: Collection[TargetCluster], certificate: Certificate | None
    ) -> Refused | None:
        """Promise all shares of a decision in packed clusters, or none."""
        asks = self._asks(binding, clusters, certificate)
        own = [c for c in asks if (room := self.room(c)) and room.holdings_of(binding.key)]
        placed = frozenset(
            self.index[target.name] for target in binding.clusters if target.name in self.index
        )
        terms = replace(terms_of(binding, refines=True), placed=placed)
        return self._took(promise(self.rooms, self.names, binding.key, asks, own, terms))

    def _took(self, taken: FleetRooms | Refused) -> Refused | None:
        if isinstance(taken, Refused):
            return taken if taken.reasons else None
        self.rooms, self.lessened = taken, {}
        return None

    def _asks(
        self,
        binding: Binding,
        clusters: Collection[TargetCluster],
        asked_certificate: Certificate | None,
    ) -> dict[int, tuple[Outstanding, ...]]:
        """Return all promises of the binding after the decision, by position of packed clusters."""
        if not self.packed_c.any():
            return {}
        shares = {target.name: target.replicas for target in clusters if target.replicas}
        names = shares.keys() | {target.name for target in binding.clusters}
        told_c, _ = told_by_pools(self.rooms, requirements_of(binding))
        asks = {}
        for position in sorted(self.index[name] for name in names & self.index.keys()):
            room, name = self.room(position), self.names[position]
            if room is not None:
                certificate = worth(
                    asked_certificate,
                    carries_labels=bool(told_c[position]),
                    follows_plans=room.follows_claims,
                )
                seen = _seen(binding, room, name)
                asks[position] = tuple(
                    _outstanding(binding, part, part.replicas - seen.get(part.name, 0), certificate)
                    for part in _parts(binding, shares.get(name, 0))
                    if part.replicas > seen.get(part.name, 0)
                )
        return asks


def promisable_beside_own(
    rooms: FleetRooms,
    index: Mapping[str, int],
    binding: Binding,
    certificate: Certificate | None,
    *,
    leaves_large: bool = True,
) -> Estimates:
    """Return how many more units can be promised in packed clusters, beside all that the binding
    holds. ``index`` has the positions by name; ``leaves_large`` is as for ``packable``.
    """
    own = {}
    for target in binding.clusters:
        position = index.get(target.name)
        room = None if position is None else rooms.rooms[position]
        if position is not None and room is not None:
            held = of_binding(room.outstanding, binding.key)
            own[position] = KeptPromise(held, sum(promise.to_pack for promise in held))
    told_by = told_by_pools(rooms, requirements_of(binding))
    beside = own_of(rooms, binding, certificate, own)
    return promisable(rooms, binding, certificate, told_by, beside, leaves_large=leaves_large)


def unit_request(binding: Binding) -> UnitRequest:
    """Return one replica, or one set with the amounts of all its components."""
    pods = sum(component.replicas for component in binding.components)
    return UnitRequest(requirements=shape_of(binding), pods=pods if binding.components else 1)


def _heeds_capacity(binding: Binding) -> bool:
    demand = Demand.of(binding)
    return demand.rule.heeds_capacity or demand.in_sets


def _room(state: ClusterState) -> UnpackedRoom | None:
    report = state.report
    if report is None or report.pools is None:
        return None
    return UnpackedRoom(
        ReportId(report.epoch, report.sequence),
        pools_of(report.pools),
        state.follows_claims,
        PackingOrder.of_report(state.promised),
    )


def _seen(binding: Binding, room: Room, name: str) -> Mapping[str, int]:
    """Return the replicas by component that are bound to nodes already."""
    seen: dict[str, int] = {}
    for target in binding.clusters:
        if target.name == name:
            seen = {part.name: part.replicas for part in _parts(binding, target.replicas)}
    for assignment in room.holdings_of(binding.key):
        part = assignment.outstanding.component
        seen[part] = max(0, seen.get(part, 0) - assignment.outstanding.in_cells)
    return seen


def _parts(binding: Binding, replicas: int) -> tuple[Component, ...]:
    """Return what one cluster runs of a workload; a component set goes there as a whole."""
    if not replicas:
        return ()
    if binding.components:
        return binding.components
    return (Component(name="", replicas=replicas, requirements=binding.requirements),)


def _outstanding(
    binding: Binding, part: Component, replicas: int, certificate: PromiseCertificate
) -> Outstanding:
    return Outstanding(
        binding=binding.key,
        requirements=part.requirements,
        in_cells=replicas,
        component=part.name,
        certificate=certificate,
        in_summary=replicas,
    )
