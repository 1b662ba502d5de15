"""Earmarks: capacity that is kept for bindings that wait, and what is left beside it.

The service and simulations keep capacity by these rules. Pure: must not know which bindings wait.

    beside_earmarks(
        capacity: S,
        earmarked: Iterable[CapacityClaim],
        index: Mapping[str, int],      # positions of clusters by name
    ) -> EarmarkShadow[S]

    offer_of(
        available: Estimates,
        free_c: IntArray,              # what fits beside claims, also more than is available
        claims: Iterable[CapacityClaim],
    ) -> OfferedCapacity
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np

from federation.capacity.cluster_room import Room
from federation.capacity.packing import room_by_segment
from federation.model.arrays import BoolArray, IntArray
from federation.model.cluster import ClusterState
from federation.model.component_sets import shape_of
from federation.model.estimate import Estimates
from federation.model.placement import Binding, Certificate
from federation.model.pools.matching import Match
from federation.model.pools.values import SCORED
from federation.model.workload import ReplicaRequirements
from federation.scheduler.decide import OfferedCapacity
from federation.scheduler.plugins.profile import Profile
from federation.scheduler.promisable import requirements_of
from federation.scheduler.waiting.kept import earmark_in, room_is_kept_for
from federation.scheduler.waiting.queue import Seen


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CapacityClaim:
    """A binding that waits and comes first, for ``lacking`` more replicas.

    With ``shares``, room is kept for these alone. Their clusters may have left the fleet.
    """

    binding: Binding
    profile: Profile
    observed_affinity: str = ""
    lacking: int = 0
    shares: Mapping[str, int] | None = None

    @property
    def certificate(self) -> Certificate | None:
        """The certificate that is asked for, None where any will do."""
        return self.binding.certificate or self.profile.certificate

    @property
    def lacking_units(self) -> int:
        """The units that it lacks: replicas, or the one set of components."""
        return min(self.lacking, 1) if self.binding.components else self.lacking


class EarmarkedCapacity(Protocol):
    """Capacity of which some may be set aside for bindings that wait."""

    def seen(self, claim: CapacityClaim) -> Seen:
        """Return the clusters that let a binding in, and the room that they have for it."""
        ...

    def available_c(self, binding: Binding, certificate: Certificate | None) -> IntArray:
        """Return how many more units fit in each cluster."""
        ...

    def room(self, position: int) -> Room | None:
        """Return the packed room of a cluster, None where it reports no pools."""
        ...

    def could_hold(self, binding: Binding, names: Collection[str]) -> Collection[str]:
        """Return those of the clusters that, all of them free, could hold a unit of a binding."""
        ...

    def beside(self, claim: CapacityClaim, binding: Binding, units: Mapping[str, int]) -> Self:
        """Return the capacity beside so many more units of a binding, or of a part of it."""
        ...


class EarmarkedNodes:
    """Kinds of node pools (axis q) whose free resources are kept, by position of the cluster; None:
    all.
    """

    def __init__(self) -> None:
        self._kinds: dict[int, BoolArray | None] = {}

    def close(self, waiting: Binding, rooms: Iterable[tuple[int, Room | None]]) -> None:
        """Set aside what is free in these clusters, on nodes that could hold a replica of the
        binding.
        """
        for position, room in rooms:
            if room is None:
                self._kinds[position] = None
                continue
            kinds_q = _kinds_for(room, requirements_of(waiting))
            closed_q = self._kinds.get(position, kinds_q)
            self._kinds[position] = None if closed_q is None else kinds_q | closed_q

    @property
    def positions(self) -> Iterable[int]:
        return self._kinds

    def limit(self, free_c: IntArray, binding: Binding, position: int, room: Room | None) -> None:
        """Reduce ``free_c`` at a position to the replicas of a binding that fit on other nodes.

        A binding of several components gets nothing there, because its sets may need the same
        nodes.
        """
        kinds_q = self._kinds[position]
        max_replicas = 0
        if room is not None and kinds_q is not None:
            if not kinds_q[room.cluster.kind_p].any():
                return
            if not binding.components:
                max_replicas = _max_elsewhere(room, binding.requirements, kinds_q)
        free_c[position] = min(int(free_c[position]), max_replicas)


S = TypeVar("S", bound=EarmarkedCapacity)


class EarmarkShadow(NamedTuple, Generic[S]):
    """Capacity beside earmarks, and the rooms where all that is free is set aside."""

    capacity: S
    closed: EarmarkedNodes

    def free_c(self, binding: Binding, certificate: Certificate | None) -> IntArray:
        """Return how many more units of another binding fit in each cluster."""
        free_c = self.capacity.available_c(binding, certificate).copy()
        for position in self.closed.positions:
            self.closed.limit(free_c, binding, position, self.capacity.room(position))
        return free_c


def beside_earmarks(
    capacity: S, earmarked: Iterable[CapacityClaim], index: Mapping[str, int]
) -> EarmarkShadow[S]:
    """Set aside as much as fits of each claim, beside those before it. Raises PluginFailed."""
    closed = EarmarkedNodes()
    for claim in earmarked:
        seen, shares = capacity.seen(claim), claim.shares
        room, reach = seen.room, seen.reach
        if shares is not None:
            room = {name: min(n, shares[name]) for name, n in room.items() if name in shares}
            reach = frozenset(index.keys() & shares.keys())
        could_hold = frozenset(capacity.could_hold(claim.binding, reach))
        earmark = earmark_in(room, could_hold, claim.lacking_units)
        capacity = capacity.beside(claim, claim.binding, earmark.shares)
        if claim.binding.components:
            capacity = _beside_parts(capacity, claim, could_hold - earmark.shares.keys(), index)
        positions = [index[name] for name in earmark.closed]
        closed.close(claim.binding, [(c, capacity.room(c)) for c in positions])
    return EarmarkShadow(capacity, closed)


def offer_of(
    available: Estimates, free_c: IntArray, claims: Iterable[CapacityClaim]
) -> OfferedCapacity:
    """Return what of the estimates is free beside claims, and for whom the rest is kept."""
    if not (free_c < available.replicas_c).any():
        return OfferedCapacity(available)
    offered = replace(available, replicas_c=np.minimum(available.replicas_c, free_c))
    return OfferedCapacity(offered, room_is_kept_for(claim.binding.key for claim in claims))


def _beside_parts(
    capacity: S, claim: CapacityClaim, names: Iterable[str], index: Mapping[str, int]
) -> S:
    """Set aside room for the parts of a whole set: it may come bit by bit."""
    for part in claim.binding.components:
        alone = replace(
            claim.binding,
            name=f"{claim.binding.name} {part.name}",
            components=(),
            requirements=part.requirements,
            replicas=part.replicas,
        )
        room_c = capacity.available_c(alone, claim.certificate)
        units = {name: min(int(room_c[index[name]]), part.replicas) for name in names}
        capacity = capacity.beside(claim, alone, {name: n for name, n in units.items() if n > 0})
    return capacity


def could_hold(binding: Binding, state: ClusterState) -> bool:
    """Return whether the cluster, with all of it free, could hold one replica or set."""
    allocatable = state.report.summary.allocatable if state.report else {}
    return all(
        allocatable.get(name, 0) >= amount for name, amount in shape_of(binding).request.items()
    )


def _kinds_for(room: Room, replicas: Iterable[ReplicaRequirements]) -> BoolArray:
    """Return the kinds of node pools (axis q) with a node that could hold one of these replicas.

    A report may lack the allocatable resources of its nodes: then resources do not exclude a kind.
    """
    could_hold_q = np.zeros(len(room.kinds.members), np.bool_)
    for requirements in replicas:
        could_hold_q[room.cluster.kind_p[_pools_for(room, requirements)]] = True
    return could_hold_q


def _max_elsewhere(room: Room, requirements: ReplicaRequirements, taken_q: BoolArray) -> int:
    """Return how many replicas fit on nodes of other kinds than ``taken_q``."""
    verdict_q = room.kinds.verdicts(requirements.node_claim)
    if not room.cluster.carries_labels(verdict_q):
        return 0
    suiting_q = ~taken_q if verdict_q is None else (verdict_q == Match.YES) & ~taken_q
    return int(room_by_segment(room.free_cells, requirements.request, suiting_q).min())


def _pools_for(room: Room, requirements: ReplicaRequirements) -> list[int]:
    cells, verdict_q = room.pools.cells, room.kinds.verdicts(requirements.node_claim)
    request = {name: amount for name, amount in requirements.request.items() if amount > 0}
    if not request.keys() <= set(cells.resources):
        return []
    suits_k = np.ones(len(cells.count_k), np.bool_)
    if verdict_q is not None:
        suits_k &= verdict_q[room.cluster.kind_p[cells.pool_k]] == Match.YES
    if cells.allocatable_rk is not None:
        request_s = np.array([request.get(name, 0) for name in SCORED], np.int64)
        suits_k &= (cells.allocatable_rk >= request_s[:, None]).all(axis=0)
    return [int(pool) for pool in np.unique(cells.pool_k[suits_k])]
