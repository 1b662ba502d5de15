"""A fleet in virtual time: bindings that come, wait, and leave clusters that fall silent.

Pure: the rules and the queue of control planes, on clusters and bindings in memory. Replacements
run at once, and nothing fails for a passing reason. Must not read a clock.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from federation.failover.breaker import Breaker
from federation.failover.evictions import Ending, Progress, ending_of, taken_back
from federation.failover.moves import Move, eviction_tasks, leaves_at, moved_together, moves_of
from federation.failover.rate import MoveAllowance, cost_of
from federation.model.cluster import Cluster, ClusterState
from federation.model.placement import (
    Binding,
    BindingName,
    EvictionTask,
    PreemptionPolicy,
    binding_key,
    gang_to_join,
)
from federation.model.workload import TargetCluster
from federation.scheduler.decision import Decision, Outcome
from federation.scheduler.plugins.profile import DEFAULT_PROFILES, Profiles
from federation.scheduler.preemption import open_clusters
from federation.scheduler.triggers import evicting_taints, leaving
from federation.simulation.bindings import LocatedBindings
from federation.simulation.capacity import SimulationOptions
from federation.simulation.clusters import VirtualClusters
from federation.simulation.decisions import Simulation
from federation.simulation.steps import (
    EventKind,
    FailoverRules,
    FleetEvent,
    StepKind,
    VirtualStep,
    WaitingStep,
)
from federation.simulation.waiting import PreemptionBudget, VirtualQueue

# How soon moves that the rate holds up are looked at again.
LOOK_SECONDS: Final = 1.0
# Replacements run at once.
RUNS: Final = Progress(outstanding=0, started=0)


class VirtualFleet:
    """Clusters and bindings, and the steps that they go through; ``began`` in Unix seconds."""

    def __init__(
        self,
        states: Iterable[ClusterState],
        options: SimulationOptions,
        rules: FailoverRules,
        *,
        began: float,
        profiles: Profiles = DEFAULT_PROFILES,
    ) -> None:
        states = list(states)
        self._rules = rules
        self._began = self._now = began
        self._profiles = profiles
        self._clusters = VirtualClusters((state.cluster for state in states), began)
        self._breaker = Breaker()
        self._allowance = MoveAllowance(at=began)
        self._bindings = LocatedBindings()
        self._queue = VirtualQueue(self._bindings, profiles)
        self._budget = PreemptionBudget(
            rules.preempted_replicas, rules.preempted_replicas_of_namespace, began
        )
        self._events: list[FleetEvent] = []
        self._stuck: set[BindingName] = set()
        # Bindings that come later, and bindings that just came.
        self._absent: dict[str, Binding] = {}
        self._new: set[BindingName] = set()
        # Whether something was preempted since all waiting bindings were tried.
        self._has_preempted = False
        self._simulation = Simulation(
            states,
            options,
            now=began,
            profiles=profiles,
            may_preempt=self._budget.may_preempt,
        )
        self._simulation.first = self._queue.first_before
        self.steps: list[VirtualStep] = []

    def run(self, bindings: Sequence[Binding], events: Iterable[FleetEvent]) -> None:
        """Run until nothing happens any more; the events have no ``event_violations``.

        Bindings without an event of their arrival come at the beginning, in order. Raises
        PluginFailed.
        """
        self._events = list(events)
        heapq.heapify(self._events)
        later = {event.subject for event in self._events if event.kind is EventKind.ARRIVE}
        self._absent = {binding.key: binding for binding in bindings if binding.key in later}
        self._arrive([binding for binding in bindings if binding.key not in later])
        while True:
            while self._events and self._began + self._events[0].at <= self._now:
                self._take_in(heapq.heappop(self._events))
            if self._budget.renews(self._now):
                self._queue.wake()
            self._admit()
            self._look()
            is_held_up = self._take_back()
            is_held_up = self._move() or is_held_up
            self._try()
            for gang, why in self._queue.time_out(self._now):
                self._tell(StepKind.TIMED_OUT, gang, reason=why)
            next_at = self._next_at(is_held_up=is_held_up)
            if next_at == math.inf:
                return
            self._now = self._simulation.now = next_at

    @property
    def bindings(self) -> Sequence[Binding]:
        """The bindings as they are now."""
        return [*self._bindings.values()]

    def decision_of(self, binding: Binding) -> Decision:
        """Return the newest decision about the binding."""
        return self._queue.decided[binding.namespace, binding.name]

    def waiting(self) -> list[WaitingStep]:
        """Return the waiting bindings in order; members of one gang have one position."""
        return self._queue.waiting(self._began)

    def _arrive(self, bindings: Sequence[Binding]) -> None:
        if self._profiles.strict_names:
            # They are tried one by one, so that the first of a strict profile is not overtaken.
            for new in (binding for binding in bindings if not binding.clusters):
                self._come(new)
            bindings = [binding for binding in bindings if binding.clusters]
        decisions = self._simulation.decide_all(bindings)
        lost = self._simulation.losses()
        for binding, decision in zip(bindings, decisions, strict=True):
            key = self._add(binding)
            if binding.key in lost:
                self._take_from(key, decision)
            else:
                self._settle(key, decision, StepKind.PLACED)
        for key in self._queue.since:
            if key not in self._new:
                self._queue.put(key)
        # They came at once: none has overtaken another.
        self._queue.forget_overtaken()

    def _come(self, binding: Binding) -> None:
        key = self._add(binding)
        self._queue.since[key] = self._now
        self._new.add(key)

    def _add(self, binding: Binding) -> BindingName:
        key = self._bindings.add(binding)
        self._queue.join(key)
        return key

    def _admit(self) -> None:
        """Try bindings that just came, in order; members of incomplete gangs wait."""
        for key in sorted(self._new):
            if self._queue.gate(key):
                (decision,) = self._simulation.decide_all([self._bindings[key]])
                self._new.remove(key)
                self._settle(key, decision, StepKind.WAITS)
            else:
                self._queue.put(min(self._queue.together(key)))

    def _delete(self, key: BindingName) -> None:
        """Delete a binding; others may use its capacity, and its gang is not tried any more."""
        self._queue.remove(key)
        binding = self._bindings[key]
        self._simulation.remove(binding, self._bindings.held(binding))
        self._bindings.remove(key)
        self._new.discard(key)
        self._tell(StepKind.DELETED, binding_key(*key))
        self._changed()

    def _settle(
        self,
        key: BindingName,
        decision: Decision,
        kind: StepKind,
        tasks: tuple[EvictionTask, ...] | None = None,
    ) -> None:
        """Apply a decision: the binding is placed, waits for the rest, or stays as it was.

        ``tasks`` are its evictions from now on; None: they stay the same.
        """
        binding = self._bindings[key]
        self._queue.decided[key] = decision
        is_placed = decision.is_placed
        if is_placed:
            self._queue.note_placed(binding, decision)
            self._bindings.put(
                replace(
                    binding,
                    clusters=decision.clusters,
                    last_scheduled_time=self._now,
                    eviction_tasks=binding.eviction_tasks if tasks is None else tasks,
                )
            )
        self._tell(
            kind if is_placed else StepKind.WAITS,
            binding.key,
            decision.clusters,
            str(decision.reason),
        )
        if decision.outcome is Outcome.SCHEDULED:
            self._queue.since.pop(key, None)
        else:
            self._queue.since.setdefault(key, self._now)

    def _settle_losses(self) -> None:
        """Take replicas from preempted bindings, which wait then."""
        lost = self._simulation.losses()
        for name, decision in lost.items():
            key = _name_of(name)
            self._take_from(key, decision)
            self._queue.put(key)
        self._has_preempted |= bool(lost)

    def _take_from(self, key: BindingName, decision: Decision) -> None:
        binding = replace(self._bindings[key], clusters=decision.clusters)
        self._bindings.put(binding)
        self._queue.decided[key] = decision
        self._queue.since.setdefault(key, self._now)
        self._tell(StepKind.PREEMPTED, binding.key, decision.clusters, str(decision.reason))

    def _take_in(self, event: FleetEvent) -> None:
        name = event.subject
        match event.kind:
            case EventKind.LOSE:
                self._clusters.fall_silent(name, self._now)
            case EventKind.BACK:
                if self._clusters.speak(name):
                    self._tell(StepKind.BACK, name)
                    self._changed()
            case EventKind.ARRIVE:
                self._come(self._absent.pop(name))
            case EventKind.DELETE:
                self._delete(_name_of(name))

    def _look(self) -> None:
        """Note stale and lost clusters, and whether anything may move."""
        now, rules = self._now, self._rules
        stale = self._clusters.newly_stale(now)
        for name in stale:
            self._tell(StepKind.STALE, name)
        last = self._breaker
        self._breaker = self._clusters.judged(last, now, rules.breaker)
        if self._breaker.freeze is not None and last.freeze is None:
            self._tell(StepKind.FROZEN, "failover", reason=self._breaker.freeze.reason)
        elif last.freeze is not None and self._breaker.freeze is None:
            self._tell(StepKind.THAWED, "failover")
        lost: list[str] = []
        if self._breaker.freeze is None:
            lost = self._clusters.lose(now, rules.lost_seconds)
        for name in lost:
            self._tell(StepKind.LOST, name)
        if stale or lost:
            self._changed()

    def _changed(self) -> None:
        """Take over changed clusters: bindings without room may find some."""
        self._simulation.change_clusters(self._clusters.changes(self._now))
        self._stuck.clear()
        self._queue.wake()

    def _release(self, former: Binding, binding: Binding) -> None:
        """Give back the capacity of replicas that a binding had and has no longer."""
        held = self._bindings.held
        self._simulation.release(binding, held(former), held(binding))

    def _moves(self, evacuated: Mapping[str, Cluster]) -> list[Move]:
        bindings = self._bindings.located_in(evacuated)
        return [
            move
            for move in moves_of(bindings, evacuated)
            if (move.binding.namespace, move.binding.name) not in self._stuck
        ]

    def _move(self) -> bool:
        """Move what may move now; return whether the rate holds up others."""
        self._allowance = self._allowance.later(self._now)
        evacuated = self._simulation.fleet.evacuated()
        due = [move for move in self._moves(evacuated) if move.due_at <= self._now]
        if not due or self._breaker.freeze is not None:
            return False
        a_minute = self._a_minute
        for group in moved_together(due):
            bindings = [move.binding for move in group]
            if any(
                self._bindings[binding.namespace, binding.name] is not binding
                for binding in bindings
            ):
                # Another one has preempted it just now.
                return True
            costs = (cost_of(move.replicas(evacuated, self._now), a_minute) for move in group)
            allowance = self._allowance.taken(sum(costs))
            if allowance is None:
                return True
            if self._have_moved(bindings):
                self._allowance = allowance
        return False

    def _take_back(self) -> bool:
        """Take evictions back in returned clusters; return whether the rate holds up others."""
        self._allowance = self._allowance.later(self._now)
        back = [
            (key, binding, task)
            for key, binding in self._bindings.evicted()
            for task in binding.eviction_tasks[-1:]
            if self._ending(binding, task) is Ending.TAKEN_BACK
        ]
        if not back or self._breaker.freeze is not None:
            return False
        for key, binding, task in back:
            allowance = self._allowance.taken(cost_of(task.replicas, self._a_minute))
            if allowance is None:
                return True
            restored = taken_back(binding, task)
            calm = replace(restored, preemption_policy=PreemptionPolicy.NEVER)
            with self._simulation.savepoint() as undo:
                decision = self._simulation.decide(calm)
                if task.from_cluster not in {target.name for target in decision.clusters}:
                    undo()
                    continue
            self._allowance = allowance
            self._settle(key, decision, StepKind.RETURNED, restored.eviction_tasks)
        return False

    def _ending(self, binding: Binding, task: EvictionTask) -> Ending | None:
        name = task.from_cluster
        is_silent = self._clusters.is_silent(name)
        may_stay = leaves_at(binding, self._clusters.cluster(name)) > self._now
        return ending_of(
            task,
            binding,
            RUNS,
            self._now,
            is_known=True,
            is_silent=is_silent,
            is_back=may_stay and not is_silent,
            max_seconds=math.inf,
        )

    @property
    def _a_minute(self) -> float:
        """How many replicas may move in a minute."""
        return self._bindings.replicas * self._rules.percent_a_minute / 100

    def _have_moved(self, group: Sequence[Binding]) -> bool:
        """Move bindings that move together; return whether they left."""
        taints = [evicting_taints(binding, self._simulation.fleet, self._now) for binding in group]
        leaves = [leaving(binding, why) for binding, why in zip(group, taints, strict=True)]
        if len(group) == 1:
            decisions = [self._simulation.decide(leaves[0])]
        else:
            decisions = self._simulation.decide_moves(leaves)
        self._settle_losses()
        for binding, why, decision in zip(group, taints, decisions, strict=True):
            self._settle_move(binding, why, decision)
        return decisions[0].is_placed

    def _settle_move(self, binding: Binding, why: Mapping[str, str], decision: Decision) -> None:
        key = binding.namespace, binding.name
        if not decision.is_placed:
            self._stuck.add(key)
            self._queue.decided[key] = decision
            self._tell(StepKind.STAYS, binding.key, binding.clusters, str(decision.reason))
            return
        tasks = eviction_tasks(binding, why, decision.clusters, self._now)
        after = replace(binding, clusters=decision.clusters)
        open_tasks = tuple(task for task in tasks if self._ending(after, task) is None)
        self._settle(key, decision, StepKind.MOVED, open_tasks)
        self._release(binding, self._bindings[key])
        if key in self._queue.since:
            self._queue.put(key)

    def _try(self) -> None:
        """Try waiting bindings in order, until none is to be tried."""
        while True:
            self._keep_room()
            taken = self._queue.take(self._now)
            if not taken:
                return
            for key in taken:
                self._try_one(key)
            if self._has_preempted:
                self._has_preempted = False
                self._queue.wake()

    def _keep_room(self) -> None:
        """Keep room for bindings that were overtaken for too long, until they wait no more."""
        for key in self._queue.keep_room(self._now):
            self._tell(StepKind.EARMARKED, binding_key(*key))
        self._simulation.kept = self._queue.lacking()

    def _try_one(self, key: BindingName) -> None:
        together = sorted(self._queue.together(key), key=lambda other: other != key)
        bindings = [self._bindings[member] for member in together]
        gang = gang_to_join(bindings[0])
        if gang is not None:
            decisions = self._simulation.decide_together(gang, bindings)
        else:
            decisions = [self._simulation.decide(bindings[0])]
        self._settle_losses()
        shares = [self._bindings[member].clusters for member in together]
        # A workload without replicas is in no cluster once it is placed.
        has_progressed = any(
            decision.outcome is Outcome.SCHEDULED
            or (decision.is_placed and decision.clusters != ran)
            for decision, ran in zip(decisions, shares, strict=True)
        )
        if not has_progressed:
            fleet = self._simulation.fleet
            reach = frozenset(
                fleet.names[c] for decision in decisions for c in open_clusters(decision)
            )
            self._queue.decided |= zip(together, decisions, strict=True)
            self._queue.refused(key, reach)
            for member in together:
                if member in self._new:
                    self._settle(member, self._queue.decided[member], StepKind.WAITS)
            self._new.difference_update(together)
            return
        self._new.difference_update(together)
        for member, decision in zip(together, decisions, strict=True):
            self._settle(member, decision, StepKind.PLACED)
        self._queue.placed(key)
        for member in together:
            if member in self._queue.since:
                self._queue.put(member)

    def _next_at(self, *, is_held_up: bool) -> float:
        """Return when something happens next without an event."""
        times = [math.inf, self._queue.next_timeout]
        times += [self._budget.again_at, self._queue.earmarks.next_at]
        times += [self._began + event.at for event in self._events[:1]]
        times += self._clusters.times(self._rules.lost_seconds)
        if is_held_up:
            times.append(self._now + LOOK_SECONDS)
        else:
            times += [move.due_at for move in self._moves(self._simulation.fleet.evacuated())]
        return min(time for time in times if time > self._now)

    def _tell(
        self,
        kind: StepKind,
        subject: str,
        clusters: tuple[TargetCluster, ...] = (),
        reason: str = "",
    ) -> None:
        at = self._now - self._began
        step = VirtualStep(at=at, kind=kind, subject=subject, clusters=clusters, reason=reason)
        self.steps.append(step)


def _name_of(key: str) -> BindingName:
    namespace, _, name = key.rpartition("/")
    return namespace, name
