"""A fleet in virtual time: who waits, who has to leave clusters that fall silent, and when.

Pure: the rules and the queue that control planes follow, on clusters and bindings that only exist
in memory. Replacements run at once, and nothing fails for a passing reason.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, NamedTuple

from federation.failover.breaker import Breaker, BreakerLimits, ClusterOrigin, judged
from federation.failover.moves import Move, moves_of
from federation.failover.rate import MoveAllowance, cost_of
from federation.failover.silence import Silence, Silences
from federation.model.cluster import UNREACHABLE_KEY, Cluster, ClusterState, Taint, TaintEffect
from federation.model.placement import Binding, BindingName, gang_to_join
from federation.model.workload import TargetCluster
from federation.scheduler.decision import Decision, Outcome
from federation.scheduler.demand import Demand
from federation.scheduler.plugins.profile import DEFAULT_PROFILES, Profiles
from federation.scheduler.scarcity import short_of
from federation.scheduler.simulation import Simulation, SimulationOptions
from federation.scheduler.triggers import evicting_taints, leaving
from federation.scheduler.waiting.gangs import GangMember, gate_of
from federation.scheduler.waiting.queue import NOTHING, Waiter, WaitingQueue

# Three heartbeats of five seconds.
SILENCE_SECONDS: Final = 15.0
# What the rate holds up is looked at again so soon.
LOOK_SECONDS: Final = 1.0


class FleetEvent(NamedTuple):
    """A cluster's agent falls silent, or is heard again, ``at`` seconds after the beginning."""

    at: float
    cluster: str
    is_silent: bool


class FailoverRules(NamedTuple):
    """As a control plane's settings of the same names."""

    lost_seconds: float = 300.0
    percent_a_minute: float = 10.0
    breaker: BreakerLimits = BreakerLimits()


