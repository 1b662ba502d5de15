"""Bindings that wait in virtual time, earmarks for them, and the limits of preemption.

Pure. Must not place anything.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from federation.failover.rate import MINUTE
from federation.model.placement import Binding, BindingName, binding_key, gang_to_join
from federation.model.waiting import SUSPENDED
from federation.scheduler.decision import Decision
from federation.scheduler.demand import Demand
from federation.scheduler.plugins.profile import Profiles
from federation.scheduler.preemption import are_within
from federation.scheduler.scarcity import short_of
from federation.scheduler.waiting.gangs import GangEntry, GangMember, gate_of
from federation.scheduler.waiting.kept import Earmarks, goes_with
from federation.scheduler.waiting.queue import Seen, TryOrder, Waiter, WaitingQueue
from federation.simulation.steps import WaitingStep


class VirtualQueue:
    """The ``bindings`` that wait, ``since`` when (Unix seconds), and all newest decisions.

    ``bindings`` belong to the caller, which tells of members that join and leave gangs.
    """

    def __init__(self, bindings: Mapping[BindingName, Binding], profiles: Profiles) -> None:
        self._bindings = bindings
        self._profiles = profiles
        self._queue = WaitingQueue()
        self._gangs: dict[BindingName, dict[BindingName, None]] = {}
        # Gangs that have waited for too long.
        self._timed_out: set[BindingName] = set()
        # The first waiting binding of each strict profile, which none may overtake.
        self._first: dict[str, Binding] = {}
        self.since: dict[BindingName, float] = {}
        self.decided: dict[BindingName, Decision] = {}
        self.next_timeout = math.inf
        self.earmarks = Earmarks()

    def join(self, key: BindingName) -> None:
        """Let a binding join its gang, if it names one."""
        gang = self._bindings[key].gang
        if gang is not None:
            self._gangs.setdefault((key[0], gang.name), {})[key] = None

    def put(self, key: BindingName) -> None:
        """Try the binding when there is more room; a gang by its first member, once complete."""
        together = self.together(key)
        if not together or key != min(together):
            return
        self._queue.put(
            Waiter(
                key=key,
                priority=max(self._bindings[member].priority for member in together),
                since=min(self.since[member] for member in together),
                want=key,
                units=max(Demand.of(self._bindings[key]).units, 1),
            )
        )

    def remove(self, key: BindingName) -> None:
        """Remove a binding before it is deleted; its gang is then incomplete."""
        if key in self.since:
            together = self.together(key)
            if together:
                self._queue.remove(min(together))
            del self.since[key]
        gang = self._bindings[key].gang
        if gang is not None:
            del self._gangs[key[0], gang.name][key]

    def wake(self) -> None:
        """Try all bindings, whatever room there is."""
        self._queue.wake(self._queue.wants)

    def take(self, now: float) -> list[BindingName]:
        """Return the next bindings to try, in order; callers report each result."""
        return [waiter.key for waiter in self._queue.take(now)]

    def placed(self, key: BindingName) -> None:
        """Report that the try found room; replicas without room are put anew."""
        self._queue.placed(key)

    def refused(self, key: BindingName, reach: frozenset[str]) -> None:
        """Report that the try found no room in the clusters of ``reach``, which let it in.

        Only a change of the fleet makes room, and wakes all.
        """
        self._queue.refused(key, Seen(reach=reach))

    def note_placed(self, binding: Binding, decision: Decision) -> None:
        """Note a placement, before the binding leaves the queue: it may overtake others."""
        replicas = {target.name: target.replicas for target in binding.clusters}
        grown = (t.name for t in decision.clusters if t.replicas > replicas.get(t.name, 0))
        self._queue.note_placed(self.order(binding), grown)

    def forget_overtaken(self) -> None:
        """Let no binding count as overtaken by those that were placed so far."""
        self._queue.overtaken()

    def keep_room(self, now: float) -> Iterator[BindingName]:
        """Yield bindings for which room is kept from now on: they were overtaken for too long.

        All bindings are tried where room is no longer kept, or where others are first.
        """
        for waiter, _ in self._queue.overtaken():
            profile = self._profiles.profile_of(self._bindings[waiter.key])
            self.earmarks.overtaken(waiter.key, now + profile.starvation_seconds)
        yield from self.earmarks.begin(now)
        if self.earmarks.end(self.since) | self._look_for_first():
            self.wake()

    def lacking(self) -> list[tuple[Binding, int]]:
        """Return the bindings for which room is kept, and how many replicas they lack, in order."""
        waiting = sorted(
            (-self._bindings[key].priority, self.since[key], key)
            for key in self.earmarks.keys & self.since.keys()
        )
        return [(self._bindings[key], self.decided[key].remainder) for _, _, key in waiting]

    def first_before(self, binding: Binding) -> Sequence[Binding]:
        """Return the bindings of a strict profile that this one must not overtake."""
        if not self._first:
            return ()
        first = self._first.get(self._profiles.profile_of(binding).name)
        if first is None or goes_with(first, binding):
            return ()
        return (first,) if self.order(first) < self.order(binding) else ()

    def order(self, binding: Binding) -> TryOrder:
        """Return its place; a binding that does not wait is behind those of its priority."""
        key = binding.namespace, binding.name
        return -binding.priority, self.since.get(key, math.inf), key

    def together(self, key: BindingName) -> list[BindingName]:
        """Return the bindings tried with it and itself; none while it is suspended or gated."""
        if self._bindings[key].suspended:
            return []
        gang = gang_to_join(self._bindings[key])
        if gang is None:
            return [key]
        return [] if self.gate(key) else self._waiting_of((key[0], gang.name))

    def gate(self, key: BindingName) -> str:
        """Return what it waits for in addition to room, "" for nothing."""
        binding = self._bindings[key]
        if binding.suspended:
            return SUSPENDED
        gang = binding.gang
        if gang is None:
            return ""
        return str(gate_of(gang, self._members((key[0], gang.name))))

    def waiting(self, began: float) -> list[WaitingStep]:
        """Return the waiting bindings in order; members of one gang have one position."""
        places: dict[tuple[int, float, BindingName], list[BindingName]] = {}
        gated, seen = list[tuple[float, BindingName]](), set[BindingName]()
        for key, since in self.since.items():
            if key in seen:
                continue
            together = self.together(key)
            seen.update(together)
            if together:
                priority = max(self._bindings[member].priority for member in together)
                first = min(self.since[member] for member in together)
                places[-priority, first, min(together)] = together
            else:
                gated.append((since, key))
        steps = [
            self._step(key, position, began)
            for position, order in enumerate(sorted(places), start=1)
            for key in sorted(places[order])
        ]
        return [*steps, *(self._step(key, 0, began) for _, key in sorted(gated))]

    def time_out(self, now: float) -> Iterator[tuple[str, str]]:
        """Yield the gangs that timed out since the last call, and what they lack."""
        self.next_timeout = math.inf
        for name in sorted(self._gangs):
            keys = sorted(self._waiting_of(name))
            if not keys:
                self._timed_out.discard(name)
            elif name not in self._timed_out:
                waiting = [self._bindings[key] for key in keys]
                entry = GangEntry.of(waiting, self._members(name))
                seconds = math.inf if entry.timeout_seconds is None else entry.timeout_seconds
                over_at = min(self.since[key] for key in keys) + seconds
                if over_at > now:
                    self.next_timeout = min(self.next_timeout, over_at)
                    continue
                self._timed_out.add(name)
                yield binding_key(*name), str(entry.lacks or short_of(self.decided[keys[0]]))

    def _look_for_first(self) -> bool:
        """Look again for the first of strict profiles; return whether others are first now."""
        if not self._profiles.strict_names:
            return False
        former, self._first = self._first, {}
        waiting = (self._bindings[key] for key in self.since if self.together(key))
        for binding in sorted(waiting, key=self.order):
            profile = self._profiles.profile_of(binding)
            if profile.strict:
                self._first.setdefault(profile.name, binding)
        return _keys(self._first) != _keys(former)

    def _step(self, key: BindingName, position: int, began: float) -> WaitingStep:
        decision = self.decided[key]
        return WaitingStep(
            binding=self._bindings[key],
            position=position,
            since=self.since[key] - began,
            remainder=decision.remainder,
            short_of=str(short_of(decision)),
            gate="" if position else self.gate(key),
        )

    def _waiting_of(self, gang: BindingName) -> list[BindingName]:
        """Return the members of a gang that are placed with others, and wait, in their order."""
        keys = [
            key
            for key in self._gangs[gang]
            if key in self.since and gang_to_join(self._bindings[key]) is not None
        ]
        return sorted(keys, key=self.since.__getitem__)

    def _members(self, gang: BindingName) -> list[GangMember]:
        return [GangMember.of(self._bindings[key], None) for key in self._gangs[gang]]


class PreemptionBudget:
    """How many replicas may be preempted within any minute: in all, and of one namespace."""

    def __init__(self, max_replicas: int, max_of_namespace: int, now: float) -> None:
        self._max_replicas, self._max_of_namespace = max_replicas, max_of_namespace
        self._spent: list[tuple[float, Mapping[str, int]]] = []
        self._has_refused = False
        self.now = now

    def may_preempt(self, lost: Mapping[str, int]) -> bool:
        """Spend this many replicas by namespace, unless they are too many."""
        self._spent = [(at, counts) for at, counts in self._spent if self.now < at + MINUTE]
        spent = Counter[str]()
        for _, counts in self._spent:
            spent.update(counts)
        is_within = are_within(self._max_replicas, self._max_of_namespace, lost, spent)
        if is_within:
            self._spent.append((self.now, dict(lost)))
        else:
            self._has_refused = True
        return is_within

    @property
    def again_at(self) -> float:
        """Return when a binding that was refused may preempt."""
        if not self._has_refused:
            return math.inf
        times = (at + MINUTE for at, _ in self._spent)
        return min((at for at in times if at > self.now), default=math.inf)

    def renews(self, now: float) -> bool:
        """Go on to ``now``; return whether refused bindings may preempt again."""
        is_due = self.again_at <= now
        self.now = now
        self._has_refused = self._has_refused and not is_due
        return is_due


def _keys(first: Mapping[str, Binding]) -> Mapping[str, str]:
    return {name: binding.key for name, binding in first.items()}
