"""Decisions in sequence on a fleet that only exists in memory.

Must not read files or messages: it is the live cycle without a control plane.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from federation.capacity.deductions import UnitRequest
from federation.model.cluster import ClusterState
from federation.model.errors import InvalidRequest
from federation.model.placement import Binding, Gang, PreemptionPolicy, gang_to_join
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import NO_REASON, Reason
from federation.model.workload import TargetCluster
from federation.scheduler.batch import decide_moves, settle_gang
from federation.scheduler.decision import Decision, Outcome
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
from federation.scheduler.validation import violations_of
from federation.scheduler.waiting.gangs import GangMember, Roster, gate_of
from federation.simulation.capacity import (
    SimulationOptions,
    unit_request,
)
from federation.simulation.fleet import SimulatedBatch, SimulatedFleet
from federation.simulation.peers import PlacedPeer
from federation.simulation.rooms import KeptShares


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


class Simulation(SimulatedFleet):
    """A fleet, and what the bindings decided so far have left of it. ``now`` in Unix seconds.

    ``may_preempt`` takes preempted replicas by namespace; it counts them and returns True, unless
    they are too many.
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
        super().__init__(states, options, now=now, profiles=profiles)
        self._may_preempt = may_preempt

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
        newest = decided | self.lost
        return [newest[binding.key] for binding in bindings]

    def decide_together(self, gang: Gang, joining: Sequence[Binding]) -> list[Decision]:
        """Place all members of a gang that have no place yet, or none of them.

        Raises as ``decide`` does.
        """
        batch = SimulatedBatch(self, joining)
        decisions = self._with_room_made(joining)
        batch.decisions |= enumerate(decisions)
        missed = [n for n, decision in enumerate(decisions) if not decision.is_placed]
        settle_gang(batch, gang, missed)
        return [batch.decisions[position] for position in range(len(joining))]

    def decide_moves(self, group: Sequence[Binding]) -> list[Decision]:
        """Decide bindings that move together, each without the clusters that it has to leave.

        All of them get a place, or none does. They preempt nothing. Raises as ``decide`` does.
        """
        batch = SimulatedBatch(self, group)
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
        self.placed.pop(binding.key, None)

    def losses(self) -> Mapping[str, Decision]:
        """Return the decisions of bindings that lost replicas since the last call, by key."""
        lost, self.lost = self.lost, {}
        return lost

    def _decide_gated(self, binding: Binding, gate: Reason) -> Decision:
        mark = self.savepoint()
        decision = refused_by(self.decide_one(binding), gate)
        self.rollback(mark)
        return decision

    def decide(self, binding: Binding) -> Decision:
        """Decide a binding on what earlier ones left; a suspended one gets nothing.

        Raises InvalidRequest for a scheduler name without a profile, and PluginFailed.
        """
        if binding.suspended:
            return self._decide_gated(binding, Reason(ReasonCode.SUSPENDED))
        return self._with_room_made([binding])[0]

    def _with_room_made(self, bindings: Sequence[Binding]) -> list[Decision]:
        """Return the decisions of bindings that are placed together, or of one.

        If they preempt and one finds no capacity, earlier bindings make room for all of them.
        """
        if any(binding.preemption_policy is PreemptionPolicy.NEVER for binding in bindings):
            return list(map(self.decide_one, bindings))
        undecided = self.savepoint()
        decisions = list(map(self.decide_one, bindings))
        fits = {Outcome.SCHEDULED, Outcome.PARTIAL, Outcome.UNSCHEDULABLE}
        outcomes = [decision.outcome for decision in decisions]
        is_short = Outcome.UNSCHEDULABLE in outcomes
        if not (is_short and fits.issuperset(outcomes)):
            return decisions
        without_victims = self.savepoint()
        self.rollback(undecided)
        candidates = self._candidates(bindings, decisions)
        losses = least_loss(candidates, partial(self._makes_room, bindings, candidates))
        why = NO_REASON
        if losses is None or not self._lose(candidates, losses, bindings[0].key):
            why = NOTHING_HELPS
        elif not self._may_preempt(losses_by_namespace(candidates, losses)):
            why = SPENT
        if losses is None or why:
            self.rollback(without_victims)
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
        mark = self.savepoint()
        fits = self._lose(candidates, losses, "") and all(
            self.decide_one(binding).is_placed for binding in bindings
        )
        self.rollback(mark)
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
            for binding, decision, ran in self.placed.values()
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
            binding, decision, ran = self.placed[key]
            placed = replace(binding, clusters=decision.clusters)
            if not may_lose(placed, sum(lost_in.values())):
                return False
            reduced = loss_decision(placed, lost_in, by, self.fleet.names, self.now)
            shares_kept.append((placed, reduced.clusters, self.certificate_of(binding)))
            self.placed[key], self.lost[key] = PlacedPeer(binding, reduced, ran), reduced
            for name, replicas in lost_in.items():
                position, units = self.fleet.index[name], 1 if binding.components else replicas
                freed_c[position].append((units, unit_request(binding)))
        return self.capacity.give_back(shares_kept, freed_c)


def _gate(gang: Gang, members: Iterable[Binding]) -> Reason:
    return gate_of(gang, [GangMember.of(member, None) for member in members])
