"""Decides bindings one after the other on a fleet that only exists in memory.

Must not read files or messages: it is the live cycle with nothing behind it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from federation.capacity.deductions import UnitRequest
from federation.model.arrays import BoolArray, IntArray
from federation.model.cluster import ClusterState
from federation.model.errors import InvalidRequest
from federation.model.estimate import Estimates
from federation.model.placement import Binding, Certificate, Gang, PreemptionPolicy, gang_to_join
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import NO_REASON, Reason
from federation.model.workload import TargetCluster
from federation.scheduler.closed_rooms import ClosedRooms, could_hold
from federation.scheduler.common_clusters import common_clusters, stays_reason
from federation.scheduler.cycle import room_for
from federation.scheduler.decide import Draft, OfferedCapacity, decide
from federation.scheduler.decision import Decision, Outcome
from federation.scheduler.demand import Demand
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
from federation.scheduler.simulated_capacity import (
    SimulatedCapacity,
    SimulationOptions,
    unit_request,
)
from federation.scheduler.simulated_peers import PlacedPeer, Places, counting_at, surroundings_of
from federation.scheduler.simulated_rooms import KeptShares
from federation.scheduler.validation import violations_of
from federation.scheduler.waiting.gangs import GangMember, Roster, gate_of, unplaced_reason
from federation.scheduler.waiting.kept import earmark_in, kept_before, room_is_kept_for


def check_bindings(bindings: Iterable[tuple[str, Binding]], profiles: Profiles) -> None:
    """Raises InvalidRequest with every rule that a binding breaks, under the path it has."""
    gangs = defaultdict[tuple[str, str], Roster](Roster)
    violations = []
    for path, binding in bindings:
        found = [*violations_of(binding), *profiles.violations_of(binding)]
        if binding.gang is not None:
            roster = gangs[binding.namespace, binding.gang.name]
            member = GangMember.of(binding, None)
            refusal = roster.refusal_of(member)
            found += [refusal] if refusal else []
            roster.add(member)
        violations += [violation.under(path) for violation in found]
    if violations:
        raise InvalidRequest(violations)


class Simulation:
    """A fleet, and what the bindings decided so far have left of it. ``now`` in Unix seconds.

    Room is ``kept`` for others: for as many replicas as each lacks; ``first`` answers who waits
    before a binding and is not to be overtaken by it wherever both may go. ``may_preempt`` counts
    replicas that are preempted, by namespace, unless they are too many.
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
        self._states = ordered
        self._capacity = SimulatedCapacity.of(ordered, options, self._beside_kept)
        self.now = now
        self._profiles = profiles
        self._may_preempt = may_preempt
        self.kept: Sequence[tuple[Binding, int]] = ()
        self.first: Callable[[Binding], Sequence[Binding]] = lambda _: ()
        self._placed: dict[str, PlacedPeer] = {}
        # What became of those that lost something to later ones.
        self._lost: dict[str, Decision] = {}

    def decide_all(self, bindings: Sequence[Binding]) -> list[Decision]:
        """Decisions in the order of the bindings; a gang is decided where its last member stands.

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
                    joining = [each for each in members if gang_to_join(each)]
                    together = self.decide_together(binding.gang, joining)
                    decided |= {each.key: one for each, one in zip(joining, together, strict=True)}
        for members in gangs.values():
            for binding in members:
                if binding.gang is not None and binding.key not in decided:
                    gate = _gate(binding.gang, members)
                    decided[binding.key] = self._decide_gated(binding, gate)
        newest = decided | self._lost
        return [newest[binding.key] for binding in bindings]

    def decide_together(self, gang: Gang, joining: Sequence[Binding]) -> list[Decision]:
        """All of a gang that have no place yet get one, or none does. Raises as ``decide`` does."""
        before = self._as_it_is()
        decisions = self._with_room_made(joining)
        missed = [n for n, decision in enumerate(decisions) if not decision.is_placed]
        if not missed:
            return decisions
        self.__dict__.update(before)
        first = missed[0]
        lacking = short_of(decisions[first])
        why = unplaced_reason(gang, joining[first].name, lacking, len(missed) - 1)
        return [refused_by(each, why) if each.is_placed else each for each in decisions]

    def decide_moves(self, group: Sequence[Binding]) -> list[Decision]:
        """Decide bindings that go together, each without the clusters that it has to leave: all of
        them get a place, or none does. They preempt nobody. Raises as ``decide`` does.
        """
        staying = {each.key: each.clusters for each in group}
        first = self._decide_counting_at(group, staying)
        if all(decision.is_placed for decision in first):
            return first
        rooms = [self._room_by_name(each, staying) for each in group]
        for name in common_clusters(rooms, [Demand.of(each).units for each in group]):
            there = (TargetCluster(name=name, replicas=0),)
            decisions = self._decide_counting_at(group, dict.fromkeys(staying, there))
            if all(decision.is_placed for decision in decisions):
                return decisions
        lacking = next(n for n, decision in enumerate(first) if not decision.is_placed)
        why = stays_reason(group[lacking].name, short_of(first[lacking]))
        return [refused_by(each, why) if each.is_placed else each for each in first]

    def _decide_counting_at(self, group: Sequence[Binding], places: Places) -> list[Decision]:
        """Decide a group, whose members count at ``places`` until they are decided; nothing comes
        of it where one has no place.
        """
        before = self._as_it_is()
        self._placed |= counting_at(self._placed, places)
        decisions = list(map(self._decide, group))
        if not all(decision.is_placed for decision in decisions):
            self.__dict__.update(before)
        return decisions

    def _room_by_name(self, binding: Binding, places: Places) -> Mapping[str, int]:
        """How many of its units each cluster could take, wherever its group goes."""
        before = self._as_it_is()
        self._placed |= counting_at(self._placed, places)
        _, room_c = self._room_for(binding, self._capacity)
        self.__dict__.update(before)
        return {self.fleet.names[c]: int(room_c[c]) for c in room_c.nonzero()[0].tolist()}

    def hold(
        self,
        binding: Binding,
        clusters: Collection[TargetCluster],
        decision: Decision,
        ran: Collection[str],
    ) -> None:
        """Take the room of replicas that were decided before, where there is any; it ``ran`` in
        some clusters as it came.
        """
        if binding.clusters:
            newest = replace(decision, clusters=binding.clusters)
            self._placed[binding.key] = PlacedPeer(binding, newest, frozenset(ran))
        self._capacity.put(binding, clusters, self._certificate_of(binding))

    def losses(self) -> Mapping[str, Decision]:
        """What became of those that lost something since this was asked last, by key."""
        lost, self._lost = self._lost, {}
        return lost

    def _decide_gated(self, binding: Binding, gate: Reason) -> Decision:
        before = self._as_it_is()
        decision = refused_by(self._decide(binding), gate)
        self.__dict__.update(before)
        return decision

    def _as_it_is(self) -> Mapping[str, object]:
        """What decisions change, to be put back where nothing comes of them."""
        return {
            "_capacity": self._capacity.copy(),
            "_placed": dict(self._placed),
            "_lost": dict(self._lost),
        }

    def decide(self, binding: Binding) -> Decision:
        """The binding's decision, on what the earlier ones left; a suspended one gets nothing.

        Raises InvalidRequest for a scheduler name without a profile, and PluginFailed.
        """
        if binding.suspended:
            return self._decide_gated(binding, Reason(ReasonCode.SUSPENDED))
        return self._with_room_made([binding])[0]

    def _decide(self, binding: Binding) -> Decision:
        """The same, where nobody makes room."""
        draft = Draft(
            binding=binding,
            remaining=binding,
            profile=self._profiles.profile_of(binding),
            surroundings=surroundings_of(binding, self._placed.values()),
        )
        decision = decide(self.fleet, draft, self._capacity, self.now).decision
        if decision.clusters:
            before = self._placed.get(binding.key)
            ran = before.ran if before else frozenset(each.name for each in binding.clusters)
            self._placed[binding.key] = PlacedPeer(binding, decision, ran)
        return decision

    def _beside_kept(self, draft: Draft, available: Estimates) -> OfferedCapacity:
        """What of that is available which is kept for nobody that comes before it, and for whom the
        rest is kept.
        """
        binding = draft.binding
        kept = kept_before(self.kept, lambda each: each[0], binding)
        first = self.first(binding)
        if not (kept or first):
            return OfferedCapacity(available)
        shadow, names, closed = self._capacity.copy(), self.fleet.names, ClosedRooms()
        for waiting, lacking in kept:
            passes_c, room_c = self._room_for(waiting, shadow)
            room = {names[c]: int(room_c[c]) for c in room_c.nonzero()[0].tolist()}
            passing = passes_c.nonzero()[0].tolist()
            reach = [c for c in passing if could_hold(waiting, self._states[c])]
            earmark = earmark_in(room, [names[c] for c in reach], lacking)
            shares = [TargetCluster(name=n, replicas=count) for n, count in earmark.shares.items()]
            alone = replace(waiting, name=f"{waiting.name} waits", clusters=())
            shadow.put(alone, shares, self._certificate_of(waiting))
            places = [self.fleet.index[name] for name in earmark.closed]
            closed.close(waiting, [(c, shadow.room(c)) for c in places])
        left_c = shadow.estimates(binding, draft.certificate).replicas_c.copy()
        for c in closed.positions:
            closed.limit(left_c, binding, c, shadow.room(c))
        for waiting in first:
            passes_c, _ = self._room_for(waiting, self._capacity)
            left_c = left_c * ~passes_c
        if not (left_c < available.replicas_c).any():
            return OfferedCapacity(available)
        left = replace(available, replicas_c=np.minimum(available.replicas_c, left_c))
        others = (each.key for each in (*(one for one, _ in kept), *first))
        return OfferedCapacity(left, room_is_kept_for(others))

    def _room_for(
        self, waiting: Binding, capacity: SimulatedCapacity
    ) -> tuple[BoolArray, IntArray]:
        return room_for(
            waiting,
            self.fleet,
            capacity.estimates(waiting, self._certificate_of(waiting)),
            now=self.now,
            profile=self._profiles.profile_of(waiting),
            surroundings=surroundings_of(waiting, self._placed.values()),
        )

    def _certificate_of(self, binding: Binding) -> Certificate | None:
        return binding.certificate or self._profiles.profile_of(binding).certificate

    def _with_room_made(self, bindings: Sequence[Binding]) -> list[Decision]:
        """What is decided of those that are placed together, or of one; where they ask for it, and
        one finds no room, earlier ones make some for all of them.
        """
        if any(each.preemption_policy is PreemptionPolicy.NEVER for each in bindings):
            return list(map(self._decide, bindings))
        before = self._as_it_is()
        decisions = list(map(self._decide, bindings))
        fits = {Outcome.SCHEDULED, Outcome.PARTIAL, Outcome.UNSCHEDULABLE}
        is_short = any(each.outcome is Outcome.UNSCHEDULABLE for each in decisions)
        if not (is_short and all(each.outcome in fits for each in decisions)):
            return decisions
        after = self._as_it_is()
        self.__dict__.update(before)
        candidates = self._candidates(bindings, decisions)
        losses = least_loss(candidates, partial(self._makes_room, bindings, candidates))
        why = NO_REASON
        if losses is None or not self._lose(candidates, losses, bindings[0].key):
            why = NOTHING_HELPS
        elif not self._may_preempt(losses_by_namespace(candidates, losses)):
            why = SPENT
        if losses is None or why:
            self.__dict__.update(after)
            return [each if each.is_placed else each.explained(why) for each in decisions]
        told = loss_reasons(candidates, losses)
        return [
            replace(each, trace=replace(each.trace, preempted=told))
            for each in map(self._decide, bindings)
        ]

    def _makes_room(
        self, bindings: Sequence[Binding], candidates: Sequence[Candidate], losses: Losses
    ) -> bool:
        before = self._as_it_is()
        fits = self._lose(candidates, losses, "") and all(
            self._decide(each).is_placed for each in bindings
        )
        self.__dict__.update(before)
        return fits

    def _candidates(
        self, bindings: Sequence[Binding], decisions: Iterable[Decision]
    ) -> list[Candidate]:
        """Of what was promised to earlier ones: what runs, as it came, stays."""
        below = min(each.priority for each in bindings)
        open_c = set[int]().union(*map(open_clusters, decisions))
        is_open = {self.fleet.names[c] for c in open_c}
        found = [
            candidate_of(placed, target, waiting=target.replicas)
            for binding, decision, ran in self._placed.values()
            if binding.priority < below
            and binding.preemptible
            and self._capacity.takes_capacity(binding)
            for placed in (replace(binding, clusters=decision.clusters),)
            for target in decision.clusters
            if target.name in is_open and target.name not in ran
        ]
        return ordered_candidates(filter(None, found), bindings[0].resource.uid)

    def _lose(self, candidates: Sequence[Candidate], losses: Losses, by: str) -> bool:
        """Take so much from earlier ones; False where that cannot be."""
        lost = losses_by_binding(candidates, losses)
        kept: list[KeptShares] = []
        given_c = defaultdict[int, list[tuple[int, UnitRequest]]](list)
        for key, here in lost.items():
            binding, decision, ran = self._placed[key]
            placed = replace(binding, clusters=decision.clusters)
            if not may_lose(placed, sum(here.values())):
                return False
            left = loss_decision(placed, here, by, self.fleet.names, self.now)
            kept.append((placed, left.clusters, self._certificate_of(binding)))
            self._placed[key], self._lost[key] = PlacedPeer(binding, left, ran), left
            for name, replicas in here.items():
                position, units = self.fleet.index[name], 1 if binding.components else replicas
                given_c[position].append((units, unit_request(binding)))
        return self._capacity.give_back(kept, given_c)


def _gate(gang: Gang, members: Iterable[Binding]) -> Reason:
    return gate_of(gang, [GangMember.of(each, None) for each in members])
