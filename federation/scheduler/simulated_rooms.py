"""The rooms of a simulation's clusters that come with pools, and what is promised in them.

Must not decide anything: it says what can be promised, as the service does, and keeps it.
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

# A binding, what is left to it of its shares, and what it asks of promises.
KeptShares: TypeAlias = tuple[Binding, Collection[TargetCluster], Certificate | None]


class SimulatedRooms:
    """Rooms by position; ``there_c`` says which clusters have one: none where a caller states what
    is available.
    """

    def __init__(self, states: Sequence[ClusterState], stated: Collection[str]) -> None:
        self._names = tuple(state.cluster.name for state in states)
        self._rooms = FleetRooms.of(
            None if state.cluster.name in stated else _room(state) for state in states
        )
        # Copies share it, as long as their rooms are these.
        self._lessened: PackedRooms = {}
        self.there_c: BoolArray = np.array(
            [self._rooms.report(position) is not None for position in range(len(states))],
            dtype=np.bool_,
        )

    def available(
        self, binding: Binding, asked: Certificate | None, *, leaves_large: bool = True
    ) -> Estimates:
        """How many more replicas or sets can be promised, where there are rooms. ``leaves_large``
        is as for ``packable``.
        """
        told = told_by_pools(self._rooms, requirements_of(binding))
        own = own_of(self._rooms, binding, asked, dict(self._own(binding)))
        return promisable(self._rooms, binding, asked, told, own, leaves_large=leaves_large)

    def room(self, position: int) -> Room | None:
        return self._rooms.rooms[position]

    def looked_again(
        self, binding: Binding, asked: Certificate | None, available: Estimates
    ) -> Estimates | None:
        """What can be promised after all, where there are rooms; None where that is no more."""
        return looked_again(self._rooms, binding, asked, available)

    def take(
        self, binding: Binding, clusters: Collection[TargetCluster], asked: Certificate | None
    ) -> Mapping[str, Reason]:
        """Promise what is decided, all of it or nothing; why not, by the name of the cluster."""
        asks = self._asks(binding, clusters, asked)
        own = [c for c in asks if (room := self._rooms.rooms[c]) and room.holdings_of(binding.key)]
        placed = {each.name for each in binding.clusters}
        terms = replace(
            terms_of(binding, refines=True),
            placed=frozenset(c for c, name in enumerate(self._names) if name in placed),
        )
        return self._took(promise(self._rooms, self._names, binding.key, asks, own, terms))

    def take_less(self, kept: Iterable[KeptShares]) -> Mapping[str, Reason]:
        """``take`` for many bindings that keep only so much of what they have."""
        asks = {each[0].key: self._asks(*each) for each in kept}
        return self._took(promise_less(self._rooms, self._names, asks, self._lessened))

    def _took(self, taken: FleetRooms | Refused) -> Mapping[str, Reason]:
        if isinstance(taken, Refused):
            return taken.reasons
        self._rooms, self._lessened = taken, {}
        return {}

    def _asks(
        self, binding: Binding, clusters: Collection[TargetCluster], asked: Certificate | None
    ) -> dict[int, tuple[Outstanding, ...]]:
        """All that the binding has outstanding afterwards, by position, where there are rooms."""
        if not self.there_c.any():
            return {}
        told_c, _ = told_by_pools(self._rooms, requirements_of(binding))
        shares = {each.name: each.replicas for each in clusters if each.replicas}
        left = {each.name for each in binding.clusters} - shares.keys()
        asks = {}
        for position, name in enumerate(self._names):
            room = self._rooms.rooms[position] if name in shares or name in left else None
            if room is not None:
                parts = _parts(binding, shares.get(name, 0))
                certificate = worth(
                    asked, carries_labels=bool(told_c[position]), follows_plans=room.follows_claims
                )
                seen = self._seen(binding, room, name)
                asks[position] = tuple(
                    _outstanding(binding, part, part.replicas - seen.get(part.name, 0), certificate)
                    for part in parts
                    if part.replicas > seen.get(part.name, 0)
                )
        return asks

    def _own(self, binding: Binding) -> Iterator[tuple[int, KeptPromise]]:
        """The binding's own promises where it is, all of which stay."""
        places = {name: position for position, name in enumerate(self._names)}
        for target in binding.clusters:
            position = places.get(target.name)
            room = None if position is None else self._rooms.rooms[position]
            if position is not None and room is not None:
                held = of_binding(room.outstanding, binding.key)
                yield position, KeptPromise(held, sum(promise.to_pack for promise in held))

    def _seen(self, binding: Binding, room: Room, name: str) -> Mapping[str, int]:
        """Replicas by component that are on nodes already: they run, and none is waited for."""
        seen: dict[str, int] = {}
        for target in binding.clusters:
            if target.name == name:
                seen = {part.name: part.replicas for part in _parts(binding, target.replicas)}
        for each in room.holdings_of(binding.key):
            part = each.outstanding.component
            seen[part] = max(0, seen.get(part, 0) - each.outstanding.in_cells)
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
    """What one cluster runs of a workload; one of components goes there as a whole."""
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
