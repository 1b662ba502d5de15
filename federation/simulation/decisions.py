"""Decisions in sequence on a fleet that only exists in memory.

Must not read files or messages: it is the live cycle without a control plane.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

from federation.capacity.cluster_room import Room
from federation.capacity.deductions import UnitRequest
from federation.model.arrays import IntArray
from federation.model.cluster import Cluster, ClusterState
from federation.model.errors import InvalidRequest
from federation.model.estimate import Estimates
from federation.model.placement import (
    Binding,
    Certificate,
    Gang,
    PreemptionPolicy,
    gang_to_join,
)
from federation.model.positions import UNMOVED
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import NO_REASON, Reason
from federation.model.workload import TargetCluster
from federation.scheduler.cycle import room_for
from federation.scheduler.decide import (
    Draft,
    OfferedCapacity,
    Places,
    decide,
    decide_moves,
    settle_gang,
)
from federation.scheduler.decision import Decision, Outcome
from federation.scheduler.earmarks import CapacityClaim, beside_earmarks, could_hold, offer_of
from federation.scheduler.fleet import Fleet
from federation.scheduler.plugins.profile import DEFAULT_PROFILES, Profiles
from federation.scheduler.preemption import (
    NOTHING_HELPS,
    SPENT,
    Candidate,
    Losses,
    candidate_of,
    least_loss,
    loss_decision,
    loss_reasons,
    losses_by_binding,
    losses_by_namespace,
    may_lose,
    open_clusters,
    ordered_candidates,
)
from federation.scheduler.promisable import refused_by
from federation.scheduler.scarcity import short_of
from federation.scheduler.validation import violations_of
from federation.scheduler.waiting.gangs import GangMember, Roster, gate_of
from federation.scheduler.waiting.kept import kept_before
from federation.scheduler.waiting.queue import Seen
from federation.simulation.bindings import PlacedBindings, PlacedPeer
from federation.simulation.capacity import (
    KeptShares,
    SimulatedCapacity,
    SimulationOptions,
    unit_request,
)


def check_bindings(bindings: Iterable[tuple[str, Binding]], profiles: Profiles) -> None:
    """Raise InvalidRequest with every rule that a binding breaks, under the path of the binding."""
    gangs = defaultdict[tuple[str, str], Roster](Roster)
    violations = []
    for path, binding in bindings:
        broken = [*violations_of(binding), *profiles.violations_of(binding)]
        if binding.gang is not None:
            roster = gangs[binding.namespace, binding.gang.name]
            member = GangMember.of(binding, None)
            refusal = roster.refusal_of(member)
            broken += [refusal] if refusal else []
            roster.add(member)
        violations += [violation.under(path) for violation in broken]
    if violations:
        raise InvalidRequest(violations)


class Simulation:
    """A fleet, and what the bindings decided so far have left of it. ``now`` in Unix seconds.

    Room is ``kept`` for others: for as many replicas as each lacks. ``first`` answers who waits
    before a binding, and is not to be overtaken by it wherever both may go. ``may_preempt`` takes
    preempted replicas by namespace; it counts them and returns True, unless they are too many.
    """

    def __init__(
        self,
        states: Iterable[ClusterState],
        options: SimulationOptions,
        *,
        now: float,
        profiles: Profiles = DEFAULT_PROFILES,
        may_preempt: Callable[[Mapping[str, int]], bool] = lambda _: True,
    ) -> None:
        ordered = sorted(states, key=lambda state: state.cluster.name)
        self.fleet = Fleet.of(state.cluster for state in ordered)
        self.capacity = SimulatedCapacity.of(ordered, options, self._beside_claims)
        self.now = now
        self.kept: Sequence[tuple[Binding, int]] = ()
        self.first: Callable[[Binding], Sequence[Binding]] = lambda _: ()
        self._states = ordered
        self._profiles = profiles
        self._may_preempt = may_preempt
        self._placed = PlacedBindings()
        # Decisions of bindings that lost something to later ones, by key.
        self._lost: Mapping[str, Decision] = {}

    def decide_all(self, bindings: Sequence[Binding]) -> list[Decision]:
        """Return decisions in the order of the bindings; a gang is decided at its last member.

        Raises as ``decide`` does.
        """
        decided: dict[str, Decision] = {}
        gangs = defaultdict[tuple[str, str], list[Binding]](list)
        for binding in bindings:
            if gang_to_join(binding) is None:
                decided[binding.key] = self.decide(binding)
            if binding.gang is not None:
                members = gangs[binding.namespace, binding.gang.name]
                members.append(binding)
                if not _gate(binding.gang, members):
                    joining = [member for member in members if gang_to_join(member)]
                    together = self.decide_together(binding.gang, joining)
                    decided |= {
                        member.key: decision
                        for member, decision in zip(joining, together, strict=True)
                    }
        for members in gangs.values():
            for binding in members:
                if binding.gang is not None and binding.key not in decided:
                    gate = _gate(binding.gang, members)
                    decided[binding.key] = self._decide_gated(binding, gate)
        newest = {**decided, **self._lost}
        return [newest[binding.key] for binding in bindings]

    def decide_together(self, gang: Gang, joining: Sequence[Binding]) -> list[Decision]:
        """Place all members of a gang that have no place yet, or none of them.

        Raises as ``decide`` does.
        """
        with self.savepoint() as undo:
            batch = SimulatedBatch(self, joining, undo)
            decisions = self._with_room_made(joining)
            batch.decisions |= enumerate(decisions)
            missed = [n for n, decision in enumerate(decisions) if not decision.is_placed]
            settle_gang(batch, gang, missed)
        return [batch.decisions[position] for position in range(len(joining))]

    def decide_moves(self, group: Sequence[Binding]) -> list[Decision]:
        """Decide bindings that move together, each without the clusters that it has to leave.

        All of them get a place, or none does. They preempt nothing. Raises as ``decide`` does.
        """
        with self.savepoint() as undo:
            batch = SimulatedBatch(self, group, undo)
            decide_moves(batch)
        return [batch.decisions[position] for position in range(len(group))]

    def release(
        self, binding: Binding, former: Mapping[str, int], current: Mapping[str, int]
    ) -> None:
        """Give back the capacity of replicas that a binding held: ``former`` less ``current``.

        Replicas that ran as the binding came are in neither: the reports of clusters count them.
        """
        freed = {
            name: replicas - max(current.get(name, 0), 0)
            for name, replicas in former.items()
            if replicas > max(current.get(name, 0), 0)
        }
        if not (freed and self.capacity.takes_capacity(binding)):
            return
        held = tuple(TargetCluster(name=name, replicas=former[name]) for name in freed)
        rest = tuple(
            TargetCluster(name=name, replicas=current[name])
            for name in freed
            if current.get(name, 0) > 0
        )
        shares = replace(binding, clusters=held), rest, self.certificate_of(binding)
        units = {
            self.fleet.index[name]: [(1 if binding.components else count, unit_request(binding))]
            for name, count in freed.items()
        }
        self.capacity.give_back([shares], units)

    def remove(self, binding: Binding, held: Mapping[str, int]) -> None:
        """Forget a binding that is deleted, and give back the replicas that it ``held``."""
        self.release(binding, held, {})
        self._placed.remove(binding.key)

    def losses(self) -> Mapping[str, Decision]:
        """Return the decisions of bindings that lost replicas since the last call, by key."""
        lost, self._lost = self._lost, {}
        return lost

    @contextmanager
    def savepoint(self) -> Iterator[Callable[[], None]]:
        """Yield a function that undoes all decisions since, again and again within the block."""
        capacity, lost = self.capacity, self._lost
        self.capacity = capacity.copy()
        with self._placed.savepoint() as savepoint:

            def undo() -> None:
                self.capacity, self._lost = capacity.copy(), lost
                self._placed.undo(savepoint)

            yield undo

    def change_clusters(self, clusters: Iterable[Cluster]) -> None:
        """Take over labels, taints and readiness of some clusters. Their reports stay."""
        by_position = {self.fleet.index[cluster.name]: cluster for cluster in clusters}
        changes = {
            position: cluster
            for position, cluster in by_position.items()
            if cluster != self.fleet.clusters[position]
        }
        if changes:
            self.fleet = self.fleet.after(UNMOVED, changes)

    def decide(self, binding: Binding) -> Decision:
        """Decide a binding on what earlier ones left; a suspended one gets nothing.

        Raises InvalidRequest for a scheduler name without a profile, and PluginFailed.
        """
        if binding.suspended:
            return self._decide_gated(binding, Reason(ReasonCode.SUSPENDED))
        return self._with_room_made([binding])[0]

    def _decide_gated(self, binding: Binding, gate: Reason) -> Decision:
        with self.savepoint() as undo:
            decision = refused_by(self.decide_one(binding), gate)
            undo()
        return decision

    def decide_one(self, binding: Binding) -> Decision:
        """Decide a binding for which nobody makes room.

        Raises InvalidRequest for a scheduler name without a profile, and PluginFailed.
        """
        draft = Draft(
            binding=binding,
            remaining=binding,
            profile=self._profiles.profile_of(binding),
            surroundings=self._placed.context_of(binding),
        )
        decision = decide(self.fleet, draft, self.capacity, self.now).decision
        if decision.clusters:
            peer = self._placed.get(binding.key)
            ran = peer.ran if peer else frozenset(target.name for target in binding.clusters)
            self._placed.put(PlacedPeer(binding, decision, ran))
        return decision

    def count_at(self, places: Mapping[str, Iterable[str]]) -> None:
        """Let placed bindings count as if they were in the clusters of these names, by key."""
        self._placed.count_at(places)

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
            surroundings=self._placed.context_of(waiting),
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

    def _with_room_made(self, bindings: Sequence[Binding]) -> list[Decision]:
        """Return the decisions of bindings that are placed together, or of one.

        If they preempt and one finds no capacity, earlier bindings make room for all of them. If
        that does not help, none of them takes any capacity.
        """
        if any(binding.preemption_policy is PreemptionPolicy.NEVER for binding in bindings):
            return list(map(self.decide_one, bindings))
        fits = {Outcome.SCHEDULED, Outcome.PARTIAL, Outcome.UNSCHEDULABLE}
        with self.savepoint() as undo:
            decisions = list(map(self.decide_one, bindings))
            outcomes = {decision.outcome for decision in decisions}
            if Outcome.UNSCHEDULABLE not in outcomes or not fits.issuperset(outcomes):
                return decisions
            undo()
            candidates = self._candidates(bindings, decisions)
            losses = least_loss(candidates, partial(self._makes_room, bindings, candidates))
            why = NO_REASON
            if losses is None or not self._lose(candidates, losses, bindings[0].key):
                why = NOTHING_HELPS
            elif not self._may_preempt(losses_by_namespace(candidates, losses)):
                why = SPENT
            if losses is None or why:
                undo()
                return [
                    decision if decision.is_placed else decision.explained(why)
                    for decision in decisions
                ]
        preempted = loss_reasons(candidates, losses)
        return [
            replace(decision, trace=replace(decision.trace, preempted=preempted))
            for decision in map(self.decide_one, bindings)
        ]

    def _makes_room(
        self, bindings: Sequence[Binding], candidates: Sequence[Candidate], losses: Losses
    ) -> bool:
        with self.savepoint() as undo:
            fits = self._lose(candidates, losses, "") and all(
                self.decide_one(binding).is_placed for binding in bindings
            )
            undo()
        return fits

    def _candidates(
        self, bindings: Sequence[Binding], decisions: Iterable[Decision]
    ) -> list[Candidate]:
        """Return what earlier bindings may lose; replicas that ran at the start stay."""
        preemptor_priority = min(binding.priority for binding in bindings)
        open_c = set[int]().union(*map(open_clusters, decisions))
        is_open = {self.fleet.names[c] for c in open_c}
        candidates = [
            candidate_of(placed, target, waiting=target.replicas)
            for binding, decision, ran in self._placed
            if binding.priority < preemptor_priority
            and binding.preemptible
            and self.capacity.takes_capacity(binding)
            for placed in (replace(binding, clusters=decision.clusters),)
            for target in decision.clusters
            if target.name in is_open and target.name not in ran
        ]
        return ordered_candidates(filter(None, candidates), bindings[0].resource.uid)

    def _lose(self, candidates: Sequence[Candidate], losses: Losses, by: str) -> bool:
        """Take replicas from earlier bindings; return False if one of them may not lose so many."""
        lost = losses_by_binding(candidates, losses)
        shares_kept: list[KeptShares] = []
        freed_c = defaultdict[int, list[tuple[int, UnitRequest]]](list)
        for key, lost_in in lost.items():
            peer = self._placed.get(key)
            if peer is None:
                return False
            binding = peer.binding
            placed = replace(binding, clusters=peer.decision.clusters)
            if not may_lose(placed, sum(lost_in.values())):
                return False
            reduced = loss_decision(placed, lost_in, by, self.fleet.names, self.now)
            shares_kept.append((placed, reduced.clusters, self.certificate_of(binding)))
            self._placed.put(peer._replace(decision=reduced))
            self._lost = {**self._lost, key: reduced}
            for name, replicas in lost_in.items():
                position, units = self.fleet.index[name], 1 if binding.components else replicas
                freed_c[position].append((units, unit_request(binding)))
        return self.capacity.give_back(shares_kept, freed_c)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _BesideEarmarks:
    """An ``EarmarkedCapacity`` of a simulation."""

    fleet: Simulation
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

    def __init__(
        self, fleet: Simulation, remaining: Sequence[Binding], undo: Callable[[], None]
    ) -> None:
        self.remaining = remaining
        self.decisions: dict[int, Decision] = {}
        self.undo = undo
        self._fleet = fleet

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

    def withdraw(self, position: int, why: Reason) -> None:
        if why:
            self.decisions[position] = refused_by(self.decisions[position], why)

    def _count_at(self, places: Places, positions: Iterable[int]) -> None:
        """Let bindings count at places where these say so."""
        names = {self.remaining[n].key: places[n] for n in positions if n in places}
        self._fleet.count_at(names)


def _gate(gang: Gang, members: Iterable[Binding]) -> Reason:
    return gate_of(gang, [GangMember.of(member, None) for member in members])
