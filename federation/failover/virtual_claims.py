"""What holds preemption back in virtual time, who was overtaken too long, and who must not be.

Pure. Must not decide who finds room.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from operator import itemgetter

from federation.failover.rate import MINUTE
from federation.failover.virtual_waiting import VirtualQueue
from federation.model.placement import Binding, BindingName
from federation.scheduler.plugins.profile import Profiles
from federation.scheduler.preemption import are_within
from federation.scheduler.waiting.kept import MOST_EARMARKS, goes_with


class PreemptionBudget:
    """How many replicas may be preempted within any minute: in all, and of one namespace."""

    def __init__(self, most: int, most_of_namespace: int, now: float) -> None:
        self._most, self._most_of_namespace = most, most_of_namespace
        self._spent: list[tuple[float, Mapping[str, int]]] = []
        self._has_refused = False
        self.now = now

    def may_preempt(self, lost: Mapping[str, int]) -> bool:
        """Counts so many replicas by namespace, unless they are too many."""
        spent = Counter[str]()
        for at, counts in self._spent:
            if self.now < at + MINUTE:
                spent.update(counts)
        is_within = are_within(self._most, self._most_of_namespace, lost, spent)
        if is_within:
            self._spent.append((self.now, dict(lost)))
        else:
            self._has_refused = True
        return is_within

    @property
    def again_at(self) -> float:
        """When who was refused may preempt more."""
        if not self._has_refused:
            return math.inf
        times = (at + MINUTE for at, _ in self._spent)
        return min((at for at in times if at > self.now), default=math.inf)

    def renews(self, now: float) -> bool:
        """Whether some that was spent is there again for those that were refused."""
        is_due = self.again_at <= now
        self.now = now
        self._has_refused = self._has_refused and not is_due
        return is_due


class Earmarks:
    """Who was overtaken, and for whom room is kept since that is so for too long."""

    def __init__(self) -> None:
        self._starving: dict[BindingName, float] = {}
        self.keys: set[BindingName] = set()

    def overtaken(self, key: BindingName, due_at: float) -> None:
        """Room is to be kept for it from then on."""
        if key not in self.keys:
            self._starving.setdefault(key, due_at)

    @property
    def next_at(self) -> float:
        """When room is to be kept for one more; as long as it is for the most, for nobody."""
        is_full = len(self.keys) >= MOST_EARMARKS
        return math.inf if is_full else min(self._starving.values(), default=math.inf)

    def begin(self, now: float) -> Iterator[BindingName]:
        """Those for whom it is kept from now on, who waits longest first."""
        for key, due_at in sorted(self._starving.items(), key=itemgetter(1)):
            if due_at > now or len(self.keys) >= MOST_EARMARKS:
                return
            del self._starving[key]
            self.keys.add(key)
            yield key

    def end(self, waiting: Collection[BindingName]) -> bool:
        """Nothing is kept for who does not wait any more; whether something was."""
        self._starving = {key: at for key, at in self._starving.items() if key in waiting}
        ended = {key for key in self.keys if key not in waiting}
        self.keys -= ended
        return bool(ended)


class FirstInLine:
    """Who lets nobody overtake: of each strict profile the first that waits."""

    def __init__(
        self, queue: VirtualQueue, bindings: Mapping[BindingName, Binding], profiles: Profiles
    ) -> None:
        self._queue = queue
        self._bindings = bindings
        self._profiles = profiles
        self._first: dict[str, Binding] = {}

    def look(self) -> bool:
        """Whether others are first than when this was asked last."""
        before, self._first = self._first, {}
        if not self._profiles.strict_names:
            return False
        waiting = (self._bindings[key] for key in self._queue.since if self._queue.together(key))
        for binding in sorted(waiting, key=self._queue.order):
            profile = self._profiles.profile_of(binding)
            if profile.strict:
                self._first.setdefault(profile.name, binding)
        return _keys(self._first) != _keys(before)

    def before(self, binding: Binding) -> Sequence[Binding]:
        """Who is not to be overtaken by a binding."""
        if not self._first:
            return ()
        first = self._first.get(self._profiles.profile_of(binding).name)
        if first is None or goes_with(first, binding):
            return ()
        return (first,) if self._queue.order(first) < self._queue.order(binding) else ()


def _keys(first: Mapping[str, Binding]) -> Mapping[str, str]:
    return {name: each.key for name, each in first.items()}
