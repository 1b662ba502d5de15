"""Who waits in virtual time: the queue that control planes keep, on bindings in memory.

Pure. Must not decide who finds room.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence

from federation.failover.virtual_steps import WaitingStep
from federation.model.placement import Binding, BindingName, Gang, binding_key, gang_to_join
from federation.model.waiting import SUSPENDED
from federation.scheduler.decision import Decision
from federation.scheduler.demand import Demand
from federation.scheduler.scarcity import short_of
from federation.scheduler.waiting.gangs import GangMember, gate_of, missing
from federation.scheduler.waiting.queue import Seen, TryOrder, Waiter, WaitingQueue


class VirtualQueue:
    """Those of ``bindings`` that wait, ``since`` when (Unix seconds), and the newest decisions
    about all of them.
    """

    def __init__(self, bindings: Mapping[BindingName, Binding]) -> None:
        self._bindings = bindings
        self._queue = WaitingQueue()
        self.since: dict[BindingName, float] = {}
        self.decided: dict[BindingName, Decision] = {}
        # Who comes last of those that were placed, by cluster.
        self._last_placed: dict[str, TryOrder] = {}
        # Gangs that have waited for too long.
        self._timed_out: set[BindingName] = set()
        self.next_timeout = math.inf

    def put(self, key: BindingName) -> None:
        """It is tried when there is more room; a gang by its first member, once complete."""
        together = self.together(key)
        if not together or key != min(together):
            return
        self._queue.put(
            Waiter(
                key=key,
                priority=max(self._bindings[each].priority for each in together),
                since=min(self.since[each] for each in together),
                want=key,
                units=max(Demand.of(self._bindings[key]).units, 1),
            )
        )

    def remove(self, key: BindingName) -> None:
        """Before it goes: it waits no more, and what it was tried with is not complete."""
        if key not in self.since:
            return
        together = self.together(key)
        if together:
            self._queue.remove(min(together))
        del self.since[key]

    def wake(self) -> None:
        """All are tried, whatever there is for them."""
        self._queue.wake(self._queue.wants)

    def take(self, now: float) -> list[BindingName]:
        """Who is to be tried now, in order; how each try ended is to be told."""
        return [waiter.key for waiter in self._queue.take(now)]

    def placed(self, key: BindingName) -> None:
        """The try found room; what has none still is put anew."""
        self._queue.placed(key)

    def refused(
        self,
        key: BindingName,
        decisions: Mapping[BindingName, Decision],
        reach: frozenset[str],
    ) -> None:
        """The try found none where the clusters of ``reach`` let it in: only what changes the fleet
        makes room, and wakes everybody.
        """
        self.decided |= decisions
        self._queue.refused(key, Seen(reach=reach))

    def note_placed(self, binding: Binding, decision: Decision) -> None:
        """Whoever was placed came now, unless it had waited itself; before it waits no more."""
        order = self.order(binding)
        had = {each.name: each.replicas for each in binding.clusters}
        for each in decision.clusters:
            if each.replicas > had.get(each.name, 0):
                last = self._last_placed.get(each.name, order)
                self._last_placed[each.name] = max(order, last)

    def overtaken(self) -> list[BindingName]:
        """Who is overtaken for the first time by those that were placed since this was asked."""
        placed, self._last_placed = self._last_placed, {}
        return [waiter.key for waiter, _ in self._queue.overtaken(placed)] if placed else []

    def lacking(self, keys: Collection[BindingName]) -> list[tuple[Binding, int]]:
        """How many replicas those of these that wait lack, the most urgent first."""
        waiting = sorted(
            (-self._bindings[key].priority, since, key)
            for key, since in self.since.items()
            if key in keys
        )
        return [(self._bindings[key], self.decided[key].remainder) for _, _, key in waiting]

    def order(self, binding: Binding) -> TryOrder:
        """Where it stands; who does not wait stands behind those of its priority."""
        key = binding.namespace, binding.name
        return -binding.priority, self.since.get(key, math.inf), key

    def together(self, key: BindingName) -> list[BindingName]:
        """Those that are tried with it, itself too; none while it is suspended, or its gang is not
        complete.
        """
        if self._bindings[key].suspended:
            return []
        gang = gang_to_join(self._bindings[key])
        if gang is None:
            return [key]
        return [] if self.gate(key) else self._of_gang(key[0], gang.name)

    def gate(self, key: BindingName) -> str:
        """What it waits for beside room: its resumption, or members of its gang; "" for nothing."""
        if self._bindings[key].suspended:
            return SUSPENDED
        gang = self._bindings[key].gang
        return "" if gang is None else str(gate_of(gang, self._members(key[0], gang.name)))

    def waiting(self, began: float) -> list[WaitingStep]:
        """Who waits, in order; those of one gang at one position."""
        places: dict[tuple[int, float, BindingName], list[BindingName]] = defaultdict(list)
        gated = []
        for key, since in self.since.items():
            together = self.together(key)
            if together:
                priority = max(self._bindings[each].priority for each in together)
                first = min(self.since[each] for each in together)
                places[-priority, first, min(together)].append(key)
            else:
                gated.append((since, key))
        found = [
            self._step(key, position, began)
            for position, order in enumerate(sorted(places), start=1)
            for key in sorted(places[order])
        ]
        return [*found, *(self._step(key, 0, began) for _, key in sorted(gated))]

    def time_out(self, now: float) -> Iterator[tuple[str, str]]:
        """The gangs that have waited for too long since this was asked last, and what they lack."""
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
        seconds = (each.timeout_seconds for each in gangs if each)
        return min((each for each in seconds if each is not None), default=math.inf)

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
        """Those of it that wait."""
        return [
            key
            for key in self.since
            if (other := gang_to_join(self._bindings[key])) is not None
            and (key[0], other.name) == (namespace, gang)
        ]

    def _members(self, namespace: str, gang: str) -> list[GangMember]:
        return [
            GangMember.of(each, None)
            for each in self._bindings.values()
            if each.gang and (each.namespace, each.gang.name) == (namespace, gang)
        ]