class StepKind(StrEnum):
    """What a VirtualStep tells."""

    PLACED = "placed"
    WAITS = "waits"
    MOVED = "moved"
    STAYS = "stays"
    STALE = "stale"
    LOST = "lost"
    BACK = "back"
    FROZEN = "frozen"
    THAWED = "thawed"


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualStep:
    """What happened ``at`` seconds after the beginning, to a binding, a cluster, or the fleet."""

    at: float
    kind: StepKind
    subject: str
    clusters: tuple[TargetCluster, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingStep:
    """One that waits at the end; ``position`` 0: it is gated."""

    binding: Binding
    position: int
    since: float
    remainder: int
    short_of: str
    gate: str = ""


class VirtualFleet:
    """Clusters and bindings, and what becomes of them. ``began`` in Unix seconds."""

    def __init__(
        self,
        states: Iterable[ClusterState],
        options: SimulationOptions,
        rules: FailoverRules,
        *,
        began: float,
        profiles: Profiles = DEFAULT_PROFILES,
    ) -> None:
        self._states = {state.cluster.name: state for state in states}
        self._options = options
        self._rules = rules
        self._began = self._now = began
        self._profiles = profiles
        self._silent: dict[str, Silence] = {}
        self._breaker = Breaker()
        self._allowance = MoveAllowance(at=began)
        self._bindings: dict[BindingName, Binding] = {}
        self._ran: dict[BindingName, Mapping[str, int]] = {}
        self._queue = WaitingQueue()
        self._since: dict[BindingName, float] = {}
        self._decided: dict[BindingName, Decision] = {}
        self._stuck: set[BindingName] = set()
        self._simulation = self._rebuilt()
        self.steps: list[VirtualStep] = []

    def run(self, bindings: Sequence[Binding], events: Iterable[FleetEvent]) -> None:
        """All bindings come at the beginning, in order; until nothing happens any more.

        Raises PluginFailed.
        """
        self._arrive(bindings)
        waiting = sorted(events)
        while True:
            while waiting and self._began + waiting[0].at <= self._now:
                self._take_in(waiting.pop(0))
            self._look()
            is_held_up = self._move()
            self._try()
            next_at = self._next_at(is_held_up=is_held_up)
            if waiting:
                next_at = min(next_at, self._began + waiting[0].at)
            if next_at == math.inf:
                return
            self._now = self._simulation.now = next_at

    @property
    def bindings(self) -> Sequence[Binding]:
        """As they are now."""
        return [*self._bindings.values()]

    def decision_of(self, binding: Binding) -> Decision:
        """The newest about it."""
        return self._decided[binding.namespace, binding.name]

    def waiting(self) -> list[WaitingStep]:
        """Who waits, in order; those of one gang at one position."""
        places: dict[tuple[int, float, BindingName], list[BindingName]] = defaultdict(list)
        gated = []
        for key, since in self._since.items():
            together = self._together(key)
            if together:
                priority = max(self._bindings[each].priority for each in together)
                first = min(self._since[each] for each in together)
                places[-priority, first, min(together)].append(key)
            else:
                gated.append((since, key))
        found = [
            self._waiting_step(key, position)
            for position, order in enumerate(sorted(places), start=1)
            for key in sorted(places[order])
        ]
        return [*found, *(self._waiting_step(key, 0) for _, key in sorted(gated))]

    def _waiting_step(self, key: BindingName, position: int) -> WaitingStep:
        decision = self._decided[key]
        return WaitingStep(
            binding=self._bindings[key],
            position=position,
            since=self._since[key] - self._began,
            remainder=decision.remainder,
            short_of=short_of(decision),
            gate="" if position else self._gate(key),
        )

    def _arrive(self, bindings: Sequence[Binding]) -> None:
        decisions = self._simulation.decide_all(bindings)
        for binding, decision in zip(bindings, decisions, strict=True):
            key = binding.namespace, binding.name
            self._bindings[key] = binding
            self._ran[key] = {each.name: each.replicas for each in binding.clusters}
            self._settle(key, decision, StepKind.PLACED)
        for key in self._since:
            self._enqueue(key)

    def _settle(self, key: BindingName, decision: Decision, kind: StepKind) -> None:
        """What comes of a decision: it is placed, waits for the rest, or stays as it was."""
        binding = self._bindings[key]
        self._decided[key] = decision
        is_placed = decision.is_placed
        if is_placed:
            self._bindings[key] = replace(
                binding,
                clusters=decision.clusters,
                last_scheduled_time=self._now,
                eviction_tasks=(),
            )
        self._tell(
            kind if is_placed else StepKind.WAITS,
            binding.key,
            decision.clusters,
            decision.reason,
        )
        if decision.outcome is Outcome.SCHEDULED:
            self._since.pop(key, None)
        else:
            self._since.setdefault(key, self._now)

    def _enqueue(self, key: BindingName) -> None:
        """It is tried when there is more room; a gang by its first member, once complete."""
        together = self._together(key)
        if not together or key != min(together):
            return
        binding = self._bindings[key]
        self._queue.put(
            Waiter(
                key=key,
                priority=max(self._bindings[each].priority for each in together),
                since=min(self._since[each] for each in together),
                want=key,
                units=max(Demand.of(binding).units, 1),
            )
        )

    def _together(self, key: BindingName) -> list[BindingName]:
        """Those that are tried with it, itself too; none while its gang is not complete."""
        gang = gang_to_join(self._bindings[key])
        if gang is None:
            return [key]
        if self._gate(key):
            return []
        return [
            each
            for each in self._since
            if (other := gang_to_join(self._bindings[each])) is not None
            and (each[0], other.name) == (key[0], gang.name)
        ]

    def _gate(self, key: BindingName) -> str:
        gang = self._bindings[key].gang
        if gang is None:
            return ""
        members = [
            GangMember.of(each, None)
            for each in self._bindings.values()
            if each.gang and (each.namespace, each.gang.name) == (key[0], gang.name)
        ]
        return gate_of(gang, members)

    def _take_in(self, event: FleetEvent) -> None:
        name, now = event.cluster, self._now
        if event.is_silent:
            self._silent.setdefault(name, Silence(now, now + SILENCE_SECONDS))
            return
        if self._silent.pop(name, None) is None:
            return
        self._put_taints(name, [])
        self._tell(StepKind.BACK, name)
        self._changed()

    def _look(self) -> None:
        """Who is stale, who is lost, and whether anything may move."""
        now, stale = self._now, self._stale()
        newly = [name for name in stale if self._silent[name].stale_at == now]
        for name in newly:
            self._tell(StepKind.STALE, name)
        before, self._breaker = self._breaker, self._judged(stale)
        if self._breaker.freeze is not None and before.freeze is None:
            self._tell(StepKind.FROZEN, "failover", reason=self._breaker.freeze.reason)
        elif before.freeze is not None and self._breaker.freeze is None:
            self._tell(StepKind.THAWED, "failover")
        lost = [] if self._breaker.freeze else self._newly_lost()
        for name in lost:
            taint = Taint(key=UNREACHABLE_KEY, effect=TaintEffect.NO_EXECUTE, time_added=now)
            self._put_taints(name, [taint])
            self._tell(StepKind.LOST, name)
        if newly or lost:
            self._changed()

    def _stale(self) -> list[str]:
        return [name for name, each in self._silent.items() if each.stale_at <= self._now]

    def _newly_lost(self) -> list[str]:
        lost = self._silences(self._stale()).lost(self._rules.lost_seconds)
        return [name for name in lost if self._states[name].cluster.lost_since is None]

    def _silences(self, stale: Iterable[str]) -> Silences:
        silent = {name: self._silent[name] for name in sorted(stale)}
        return Silences(looked_at=self._now, listening_since=self._began, silent=silent)

    def _judged(self, stale: Collection[str]) -> Breaker:
        clusters = [state.cluster for state in self._states.values()]
        return judged(
            self._breaker,
            self._silences(stale),
            {each.name: ClusterOrigin(each.region, each.provider) for each in clusters},
            heard=[each.name for each in clusters if each.name not in self._silent],
            lost=[each.name for each in clusters if each.lost_since is not None],
            limits=self._rules.breaker,
        )

    def _put_taints(self, name: str, ours: Sequence[Taint]) -> None:
        state = self._states[name]
        others = (each for each in state.cluster.taints if each.key != UNREACHABLE_KEY)
        cluster = replace(state.cluster, taints=(*others, *ours))
        self._states[name] = replace(state, cluster=cluster)

    def _changed(self) -> None:
        """Clusters are otherwise than before: whoever found no room may find some."""
        self._simulation = self._rebuilt()
        self._stuck.clear()
        self._queue.wake(self._queue.wants)

    def _rebuilt(self) -> Simulation:
        """The fleet as it is, with what was placed beside what ran before."""
        stale = set(self._stale())
        states = [
            replace(state, cluster=replace(state.cluster, ready=False)) if name in stale else state
            for name, state in self._states.items()
        ]
        made = Simulation(states, self._options, now=self._now, profiles=self._profiles)
        for key, binding in self._bindings.items():
            ran = self._ran[key]
            made.hold(
                binding,
                [
                    TargetCluster(name=each.name, replicas=each.replicas - ran.get(each.name, 0))
                    for each in binding.clusters
                ],
            )
        return made

    def _moves(self) -> list[Move]:
        evacuated = self._evacuated()
        moves = moves_of(self._bindings.values(), evacuated) if evacuated else []
        return [
            each for each in moves if (each.binding.namespace, each.binding.name) not in self._stuck
        ]

    def _evacuated(self) -> dict[str, Cluster]:
        return {
            name: state.cluster
            for name, state in self._states.items()
            if any(each.effect is TaintEffect.NO_EXECUTE for each in state.cluster.taints)
        }

    def _move(self) -> bool:
        """Move what may be moved now; whether the rate holds up more."""
        self._allowance = self._allowance.later(self._now)
        due = [each for each in self._moves() if each.due_at <= self._now]
        if not due or self._breaker.freeze is not None:
            return False
        held = [each.replicas for every in self._bindings.values() for each in every.clusters]
        a_minute = sum(held) * self._rules.percent_a_minute / 100
        evacuated = self._evacuated()
        for move in due:
            cost = cost_of(move.replicas(evacuated, self._now), a_minute)
            left = self._allowance.taken(cost)
            if left is None:
                return True
            if self._has_moved(move.binding):
                self._allowance = left
        return False

    def _has_moved(self, binding: Binding) -> bool:
        key = binding.namespace, binding.name
        taints = evicting_taints(binding, self._simulation.fleet, self._now)
        decision = self._simulation.decide(leaving(binding, taints))
        if not decision.is_placed:
            self._stuck.add(key)
            self._decided[key] = decision
            self._tell(StepKind.STAYS, binding.key, binding.clusters, decision.reason)
            return False
        self._settle(key, decision, StepKind.MOVED)
        if key in self._since:
            self._enqueue(key)
        return True

    def _try(self) -> None:
        """Try who waits, in order, as long as somebody is to be tried."""
        while taken := self._queue.take(self._now):
            for waiter in taken:
                self._try_one(waiter.key)

    def _try_one(self, key: BindingName) -> None:
        together = sorted(self._together(key), key=lambda each: each != key)
        bindings = [self._bindings[each] for each in together]
        gang = gang_to_join(bindings[0])
        if gang is not None:
            decisions = self._simulation.decide_together(gang, bindings)
        else:
            decisions = [self._simulation.decide(bindings[0])]
        before = [self._bindings[each].clusters for each in together]
        has_progressed = any(
            decision.is_placed and decision.clusters != ran
            for decision, ran in zip(decisions, before, strict=True)
        )
        if not has_progressed:
            self._decided |= dict(zip(together, decisions, strict=True))
            # Only what changes the fleet makes room, and wakes everybody.
            self._queue.refused(key, NOTHING)
            return
        for each, decision in zip(together, decisions, strict=True):
            self._settle(each, decision, StepKind.PLACED)
        self._queue.placed(key)
        for each in together:
            if each in self._since:
                self._enqueue(each)

    def _next_at(self, *, is_held_up: bool) -> float:
        """When something happens by itself."""
        times = [math.inf]
        for name, silence in self._silent.items():
            lost_at = silence.since + max(self._rules.lost_seconds, SILENCE_SECONDS)
            is_lost = self._states[name].cluster.lost_since is not None
            times += [silence.stale_at] + ([] if is_lost else [lost_at])
        if is_held_up:
            times.append(self._now + LOOK_SECONDS)
        else:
            times += [each.due_at for each in self._moves()]
        return min(each for each in times if each > self._now)

    def _tell(
        self,
        kind: StepKind,
        subject: str,
        clusters: tuple[TargetCluster, ...] = (),
        reason: str = "",
    ) -> None:
        self.steps.append(
            VirtualStep(
                at=self._now - self._began,
                kind=kind,
                subject=subject,
                clusters=clusters,
                reason=reason,
            )
        )
