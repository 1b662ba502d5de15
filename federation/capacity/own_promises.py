"""Room for more of the same beside the promises that a binding holds already.

Pure. A replica that leaves its node makes room there for one more of the same, and for no other:
room beside its own promises = room now + its own replicas. Must not promise anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from federation.capacity.assignments import OwnReplicas, worth
from federation.capacity.cluster_room import Room, answered_together
from federation.capacity.fleet_rooms import FleetRooms
from federation.model.arrays import IntArray
from federation.model.estimate import MAX_REPLICAS
from federation.model.placement import Certificate
from federation.model.reservations import Outstanding, is_repeated
from federation.model.workload import ReplicaRequirements


class KeptPromise(NamedTuple):
    """Promises that a binding holds in a cluster; ``kept`` replicas need room if it stays there."""

    held: Sequence[Outstanding]
    kept: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnPromises:
    """A binding's promises by position, with how many of their replicas are kept.

    They are ``repeated`` where it asks for more of the very same; else the room without them is
    ``repacked``, None where others would lose their room by that.
    """

    repeated: Mapping[int, tuple[OwnReplicas, int]] = field(default_factory=dict)
    repacked: Mapping[int, tuple[Room | None, int]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        fleet: FleetRooms,
        binding: str,
        requirements: ReplicaRequirements | None,
        certificate: Certificate | None,
        promises: Mapping[int, KeptPromise],
    ) -> OwnPromises:
        """Return the promises of a binding; None for ``requirements``: it asks for sets."""
        repeated, changed = {}, dict[int, int]()
        for position, (held, staying) in promises.items():
            cluster = fleet.clusters[position]
            if cluster is None:
                continue
            # Without labels there is no room to offer anyway.
            next_worth = worth(
                certificate, carries_labels=True, follows_plans=cluster.follows_claims
            )
            if requirements is None or not all(
                is_repeated(promise, requirements, next_worth) for promise in held
            ):
                changed[position] = staying
                continue
            repeated[position] = own_replicas(fleet, position, binding, held), staying
        rooms = fleet.rooms
        held_rooms = {c: room for c in changed if (room := rooms[c]) is not None}
        without = answered_together({c: room.leaving(binding) for c, room in held_rooms.items()})
        repacked = dict[int, tuple[Room | None, int]]()
        for position, room in without.items():
            strands_others = room.stuck(binding) > held_rooms[position].stuck(binding)
            repacked[position] = None if strands_others else room, changed[position]
        return cls(repeated=repeated, repacked=repacked)

    def with_own(self, max_c: IntArray) -> IntArray:
        """Return how many more replicas than the kept ones are available, by cluster.

        ``max_c`` is the number of further replicas beside all that the binding holds.
        """
        for position, (own, staying) in self.repeated.items():
            additional = own.replicas - staying + int(max_c[position])
            max_c[position] = min(max(0, additional), MAX_REPLICAS)
        return max_c


NOTHING_OWN: Final = OwnPromises()


def own_replicas(
    fleet: FleetRooms, position: int, binding: str, held: Sequence[Outstanding]
) -> OwnReplicas:
    """Return the replicas that a binding holds in a cluster, and those of them without room."""
    replicas = sum([promise.to_pack for promise in held])
    stuck = fleet.sums.stuck.get(position)
    if not stuck:
        return OwnReplicas(replicas)
    own = [lost.unplaced for lost in stuck if lost.outstanding.binding == binding]
    return OwnReplicas(replicas, sum(own))
