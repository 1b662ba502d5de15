"""A copy of the fleet for estimates in another process, and the changes that keep it up to date.

Must not estimate anything, nor know how changes travel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Final, NamedTuple

from federation.capacity.fleet_cells import FleetCells
from federation.capacity.fleet_reports import FleetCapacity
from federation.model.cluster import ClusterState
from federation.model.pools.values import Pools
from federation.model.positions import UNMOVED, Moves
from federation.model.reservations import Outstanding
from federation.services.fleet.known_estimates import PromisedByPosition
from federation.services.fleet.registry import FleetOwner
from federation.services.fleet.snapshot import generation_of

# If more clusters came and left at once, the copy is built anew.
MAX_MOVED: Final = 64


class ClusterDelta(NamedTuple):
    """A cluster as it is now; ``pools`` and ``outstanding`` are None where they did not change."""

    name: str
    state: ClusterState
    pools: tuple[Pools | None] | None
    outstanding: tuple[tuple[Outstanding, ...]] | None


class FleetDelta(NamedTuple):
    """Changes of a fleet: clusters that left, and clusters that came or changed."""

    left: Sequence[str] = ()
    clusters: Sequence[ClusterDelta] = ()


class _Sent(NamedTuple):
    pools: Pools | None
    outstanding: tuple[Outstanding, ...]


class FleetDeltas:
    """Changes that one copy has not got yet. Belongs to the fleet's event loop."""

    def __init__(self, fleet: FleetOwner) -> None:
        self._fleet = fleet
        self._changed = fleet.changed.followed()
        self._sent: dict[str, _Sent] = {}

    def begin_anew(self) -> None:
        """Begin with an empty copy."""
        self._sent.clear()
        self._changed.clear()
        self._changed.update(self._fleet.snapshot.names)

    def __len__(self) -> int:
        """Count the clusters that may have changed."""
        return len(self._changed)

    def take(self, limit: int) -> FleetDelta:
        """Return the changes of at most ``limit`` clusters, which count as sent then."""
        gone, clusters = [], []
        for name in list(islice(self._changed, limit)):
            self._changed.discard(name)
            if not self._fleet.has(name):
                if self._sent.pop(name, None) is not None:
                    gone.append(name)
                continue
            sent = self._sent.get(name)
            pools, outstanding = self._fleet.pools(name), self._fleet.ledger(name).outstanding()
            self._sent[name] = _Sent(pools, outstanding)
            clusters.append(
                ClusterDelta(
                    name,
                    self._fleet.known(name).state,
                    None if sent and sent.pools is pools else (pools,),
                    None if sent and sent.outstanding is outstanding else (outstanding,),
                )
            )
        return FleetDelta(gone, clusters)


class ReplicaFleet:
    """A copy of a fleet, as far as estimates go. Implements ``EstimatedFleet``."""

    def __init__(self) -> None:
        self.names: tuple[str, ...] = ()
        self.generation = generation_of(())
        self.positions: Mapping[str, int] = MappingProxyType({})
        self.capacity = FleetCapacity.of(())
        self.reported = FleetCells.of(())
        self.outstanding: PromisedByPosition = MappingProxyType({})
        self._pools: dict[str, Pools | None] = {}
        self._outstanding: dict[str, tuple[Outstanding, ...]] = {}

    def apply(self, delta: FleetDelta) -> None:
        """Apply changes; values that they touch are replaced, not changed."""
        came = [cluster.name for cluster in delta.clusters if cluster.name not in self.positions]
        moves = self._moves(delta, came) if came or delta.left else UNMOVED
        for name in delta.left:
            del self._pools[name]
            self._outstanding.pop(name, None)
        states = {self.positions[cluster.name]: cluster.state for cluster in delta.clusters}
        pools: dict[int, Pools | None] = {}
        for cluster in delta.clusters:
            if cluster.pools is not None:
                (self._pools[cluster.name],) = cluster.pools
                pools[self.positions[cluster.name]] = self._pools[cluster.name]
        self._take_outstanding(delta, is_moved=moves is not UNMOVED)
        if len(moves.removed) + len(moves.added) > MAX_MOVED:
            self._build(states, moves)
            return
        self.capacity = self.capacity.with_clusters(states, moves)
        if moves is not UNMOVED:
            self.reported = self.reported.after(moves)
        if pools:
            self.reported = self.reported.with_clusters(pools)

    def _moves(self, delta: FleetDelta, came: list[str]) -> Moves:
        departed = sorted(self.positions[name] for name in delta.left)
        gone = frozenset(delta.left)
        self.names = tuple(sorted([*(name for name in self.names if name not in gone), *came]))
        self.positions = {name: position for position, name in enumerate(self.names)}
        self.generation = generation_of(self.names)
        return Moves(removed=departed, added=sorted(self.positions[name] for name in came))

    def _take_outstanding(self, delta: FleetDelta, *, is_moved: bool) -> None:
        changed = [cluster for cluster in delta.clusters if cluster.outstanding is not None]
        for cluster in changed:
            (self._outstanding[cluster.name],) = cluster.outstanding or ((),)
        if changed or is_moved:
            self.outstanding = {
                self.positions[name]: promised
                for name, promised in self._outstanding.items()
                if promised
            }

    def _build(self, states: Mapping[int, ClusterState], moves: Moves) -> None:
        new_states = list(moves.items(self.capacity.states, [states[c] for c in moves.added]))
        for position, state in states.items():
            new_states[position] = state
        self.capacity = FleetCapacity.of(new_states)
        self.reported = FleetCells.of(self._pools[name] for name in self.names)
