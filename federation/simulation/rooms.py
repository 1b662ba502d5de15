"""The packed capacity of a simulation's clusters that report node pools, and the promises in it.

Must not decide: it says what can be promised, as the service does, and records promises.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from federation.capacity.cluster_room import ReportId, Room
from federation.capacity.fleet_rooms import FleetRooms, UnpackedRoom
from federation.capacity.growth import of_binding
from federation.capacity.own_promises import KeptPromise
from federation.capacity.reserve import PackedRooms, Refused, promise, promise_less
from federation.capacity.worth import worth
from federation.model.arrays import BoolArray
from federation.model.cluster import ClusterState
from federation.model.estimate import Estimates
from federation.model.placement import Binding, Certificate
from federation.model.reasons import Reason
from federation.model.reported_pools import pools_of
from federation.model.reservations import Outstanding, PromiseCertificate
from federation.model.workload import Component, TargetCluster
from federation.scheduler.promisable import (
    looked_again,
    own_of,
    promisable,
    requirements_of,
    terms_of,
    told_by_pools,
)

# A binding, the shares that it keeps, and the certificate that it asks for.
KeptShares: TypeAlias = tuple[Binding, Collection[TargetCluster], Certificate | None]


class SimulatedRooms:
    """Packed capacity by position; ``there_c`` marks clusters that have one.

    A cluster whose availability the caller states has none.
    """

    def __init__(self, states: Sequence[ClusterState], stated: Collection[str]) -> None:
        self._names = tuple(state.cluster.name for state in states)
        self._rooms = FleetRooms.of(
            None if state.cluster.name in stated else _room(state) for state in states
        )
        # Copies share this cache until a promise changes their capacity.
        self._lessened: PackedRooms = {}
        self.there_c: BoolArray = np.array(
            [self._rooms.report(position) is not None for position in range(len(states))],
            dtype=np.bool_,
        )

    def available(
        self, binding: Binding, certificate: Certificate | None, *, leaves_large: bool = True
    ) -> Estimates:
        """Return how many more replicas or sets can be promised in packed clusters.

        ``leaves_large`` is as for ``packable``.
        """
        told_by = told_by_pools(self._rooms, requirements_of(binding))
        own = own_of(self._rooms, binding, certificate, dict(self._own(binding)))
        return promisable(
            self._rooms, binding, certificate, told_by, own, leaves_large=leaves_large
        )

    def room(self, position: int) -> Room | None:
        return self._rooms.rooms[position]

    def looked_again(
        self, binding: Binding, certificate: Certificate | None, available: Estimates
    ) -> Estimates | None:
        """Look a second time in packed clusters; None if no more can be promised."""
        return looked_again(self._rooms, binding, certificate, available)

    def take(
        self, binding: Binding, clusters: Collection[TargetCluster], certificate: Certificate | None
    ) -> Mapping[str, Reason]:
        """Promise all shares of a decision, or none; return why not, by cluster name."""
        asks = self._asks(binding, clusters, certificate)
        own = [c for c in asks if (room := self._rooms.rooms[c]) and room.holdings_of(binding.key)]
        placed = {target.name for target in binding.clusters}
        terms = replace(
            terms_of(binding, refines=True),
            placed=frozenset(c for c, name in enumerate(self._names) if name in placed),
        )
        return self._took(promise(self._rooms, self._names, binding.key, asks, own, terms))

    def take_less(self, kept_shares: Iterable[KeptShares]) -> Mapping[str, Reason]:
        """Reduce the promises of many bindings to the shares that they keep, as ``take`` does."""
        asks = {shares[0].key: self._asks(*shares) for shares in kept_shares}
        return self._took(promise_less(self._rooms, self._names, asks, self._lessened))

    def _took(self, taken: FleetRooms | Refused) -> Mapping[str, Reason]:
        if isinstance(taken, Refused):
            return taken.reasons
        self._rooms, self._lessened = taken, {}
        return {}

    def _asks(
        self,
        binding: Binding,
        clusters: Collection[TargetCluster],
        asked_certificate: Certificate | None,
    ) -> dict[int, tuple[Outstanding, ...]]:
        """Return all promises of the binding after the decision, by position of packed clusters."""
        if not self.there_c.any():
            return {}
        told_c, _ = told_by_pools(self._rooms, requirements_of(binding))
        shares = {target.name: target.replicas for target in clusters if target.replicas}
        leaving = {target.name for target in binding.clusters} - shares.keys()
        asks = {}
        for position, name in enumerate(self._names):
            room = self._rooms.rooms[position] if name in shares or name in leaving else None
            if room is not None:
                parts = _parts(binding, shares.get(name, 0))
                certificate = worth(
                    asked_certificate,
                    carries_labels=bool(told_c[position]),
                    follows_plans=room.follows_claims,
                )
                seen = self._seen(binding, room, name)
                asks[position] = tuple(
                    _outstanding(binding, part, part.replicas - seen.get(part.name, 0), certificate)
                    for part in parts
                    if part.replicas > seen.get(part.name, 0)
                )
        return asks

    def _own(self, binding: Binding) -> Iterator[tuple[int, KeptPromise]]:
        """Yield the binding's own promises in its clusters, all of which stay."""
        places = {name: position for position, name in enumerate(self._names)}
        for target in binding.clusters:
            position = places.get(target.name)
            room = None if position is None else self._rooms.rooms[position]
            if position is not None and room is not None:
                held = of_binding(room.outstanding, binding.key)
                yield position, KeptPromise(held, sum(promise.to_pack for promise in held))

    def _seen(self, binding: Binding, room: Room, name: str) -> Mapping[str, int]:
        """Return the replicas by component that are bound to nodes already."""
        seen: dict[str, int] = {}
        for target in binding.clusters:
            if target.name == name:
                seen = {part.name: part.replicas for part in _parts(binding, target.replicas)}
        for assignment in room.holdings_of(binding.key):
            part = assignment.outstanding.component
            seen[part] = max(0, seen.get(part, 0) - assignment.outstanding.in_cells)
        return seen


def _room(state: ClusterState) -> UnpackedRoom | None:
    report = state.report
    if report is None or report.pools is None:
        return None
    return UnpackedRoom(
        ReportId(report.epoch, report.sequence),
        pools_of(report.pools),
        state.follows_claims,
        state.promised,
    )


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
