"""A fleet that only exists in memory, decided on one binding at a time, with savepoints.

Must not decide who is placed with whom, or who makes room: ``fleet`` does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

from federation.capacity.cluster_room import Room
from federation.model.arrays import IntArray
from federation.model.cluster import ClusterState
from federation.model.estimate import Estimates
from federation.model.placement import Binding, Certificate
from federation.model.positions import UNMOVED
from federation.model.reasons import Reason
from federation.model.workload import TargetCluster
from federation.scheduler.batch import Places
from federation.scheduler.cycle import room_for
from federation.scheduler.decide import Draft, OfferedCapacity, decide
from federation.scheduler.decision import Decision
from federation.scheduler.earmarks import CapacityClaim, beside_earmarks, could_hold, offer_of
from federation.scheduler.fleet import Fleet
from federation.scheduler.plugins.profile import Profiles
from federation.scheduler.promisable import refused_by
from federation.scheduler.scarcity import short_of
from federation.scheduler.waiting.kept import kept_before
from federation.scheduler.waiting.queue import Seen
from federation.simulation.capacity import SimulatedCapacity, SimulationOptions
from federation.simulation.peers import PlacedPeer, context_of, counting_at


class Savepoint(NamedTuple):
    """The state that decisions change."""

    capacity: SimulatedCapacity
    placed: dict[str, PlacedPeer]
    lost: dict[str, Decision]


class SimulatedFleet:
    """A fleet, and what the bindings decided so far have left of it. ``now`` in Unix seconds.

    Room is ``kept`` for others: for as many replicas as each lacks. ``first`` answers who waits
    before a binding, and is not to be overtaken by it wherever both may go. ``placed`` has the
    bindings with a place by key, and ``lost`` those that lost something to later ones.
    """

    def __init__(
        self,
        states: Iterable[ClusterState],
        options: SimulationOptions,
        *,
        now: float,
        profiles: Profiles,
    ) -> None:
        ordered = sorted(states, key=lambda state: state.cluster.name)
        self.fleet = Fleet.of(state.cluster for state in ordered)
        self.capacity = SimulatedCapacity.of(ordered, options, self._beside_claims)
        self.now = now
        self.kept: Sequence[tuple[Binding, int]] = ()
        self.first: Callable[[Binding], Sequence[Binding]] = lambda _: ()
        self.placed: dict[str, PlacedPeer] = {}
        self.lost: dict[str, Decision] = {}
        self._states = ordered
        self._profiles = profiles

    def change_clusters(self, states: Iterable[ClusterState]) -> None:
        """Take over labels, taints and readiness of the same clusters. Their reports stay."""
        self._states = sorted(states, key=lambda state: state.cluster.name)
        changes = {
            position: state.cluster
            for position, state in enumerate(self._states)
            if state.cluster != self.fleet.clusters[position]
        }
        if changes:
            self.fleet = self.fleet.after(UNMOVED, changes)

    def savepoint(self) -> Savepoint:
        """Return what decisions change, for ``rollback``."""
        return Savepoint(self.capacity.copy(), dict(self.placed), dict(self.lost))

    def rollback(self, savepoint: Savepoint) -> None:
        """Undo all decisions since a savepoint, or redo those before it. It serves once."""
        self.capacity, self.placed, self.lost = savepoint

    def decide_one(self, binding: Binding) -> Decision:
        """Decide a binding for which nobody makes room.

        Raises InvalidRequest for a scheduler name without a profile, and PluginFailed.
        """
        draft = Draft(
            binding=binding,
            remaining=binding,
            profile=self._profiles.profile_of(binding),
            surroundings=context_of(binding, self.placed.values()),
        )
        decision = decide(self.fleet, draft, self.capacity, self.now).decision
        if decision.clusters:
            peer = self.placed.get(binding.key)
            ran = peer.ran if peer else frozenset(target.name for target in binding.clusters)
            self.placed[binding.key] = PlacedPeer(binding, decision, ran)
        return decision

    def state(self, name: str) -> ClusterState:
        """Return a cluster as it came."""
        return self._states[self.fleet.index[name]]

    def seen(self, waiting: Binding, capacity: SimulatedCapacity) -> Seen:
        """Return which clusters a binding may go to, and how many of its units fit there."""
        passes_c, room_c = room_for(
            waiting,
            self.fleet,
            capacity.estimates(waiting, self.certificate_of(waiting)),
            now=self.now,
            profile=self._profiles.profile_of(waiting),
            surroundings=context_of(waiting, self.placed.values()),
        )
        names = self.fleet.names
        return Seen(
            room={names[c]: int(room_c[c]) for c in room_c.nonzero()[0].tolist()},
            reach=frozenset(names[c] for c in passes_c.nonzero()[0].tolist()),
        )

    def certificate_of(self, binding: Binding) -> Certificate | None:
        """Return the certificate that a binding asks for, None where any will do."""
        return binding.certificate or self._profiles.profile_of(binding).certificate

    def _beside_claims(self, draft: Draft, available: Estimates) -> OfferedCapacity:
        """Return what is available beside the bindings that come before a draft."""
        binding, index = draft.binding, self.fleet.index
        coming_first = kept_before(self.kept, lambda pair: pair[0], binding)
        earmarked = [self._claim(waiting, lacking) for waiting, lacking in coming_first]
        first = [self._claim(waiting) for waiting in self.first(binding)]
        if not (earmarked or first):
            return OfferedCapacity(available)
        capacity = _BesideEarmarks(fleet=self, capacity=self.capacity)
        shadow = beside_earmarks(capacity, earmarked, index)
        free_c = shadow.free_c(binding, draft.certificate)
        for claim in first:
            free_c[[index[name] for name in capacity.seen(claim).reach]] = 0
        return offer_of(available, free_c, (*earmarked, *first))

    def _claim(self, waiting: Binding, lacking: int = 0) -> CapacityClaim:
        profile = self._profiles.profile_of(waiting)
        return CapacityClaim(binding=waiting, profile=profile, lacking=lacking)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _BesideEarmarks:
    """An ``EarmarkedCapacity`` of a simulated fleet."""

    fleet: SimulatedFleet
    capacity: SimulatedCapacity

    def seen(self, claim: CapacityClaim) -> Seen:
        return self.fleet.seen(claim.binding, self.capacity)

    def available_c(self, binding: Binding, certificate: Certificate | None) -> IntArray:
        return self.capacity.estimates(binding, certificate).replicas_c

    def room(self, position: int) -> Room | None:
        return self.capacity.room(position)

    def could_hold(self, binding: Binding, names: Collection[str]) -> Collection[str]:
        return [name for name in names if could_hold(binding, self.fleet.state(name))]

    def beside(self, claim: CapacityClaim, binding: Binding, units: Mapping[str, int]) -> Self:
        capacity = self.capacity.copy()
        shares = [TargetCluster(name=name, replicas=count) for name, count in units.items()]
        alone = replace(binding, name=f"{binding.name} waits", clusters=())
        capacity.put(alone, shares, claim.certificate)
        return replace(self, capacity=capacity)


class SimulatedBatch:
    """A ``Batch`` of a fleet, with the decisions about its bindings by position."""

    def __init__(self, fleet: SimulatedFleet, remaining: Sequence[Binding]) -> None:
        self.remaining = remaining
        self.decisions: dict[int, Decision] = {}
        self._fleet = fleet
        self._savepoint = fleet.savepoint()

    @property
    def count(self) -> int:
        """Return how many bindings there are."""
        return len(self.remaining)

    def decide(self, position: int, places: Places) -> bool:
        # Itself too: without a place it counts there for those after it.
        self._count_at(places, range(position, len(self.remaining)))
        decision = self._fleet.decide_one(self.remaining[position])
        self.decisions[position] = decision
        return decision.is_placed

    def room(self, position: int, places: Places) -> Mapping[str, int]:
        fleet = self._fleet
        self._count_at(places, range(len(self.remaining)))
        seen = fleet.seen(self.remaining[position], fleet.capacity)
        self.undo()
        return seen.room

    def lack(self, position: int) -> Reason:
        return short_of(self.decisions[position])

    def undo(self) -> None:
        self._fleet.rollback(self._savepoint)
        self._savepoint = self._fleet.savepoint()

    def withdraw(self, position: int, why: Reason) -> None:
        if why:
            self.decisions[position] = refused_by(self.decisions[position], why)

    def _count_at(self, places: Places, positions: Iterable[int]) -> None:
        """Let bindings count at places where these say so."""
        placed = self._fleet.placed
        names = {self.remaining[n].key: places[n] for n in positions if n in places}
        placed |= counting_at(placed, names)
