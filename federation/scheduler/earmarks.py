"""Capacity beside the claims of bindings that wait: earmarks, and who is first in strict profiles.

The service and simulations keep room by these rules. Pure: must not know who has to wait.

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
from federation.model.arrays import IntArray
from federation.model.estimate import Estimates
from federation.model.placement import Binding, Certificate
from federation.scheduler.closed_rooms import ClosedRooms
from federation.scheduler.decide import OfferedCapacity
from federation.scheduler.plugins.profile import Profile
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


S = TypeVar("S", bound=EarmarkedCapacity)


class EarmarkShadow(NamedTuple, Generic[S]):
    """Capacity beside earmarks, and the rooms where all that is free is set aside."""

    capacity: S
    closed: ClosedRooms

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
    closed = ClosedRooms()
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
