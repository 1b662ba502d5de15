"""Which promised replicas a cluster without an agent has by now, as far as Karmada was told.

Pure. ``aggregatedStatus`` has no time: it counts once the cluster's own totals are newer, or where
the control plane counts it already, as after a restart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from federation.bridge.karmada import ReadyReplicas
from federation.model.echoes import Interest, InterestUpdate, SoughtShape
from federation.model.shapes import Echo

# Karmada collects a ready cluster's status every 10 s, and writes it when it is another.
COLLECTED_SECONDS: Final = 30.0


class _Told(NamedTuple):
    ready: int
    totals: int
    at: float


class Evidence:
    """What is ready in one cluster, by binding. ``now`` is of a clock that does not go back."""

    def __init__(self) -> None:
        self._totals = 0
        self._waiting: dict[str, _Told] = {}
        self._counted: dict[str, int] = {}
        self._finished: dict[str, int] = {}
        # Bindings whose echoes this process has taken over, or made itself.
        self._taken_over: set[str] = set()

    def totals_changed(self) -> None:
        """The cluster's totals are others: what was told before is in them."""
        self._totals += 1

    def tell(self, binding: str, replicas: ReadyReplicas, now: float) -> bool:
        """Note the ready replicas of a binding; whether that is news."""
        # They take no room any more, whatever the totals say.
        is_news = replicas.finished != self._finished.pop(binding, 0)
        if replicas.finished:
            self._finished[binding] = replicas.finished
        return self._tell_running(binding, replicas.running, now) or is_news

    def _tell_running(self, binding: str, ready: int, now: float) -> bool:
        waiting = self._waiting.get(binding)
        if ready == (waiting.ready if waiting else self._counted.get(binding, 0)):
            return False
        self._waiting.pop(binding, None)
        if ready <= self._counted.get(binding, 0):
            # What is gone is not there any more, whatever the totals say.
            self._counted[binding] = ready
        else:
            self._waiting[binding] = _Told(ready, self._totals, now)
        return True

    def take_over(self, update: InterestUpdate) -> bool:
        """Count ready replicas that the control plane counts already, once for each binding;
        whether there are such.

        Another process counted them when the totals had them, or they ran before the binding was
        known: as long as they are ready they need no newer totals.
        """
        if update.whole and update.is_complete:
            self._taken_over.intersection_update(each.binding for each in update.interests)
        self._taken_over.difference_update(update.removed)
        are_taken = False
        for interest in update.interests:
            if interest.binding not in self._taken_over:
                self._taken_over.add(interest.binding)
                are_taken |= self._take_over(interest)
        return are_taken

    def _take_over(self, interest: Interest) -> bool:
        waiting, shape = self._waiting.get(interest.binding), _newest(interest)
        if waiting is None or shape is None:
            return False
        echoed = min(waiting.ready, shape.echoed)
        if echoed <= self._counted.get(interest.binding, 0):
            return False
        self._counted[interest.binding] = echoed
        if echoed == waiting.ready:
            del self._waiting[interest.binding]
        return True

    def has(self, binding: str) -> bool:
        """Whether some of its replicas count as there."""
        return bool(self._counted.get(binding) or self._finished.get(binding))

    def count(self, now: float, *, is_ready: bool) -> bool:
        """Count what the totals have by now; whether that was more than before."""
        due = {
            binding: told.ready
            for binding, told in self._waiting.items()
            if told.totals < self._totals or (is_ready and now - told.at >= COLLECTED_SECONDS)
        }
        for binding in due:
            del self._waiting[binding]
        self._counted.update(due)
        return bool(due)

    def echoes(self, interests: Mapping[str, Interest]) -> Iterator[Echo]:
        """Of the newest shape of each binding; sets of components cannot be told apart."""
        for binding, interest in interests.items():
            ready, finished = self._counted.get(binding, 0), self._finished.get(binding, 0)
            shape = _newest(interest)
            if (ready or finished) and shape is not None:
                yield Echo(binding=binding, shape=shape.shape, bound=ready, finished=finished)


def _newest(interest: Interest) -> SoughtShape | None:
    return next((each for each in interest.shapes if not each.component), None)
