"""Bindings that wait in virtual time, earmarks for them, and the limits of preemption.

Pure. Must not place anything.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence

from federation.failover.rate import MINUTE
from federation.model.placement import Binding, BindingName, Gang, binding_key, gang_to_join
from federation.model.waiting import SUSPENDED
from federation.scheduler.decision import Decision
from federation.scheduler.demand import Demand
from federation.scheduler.plugins.profile import Profiles
from federation.scheduler.preemption import are_within
from federation.scheduler.scarcity import short_of
from federation.scheduler.waiting.gangs import GangMember, gate_of, missing
from federation.scheduler.waiting.kept import goes_with
from federation.scheduler.waiting.queue import Seen, TryOrder, Waiter, WaitingQueue
from federation.simulation.steps import WaitingStep


class VirtualQueue:
    """The ``bindings`` that wait, ``since`` when (Unix seconds), and all newest decisions."""

    def __init__(self, bindings: Mapping[BindingName, Binding]) -> None:
        self._bindings = bindings
        self._queue = WaitingQueue()
        self.since: dict[BindingName, float] = {}
        self.decided: dict[BindingName, Decision] = {}
        # Gangs that have waited for too long.
        self._timed_out: set[BindingName] = set()
        self.next_timeout = math.inf

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
        """Remove a binding from the queue before it is deleted; its gang is then incomplete."""
        if key not in self.since:
            return
        together = self.together(key)
        if together:
            self._queue.remove(min(together))
        del self.since[key]

    def wake(self) -> None:
        """Try all bindings, whatever room there is."""
        self._queue.wake(self._queue.wants)

    def take(self, now: float) -> list[BindingName]:
        """Return the next bindings to try, in order; callers report each result."""
        return [waiter.key for waiter in self._queue.take(now)]

    def placed(self, key: BindingName) -> None:
        """Report that the try found room; replicas without room are put anew."""
        self._queue.placed(key)

    def refused(
        self,
        key: BindingName,
        decisions: Mapping[BindingName, Decision],
        reach: frozenset[str],
    ) -> None:
        """Report that the try found no room in the clusters of ``reach``, which let it in.

        Only a change of the fleet makes room, and wakes all.
        """
        self.decided |= decisions
        self._queue.refused(key, Seen(reach=reach))

    def note_placed(self, binding: Binding, decision: Decision) -> None:
        """Note a placement, before the binding leaves the queue: it may overtake others."""
        replicas = {target.name: target.replicas for target in binding.clusters}
        grown = (t.name for t in decision.clusters if t.replicas > replicas.get(t.name, 0))
        self._queue.note_placed(self.order(binding), grown)

    def overtaken(self) -> list[BindingName]:
        """Return the bindings first overtaken by placements since the last call."""
        return [waiter.key for waiter, _ in self._queue.overtaken()]

    def lacking(self, keys: Collection[BindingName]) -> list[tuple[Binding, int]]:
        """Return the waiting bindings of these and how many replicas they lack, in order."""
        waiting = sorted(
            (-self._bindings[key].priority, since, key)
            for key, since in self.since.items()
            if key in keys
        )
        return [(self._bindings[key], self.decided[key].remainder) for _, _, key in waiting]

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
        return [] if self.gate(key) else self._of_gang(key[0], gang.name)

    def gate(self, key: BindingName) -> str:
        """Return what it waits for in addition to room, "" for nothing."""
        if self._bindings[key].suspended:
            return SUSPENDED
        gang = self._bindings[key].gang
        return "" if gang is None else str(gate_of(gang, self._members(key[0], gang.name)))

    def waiting(self, began: float) -> list[WaitingStep]:
        """Return the waiting bindings in order; members of one gang have one position."""
        places: dict[tuple[int, float, BindingName], list[BindingName]] = defaultdict(list)
        gated = []
        for key, since in self.since.items():
            together = self.together(key)
            if together:
                priority = max(self._bindings[member].priority for member in together)
                first = min(self.since[member] for member in together)
                places[-priority, first, min(together)].append(key)
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
        waiting = {
            (key[0], gang.name): gang
            for key in self.since
            if (gang := gang_to_join(self._bindings[key])) is not None
        }
        self._timed_out &= waiting.keys()
        self.next_timeout = math.inf
        for name in sorted(waiting.keys() - self._timed_out):
            keys = self._of_gang(*name)
            over_at = min(self.since[key] for key in keys) + self._patience(keys)
            if over_at > now:
                self.next_timeout = min(self.next_timeout, over_at)
                continue
            self._timed_out.add(name)
            yield binding_key(*name), self._lacking(waiting[name], keys)

    def _patience(self, keys: Sequence[BindingName]) -> float:
        gangs = [self._bindings[key].gang for key in keys]
        seconds = (gang.timeout_seconds for gang in gangs if gang)
        return min((limit for limit in seconds if limit is not None), default=math.inf)

    def _lacking(self, gang: Gang, keys: Sequence[BindingName]) -> str:
        first = min(keys)
        members = self._members(first[0], gang.name)
        lack = missing(gang, members) if self.gate(first) else short_of(self.decided[first])
        return str(lack)

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

    def _of_gang(self, namespace: str, gang: str) -> list[BindingName]:
        """Return the members of a gang that wait."""
        return [
            key
            for key in self.since
            if (other := gang_to_join(self._bindings[key])) is not None
            and (key[0], other.name) == (namespace, gang)
        ]

    def _members(self, namespace: str, gang: str) -> list[GangMember]:
        return [
            GangMember.of(binding, None)
            for binding in self._bindings.values()
            if binding.gang and (binding.namespace, binding.gang.name) == (namespace, gang)
        ]


class PreemptionBudget:
    """How many replicas may be preempted within any minute: in all, and of one namespace."""

    def __init__(self, max_replicas: int, max_of_namespace: int, now: float) -> None:
        self._max_replicas, self._max_of_namespace = max_replicas, max_of_namespace
        self._spent: list[tuple[float, Mapping[str, int]]] = []
        self._has_refused = False
        self.now = now

    def may_preempt(self, lost: Mapping[str, int]) -> bool:
        """Spend this many replicas by namespace, unless they are too many."""
        spent = Counter[str]()
        for at, counts in self._spent:
            if self.now < at + MINUTE:
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


class FirstInLine:
    """The first waiting binding of each strict profile, which none may overtake."""

    def __init__(
        self, queue: VirtualQueue, bindings: Mapping[BindingName, Binding], profiles: Profiles
    ) -> None:
        self._queue = queue
        self._bindings = bindings
        self._profiles = profiles
        self._first: dict[str, Binding] = {}

    def look(self) -> bool:
        """Look again; return whether other bindings are first than before."""
        previous, self._first = self._first, {}
        if not self._profiles.strict_names:
            return False
        waiting = (self._bindings[key] for key in self._queue.since if self._queue.together(key))
        for binding in sorted(waiting, key=self._queue.order):
            profile = self._profiles.profile_of(binding)
            if profile.strict:
                self._first.setdefault(profile.name, binding)
        return _keys(self._first) != _keys(previous)

    def before(self, binding: Binding) -> Sequence[Binding]:
        """Return the bindings that this one must not overtake."""
        if not self._first:
            return ()
        first = self._first.get(self._profiles.profile_of(binding).name)
        if first is None or goes_with(first, binding):
            return ()
        return (first,) if self._queue.order(first) < self._queue.order(binding) else ()


def _keys(first: Mapping[str, Binding]) -> Mapping[str, str]:
    return {name: binding.key for name, binding in first.items()}
