"""A fleet in virtual time: who waits, who has to leave clusters that fall silent, and when.

Pure: the rules and the queue that control planes follow, on clusters and bindings that only exist
in memory. Replacements run at once, and nothing fails for a passing reason.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from federation.failover.breaker import Breaker
from federation.failover.evictions import Ending, Progress, ending_of, taken_back
from federation.failover.moves import Move, eviction_tasks, leaves_at, moved_together, moves_of
from federation.failover.rate import MoveAllowance, cost_of
from federation.failover.virtual_claims import Earmarks, FirstInLine, PreemptionBudget
from federation.failover.virtual_silence import SilentClusters
from federation.failover.virtual_steps import (
    EventKind,
    FailoverRules,
    FleetEvent,
    StepKind,
    VirtualStep,
    WaitingStep,
)
from federation.failover.virtual_waiting import VirtualQueue
from federation.model.cluster import UNREACHABLE_KEY, Cluster, ClusterState, Taint, TaintEffect
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
from federation.scheduler.simulated_capacity import SimulationOptions
from federation.scheduler.simulation import Simulation
from federation.scheduler.triggers import evicting_taints, leaving

# What the rate holds up is looked at again so soon.
LOOK_SECONDS: Final = 1.0
# Replacements run at once.
RUNS: Final = Progress(outstanding=0, started=0)


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
        self._silent = SilentClusters(began)
        self._breaker = Breaker()
        self._allowance = MoveAllowance(at=began)
        self._bindings: dict[BindingName, Binding] = {}
        self._ran: dict[BindingName, Mapping[str, int]] = {}
        self._queue = VirtualQueue(self._bindings)
        self._earmarks = Earmarks()
        self._first = FirstInLine(self._queue, self._bindings, profiles)
        self._budget = PreemptionBudget(
            rules.preempted_replicas, rules.preempted_replicas_of_namespace, began
        )
        self._stuck: set[BindingName] = set()
        # Those that come later, and those that just came.
        self._absent: dict[str, Binding] = {}
        self._new: set[BindingName] = set()
        # Since all that wait were tried.
        self._has_preempted = False
        self._simulation = self._rebuilt()
        self.steps: list[VirtualStep] = []

    def run(self, bindings: Sequence[Binding], events: Iterable[FleetEvent]) -> None:
        """Bindings for which no event says when they arrive come at the beginning, in order; until
        nothing happens any more. The events are as ``event_violations`` wants them.

        Raises PluginFailed.
        """
        coming = sorted(events)
        later = {each.subject for each in coming if each.kind is EventKind.ARRIVE}
        self._absent = {each.key: each for each in bindings if each.key in later}
        self._arrive([each for each in bindings if each.key not in later])
        while True:
            while coming and self._began + coming[0].at <= self._now:
                self._take_in(coming.pop(0))
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
            if coming:
                next_at = min(next_at, self._began + coming[0].at)
            if next_at == math.inf:
                return
            self._now = self._simulation.now = next_at

    @property
    def bindings(self) -> Sequence[Binding]:
        """As they are now."""
        return [*self._bindings.values()]

    def decision_of(self, binding: Binding) -> Decision:
        """The newest about it."""
        return self._queue.decided[binding.namespace, binding.name]

    def waiting(self) -> list[WaitingStep]:
        """Who waits, in order; those of one gang at one position."""
        return self._queue.waiting(self._began)

    def _arrive(self, bindings: Sequence[Binding]) -> None:
        if self._profiles.strict_names:
            # Who is not the first is told so: these are tried as those are that come later.
            for new in (each for each in bindings if not each.clusters):
                self._come(new)
            bindings = [each for each in bindings if each.clusters]
        decisions = self._simulation.decide_all(bindings)
        lost = self._simulation.losses()
        for binding, decision in zip(bindings, decisions, strict=True):
            key = self._add(binding)
            if binding.key in lost:
                self._take_from(key, decision)
            else:
                self._settle(key, decision, StepKind.PLACED)
        for key in self._queue.since.keys() - self._new:
            self._queue.put(key)
        # They came at once: none has overtaken another.
        self._queue.overtaken()

    def _come(self, binding: Binding) -> None:
        key = self._add(binding)
        self._queue.since[key] = self._now
        self._new.add(key)

    def _add(self, binding: Binding) -> BindingName:
        key = binding.namespace, binding.name
        self._bindings[key] = binding
        self._ran[key] = {each.name: each.replicas for each in binding.clusters}
        return key

    def _admit(self) -> None:
        """Those that just came are tried, in order; who lacks others of its gang waits."""
        for key in sorted(self._new):
            if self._queue.gate(key):
                (decision,) = self._simulation.decide_all([self._bindings[key]])
                self._new.remove(key)
                self._settle(key, decision, StepKind.WAITS)
            else:
                self._queue.put(min(self._queue.together(key)))

    def _delete(self, key: BindingName) -> None:
        """What it had others may have; a gang that lacks it is not tried any more."""
        self._queue.remove(key)
        del self._bindings[key], self._ran[key]
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
        """What comes of a decision: it is placed, waits for the rest, or stays as it was.

        ``tasks`` are the evictions that it leaves; None: those that there were.
        """
        binding = self._bindings[key]
        self._queue.decided[key] = decision
        is_placed = decision.is_placed
        if is_placed:
            self._queue.note_placed(binding, decision)
            self._bindings[key] = replace(
                binding,
                clusters=decision.clusters,
                last_scheduled_time=self._now,
                eviction_tasks=binding.eviction_tasks if tasks is None else tasks,
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
        """Others made room: they have less, and wait. What nobody needs of it is for all."""
        lost = self._simulation.losses()
        for name, decision in lost.items():
            namespace, _, binding = name.rpartition("/")
            self._take_from((namespace, binding), decision)
            self._queue.put((namespace, binding))
        self._has_preempted |= bool(lost)

    def _take_from(self, key: BindingName, decision: Decision) -> None:
        binding = self._bindings[key] = replace(self._bindings[key], clusters=decision.clusters)
        self._queue.decided[key] = decision
        self._queue.since.setdefault(key, self._now)
        self._tell(StepKind.PREEMPTED, binding.key, decision.clusters, str(decision.reason))

    def _take_in(self, event: FleetEvent) -> None:
        name, now = event.subject, self._now
        match event.kind:
            case EventKind.LOSE:
                self._silent.add(name, now)
            case EventKind.BACK:
                if self._silent.remove(name):
                    self._put_taints(name, [])
                    self._tell(StepKind.BACK, name)
                    self._changed()
            case EventKind.ARRIVE:
                self._come(self._absent.pop(name))
            case EventKind.DELETE:
                self._delete(next(key for key in self._bindings if binding_key(*key) == name))

    def _look(self) -> None:
        """Who is stale, who is lost, and whether anything may move."""
        now, rules = self._now, self._rules
        stale = self._silent.stale(now)
        for name in (newly := [each for each in stale if self._silent.stale_at(each) == now]):
            self._tell(StepKind.STALE, name)
        before = self._breaker
        self._breaker = self._silent.judged(before, self._clusters, now, rules.breaker)
        if self._breaker.freeze is not None and before.freeze is None:
            self._tell(StepKind.FROZEN, "failover", reason=self._breaker.freeze.reason)
        elif before.freeze is not None and self._breaker.freeze is None:
            self._tell(StepKind.THAWED, "failover")
        lost: list[str] = []
        if self._breaker.freeze is None:
            lost = self._silent.newly_lost(now, rules.lost_seconds, self._lost)
        for name in lost:
            taint = Taint(key=UNREACHABLE_KEY, effect=TaintEffect.NO_EXECUTE, time_added=now)
            self._put_taints(name, [taint])
            self._tell(StepKind.LOST, name)
        if newly or lost:
            self._changed()

    @property
    def _clusters(self) -> list[Cluster]:
        return [state.cluster for state in self._states.values()]

    @property
    def _lost(self) -> list[str]:
        return [each.name for each in self._clusters if each.lost_since is not None]

    def _put_taints(self, name: str, ours: Sequence[Taint]) -> None:
        state = self._states[name]
        others = (each for each in state.cluster.taints if each.key != UNREACHABLE_KEY)
        cluster = replace(state.cluster, taints=(*others, *ours))
        self._states[name] = replace(state, cluster=cluster)

    def _changed(self) -> None:
        """Clusters are otherwise than before: whoever found no room may find some."""
        self._simulation = self._rebuilt()
        self._stuck.clear()
        self._queue.wake()

    def _rebuilt(self) -> Simulation:
        """The fleet as it is, with what was placed beside what ran before."""
        stale = set(self._silent.stale(self._now))
        states = [
            replace(state, cluster=replace(state.cluster, ready=False)) if name in stale else state
            for name, state in self._states.items()
        ]
        made = Simulation(
            states,
            self._options,
            now=self._now,
            profiles=self._profiles,
            may_preempt=self._budget.may_preempt,
        )
        made.kept = self._queue.lacking(self._earmarks.keys)
        made.first = self._first.before
        for key, binding in self._bindings.items():
            ran = self._ran[key]
            there = [(each.name, each.replicas) for each in binding.clusters]
            there += [(each.from_cluster, each.replicas) for each in binding.eviction_tasks]
            beyond = [
                TargetCluster(name=name, replicas=replicas - ran.get(name, 0))
                for name, replicas in there
            ]
            if key in self._queue.decided:
                made.hold(binding, beyond, self._queue.decided[key], ran)
        return made

    def _moves(self) -> list[Move]:
        evacuated = self._evacuated()
        moves = moves_of(self._bindings.values(), evacuated) if evacuated else []
        return [
            each for each in moves if (each.binding.namespace, each.binding.name) not in self._stuck
        ]

    def _evacuated(self) -> dict[str, Cluster]:
        return {
            each.name: each
            for each in self._clusters
            if any(taint.effect is TaintEffect.NO_EXECUTE for taint in each.taints)
        }

    def _move(self) -> bool:
        """Move what may be moved now; whether the rate holds up more."""
        self._allowance = self._allowance.later(self._now)
        due = [each for each in self._moves() if each.due_at <= self._now]
        if not due or self._breaker.freeze is not None:
            return False
        a_minute, evacuated = self._a_minute, self._evacuated()
        for group in moved_together(due):
            bindings = [move.binding for move in group]
            if any(self._bindings[each.namespace, each.name] is not each for each in bindings):
                # Another one has preempted it just now.
                return True
            costs = (cost_of(move.replicas(evacuated, self._now), a_minute) for move in group)
            left = self._allowance.taken(sum(costs))
            if left is None:
                return True
            if self._have_moved(bindings):
                self._allowance = left
        return False

    def _take_back(self) -> bool:
        """Give what clusters have again that are back; whether the rate holds up more."""
        self._allowance = self._allowance.later(self._now)
        back = [
            (key, binding, task)
            for key, binding in self._bindings.items()
            for task in binding.eviction_tasks[-1:]
            if self._ending(binding, task) is Ending.TAKEN_BACK
        ]
        if not back or self._breaker.freeze is not None:
            return False
        for key, binding, task in back:
            left = self._allowance.taken(cost_of(task.replicas, self._a_minute))
            if left is None:
                return True
            before = taken_back(binding, task)
            calm = replace(before, preemption_policy=PreemptionPolicy.NEVER)
            decision = self._simulation.decide(calm)
            if task.from_cluster in {each.name for each in decision.clusters}:
                self._allowance = left
                self._settle(key, decision, StepKind.RETURNED, before.eviction_tasks)
        self._simulation = self._rebuilt()
        return False

    def _ending(self, binding: Binding, task: EvictionTask) -> Ending | None:
        name = task.from_cluster
        is_silent = name in self._silent
        may_stay = leaves_at(binding, self._states[name].cluster) > self._now
        return ending_of(
            task,
            binding,
            RUNS,
            self._now,
            is_known=True,
            is_silent=is_silent,
            is_back=may_stay and not is_silent,
            most_seconds=math.inf,
        )

    @property
    def _a_minute(self) -> float:
        """How many replicas may move."""
        held = [each.replicas for every in self._bindings.values() for each in every.clusters]
        return sum(held) * self._rules.percent_a_minute / 100

    def _have_moved(self, group: Sequence[Binding]) -> bool:
        """Whether a binding, or all that have to move with it, left what they had to leave."""
        taints = [evicting_taints(each, self._simulation.fleet, self._now) for each in group]
        leaves = [leaving(each, left) for each, left in zip(group, taints, strict=True)]
        if len(group) == 1:
            decisions = [self._simulation.decide(leaves[0])]
        else:
            decisions = self._simulation.decide_moves(leaves)
        self._settle_losses()
        for binding, left, decision in zip(group, taints, decisions, strict=True):
            self._settle_move(binding, left, decision)
        return decisions[0].is_placed

    def _settle_move(self, binding: Binding, left: Mapping[str, str], decision: Decision) -> None:
        key = binding.namespace, binding.name
        if not decision.is_placed:
            self._stuck.add(key)
            self._queue.decided[key] = decision
            self._tell(StepKind.STAYS, binding.key, binding.clusters, str(decision.reason))
            return
        tasks = eviction_tasks(binding, left, decision.clusters, self._now)
        after = replace(binding, clusters=decision.clusters)
        open_tasks = tuple(each for each in tasks if self._ending(after, each) is None)
        self._settle(key, decision, StepKind.MOVED, open_tasks)
        if key in self._queue.since:
            self._queue.put(key)

    def _try(self) -> None:
        """Try who waits, in order, as long as somebody is to be tried."""
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
        """For whom others have overtaken for too long, until it waits no more; and who is first."""
        for key in self._queue.overtaken():
            profile = self._profiles.profile_of(self._bindings[key])
            self._earmarks.overtaken(key, self._now + profile.starvation_seconds)
        for key in self._earmarks.begin(self._now):
            self._tell(StepKind.EARMARKED, binding_key(*key))
        if self._earmarks.end(self._queue.since) | self._first.look():
            self._queue.wake()
        self._simulation.kept = self._queue.lacking(self._earmarks.keys)

    def _try_one(self, key: BindingName) -> None:
        together = sorted(self._queue.together(key), key=lambda each: each != key)
        bindings = [self._bindings[each] for each in together]
        gang = gang_to_join(bindings[0])
        if gang is not None:
            decisions = self._simulation.decide_together(gang, bindings)
        else:
            decisions = [self._simulation.decide(bindings[0])]
        self._settle_losses()
        before = [self._bindings[each].clusters for each in together]
        has_progressed = any(
            decision.is_placed and decision.clusters != ran
            for decision, ran in zip(decisions, before, strict=True)
        )
        if not has_progressed:
            fleet = self._simulation.fleet
            reach = frozenset(
                fleet.names[c] for decision in decisions for c in open_clusters(decision)
            )
            self._queue.refused(key, dict(zip(together, decisions, strict=True)), reach)
            for each in together:
                if each in self._new:
                    self._settle(each, self._queue.decided[each], StepKind.WAITS)
            self._new.difference_update(together)
            return
        self._new.difference_update(together)
        for each, decision in zip(together, decisions, strict=True):
            self._settle(each, decision, StepKind.PLACED)
        self._queue.placed(key)
        for each in together:
            if each in self._queue.since:
                self._queue.put(each)

    def _next_at(self, *, is_held_up: bool) -> float:
        """When something happens by itself."""
        times = [math.inf, self._queue.next_timeout]
        times += [self._budget.again_at, self._earmarks.next_at]
        times += self._silent.times(self._rules.lost_seconds, self._lost)
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
        at = self._now - self._began
        step = VirtualStep(at=at, kind=kind, subject=subject, clusters=clusters, reason=reason)
        self.steps.append(step)
